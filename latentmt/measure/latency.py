"""How long one translation takes, and how many there are a second when many are made together.

All ways to translate run in one process on the same sentences and take turns, so that a machine that becomes slower or
faster meanwhile does so for all of them; only times of one run are compared. Translations come back as lists, so their
device has been waited for. How good they are is not asked here.
"""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from latentmt.data.text import all_text, read_lines
from latentmt.display import info, table
from latentmt.errors import UserError
from latentmt.files import sha256
from latentmt.infer.engine import Engine
from latentmt.infer.graphs import compiles
from latentmt.infer.translator import Translator
from latentmt.measure.evaluate import Wanted, ways_of
from latentmt.measure.machine import machine
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
from latentmt.options import DecodingOptions, Rerank

LARGEST_BATCH = 4096
LEAST_SECONDS = 1.0
"""For which each way translates batches of one size, …"""
_LEAST_CALLS, _LEAST_SENTENCES = 3, 32
"""… and how many there are at least."""
_TURN = 5
"""Texts that a way translates before it is the next one's turn."""


@dataclass(frozen=True)
class Text:
    """A line of the source file."""

    text: str
    sentences: list[list[int]]
    """What a model is given of it: at least one."""

    @property
    def tokens(self) -> int:
        return sum(map(len, self.sentences))


@dataclass(frozen=True)
class Source:
    """What is translated, and the hash of the file it comes from."""

    texts: list[Text]
    files: dict[str, str]


@dataclass(frozen=True)
class Report:
    """Everything that was measured, and on what."""

    texts: int
    sentences: int
    files: dict[str, str]
    threads: int
    workers: int
    """Batches side by side, where sentences are translated together: with so many threads each."""
    device: str
    dtype: str
    versions: dict[str, str]
    models: dict[str, str]
    """Their fingerprints."""
    batch_tokens: int
    """Padded source tokens, candidates counted, above which the engine cuts a batch of a search into several."""
    baseline: str
    """The way that speed-ups are relative to, in the same form."""
    results: list[Speed]
    crossovers: list[Crossover]


@dataclass
class _Way:
    """A way to translate, and its times in ms so far."""

    options: DecodingOptions
    form: Form
    translator: Translator
    """With an engine of its own, lest the ways push each other's recordings out."""
    text: list[float] = field(default_factory=list)
    model: list[float] = field(default_factory=list)
    rates: list[Rate] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.options}{'' if self.form == 'eager' else f', {self.form}'}"

    def warm_up(self, work: Callable[[Any], object], given: Sequence[Any], few: Sequence[Any]) -> None:
        """Do all that will be measured: kernels are compiled for a shape, and recordings made when it comes up again.

        On a CPU, eager, nothing of this happens, and a few will do.
        """
        for _ in range(1 if self.form == "eager" else 2):
            for one in few if self.form == "eager" and self.translator.device.type == "cpu" else given:
                work(one)

    def of_text(self, text: str) -> object:
        return self.translator.translations([text], self.options)

    def of_ids(self, sentences: Sequence[Sequence[int]]) -> object:
        return self.translator.engine.best(sentences, self.options)


def parse_batches(text: str) -> list[int]:
    """Batch sizes from `1,2,4`, ascending."""
    try:
        sizes = sorted({int(size) for size in text.split(",")})
    except ValueError:
        sizes = [0]
    if sizes[0] < 1 or sizes[-1] > LARGEST_BATCH:
        raise UserError(f"--batches {text}: expected numbers from 1 to {LARGEST_BATCH}, as in 1,2,4")
    return sizes


def read_source(translator: Translator, path: Path, count: int) -> Source:
    """The first texts of a file, leaving out those in which there is nothing to translate."""
    found = first_texts(translator, all_text(read_lines([path])), count)
    if not found:
        raise UserError(f"{path}: there is nothing to translate")
    return Source(found, {str(path): sha256(path)})


def first_texts(translator: Translator, texts: Iterable[str], count: int) -> list[Text]:
    """So many texts in which there is something to translate."""
    split = ((text, translator.sentences(text)) for text in texts)
    return list(itertools.islice((Text(text, sentences) for text, sentences in split if sentences), count))


def choose_ways(translator: Translator, wanted: Wanted, reranks: Sequence[Rerank]) -> list[DecodingOptions]:
    """What is wanted, each way once; where candidates are, with each of several ways to choose between them."""
    asked = [replace(wanted, rerank=rerank) for rerank in reranks or ("none",)]
    return list(dict.fromkeys(options for one in asked for options in ways_of(translator, one)))


def measure_speed(
    translator: Translator,
    source: Source,
    all_options: Sequence[DecodingOptions],
    batches: Sequence[int],
    compiled: bool = False,
) -> Report:
    """Measure every way: eager; graphed too where the translator does that; and compiled, too, if that is wanted."""
    if compiled and not translator.engine.graphed:
        raise UserError("--compiled: only what runs on a GPU is compiled")
    forms: list[Form] = ["eager"]
    if translator.engine.graphed:
        forms += ["graphed", "compiled"] if compiled else ["graphed"]
    ways = [
        _way(translator, options, form)
        for form in forms
        for options in all_options
        if form != "compiled" or compiles(options)
    ]
    texts, sentences = source.texts, [ids for text in source.texts for ids in text.sentences]
    info(f"one at a time: {len(texts)} texts, {len(ways)} ways")
    _time_singly(ways, texts)
    for batch in batches:
        info(f"batches of {batch}")
        _time_batches(ways, sentences, batch)
    baseline = baseline_of(all_options)
    results = _speeds(ways, texts, baseline)
    return Report(
        texts=len(texts),
        sentences=len(sentences),
        files=source.files,
        threads=torch.get_num_threads(),
        workers=translator.engine.workers,
        **machine(translator),
        models=translator.fingerprints,
        batch_tokens=translator.engine.batch_tokens,
        baseline=str(baseline),
        results=results,
        crossovers=list(crossovers(results)) if batches else [],
    )


def show_speed(report: Report, console: Console, path: Path | None = None) -> None:
    """Print tables, and give the JSON out."""
    speeds = report.results
    singles = [("Text to text", [(s.name, s.text) for s in speeds])]
    singles += [("Ids to ids", [(s.name, s.model) for s in speeds if s.model])]
    for title, timings in singles:
        if timings:
            console.print(_times(f"{title}, ms; × is the speed-up over {report.baseline}", timings))
    groups = list(speeds[0].text.p50_by_tokens)
    rows = [(s.name, *(f"{s.text.p50_by_tokens[group]:.2f}" for group in groups)) for s in speeds]
    console.print(table("Text to text, p50 in ms by source tokens", ["", *groups], rows))
    sizes = [str(rate.batch) for rate in speeds[0].rates]
    rows = [(s.name, *(f"{rate.sentences_per_second:,.1f}" for rate in s.rates)) for s in speeds]
    console.print(table("Sentences a second by batch size", ["", *sizes], rows))
    for crossover in report.crossovers:
        console.out(str(crossover), highlight=False)
    write_result(asdict(report), console, path)


def _way(translator: Translator, options: DecodingOptions, form: Form) -> _Way:
    translator = copy.copy(translator)
    translator.engine = Engine(translator.engine.networks, form != "eager", translator.engine.workers)
    if form == "compiled":
        translator.engine.compile(options)
    return _Way(options, form, translator)


def _time_singly(ways: Sequence[_Way], texts: Sequence[Text]) -> None:
    """Each way translates a few texts, then the next way does; who begins changes."""
    for way in ways:
        info(f"{way.name}: getting ready")
        of_each_length = {length_group(text.tokens): text.text for text in texts}
        way.warm_up(way.of_text, [text.text for text in texts], list(of_each_length.values()))
    for turn, start in enumerate(range(0, len(texts), _TURN)):
        some, first = texts[start : start + _TURN], turn % len(ways)
        for way in (*ways[first:], *ways[:first]):
            way.of_text(some[0].text)  # not timed: its weights have to come back into the caches
            way.text.extend(_ms(way.of_text, text.text) for text in some)
            way.model.extend(_ms(way.of_ids, text.sentences) for text in some if len(text.sentences) == 1)
    for way in ways:
        info(f"{way.name}: {percentile(way.text, 0.5):.2f} ms")


def _time_batches(ways: Sequence[_Way], sentences: Sequence[list[int]], batch: int) -> None:
    """Each way translates the same batches, again and again by turns until it has done so for long enough."""
    groups = [[sentences[number] for number in window] for window in windows(len(sentences), batch)]
    for way in ways:
        way.warm_up(way.of_ids, groups, groups[:1])
    seconds, rounds = [0.0] * len(ways), [0] * len(ways)
    left = list(range(len(ways)))
    while left:
        for number in left:
            seconds[number] += sum(_ms(ways[number].of_ids, group) for group in groups) / 1e3
            rounds[number] += 1
        left = [number for number in left if seconds[number] < LEAST_SECONDS]
    for way, took, done in zip(ways, seconds, rounds, strict=True):
        way.rates.append(Rate(batch, done * len(groups) * batch / took))


def windows(count: int, batch: int) -> list[list[int]]:
    """Batches of sentence numbers that begin all over the file, whose end its beginning follows."""
    calls = max(_LEAST_CALLS, math.ceil(min(count, _LEAST_SENTENCES) / batch))
    return [[(call * count // calls + place) % count for place in range(batch)] for call in range(calls)]


def _speeds(ways: Sequence[_Way], texts: Sequence[Text], baseline: DecodingOptions) -> list[Speed]:
    tokens = [text.tokens for text in texts]
    single = [text.tokens for text in texts if len(text.sentences) == 1]
    base = {way.form: way for way in ways if way.options == baseline}
    return [
        Speed(
            name=way.name,
            options=way.options,
            form=way.form,
            text=summary(way.text, tokens, base.get(way.form, way).text),
            model=summary(way.model, single, base.get(way.form, way).model) if single else None,
            rates=way.rates,
        )
        for way in ways
    ]


def _ms(work: Callable[[Any], object], given: Any) -> float:
    began = time.perf_counter()
    work(given)
    return 1e3 * (time.perf_counter() - began)


def _times(title: str, timings: Sequence[tuple[str, Timing]]) -> Table:
    columns = ["", "p50", "p90", "p99", "mean ± std", "×"]
    rows = [
        (name, *(f"{value:.2f}" for value in (t.p50, t.p90, t.p99)), f"{t.mean:.2f} ± {t.std:.2f}", f"{t.speedup:.2f}")
        for name, t in timings
    ]
    return table(title, columns, rows)
