"""What spans stages: the folder a recipe's stages leave their results in, and running what is missing.

work/corpus             text as ids
work/teacher            a bundle, and so on for the others
work/distilled          the corpus with the teacher's translations as targets
work/latent, work/score, work/energy
work/training/<stage>   the state and the logs of a training run
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from latentmt.bundle import Bundle, BundleConfig, Kind, load_bundle, read_format, save_bundle
from latentmt.config import to_tree
from latentmt.data.corpus import Corpus
from latentmt.data.prepare import prepare
from latentmt.data.tokenizer import Tokenizer
from latentmt.display import say
from latentmt.distill import distill
from latentmt.errors import UserError
from latentmt.infer.how import How
from latentmt.infer.translator import Translator
from latentmt.installed import find_model
from latentmt.measure.quality import measure
from latentmt.models.fields import EnergyNet, ScoreNet
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.models.presets import parameter_counts, resolved
from latentmt.models.teacher import Teacher
from latentmt.recipe import FieldStage, LatentStage, Recipe, TeacherStage
from latentmt.train.halt import Halt
from latentmt.train.loop import Run, TrainConfig, Validation, run_identity
from latentmt.train.ranks import Ranks
from latentmt.train.tasks import FieldTask, LatentTask, Task, TeacherTask

STAGES: tuple[Kind, ...] = ("teacher", "latent", "score", "energy")
"""What is trained, in this order; each leaves a bundle of its kind."""


def prepare_corpus(recipe: Recipe, data: Path, work: Path, tokenizer: Path | None = None) -> tuple[Corpus, bool]:
    """The corpus of a recipe in its work folder, and whether it had to be written."""
    return prepare(recipe.data, data, work / "corpus", Tokenizer.load(tokenizer) if tokenizer else None)


def run(
    recipe: Recipe,
    data: Path,
    work: Path,
    *,
    ranks: Ranks,
    halt: Halt,
    budget_minutes: float | None = None,
    tokenizer: Path | None = None,
) -> bool:
    """Do what is missing, in order; True if all is done, False if a halt ended it. A budget is for each stage."""
    if ranks.first:
        _, written = prepare_corpus(recipe, data, work, tokenizer)
        say(f"{work / 'corpus'}: {'written' if written else 'nothing changed'}")
    ranks.wait()
    for stage in STAGES:
        if ranks.any(halt.wanted()):
            return False
        if stage == "latent" and recipe.distill:
            distill_corpus(recipe, work, ranks)
        if getattr(recipe, stage) and not train_stage(
            recipe, work, stage, ranks=ranks, halt=halt, budget_minutes=budget_minutes
        ):
            return False
    return True


def distill_corpus(recipe: Recipe, work: Path, ranks: Ranks) -> Corpus:
    """The corpus with the teacher's translations as targets."""
    if not recipe.distill:
        raise UserError("the recipe has no distill section")
    corpus = Corpus.load(work / "corpus")
    teacher = _bundle(work, "teacher", corpus, ranks)
    try:
        distilled, facts = distill(
            cast(Teacher, teacher.network),
            corpus,
            work / "distilled",
            recipe.distill,
            teacher_hash=teacher.about.fingerprint,
            device=ranks.device,
            rank=ranks.rank,
            ranks=ranks.count,
            barrier=ranks.wait,
        )
    except torch.OutOfMemoryError:
        raise UserError("a batch does not fit into the GPU's memory; lower distill.batch_tokens") from None
    if ranks.first:
        kept = f"{facts.replaced:,} of {facts.pairs:,} pairs kept their reference"
        say(f"{distilled.folder}: {'written' if facts.translated else 'nothing changed'}; {kept}")
    return distilled


def train_stage(
    recipe: Recipe,
    work: Path,
    stage: Kind,
    *,
    ranks: Ranks,
    halt: Halt,
    budget_minutes: float | None = None,
    start: str | None = None,
) -> bool:
    """Train one stage and write its bundle, unless that is there; True once it is.

    `start`: the model whose weights training begins with; by default they are drawn.
    """
    plan = _plan(recipe, work, stage, ranks)
    if start is not None:
        plan = _started(plan, find_model(start) / stage, work / stage)
    identity = run_identity(stage, plan.train, plan.identity)
    if steps := _trained(work / stage, identity):
        if ranks.first:
            say(f"{work / stage}: nothing changed")
            if steps != plan.train.steps and budget_minutes is None:
                say(f"WARNING: {work / stage} was trained for {steps:,} steps; the recipe says {plan.train.steps:,}")
        return True
    if ranks.first:
        counts = parameter_counts(plan.task.network)
        parts = ", ".join(f"{part} {count:,}" for part, count in counts.items())
        say(f"{stage}: {sum(counts.values()):,} parameters ({parts})")
    try:
        training = Run(
            stage,
            plan.task,
            plan.corpus.split("train"),
            plan.corpus.split("dev"),
            plan.corpus.manifest.row_width,
            plan.train,
            work / "training" / stage,
            plan.identity,
            ranks,
            plan.validate,
        )
        outcome = training.train(halt, budget_minutes)
    except torch.OutOfMemoryError:
        raise UserError(f"{stage}: a batch does not fit into the GPU's memory; raise {stage}.train.parts") from None
    if outcome.finished and ranks.first:
        progress = outcome.progress
        facts = {"run": identity, "steps": progress.step, "tokens": progress.tokens, "skipped": progress.skipped}
        facts |= {f"dev {name}": round(value, 4) for name, value in outcome.metrics.items()}
        save_bundle(work / stage, plan.bundle, plan.corpus.tokenizer, outcome.weights, latent=plan.latent, facts=facts)
        say(f"{work / stage}: written")
    ranks.wait()
    return outcome.finished


@dataclass(frozen=True)
class _Plan:
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


def _plan(recipe: Recipe, work: Path, stage: Kind, ranks: Ranks) -> _Plan:
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
        return _Plan(
            TeacherTask(teacher, settings.smoothing),
            corpus,
            settings.train,
            BundleConfig(**texts, teacher=settings.model),
            identity,
            _validation(corpus, teacher=teacher, ways=[How(method="teacher", beam=1)]),
        )
    if stage == "latent":
        latent = LatentModel(settings.model, corpus.tokenizer.size)
        return _Plan(
            LatentTask(latent, settings.smoothing, settings.elbo),
            corpus,
            settings.train,
            BundleConfig(**texts, latent=settings.model),
            identity,
            _validation(corpus, latent=latent, ways=[How(method="prior", steps=0), How(method="delta", steps=1)]),
        )
    frozen = _bundle(work, "latent", corpus, ranks)
    latent, config = cast(LatentModel, frozen.network), cast(LatentConfig, frozen.config.latent)
    bundle = BundleConfig(**texts, latent=config, field=settings.model)
    net = cast(ScoreNet | EnergyNet, bundle.network(corpus.tokenizer.size))
    return _Plan(
        FieldTask(net, latent, settings.displacement),
        corpus,
        settings.train,
        bundle,
        identity | {"latent": frozen.about.fingerprint},
        _validation(
            corpus,
            latent=latent,
            fields={stage: net},
            ways=[How(method="prior", steps=0), How(method=stage, steps=1), How(method="delta", steps=1)],
        ),
        latent=frozen.about.fingerprint,
    )


def _started(plan: _Plan, folder: Path, out: Path) -> _Plan:
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
    return replace(plan, identity={**plan.identity, "start": bundle.about.fingerprint})


def _size(config: BundleConfig) -> list[dict[str, Any]]:
    """All that decides what weights mean."""
    parts = [resolved(part) for part in (config.teacher, config.latent, config.field) if part]
    return [{key: value for key, value in to_tree(part).items() if key not in ("preset", "dropout")} for part in parts]


def _deciding(settings: TeacherStage | LatentStage | FieldStage) -> dict[str, Any]:
    """A stage's settings but for how it is trained, its size written out."""
    tree = to_tree(settings)
    del tree["train"]
    return tree | {"model": to_tree(resolved(settings.model))}


def _bundle(work: Path, stage: Kind, corpus: Corpus, ranks: Ranks) -> Bundle:
    """What an earlier stage left, if it speaks the corpus's pieces."""
    if not (work / stage / "format.json").exists():
        raise UserError(f"{work / stage}: not there yet; train that stage first")
    bundle = load_bundle(work / stage, ranks.device, stage)
    if bundle.tokenizer.fingerprint != corpus.manifest.tokenizer:
        raise UserError(f"{work / stage}: has another tokenizer than {corpus.folder}; train that stage again")
    return bundle


def _trained(folder: Path, identity: str) -> int:
    """How many steps the bundle in a folder was trained for; 0 if it is not the one of this run."""
    try:
        facts = read_format(folder).facts
    except UserError:
        return 0
    return int(facts["steps"]) if facts.get("run") == identity else 0


VALIDATION_SENTENCES = 500
SHOWN = 2


def _validation(corpus: Corpus, *, ways: Sequence[How], **networks: Any) -> Callable[[], Validation]:
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
