"""The data of a report: everything that was measured about a model, as dataclasses that are written as JSON.

How it is measured (`collect`), drawn (`plots`) and written up (`report`) is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from latentmt.config import Section
from latentmt.errors import UserError
from latentmt.fields.base import Style
from latentmt.measure.bootstrap import Comparison
from latentmt.measure.landscape import Landscape
from latentmt.measure.likelihood import SAMPLES, Likelihood
from latentmt.measure.machine import Machine
from latentmt.measure.paper import TABLE, Entry
from latentmt.measure.quality import Quality
from latentmt.measure.samples import Sample
from latentmt.measure.timing import Form, Timing
from latentmt.measure.tokens import TokenCounts

FORMAT = 2
"""Raised whenever a report or a cached measurement written before could be misread."""


@dataclass(frozen=True)
class Settings(Section):
    """How much is measured, and with which settings."""

    steps: tuple[int, ...] = (1, 2, 4)
    lengths: int = 5
    samples: int = 5
    """A search tries this many lengths and this many latents for each, with the first number of steps."""
    seed: int = 1
    """Of the samples, and of the noise that estimates use."""
    length_bias: float = 0.0
    timed: int = 200
    """Texts that every system is timed on."""
    compiled: bool = False
    """Whether compiled searches are timed, too."""
    judged: int = 500
    """Sentences whose log-likelihood is estimated."""
    posterior_samples: int = SAMPLES
    """Samples of each estimate."""
    shown: int = 8
    """Samples of translations; 0 for none."""

    def __post_init__(self) -> None:
        for name, minimum in (("timed", 1), ("judged", 1), ("posterior_samples", 2), ("shown", 0)):
            if getattr(self, name) < minimum:
                raise UserError(f"{name} {getattr(self, name)}: expected {minimum} or more")


@dataclass(frozen=True)
class Conditions(Section):
    """The test set and the machine."""

    files: dict[str, str]
    """File name → hash, for people: two files may have the same name."""
    text_hash: str
    """Of sources and references."""
    lines: int
    machine: Machine


@dataclass(frozen=True)
class Signature(Section):
    """Everything that a measurement depends on."""

    conditions: Conditions
    models: dict[str, str]
    """Kind → fingerprint of each model that takes part."""
    settings: dict[str, Any]
    """As they are in JSON."""
    format: int = FORMAT


@dataclass(frozen=True)
class Measurement(Section):
    """The base of everything that is measured and cached on its own."""

    signature: Signature


@dataclass(frozen=True)
class System(Measurement):
    """A row of Table 1: a method with its decoding options, and its quality."""

    method: str
    """Not checked against the methods of this installation: a report is read anywhere."""
    steps: int
    """Refinement steps; 0 where nothing is refined."""
    candidates: int
    rerank: str
    beam: int | None
    """Of the teacher; None for other methods."""
    quality: Quality
    texts: list[str]
    """The translations: kept in the cache, left out of a report."""

    @property
    def is_search(self) -> bool:
        """Whether one of several candidates was chosen."""
        return self.candidates > 1

    @property
    def bleu(self) -> float:
        """The paper's BLEU."""
        return self.quality.bleu_lc_intl.value


@dataclass(frozen=True)
class Ordering(Section):
    """Two rows of Table 1, the first of which is better according to the paper."""

    better: str
    worse: str
    comparison: Comparison


@dataclass(frozen=True)
class Orderings(Measurement):
    """The paper's orderings, compared by paired bootstrap."""

    orderings: list[Ordering]


@dataclass(frozen=True)
class TokenCurve(Measurement):
    """Token counts after each number of steps of a method."""

    points: list[TokenCounts]


@dataclass(frozen=True)
class LikelihoodCurve(Measurement):
    """Log-likelihood after each number of steps of a method."""

    points: list[Likelihood]


@dataclass(frozen=True)
class SystemTime(Section):
    """How long a system takes for one text."""

    row: str
    form: Form
    text: Timing
    """From a text to its translation."""
    model: Timing | None
    """From ids to ids, of the texts that are one sentence."""


@dataclass(frozen=True)
class Timings(Measurement):
    """All systems timed in one run: times of different runs are not compared."""

    texts: int
    sentences: int
    threads: int
    length_bias: float
    times: list[SystemTime]

    def by_form(self) -> dict[str, dict[str, Timing]]:
        """Form → row → its times, text to text."""
        forms: dict[str, dict[str, Timing]] = {}
        for time in self.times:
            forms.setdefault(time.form, {})[time.row] = time.text
        return forms


@dataclass(frozen=True)
class LandscapeResult(Measurement):
    """Figure 4, which has a model of its own."""

    landscape: Landscape
    line: int | None
    """The number of the sentence in the test set where it was chosen there, from 1."""


@dataclass(frozen=True)
class SampleSet(Measurement):
    """Translations of samples of the prior, before and after refinement."""

    method: str
    steps: int
    samples: list[Sample]


@dataclass(frozen=True)
class Curves(Section):
    """The logged metrics of a training run, an entry a logged step, `step` among its keys."""

    train: list[dict[str, float]]
    dev: list[dict[str, float]]


@dataclass(frozen=True)
class Report(Section):
    """Everything that was measured about a model, and the conditions it was measured under."""

    name: str
    languages: tuple[str, str]
    paper: str
    """The paper's corpus that results are compared with."""
    conditions: Conditions
    models: dict[str, str]
    settings: Settings
    styles: dict[str, Style]
    """By method and training stage, so that a figure needs nothing but the report."""
    systems: dict[str, System]
    """By row, in the order of the table."""
    orderings: Orderings
    tokens: dict[str, TokenCurve]
    """By method; so is `likelihood`."""
    likelihood: dict[str, LikelihoodCurve]
    timings: Timings
    landscape: LandscapeResult | None
    samples: SampleSet | None
    training: dict[str, Curves]
    """By stage."""
    command: list[str] = field(default_factory=list)
    """The command that made the report."""
    provenance: str = ""
    """How the report was put together, where no single command made it."""
    format: int = FORMAT

    @property
    def paper_rows(self) -> dict[str, Entry]:
        """The paper's numbers; it need not have all rows of the report."""
        return TABLE[self.paper]

    @property
    def other_timed_models(self) -> dict[str, str]:
        """The models that were timed, by kind, as far as they are not those of the report."""
        return {kind: hash_ for kind, hash_ in self.timings.signature.models.items() if self.models.get(kind) != hash_}
