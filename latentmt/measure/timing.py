"""What is said about times that were measured: percentiles, medians by length, ratios, who overtakes whom.

It holds no watch; `latency` does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from latentmt.options import DecodingOptions, default_method

Form = Literal["eager", "graphed", "compiled"]
"""Whether searches are done as they come, recorded, or recorded after they were compiled."""
LENGTHS = (8, 16, 24, 32, 48, 64)
"""Source tokens, EOS counted, of the longest text in each group of texts."""


@dataclass(frozen=True)
class Timing:
    """Milliseconds of a number of translations; `std` is that of exactly these."""

    count: int
    p50: float
    p90: float
    p99: float
    mean: float
    std: float
    speedup: float
    """How many times as long the baseline's median is."""
    p50_by_tokens: dict[str, float]
    """The medians of texts of similar length, where there are any."""


@dataclass(frozen=True)
class Rate:
    """Sentences a second, a number of them at a time."""

    batch: int
    sentences_per_second: float


@dataclass(frozen=True)
class Speed:
    """How fast one way to translate is."""

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
    """Where a teacher becomes faster than refining."""

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
    place = share * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def length_group(tokens: int) -> str:
    """The name of the group of texts that have about this many source tokens."""
    low = 1
    for high in LENGTHS:
        if tokens <= high:
            return f"{low}-{high}"
        low = high + 1
    return f"{low}+"


def summary(times: Sequence[float], tokens: Sequence[int], baseline: Sequence[float]) -> Timing:
    """The times of texts that have so many tokens each, beside the baseline's times for them."""
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
    """What all are compared with: the teacher's beam of 4 if it is among them, else L=0, else the first."""
    for name in ("teacher beam 4", "L=0"):
        for options in all_options:
            if str(options) == name:
                return options
    return all_options[0]


def overtakes(teacher: Mapping[int, float], other: Mapping[int, float]) -> int | None:
    """The smallest batch size at which the teacher's rate is the higher one."""
    return min((batch for batch, rate in teacher.items() if rate > other[batch]), default=None)


def crossovers(speeds: Sequence[Speed]) -> Iterator[Crossover]:
    """Every teacher against the refining way one would use by default, each form apart."""
    for form in dict.fromkeys(speed.form for speed in speeds):
        alike = [speed for speed in speeds if speed.form == form]
        refining = [speed for speed in alike if speed.options.refines and speed.options.candidates == 1]
        if not refining:
            continue
        method = default_method([speed.options.method for speed in refining])
        default = min((s for s in refining if s.options.method == method), key=lambda s: s.options.steps)
        rates = {rate.batch: rate.sentences_per_second for rate in default.rates}
        for speed in alike:
            if speed.options.method == "teacher":
                mine = {rate.batch: rate.sentences_per_second for rate in speed.rates}
                yield Crossover(speed.name, default.name, overtakes(mine, rates), max(mine))
