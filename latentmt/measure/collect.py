"""Measures everything a report needs. A measurement that is in the cache is not repeated.

How a report is drawn and written up is not known here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from latentmt.errors import UserError
from latentmt.files import read_log
from latentmt.measure.bootstrap import paired_bootstrap
from latentmt.measure.cache import Cache
from latentmt.measure.evaluate import EvalSet, Sweep, measure_system, sweep_options
from latentmt.measure.landscape import choose_sentence, landscape
from latentmt.measure.latency import SourceSet, first_texts, measure_speed
from latentmt.measure.likelihood import likelihoods
from latentmt.measure.machine import Machine
from latentmt.measure.methods import field_style, refining_methods, require_latent
from latentmt.measure.paper import ORDERINGS, corpus_for, row_of, table_order
from latentmt.measure.quality import require_sacrebleu
from latentmt.measure.report import (
    Conditions,
    Curves,
    LandscapeResult,
    LikelihoodCurve,
    Ordering,
    Orderings,
    Report,
    SampleSet,
    Settings,
    Signature,
    System,
    SystemTime,
    Timings,
    TokenCurve,
)
from latentmt.measure.samples import sample_options, take_samples
from latentmt.measure.tokens import count_tokens, outputs_along
from latentmt.options import DecodingOptions
from latentmt.translator import Translator

_CURVE_POINTS = 300
"""Of a training curve, at most."""
_AS_PAPER: dict[str, Any] = {"remove_repeats": "pieces", "verbatim": False}
"""Decoding options of the paper."""


@dataclass(frozen=True)
class LandscapeModel:
    """A model with a two-dimensional latent, for Figure 4, and its sentence unless one is to be chosen."""

    translator: Translator
    example: tuple[str, str] | None = None
    """Source and reference."""


def measure_report(
    translator: Translator,
    texts: EvalSet,
    settings: Settings,
    folder: Path,
    *,
    name: str,
    training: dict[str, Curves],
    command: Sequence[str] = (),
    landscape_model: LandscapeModel | None = None,
    timings: Timings | None = None,
) -> Report:
    """Measure what is not yet cached in a folder. `timings`: those of another report, taken instead of measuring."""
    require_sacrebleu()
    require_latent(translator)
    if not _sentences(translator, texts.sources):
        raise UserError("report: there is nothing to translate")
    if settings.compiled and not translator.backend.info["graphed"]:
        raise UserError("report: only searches on a GPU are compiled")
    conditions = Conditions(
        files={Path(file).name: hash_ for file, hash_ in texts.files.items()},
        text_hash=_hash([texts.sources, texts.references]),
        lines=len(texts.sources),
        machine=Machine.from_translator(translator),
    )
    collector = _Collector(translator, texts, settings, conditions, Cache(folder))
    options = {row_of(options): options for options in _table_options(translator, settings)}
    methods = sorted(refining_methods(translator), key=table_order)
    timings = _restricted(timings, options) if timings else None
    drawn = collector.landscape(landscape_model) if landscape_model else None  # first, since most can be wrong with it
    systems = {row: collector.system(each) for row, each in options.items()}
    orderings = collector.orderings(systems)
    tokens: dict[str, TokenCurve] = {method: collector.tokens(method) for method in methods}
    likelihood: dict[str, LikelihoodCurve] = {method: collector.likelihood(method) for method in methods}
    timings = timings or collector.timings(list(options.values()))
    drawn_methods = drawn.landscape.panels[0].paths if drawn else ()
    timed = {key: timings.signature.settings[key] for key in ("timed", "compiled")}
    assert translator.languages is not None
    return Report(
        name=name,
        languages=translator.languages,
        paper=corpus_for(translator.languages),
        conditions=conditions,
        models=translator.fingerprints,
        settings=replace(settings, **timed),
        styles={style: field_style(style) for style in (*translator.methods, *training, *drawn_methods)},
        systems={row: replace(system, texts=[]) for row, system in systems.items()},
        orderings=orderings,
        tokens=tokens,
        likelihood=likelihood,
        timings=timings,
        landscape=drawn,
        samples=collector.samples() if settings.shown else None,
        training=training,
        command=list(command),
    )


def training_curves(folder: Path) -> dict[str, Curves]:
    """The logs of a work folder's training runs by stage, as far as there are any."""
    curves: dict[str, Curves] = {}
    for path in sorted(folder.glob("training/*/log.jsonl")):
        entries = read_log(path)
        curves[path.parent.name] = Curves(_thinned(entries, "train"), _thinned(entries, "dev"))
    return curves


def _thinned(entries: Sequence[Mapping[str, Any]], kind: str) -> list[dict[str, float]]:
    """The numbers of the entries of a kind: a limited number of entries, evenly spread, the last among them."""
    chosen = [entry for entry in entries if entry.get("kind") == kind]
    step = max(1, -(-len(chosen) // _CURVE_POINTS))
    return [
        {key: float(value) for key, value in entry.items() if isinstance(value, int | float)}
        for entry in chosen[::-step][::-1]
    ]


def _table_options(translator: Translator, settings: Settings) -> list[DecodingOptions]:
    """Table 1: the teacher, L=0, and every refining method with every number of steps and with search."""
    sweep = Sweep(
        methods=sorted(translator.methods, key=table_order),
        steps=settings.steps,
        options={
            "lengths": settings.lengths,
            "samples": settings.samples,
            "rerank": "teacher" if "teacher" in translator.methods else "elbo",
            "seed": settings.seed,
            "length_bias": settings.length_bias,
            **_AS_PAPER,
        },
    )
    return sweep_options(translator, sweep)


@dataclass(frozen=True)
class _Collector:
    """Makes each measurement of a report, through the cache."""

    translator: Translator
    texts: EvalSet
    settings: Settings
    conditions: Conditions
    cache: Cache

    def _signature(self, models: Mapping[str, str], **settings: Any) -> Signature:
        return Signature(self.conditions, dict(models), json.loads(json.dumps(settings)))

    def _models(self, options: DecodingOptions) -> dict[str, str]:
        """The fingerprints of the models that take part."""
        kinds = {"latent", options.rerank} | ({options.method} if options.refines else set())
        if options.method == "teacher":
            kinds = {"teacher"}
        return {kind: hash_ for kind, hash_ in self.translator.fingerprints.items() if kind in kinds}

    def system(self, options: DecodingOptions) -> System:
        signature = self._signature(
            self._models(options), options=asdict(options), graphed=self.translator.backend.info["graphed"]
        )
        teacher = options.method == "teacher"

        def measure() -> System:
            row = measure_system(self.translator, self.texts, options)
            return System(
                signature=signature,
                method=options.method if teacher or options.refines else "prior",
                steps=options.steps if options.refines else 0,
                candidates=options.candidates,
                rerank=options.rerank,
                beam=options.beam if teacher else None,
                quality=row.quality,
                texts=row.texts,
            )

        return self.cache.get(str(options), System, signature, measure)

    def orderings(self, systems: Mapping[str, System]) -> Orderings:
        """The paper's orderings, as far as both rows were measured, by paired bootstrap in the paper's BLEU."""
        pairs = [pair for pair in ORDERINGS if all(row in systems for row in pair)]
        outputs = {row: _hash(system.texts) for row, system in systems.items()}
        signature = self._signature({}, outputs=outputs, pairs=pairs)

        def compared(better: str, worse: str) -> Ordering:
            first, second = systems[better].texts, systems[worse].texts
            comparison = paired_bootstrap(first, second, self.texts.references, lowercase=True, tokenize="intl")
            return Ordering(better, worse, comparison)

        return self.cache.get(
            "paired bootstrap",
            Orderings,
            signature,
            lambda: Orderings(signature, [compared(*pair) for pair in pairs]),
        )

    def tokens(self, method: str) -> TokenCurve:
        length_bias, models = self.settings.length_bias, self._models(DecodingOptions(method=method))
        signature = self._signature(models, method=method, length_bias=length_bias)

        def measure() -> TokenCurve:
            sentences = _sentences(self.translator, self.texts.sources)
            outputs = outputs_along(self.translator, sentences, method, length_bias=length_bias)
            return TokenCurve(signature, count_tokens(self.translator, outputs, self.texts.references[0]))

        return self.cache.get(f"tokens along {method}", TokenCurve, signature, measure)

    def likelihood(self, method: str) -> LikelihoodCurve:
        settings, models = self.settings, self._models(DecodingOptions(method=method))
        given = {"length_bias": settings.length_bias, "judged": settings.judged, "seed": settings.seed}
        signature = self._signature(models, method=method, samples=settings.posterior_samples, **given)
        name = f"log p along {method}"

        def measure() -> LikelihoodCurve:
            sentences = _sentences(self.translator, self.texts.sources)[: settings.judged]
            outputs = outputs_along(self.translator, sentences, method, length_bias=settings.length_bias)
            samples, seed = settings.posterior_samples, settings.seed
            return LikelihoodCurve(signature, likelihoods(self.translator, sentences, outputs, samples, seed, name))

        return self.cache.get(name, LikelihoodCurve, signature, measure)

    def timings(self, all_options: Sequence[DecodingOptions]) -> Timings:
        """All systems in one measurement: only times of one run are compared."""
        signature = self._signature(
            self.translator.fingerprints,
            options=[asdict(options) for options in all_options],
            timed=self.settings.timed,
            compiled=self.settings.compiled,
            threads=torch.get_num_threads(),
            graphed=self.translator.backend.info["graphed"],
        )

        def measure() -> Timings:
            source = SourceSet(first_texts(self.translator, self.texts.sources, self.settings.timed), {})
            run = measure_speed(self.translator, source, all_options, [], self.settings.compiled)
            times = [SystemTime(row_of(timed.options), timed.form, timed.text, timed.model) for timed in run.results]
            return Timings(signature, run.texts, run.sentences, run.threads, self.settings.length_bias, times)

        return self.cache.get("timings", Timings, signature, measure)

    def landscape(self, model: LandscapeModel) -> LandscapeResult:
        signature = self._signature(model.translator.fingerprints, example=model.example)

        def measure() -> LandscapeResult:
            if model.example:
                return LandscapeResult(signature, landscape(model.translator, *model.example), None)
            sources, references = self.texts.sources, self.texts.references[0]
            chosen = choose_sentence(model.translator, sources, references)
            result = landscape(model.translator, sources[chosen], references[chosen])
            return LandscapeResult(signature, result, chosen + 1)

        return self.cache.get("landscape", LandscapeResult, signature, measure)

    def samples(self) -> SampleSet:
        options = replace(sample_options(self.translator, seed=self.settings.seed), **_AS_PAPER)
        count, texts = self.settings.shown, self.texts
        signature = self._signature(self._models(options), options=asdict(options), shown=count)

        def measure() -> SampleSet:
            samples = take_samples(self.translator, texts.sources, texts.references, count, options)
            return SampleSet(signature, options.method, options.steps, samples)

        return self.cache.get("samples", SampleSet, signature, measure)


def _restricted(timings: Timings, rows: Mapping[str, object]) -> Timings:
    """The times of these rows only."""
    times = [time for time in timings.times if time.row in rows]
    if not times:
        raise UserError("report: the report that times are taken from has timed nothing that this model does")
    return replace(timings, times=times)


def _sentences(translator: Translator, texts: Sequence[str]) -> list[list[int]]:
    return [ids for text in texts for ids in translator.sentences(text)]


def _hash(data: Any) -> str:
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()
