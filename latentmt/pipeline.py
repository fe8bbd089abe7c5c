"""The pipeline: the work folder that a recipe's stages write to, and running the stages that are missing.

work/corpus             text as ids
work/teacher            a bundle
work/distilled          the corpus with the teacher's translations as targets
work/latent, work/score, work/energy, …
work/language_model     a bundle
work/training/<stage>   the checkpoint and the logs of a training run
work/replaced           finished results that --replace has moved aside
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch

from latentmt.bundle import LANGUAGE_MODEL, read_format
from latentmt.cluster.config import ClusterConfig
from latentmt.config import to_dict
from latentmt.data.corpus import Corpus
from latentmt.data.prepare import prepare
from latentmt.data.tokenizer import Tokenizer
from latentmt.display import info
from latentmt.distill import distill
from latentmt.errors import UserError
from latentmt.files import remove_stale
from latentmt.installed import find_model
from latentmt.lock import lock
from latentmt.models.teacher import Teacher
from latentmt.networks import BundleConfig, parameter_counts, save_bundle
from latentmt.ngrams.estimate import estimate
from latentmt.ngrams.model import FILE, STEP
from latentmt.recipe import DISTILL, Recipe
from latentmt.replacement import REPLACED, TRAINING, BeforeWrite, WorkFolder
from latentmt.stages import Plan, finished_bundle, make_plan, started, text_config
from latentmt.train.loop import Trainer, TrainResult
from latentmt.train.ranks import Ranks
from latentmt.train.stop import StopRequest

_WRITTEN = ("corpus", "distilled", "distilled/parts", f"{TRAINING}/*")
"""Folders with files that are written beside the old ones and renamed."""


def prepare_corpus(
    recipe: Recipe, data: Path, work: Path, tokenizer: Path | None = None, *, replace: bool = False
) -> tuple[Corpus, bool]:
    """The corpus of a recipe in its work folder, and whether it was written now."""
    with _owned(work):
        return _prepare_corpus(recipe, data, work, tokenizer, replace)


def _prepare_corpus(
    recipe: Recipe, data: Path, work: Path, tokenizer: Path | None, replace: bool
) -> tuple[Corpus, bool]:
    folder = _work_folder(recipe, work, replace)
    pieces = Tokenizer.load(tokenizer) if tokenizer else None
    result = prepare(recipe.data, data, work / "corpus", pieces, _before_write(folder, "corpus", Ranks()))
    folder.clean_up()
    return result


def run(
    recipe: Recipe,
    data: Path,
    work: Path,
    *,
    ranks: Ranks,
    stop: StopRequest,
    budget_minutes: float | None = None,
    tokenizer: Path | None = None,
    replace: bool = False,
) -> bool:
    """Run the missing stages in order. True if all are finished, False if a stop was requested.

    `budget_minutes` applies to each stage. A finished result with other settings is an error, or with `replace` it is
    moved aside until everything has been made again.
    """
    with _owned(work, ranks):
        if ranks.is_main:
            _, written = _prepare_corpus(recipe, data, work, tokenizer, replace)
            info(f"{work / 'corpus'}: {'written' if written else 'nothing changed'}")
        ranks.barrier()
        for stage in recipe.steps:
            if ranks.any(stop.requested()):
                return False
            if stage == DISTILL:
                _distill_corpus(recipe, work, ranks, stop, replace)
            elif not _train_stage(recipe, work, stage, ranks, stop, budget_minutes, None, replace):
                return False
        if ranks.is_main and _work_folder(recipe, work, replace).replaced():
            info(f"{work / REPLACED}: kept, since not all of it has been made again")
        return True


def distill_corpus(
    recipe: Recipe,
    work: Path,
    ranks: Ranks,
    *,
    stop: StopRequest | None = None,
    replace: bool = False,
    cluster: ClusterConfig | None = None,
) -> Corpus:
    """The corpus with the teacher's translations as targets, translated here or by actors on a cluster.

    `Stopped` is raised if a stop was requested.
    """
    with _owned(work, ranks):
        return _distill_corpus(recipe, work, ranks, stop or StopRequest(), replace, cluster)


def _distill_corpus(
    recipe: Recipe, work: Path, ranks: Ranks, stop: StopRequest, replace: bool, cluster: ClusterConfig | None = None
) -> Corpus:
    if not recipe.distill:
        raise UserError("the recipe has no distill section")
    corpus = Corpus.load(work / "corpus")
    teacher = finished_bundle(work, "teacher", corpus, ranks)
    folder = _work_folder(recipe, work, replace)
    translate = None
    if cluster:
        from latentmt.distill_cluster import ClusterSearch  # it imports Ray

        network = cast(Teacher, teacher.network)
        translate = ClusterSearch(cluster, network, corpus.manifest.row_width, recipe.distill)
    try:
        distilled, facts = distill(
            cast(Teacher, teacher.network),
            corpus,
            work / "distilled",
            recipe.distill,
            teacher_hash=teacher.about.fingerprint,
            device=ranks.device,
            rank=ranks.rank,
            world_size=ranks.world_size,
            barrier=ranks.barrier,
            translate=translate,
            stop=stop.requested,
            any_rank=ranks.any,
            before_write=_before_write(folder, "distilled", ranks),
        )
    except torch.OutOfMemoryError:
        raise UserError("a batch does not fit into the GPU's memory; lower distill.batch_tokens") from None
    if ranks.is_main:
        folder.clean_up()
        kept = f"{facts.replaced:,} of {facts.pairs:,} pairs kept their reference"
        info(f"{distilled.folder}: {'written' if facts.translated else 'nothing changed'}; {kept}")
    return distilled


def train_stage(
    recipe: Recipe,
    work: Path,
    stage: str,
    *,
    ranks: Ranks,
    stop: StopRequest,
    budget_minutes: float | None = None,
    start: str | None = None,
    replace: bool = False,
) -> bool:
    """Train one stage and write its bundle, unless it exists. True if it is finished.

    `start` is a model whose weights training starts from; by default they are random. For `replace` see `run`.
    """
    with _owned(work, ranks):
        return _train_stage(recipe, work, stage, ranks, stop, budget_minutes, start, replace)


def _train_stage(
    recipe: Recipe,
    work: Path,
    stage: str,
    ranks: Ranks,
    stop: StopRequest,
    budget_minutes: float | None,
    start: str | None,
    replace: bool,
) -> bool:
    if stage == LANGUAGE_MODEL:
        _estimate_language_model(recipe, work, ranks, start, replace)
        return True
    plan = make_plan(recipe, work, stage, ranks, own_start=start is None)
    if start is not None:
        plan = started(plan, find_model(start) / stage, work / stage)
    identity, folder = plan.run, _work_folder(recipe, work, replace)
    _before_write(folder, stage, ranks)(identity, plan.settings)
    if (work / stage / "format.json").exists():
        if ranks.is_main:
            folder.clean_up()
            info(f"{work / stage}: nothing changed")
            steps = read_format(work / stage).facts.get("steps")
            if steps != plan.train.steps and budget_minutes is None:
                info(f"WARNING: {work / stage} was trained for {steps} steps; the recipe says {plan.train.steps}")
        return True
    result = _train(plan, work / TRAINING / stage, ranks, stop, budget_minutes)
    if result.finished and ranks.is_main:
        progress = result.progress
        facts = {"run": identity, "steps": progress.step, "tokens": progress.tokens, "skipped": progress.skipped}
        facts |= {f"dev {name}": round(value, 4) for name, value in result.metrics.items()}
        save_bundle(
            work / stage,
            plan.bundle,
            plan.corpus.tokenizer,
            result.weights,
            latent=plan.latent,
            facts=facts,
            settings=plan.settings,
        )
        info(f"{work / stage}: written")
        folder.clean_up()
    ranks.barrier()
    return result.finished


def _estimate_language_model(recipe: Recipe, work: Path, ranks: Ranks, start: str | None, replace: bool) -> None:
    """Write the bundle of the n-gram model, unless it exists. It takes seconds, on the main rank's CPU."""
    if not (config := recipe.language_model):
        raise UserError(f"the recipe has no {LANGUAGE_MODEL} section")
    if start is not None:
        raise UserError(f"{LANGUAGE_MODEL}: is counted, not trained, so it begins with nothing")
    corpus, folder = Corpus.load(work / "corpus"), work / LANGUAGE_MODEL
    manifest = corpus.manifest
    settings = {"corpus": manifest.fingerprint, "tokenizer": manifest.tokenizer, LANGUAGE_MODEL: to_dict(config)}
    identity = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    replaced = _work_folder(recipe, work, replace)
    _before_write(replaced, LANGUAGE_MODEL, ranks)(identity, settings)
    if ranks.is_main and (folder / "format.json").exists():
        info(f"{folder}: nothing changed")
    elif ranks.is_main:
        targets, held_out = corpus.split("train").target, corpus.split("dev").target
        model = estimate(targets, held_out, corpus.tokenizer.size, config)
        save_bundle(
            folder,
            BundleConfig(**text_config(corpus), language_model=config),
            corpus.tokenizer,
            {},
            facts={
                "run": identity,
                "tokens": len(targets.ids),
                "dev perplexity": round(math.exp(STEP * model.surprisal), 1),
            },
            settings=settings,
            files={FILE: model.to_bytes()},
            parameters={f"{length}-grams": size for length, size in enumerate(model.sizes, 1)},
        )
        info(f"{folder}: written")
    if ranks.is_main:
        replaced.clean_up()
    ranks.barrier()


def _train(plan: Plan, folder: Path, ranks: Ranks, stop: StopRequest, budget_minutes: float | None) -> TrainResult:
    """Train as planned, resuming from the checkpoint in the folder if there is one."""
    if ranks.is_main:
        counts = parameter_counts(plan.task.network)
        parts = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        info(f"{plan.stage}: {sum(counts.values()):,} parameters ({parts})")
    corpus = plan.corpus
    try:
        with ranks.training() as trained_by:
            training = Trainer(
                plan.stage,
                plan.task,
                corpus.split("train"),
                corpus.split("dev"),
                corpus.manifest.row_width,
                plan.train,
                folder,
                plan.identity,
                trained_by,
                plan.validate,
            )
            return training.train(stop, budget_minutes)
    except torch.OutOfMemoryError:
        section = plan.stage if plan.stage in ("teacher", "latent") else f"fields.{plan.stage}"
        key = f"{section}.train.grad_accumulation"
        raise UserError(f"{plan.stage}: a batch does not fit into the GPU's memory; raise {key}") from None


@contextmanager
def _owned(work: Path, ranks: Ranks | None = None) -> Iterator[None]:
    """Own the work folder, on rank 0, and remove what killed processes left there half written."""
    if ranks and not ranks.is_main:
        yield
        return
    with lock(work):
        for folder in (work, *(path for name in _WRITTEN for path in work.glob(name))):
            remove_stale(folder)
        yield


def _work_folder(recipe: Recipe, work: Path, replace: bool) -> WorkFolder:
    return WorkFolder(work, replace, by_teacher=recipe.needs_teacher)


def _before_write(folder: WorkFolder, artefact: str, ranks: Ranks) -> BeforeWrite:
    """A callback that checks on all ranks that nothing would be lost, then moves old artefacts aside on rank 0."""

    def before_write(identity: str, settings: Mapping[str, Any]) -> None:
        folder.check(artefact, identity, settings)
        ranks.barrier()
        if ranks.is_main:
            folder.set_aside(artefact, identity)
        ranks.barrier()

    return before_write
