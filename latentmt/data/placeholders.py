"""Placeholders: characters that stand in a sentence for what its translation repeats verbatim.

A placeholder stands for a string, so equal strings share one. In training text it takes the place of spans that both
sides have, and of a few random names that both sides have, so that a model learns to put one where the name would go.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from latentmt.config import Section
from latentmt.data.spans import find_spans
from latentmt.data.text import Pair

_NAME = re.compile(r"(?<![\w.,:-])(?:[A-ZÄÖÜ]\w+|\d[\d.,:]*\d|\d)(?![\w-]|[.,:]\w)")
_MOST_NAMES = 3


@dataclass(frozen=True, kw_only=True)
class PlaceholderConfig(Section):
    """Placeholders in training text; there are none unless the tokenizer reserves pieces for them."""

    share: Annotated[float, Field(ge=0, le=1)] = 0.05
    """In this share of the pairs that have any, a few names and numbers of both sides are replaced, too."""
    seed: Annotated[int, Field(ge=0)] = 1


def replaced(text: str, spans: Sequence[tuple[int, int]], stand_ins: dict[str, str]) -> str:
    """The text with those of its spans that have a stand-in replaced by it. Spans are in order and do not overlap."""
    parts, place = [], 0
    for start, end in spans:
        if stand_in := stand_ins.get(text[start:end]):
            parts += [text[place:start], stand_in]
            place = end
    return "".join([*parts, text[place:]])


class PairMasker:
    """Puts placeholders into training pairs. What it draws is a function of the seed and of the pairs' order."""

    def __init__(self, placeholders: str, config: PlaceholderConfig) -> None:
        self._placeholders, self._share = placeholders, config.share
        self._random = random.Random(config.seed)

    def __call__(self, pair: Pair) -> Pair:
        if not self._placeholders:
            return pair
        sides = (pair.source, pair.target)
        spans = [find_spans(side) for side in sides]
        common = _common(sides, spans)
        if self._random.random() < self._share:
            names = [_names(side, found) for side, found in zip(sides, spans, strict=True)]
            shared = [name for name in _common(sides, names) if name not in common]
            common += self._random.sample(shared, min(len(shared), self._random.randint(1, _MOST_NAMES)))
            spans = [sorted(found + more) for found, more in zip(spans, names, strict=True)]
        if not common:
            return pair
        count = min(len(common), len(self._placeholders))
        stand_ins = dict(zip(common, self._random.sample(self._placeholders, count), strict=False))
        return Pair(*(replaced(side, found, stand_ins) for side, found in zip(sides, spans, strict=True)))


def _names(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where names and numbers are, outside of the spans."""
    names = [match.span() for match in _NAME.finditer(text)]
    return [(start, end) for start, end in names if not any(start < last and first < end for first, last in spans)]


def _common(sides: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]]) -> list[str]:
    """The strings that are spans of both sides, equally often, in the order of the source."""
    source, target = ([side[start:end] for start, end in found] for side, found in zip(sides, spans, strict=True))
    return [one for one in dict.fromkeys(source) if source.count(one) == target.count(one)]
