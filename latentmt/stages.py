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

from latentmt.bundle import read_format
from latentmt.config import to_dict
from latentmt.data.corpus import Corpus
from latentmt.errors import UserError
from latentmt.fields.learned import FieldNetwork
from latentmt.fields.registry import learned_field
from latentmt.measure.quality import measure
from latentmt.models.latent import LatentModel
from latentmt.models.presets import resolved
from latentmt.models.teacher import Teacher
from latentmt.networks import BundleConfig, LoadedBundle, load_bundle
from latentmt.nn.transformer import StackSize
from latentmt.options import DecodingOptions
from latentmt.recipe import FieldStage, LatentStage, Recipe, Stage, TeacherStage
from latentmt.task import Task
from latentmt.train.config import TrainConfig, identity_settings, run_identity
from latentmt.train.loop import Validation
from latentmt.train.ranks import Ranks
from latentmt.train.tasks import LatentTask, TeacherTask
from latentmt.translator import Translator

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
    def stage(self) -> str:
        return self.bundle.kind

    @property
    def run(self) -> str:
        """A hash of all that decides the result."""
        return run_identity(self.stage, self.train, self.identity)

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides the result, by the recipe's names."""
        others = {key: value for key, value in self.identity.items() if key != "stage"}
        own = {self.stage: self.identity["stage"] | {"train": identity_settings(self.train)}}
        return others | (own if self.stage in ("teacher", "latent") else {"fields": own})


def make_plan(recipe: Recipe, work: Path, stage: str, ranks: Ranks, own_start: bool = True) -> Plan:
    """The plan of a stage, from what the earlier ones left in the work folder.

    Without `own_start` it does not begin as the recipe says: see `started`.
    """
    settings = recipe.stages.get(stage)
    if not settings:
        section = stage if stage in ("teacher", "latent") else f"fields.{stage}"
        raise UserError(f"the recipe has no {section} section")
    distilled = stage != "teacher" and recipe.distill is not None
    corpus = Corpus.load(work / ("distilled" if distilled else "corpus"))
    if distilled and corpus.manifest.sources.get("teacher") != read_format(work / "teacher").fingerprint:
        raise UserError(f"{corpus.folder}: is not by the teacher in {work / 'teacher'}; distil again")
    torch.manual_seed(settings.train.seed)  # the initial weights
    if isinstance(settings, TeacherStage):
        return _teacher_plan(settings, corpus)
    if isinstance(settings, LatentStage):
        asks = settings.teacher_encoder and own_start
        return _latent_plan(settings, corpus, finished_bundle(work, "teacher", corpus, ranks) if asks else None)
    return _field_plan(settings, corpus, finished_bundle(work, "latent", corpus, ranks))


def _teacher_plan(settings: TeacherStage, corpus: Corpus) -> Plan:
    teacher = Teacher(settings.model, corpus.tokenizer.size)
    return Plan(
        TeacherTask(teacher, settings.smoothing),
        corpus,
        settings.train,
        BundleConfig(**text_config(corpus), teacher=settings.model),
        _identity(corpus, settings),
        _validation(corpus, [DecodingOptions(method="teacher", beam=1)], teacher=teacher),
    )


def _latent_plan(settings: LatentStage, corpus: Corpus, teacher: LoadedBundle | None) -> Plan:
    latent, given = LatentModel(settings.model, corpus.tokenizer.size), {}
    if teacher and teacher.config.teacher:
        network = cast(Teacher, teacher.network)
        own, other = _shape(settings.model.encoder), _shape(teacher.config.teacher.encoder)
        if own != other:
            raise UserError(f"teacher_encoder: the encoder is {own}, that of the teacher {other}")
        latent.take_encoder(network.encoder, network.embedding)
        given = {"teacher": teacher.about.fingerprint}
    return Plan(
        LatentTask(latent, settings.smoothing, settings.elbo),
        corpus,
        settings.train,
        BundleConfig(**text_config(corpus), latent=settings.model),
        _identity(corpus, settings) | given,
        _validation(
            corpus, [DecodingOptions(method="prior", steps=0), DecodingOptions(method="delta", steps=1)], latent=latent
        ),
    )


def _field_plan(settings: FieldStage, corpus: Corpus, frozen: LoadedBundle) -> Plan:
    latent, name = cast(LatentModel, frozen.network), settings.model.kind
    bundle = BundleConfig(**text_config(corpus), latent=frozen.config.latent, field=settings.model)
    network = cast(FieldNetwork, bundle.network(corpus.tokenizer.size))
    tried = [("prior", 0), (name, 1), ("delta", 1)]
    return Plan(
        learned_field(name).task(network, latent, settings.displacement),
        corpus,
        settings.train,
        bundle,
        _identity(corpus, settings) | {"latent": frozen.about.fingerprint},
        _validation(
            corpus,
            [DecodingOptions(method=method, steps=steps) for method, steps in tried],
            latent=latent,
            fields={name: network},
        ),
        latent=frozen.about.fingerprint,
    )


def _shape(size: StackSize) -> str:
    """The size of an encoder by the recipe's keys."""
    return f"{size.layers} encoder_layers of {size.width} (filter {size.filter}, {size.heads} heads)"


def text_config(corpus: Corpus) -> dict[str, Any]:
    """The text rules of a bundle that learns from this corpus."""
    manifest = corpus.manifest
    return {"languages": manifest.languages, "rules": manifest.rules, "longest": manifest.row_width}


def _identity(corpus: Corpus, settings: Stage) -> dict[str, Any]:
    manifest = corpus.manifest
    return {"corpus": manifest.fingerprint, "tokenizer": manifest.tokenizer, "stage": _deciding(settings)}


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


def _deciding(settings: Stage) -> dict[str, Any]:
    """A stage's settings but for how it is trained, its size written out."""
    tree = to_dict(settings) | {"model": to_dict(resolved(settings.model))}
    del tree["train"]
    return tree


def finished_bundle(work: Path, stage: str, corpus: Corpus, ranks: Ranks) -> LoadedBundle:
    """What an earlier stage left, if it has the corpus's pieces."""
    if not (work / stage / "format.json").exists():
        raise UserError(f"{work / stage}: not there yet; train that stage first")
    bundle = load_bundle(work / stage, ranks.device, stage)
    if bundle.tokenizer.fingerprint != corpus.manifest.tokenizer:
        raise UserError(f"{work / stage}: has another tokenizer than {corpus.folder}; train that stage again")
    return bundle


def _validation(corpus: Corpus, tried: Sequence[DecodingOptions], **networks: Any) -> Callable[[], Validation]:
    """Translate the development set with several options: BLEU of each, repetitions of the first, and samples."""

    pairs = corpus.text("dev")[:VALIDATION_SENTENCES]
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]

    def validate() -> Validation:
        manifest = corpus.manifest
        translator = Translator.from_networks(
            corpus.tokenizer, manifest.rules, max_length=manifest.row_width, graphs=False, **networks
        )
        metrics: dict[str, float] = {}
        samples = [f"  source     {pair.source}\n  reference  {pair.target}" for pair in pairs[:SHOWN]]
        for options in tried:
            done = translator.translations(sources, options)
            quality = measure([one.text for one in done], [one.ids for one in done], [references])
            metrics |= {f"BLEU {options}": quality.bleu.value} | ({} if metrics else {"repeats": quality.repeats})
            samples = [f"{shown}\n  {options!s:<10} {one.text}" for shown, one in zip(samples, done, strict=False)]
        return Validation(metrics, "\n".join(samples))

    return validate
