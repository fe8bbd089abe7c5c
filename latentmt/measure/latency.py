"""Latency of one translation, and throughput of batches.

All systems run in one process on the same sentences and take turns, so that a machine that becomes slower or faster
meanwhile does so for all of them. Only times of one run are compared. Translations come back as lists, so the device
has been synchronised. Quality is measured elsewhere.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from latentmt.data.text import all_text, read_lines
from latentmt.display import info, table
from latentmt.engines.torch_engine import TorchEngine, torch_engine
from latentmt.errors import UserError
from latentmt.files import sha256
from latentmt.measure.evaluate import Sweep, sweep_options
from latentmt.measure.machine import Machine
from latentmt.measure.results import write_result
from latentmt.measure.timing import (
    Crossover,
    Form,
    Rate,
    Speed,
    Timing,
    baseline_of,
    crossovers,
    length_group,
    percentile,
    summary,
)
from latentmt.options import DecodingOptions
from latentmt.translator import Translator

LARGEST_BATCH = 4096
MIN_SECONDS = 1.0
"""How long each system translates batches of one size, at least."""
_MIN_CALLS, _MIN_SENTENCES = 3, 32
"""How many batches and sentences there are, at least."""
_TURN = 5
"""Texts that a system translates before the next system takes over."""


@dataclass(frozen=True)
class SourceText:
    """A line of the source file."""

    text: str
    sentences: list[list[int]]
    """Their ids: at least one."""

    @property
    def tokens(self) -> int:
        return sum(map(len, self.sentences))


@dataclass(frozen=True)
class SourceSet:
    """The texts that are translated, and the hash of their file."""

    texts: list[SourceText]
    files: dict[str, str]


@dataclass(frozen=True)
class Benchmark:
    """Everything that was measured, and the conditions."""

    texts: int
    sentences: int
    files: dict[str, str]
    threads: int
    workers: int
    """Batches that are translated side by side, each with this many threads."""
    device: str
    dtype: str
    versions: dict[str, str]
    models: dict[str, str]
    """Their fingerprints."""
    batch_tokens: int
    """Padded source tokens, candidates counted, above which the engine splits a batch of a search."""
    baseline: str
    """The system that speed-ups are relative to, in the same form."""
    results: list[Speed]
    crossovers: list[Crossover]


@dataclass
class _System:
    """Decoding options in a form of execution, and their times in ms so far."""

    options: DecodingOptions
    form: Form
    translator: Translator
    """With an engine of its own, so that systems do not evict each other's recordings."""
    text: list[float] = field(default_factory=list)
    model: list[float] = field(default_factory=list)
    rates: list[Rate] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.options}{'' if self.form == 'eager' else f', {self.form}'}"

    def warm_up(self, work: Callable[[Any], object], inputs: Sequence[Any], few: Sequence[Any]) -> None:
        """Do everything that will be measured: kernels are compiled and graphs recorded for each shape.

        On a CPU, eager, nothing of this happens, and a few inputs are enough.
        """
        on_gpu = self.translator.backend.on_gpu
        for _ in range(1 if self.form == "eager" else 2):
            for each in inputs if self.form != "eager" or on_gpu else few:
                work(each)

    def translate_text(self, text: str) -> object:
        return self.translator.translations([text], self.options)

    def translate_ids(self, sentences: Sequence[Sequence[int]]) -> object:
        return self.translator.backend.best(sentences, self.options)


def parse_batches(text: str) -> list[int]:
    """Batch sizes from `1,2,4`, ascending."""
    try:
        sizes = sorted({int(size) for size in text.split(",")})
    except ValueError:
        sizes = [0]
    if sizes[0] < 1 or sizes[-1] > LARGEST_BATCH:
        raise UserError(f"--batches {text}: expected numbers from 1 to {LARGEST_BATCH}, as in 1,2,4")
    return sizes


def read_source(translator: Translator, path: Path, count: int) -> SourceSet:
    """The first texts of a file, without those in which there is nothing to translate."""
    texts = first_texts(translator, all_text(read_lines([path])), count)
    if not texts:
        raise UserError(f"{path}: there is nothing to translate")
    return SourceSet(texts, {str(path): sha256(path)})


def first_texts(translator: Translator, texts: Iterable[str], count: int) -> list[SourceText]:
    """The first texts in which there is something to translate."""
    split = ((text, translator.sentences(text)) for text in texts)
    return list(itertools.islice((SourceText(text, sentences) for text, sentences in split if sentences), count))


def benchmark_options(translator: Translator, sweep: Sweep, rerankers: Sequence[str]) -> list[DecodingOptions]:
    """The options of a sweep, each once; searches with each of several rerankers."""
    sweeps = [replace(sweep, options={**sweep.options, "rerank": rerank}) for rerank in rerankers or ("none",)]
    return list(dict.fromkeys(options for each in sweeps for options in sweep_options(translator, each)))


def measure_speed(
    translator: Translator,
    source: SourceSet,
    all_options: Sequence[DecodingOptions],
    batches: Sequence[int],
    compiled: bool = False,
) -> Benchmark:
    """Time all options eagerly; as CUDA graphs, too, where the translator records them; and compiled on request."""
    conditions = translator.backend.info
    if compiled and not conditions["graphed"]:
        raise UserError("--compiled: only what runs on a GPU is compiled")
    forms: list[Form] = ["eager"]
    if conditions["graphed"]:
        forms += ["graphed", "compiled"] if compiled else ["graphed"]
    systems = [
        _system(translator, options, form)
        for form in forms
        for options in all_options
        if form != "compiled" or torch_engine(translator.backend).networks.compiles(options)
    ]
    texts, sentences = source.texts, [ids for text in source.texts for ids in text.sentences]
    info(f"one at a time: {len(texts)} texts, {len(systems)} systems")
    _time_singly(systems, texts)
    for batch in batches:
        info(f"batches of {batch}")
        _time_batches(systems, sentences, batch)
    baseline = baseline_of(all_options)
    results = _speeds(systems, texts, baseline)
    return Benchmark(
        texts=len(texts),
        sentences=len(sentences),
        files=source.files,
        threads=conditions["threads"],
        workers=conditions["workers"],
        **asdict(Machine.from_translator(translator)),
        models=translator.fingerprints,
        batch_tokens=conditions["batch_tokens"],
        baseline=str(baseline),
        results=results,
        crossovers=list(crossovers(results)) if batches else [],
    )


def show_speed(benchmark: Benchmark, console: Console, path: Path | None = None) -> None:
    """Print tables, and write the JSON."""
    speeds = benchmark.results
    singles = [("Text to text", [(s.name, s.text) for s in speeds])]
    singles += [("Ids to ids", [(s.name, s.model) for s in speeds if s.model])]
    for title, timings in singles:
        if timings:
            console.print(_times(f"{title}, ms; × is the speed-up over {benchmark.baseline}", timings))
    groups = list(speeds[0].text.p50_by_tokens)
    rows = [(s.name, *(f"{s.text.p50_by_tokens[group]:.2f}" for group in groups)) for s in speeds]
    console.print(table("Text to text, p50 in ms by source tokens", ["", *groups], rows))
    sizes = [str(rate.batch) for rate in speeds[0].rates]
    rows = [(s.name, *(f"{rate.sentences_per_second:,.1f}" for rate in s.rates)) for s in speeds]
    console.print(table("Sentences a second by batch size", ["", *sizes], rows))
    for crossover in benchmark.crossovers:
        console.out(str(crossover), highlight=False)
    write_result(asdict(benchmark), console, path)


def _system(translator: Translator, options: DecodingOptions, form: Form) -> _System:
    if not isinstance(translator.backend, TorchEngine):
        return _System(options, form, translator)
    engine = translator.backend.variant(graphs=form != "eager")
    if form == "compiled":
        engine.compile(options)
    return _System(options, form, translator.with_backend(engine))


def _time_singly(systems: Sequence[_System], texts: Sequence[SourceText]) -> None:
    """Each system translates a few texts, then the next system does. The first one changes from turn to turn."""
    for system in systems:
        info(f"{system.name}: warming up")
        of_each_length = {length_group(text.tokens): text.text for text in texts}
        system.warm_up(system.translate_text, [text.text for text in texts], list(of_each_length.values()))
    for turn, start in enumerate(range(0, len(texts), _TURN)):
        chunk, first = texts[start : start + _TURN], turn % len(systems)
        for system in (*systems[first:], *systems[:first]):
            system.translate_text(chunk[0].text)  # not timed: brings the weights back into the caches
            system.text.extend(_ms(system.translate_text, text.text) for text in chunk)
            single = (text.sentences for text in chunk if len(text.sentences) == 1)
            system.model.extend(_ms(system.translate_ids, sentences) for sentences in single)
    for system in systems:
        info(f"{system.name}: {percentile(system.text, 0.5):.2f} ms")


def _time_batches(systems: Sequence[_System], sentences: Sequence[list[int]], batch: int) -> None:
    """Each system translates the same batches, by turns and repeatedly until it has done so for long enough."""
    groups = [[sentences[number] for number in window] for window in windows(len(sentences), batch)]
    for system in systems:
        system.warm_up(system.translate_ids, groups, groups[:1])
    seconds, rounds = [0.0] * len(systems), [0] * len(systems)
    unfinished = list(range(len(systems)))
    while unfinished:
        for number in unfinished:
            seconds[number] += sum(_ms(systems[number].translate_ids, group) for group in groups) / 1e3
            rounds[number] += 1
        unfinished = [number for number in unfinished if seconds[number] < MIN_SECONDS]
    for system, took, count in zip(systems, seconds, rounds, strict=True):
        system.rates.append(Rate(batch, count * len(groups) * batch / took))


def windows(count: int, batch: int) -> list[list[int]]:
    """Batches of sentence numbers that begin at places spread over the file, and wrap around at its end."""
    calls = max(_MIN_CALLS, math.ceil(min(count, _MIN_SENTENCES) / batch))
    return [[(call * count // calls + offset) % count for offset in range(batch)] for call in range(calls)]


def _speeds(systems: Sequence[_System], texts: Sequence[SourceText], baseline: DecodingOptions) -> list[Speed]:
    tokens = [text.tokens for text in texts]
    single = [text.tokens for text in texts if len(text.sentences) == 1]
    base = {system.form: system for system in systems if system.options == baseline}
    return [
        Speed(
            name=system.name,
            options=system.options,
            form=system.form,
            text=summary(system.text, tokens, base.get(system.form, system).text),
            model=summary(system.model, single, base.get(system.form, system).model) if single else None,
            rates=system.rates,
        )
        for system in systems
    ]


def _ms(work: Callable[[Any], object], argument: Any) -> float:
    start = time.perf_counter()
    work(argument)
    return 1e3 * (time.perf_counter() - start)


def _times(title: str, timings: Sequence[tuple[str, Timing]]) -> Table:
    columns = ["", "p50", "p90", "p99", "mean ± std", "×"]
    rows = [
        (name, *(f"{value:.2f}" for value in (t.p50, t.p90, t.p99)), f"{t.mean:.2f} ± {t.std:.2f}", f"{t.speedup:.2f}")
        for name, t in timings
    ]
    return table(title, columns, rows)
