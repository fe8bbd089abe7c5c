"""Statistics of measured times: percentiles, medians by length, speed-ups, crossovers. `latency` measures them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from latentmt.fields.registry import preferred_field
from latentmt.options import DecodingOptions

Form = Literal["eager", "graphed", "compiled"]
"""The form of execution: eager, as recorded CUDA graphs, or compiled and recorded."""
LENGTHS = (8, 16, 24, 32, 48, 64)
"""Source tokens, EOS counted, of the longest text in each group of texts."""


@dataclass(frozen=True)
class Timing:
    """Milliseconds of a number of translations; `std` is the population's."""

    count: int
    p50: float
    p90: float
    p99: float
    mean: float
    std: float
    speedup: float
    """The baseline's median over this median."""
    p50_by_tokens: dict[str, float]
    """Length group → the median of its texts."""


@dataclass(frozen=True)
class Rate:
    """Sentences a second at a batch size."""

    batch: int
    sentences_per_second: float


@dataclass(frozen=True)
class Speed:
    """The speed of one system."""

    name: str
    options: DecodingOptions
    form: Form
    text: Timing
    """From a text to its translation, one at a time."""
    model: Timing | None
    """From ids to ids, of the texts that are one sentence; None where there is no such text."""
    rates: list[Rate]


@dataclass(frozen=True)
class Crossover:
    """The batch size at which a teacher becomes faster than a refining system."""

    teacher: str
    against: str
    batch: int | None
    """The smallest batch size, of those measured, at which it is; None if it never is."""
    largest: int
    """The largest batch size that was measured."""

    def __str__(self) -> str:
        if self.batch is None:
            return f"{self.teacher} never overtakes {self.against} (batches up to {self.largest})"
        return f"{self.teacher} overtakes {self.against} at batches of {self.batch}"


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies, interpolated between neighbours."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low, high = ordered[math.floor(position)], ordered[math.ceil(position)]
    return low + (high - low) * (position - math.floor(position))


def length_group(tokens: int) -> str:
    """The name of the length group of texts with this many source tokens."""
    low = 1
    for high in LENGTHS:
        if tokens <= high:
            return f"{low}-{high}"
        low = high + 1
    return f"{low}+"


def summary(times: Sequence[float], tokens: Sequence[int], baseline: Sequence[float]) -> Timing:
    """Summarise the times of texts with these numbers of tokens, and compare them with the baseline's times."""
    groups: dict[str, list[float]] = {}
    for count, duration in sorted(zip(tokens, times, strict=True)):
        groups.setdefault(length_group(count), []).append(duration)
    p50, p90, p99 = (percentile(times, share) for share in (0.5, 0.9, 0.99))
    return Timing(
        count=len(times),
        p50=p50,
        p90=p90,
        p99=p99,
        mean=statistics.fmean(times),
        std=statistics.pstdev(times),
        speedup=percentile(baseline, 0.5) / p50,
        p50_by_tokens={name: percentile(group, 0.5) for name, group in groups.items()},
    )


def baseline_of(all_options: Sequence[DecodingOptions]) -> DecodingOptions:
    """What the others are compared with: the teacher with beam 4 if it is among them, else L=0, else the first."""
    for name in ("teacher beam 4", "L=0"):
        for options in all_options:
            if str(options) == name:
                return options
    return all_options[0]


def overtakes(teacher: Mapping[int, float], other: Mapping[int, float]) -> int | None:
    """The smallest batch size at which the teacher's rate is the higher one."""
    return min((batch for batch, rate in teacher.items() if rate > other[batch]), default=None)


def crossovers(speeds: Sequence[Speed]) -> Iterator[Crossover]:
    """Every teacher against the default refining system of the same form."""
    for form in dict.fromkeys(speed.form for speed in speeds):
        same_form = [speed for speed in speeds if speed.form == form]
        refining = [speed for speed in same_form if speed.options.refines and speed.options.candidates == 1]
        if not refining:
            continue
        method = preferred_field([speed.options.method for speed in refining])
        default = min((s for s in refining if s.options.method == method), key=lambda s: s.options.steps)
        rates = {rate.batch: rate.sentences_per_second for rate in default.rates}
        for speed in same_form:
            if speed.options.method == "teacher":
                own_rates = {rate.batch: rate.sentences_per_second for rate in speed.rates}
                yield Crossover(speed.name, default.name, overtakes(own_rates, rates), max(own_rates))
