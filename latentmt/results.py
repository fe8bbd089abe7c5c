"""What translating yields, as plain data on the host: candidates, annotations, traces, translations.

It knows no networks and no devices.
"""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from latentmt.data.tokenizer import SPECIAL

LEAST_LOG_PROB = -1e4
"""The log-probability of a token that a model cannot write, as a number that JSON has."""


@dataclass(frozen=True)
class Candidate:
    """A target of a sentence, as ids."""

    decoded: list[int]
    """As decoded, without special pieces. Repetitions are counted here."""
    readable: list[int]
    """As read: repetitions removed."""
    score: float
    """What candidates are ranked by, per token; the teacher's own score where it translates; 0 without a rerank."""


@dataclass(frozen=True)
class Candidates:
    """All candidates of a sentence."""

    all: list[Candidate]
    best: int
    """Which one is kept."""

    @property
    def ranked(self) -> list[Candidate]:
        """The candidates that read differently, the kept one first, then by their scores."""
        ordered = [self.all[self.best], *sorted(self.all, key=lambda candidate: -candidate.score)]
        first: dict[tuple[int, ...], Candidate] = {}
        for candidate in ordered:
            first.setdefault(tuple(candidate.readable), candidate)
        return list(first.values())


@dataclass(frozen=True)
class Annotation:
    """What a model says of a target, token by token, EOS left out."""

    attention: npt.NDArray[np.float32]
    """By target and source token: how much of the target token is owed to the source token. Rows sum to 1, or to 0 if
    the latent model has no way to write the target."""
    log_probs: list[float]
    """Of the target's tokens, if asked for: the teacher's, else the latent decoder's at the posterior's mean."""


@dataclass(frozen=True)
class Link:
    """Characters of a text and characters of its translation that belong together."""

    source: tuple[int, int]
    """Start and end."""
    target: tuple[int, int]
    weight: float
    """How much of the target's characters is owed to the source's."""

    def shifted(self, source: int, target: int) -> Link:
        """The same where sentence and translation begin at these characters."""
        (a, b), (c, d) = self.source, self.target
        return Link((a + source, b + source), (c + target, d + target), self.weight)


@dataclass(frozen=True)
class Token:
    """A piece of a translation as the model wrote it."""

    text: str
    """With the white space before it."""
    confidence: float
    """Its probability (see `Annotation.log_probs`)."""


@dataclass(frozen=True)
class Translation:
    """A translated text."""

    text: str
    ids: list[int] = field(default_factory=list)
    """The pieces of all its sentences as decoded, before repetitions were removed; without special pieces."""
    score: float | None = None
    """Log-probability per token by what ranked the candidates, or, with details, of the tokens; else None."""
    alternatives: list[str] = field(default_factory=list)
    """Other translations, where they were asked for; no two alike."""
    tokens: list[Token] = field(default_factory=list)
    """With details only."""
    alignment: list[Link] = field(default_factory=list)
    """Which characters of the text and of its translation belong together; with details only."""
    sentences: list[tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=list)
    """Where each sentence begins and ends in the text, and where in its translation; with the alignment only."""

    @property
    def confidence(self) -> float:
        """The geometric mean of the tokens' probabilities, with details only; 1 where nothing had to be translated."""
        if not self.tokens:
            return 1.0
        return math.exp(sum(math.log(max(token.confidence, 1e-12)) for token in self.tokens) / len(self.tokens))


@dataclass(frozen=True)
class Step:
    """The kept candidate after a number of refinement steps; 0 is where it began."""

    number: int
    z: list[list[float]]
    """The latent at each place."""
    ids: list[int]
    """The token that each place writes, EOS included; BLANK if it writes none."""
    log_probs: list[float]
    """log p of the likeliest id at each place."""
    milliseconds: float = field(default=0.0, compare=False)
    """The time since the step before; the first one is encoding, length and prior."""

    @property
    def confidence(self) -> float:
        """The geometric mean of these probabilities."""
        return min(1.0, math.exp(sum(self.log_probs) / max(len(self.log_probs), 1)))


@dataclass(frozen=True)
class SentenceTrace:
    """A sentence's path from its first latent to its translation."""

    source: list[int]
    steps: list[Step]
    """Of the kept candidate."""
    candidates: list[Candidate]
    best: int

    @property
    def ranked(self) -> list[Candidate]:
        return Candidates(self.candidates, self.best).ranked


def changed(before: Sequence[Any], after: Sequence[Any]) -> set[int]:
    """The positions of the tokens, or words, that were not there before."""
    changes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return {position for kind, _, _, first, last in changes if kind != "equal" for position in range(first, last)}


def count_repeats(ids: Sequence[int]) -> int:
    """How many ids repeat the one before them."""
    return sum(first == second for first, second in itertools.pairwise(ids))


def without_special(ids: Sequence[int]) -> list[int]:
    """The ids that have text."""
    return [id_ for id_ in ids if id_ not in SPECIAL]
