"""What it takes to train a stage of a recipe: its network and task, the corpus, and a look at the development set.

It trains nothing: that is the loop's, and what spans stages is the pipeline's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from latentmt.bundle import Bundle, BundleConfig, Kind, load_bundle, read_format
from latentmt.config import to_dict
from latentmt.data.corpus import Corpus
from latentmt.errors import UserError
from latentmt.infer.translator import Translator
from latentmt.measure.quality import measure
from latentmt.models.fields import EnergyNet, ScoreNet
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.models.presets import resolved
from latentmt.models.teacher import Teacher
from latentmt.options import DecodingOptions
from latentmt.recipe import FieldStage, LatentStage, Recipe, TeacherStage
from latentmt.train.config import TrainConfig, identity_settings, run_identity
from latentmt.train.loop import Validation
from latentmt.train.ranks import Ranks
from latentmt.train.tasks import FieldTask, LatentTask, Task, TeacherTask

VALIDATION_SENTENCES = 500
SHOWN = 2


@dataclass(frozen=True)
class Plan:
    """What it takes to train a stage."""

    task: Task
    corpus: Corpus
    train: TrainConfig
    bundle: BundleConfig
    identity: Mapping[str, Any]
    """What decides the result, beside the training configuration."""
    validate: Callable[[], Validation]
    latent: str | None = None
    """The fingerprint of the latent model that a field belongs to."""

    @property
    def stage(self) -> Kind:
        return self.bundle.kind

    @property
    def run(self) -> str:
        """A hash of all that decides the result."""
        return run_identity(self.stage, self.train, self.identity)

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides the result, by the recipe's names."""
        others = {key: value for key, value in self.identity.items() if key != "stage"}
        return {self.stage: self.identity["stage"] | {"train": identity_settings(self.train)}, **others}


def make_plan(recipe: Recipe, work: Path, stage: Kind, ranks: Ranks) -> Plan:
    """The plan of a stage, from what the earlier ones left in the work folder."""
    settings = getattr(recipe, stage)
    if not settings:
        raise UserError(f"the recipe has no {stage} section")
    distilled = stage != "teacher" and recipe.distill is not None
    corpus = Corpus.load(work / ("distilled" if distilled else "corpus"))
    if distilled and corpus.manifest.sources.get("teacher") != read_format(work / "teacher").fingerprint:
        raise UserError(f"{corpus.folder}: is not by the teacher in {work / 'teacher'}; distil again")
    manifest = corpus.manifest
    texts: dict[str, Any] = {"languages": manifest.languages, "rules": manifest.rules, "longest": manifest.row_width}
    identity = {
        "corpus": corpus.manifest.fingerprint,
        "tokenizer": corpus.manifest.tokenizer,
        "stage": _deciding(settings),
    }
    torch.manual_seed(settings.train.seed)  # the initial weights
    if stage == "teacher":
        teacher = Teacher(settings.model, corpus.tokenizer.size)
        return Plan(
            TeacherTask(teacher, settings.smoothing),
            corpus,
            settings.train,
            BundleConfig(**texts, teacher=settings.model),
            identity,
            _validation(corpus, teacher=teacher, ways=[DecodingOptions(method="teacher", beam=1)]),
        )
    if stage == "latent":
        latent = LatentModel(settings.model, corpus.tokenizer.size)
        return Plan(
            LatentTask(latent, settings.smoothing, settings.elbo),
            corpus,
            settings.train,
            BundleConfig(**texts, latent=settings.model),
            identity,
            _validation(
                corpus,
                latent=latent,
                ways=[DecodingOptions(method="prior", steps=0), DecodingOptions(method="delta", steps=1)],
            ),
        )
    frozen = finished_bundle(work, "latent", corpus, ranks)
    latent, config = cast(LatentModel, frozen.network), cast(LatentConfig, frozen.config.latent)
    bundle = BundleConfig(**texts, latent=config, field=settings.model)
    net = cast(ScoreNet | EnergyNet, bundle.network(corpus.tokenizer.size))
    return Plan(
        FieldTask(net, latent, settings.displacement),
        corpus,
        settings.train,
        bundle,
        identity | {"latent": frozen.about.fingerprint},
        _validation(
            corpus,
            latent=latent,
            fields={stage: net},
            ways=[
                DecodingOptions(method="prior", steps=0),
                DecodingOptions(method=stage, steps=1),
                DecodingOptions(method="delta", steps=1),
            ],
        ),
        latent=frozen.about.fingerprint,
    )


def started(plan: Plan, folder: Path, out: Path) -> Plan:
    """The same with the weights of a bundle to begin with; `out` must not replace it, since a killed run needs it."""
    if folder.resolve() == out.resolve():
        raise UserError(f"{folder}: would be overwritten by what begins with it; train in another --work folder")
    bundle = load_bundle(folder, kind=plan.bundle.kind)
    if bundle.tokenizer.fingerprint != plan.corpus.manifest.tokenizer:
        pieces = folder / "tokenizer.model"
        raise UserError(f"{folder}: has other pieces than {plan.corpus.folder}; prepare that with --tokenizer {pieces}")
    if _size(bundle.config) != _size(plan.bundle):
        raise UserError(f"{folder}: is of another size than the recipe's {plan.bundle.kind} model")
    plan.task.network.load_state_dict(bundle.network.state_dict())
    return dataclasses.replace(plan, identity={**plan.identity, "start": bundle.about.fingerprint})


def _size(config: BundleConfig) -> list[dict[str, Any]]:
    """All that decides what weights mean."""
    parts = [resolved(part) for part in (config.teacher, config.latent, config.field) if part]
    return [{key: value for key, value in to_dict(part).items() if key not in ("preset", "dropout")} for part in parts]


def _deciding(settings: TeacherStage | LatentStage | FieldStage) -> dict[str, Any]:
    """A stage's settings but for how it is trained, its size written out."""
    tree = to_dict(settings)
    del tree["train"]
    return tree | {"model": to_dict(resolved(settings.model))}


def finished_bundle(work: Path, stage: Kind, corpus: Corpus, ranks: Ranks) -> Bundle:
    """What an earlier stage left, if it speaks the corpus's pieces."""
    if not (work / stage / "format.json").exists():
        raise UserError(f"{work / stage}: not there yet; train that stage first")
    bundle = load_bundle(work / stage, ranks.device, stage)
    if bundle.tokenizer.fingerprint != corpus.manifest.tokenizer:
        raise UserError(f"{work / stage}: has another tokenizer than {corpus.folder}; train that stage again")
    return bundle


def _validation(corpus: Corpus, *, ways: Sequence[DecodingOptions], **networks: Any) -> Callable[[], Validation]:
    """A look at the development set in several ways: BLEU of each, repetitions of the first, and translations."""

    pairs = corpus.text("dev")[:VALIDATION_SENTENCES]
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]

    def look() -> Validation:
        manifest = corpus.manifest
        translator = Translator(corpus.tokenizer, manifest.rules, longest=manifest.row_width, graphed=False, **networks)
        metrics: dict[str, float] = {}
        samples = [f"  source     {pair.source}\n  reference  {pair.target}" for pair in pairs[:SHOWN]]
        for way in ways:
            done = translator.translations(sources, way)
            quality = measure([one.text for one in done], [one.ids for one in done], [references])
            metrics |= {f"BLEU {way}": quality.bleu.value} | ({} if metrics else {"repeats": quality.repeats})
            samples = [f"{shown}\n  {way!s:<10} {one.text}" for shown, one in zip(samples, done, strict=False)]
        return Validation(metrics, "\n".join(samples))

    return look
