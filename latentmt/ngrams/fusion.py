"""Shallow fusion: what a language model adds to the score of a target (Gülçehre et al., 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

from latentmt.ngrams.model import STEP
from latentmt.options import DecodingOptions

MARGIN = 5.0
"""Labels of a place are tried if they are less than e⁵ times less likely than the likeliest one."""
MAX_LABELS = 8
"""The most labels of a place that are tried."""


@runtime_checkable
class HasSurprisal(Protocol):
    """A language model, in whatever form an engine has it."""

    @property
    def surprisal(self) -> int: ...


M = TypeVar("M", bound=HasSurprisal)
Cost = TypeVar("Cost")


@dataclass(frozen=True)
class Fusion(Generic[M]):
    """A language model beside the decoder."""

    model: M
    weight: float
    beam: int
    """Prefixes that are kept at each place."""

    def bonus(self, cost: Cost) -> Cost:
        """What tokens add that cost so many steps: weight · (log p + what a token costs on average).

        Without the average every token would cost something, and translations would become short.
        """
        return self.weight * STEP * (self.model.surprisal - cost)  # type: ignore[operator]


def fusion_of(model: M | None, options: DecodingOptions) -> Fusion[M] | None:
    """The language model that translations are read with, if they are."""
    if not options.lm_weight:
        return None
    assert model is not None
    return Fusion(model, options.lm_weight, options.beam)
