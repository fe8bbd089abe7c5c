"""Placeholders: characters that replace spans which the translation copies verbatim.

A placeholder stands for a string, so equal strings share one. In training text placeholders replace spans that occur on
both sides, and a few random names that occur on both sides. So a model learns where to put them.
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
_MAX_NAMES = 3


@dataclass(frozen=True, kw_only=True)
class PlaceholderConfig(Section):
    """Placeholders in training text. They are used only if the tokenizer reserves pieces for them."""

    share: Annotated[float, Field(ge=0, le=1)] = 0.05
    """In this share of the pairs, a few names and numbers that occur on both sides are replaced too."""
    seed: Annotated[int, Field(ge=0)] = 1


def replaced(text: str, spans: Sequence[tuple[int, int]], placeholders: dict[str, str]) -> str:
    """The text with spans replaced by their placeholder, if they have one. Spans are sorted and do not overlap."""
    parts, end_of_last = [], 0
    for start, end in spans:
        if placeholder := placeholders.get(text[start:end]):
            parts += [text[end_of_last:start], placeholder]
            end_of_last = end
    return "".join([*parts, text[end_of_last:]])


class PairMasker:
    """Replaces spans of training pairs by placeholders. Samples depend on the seed and the order of pairs alone."""

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
            names = [_names(side, side_spans) for side, side_spans in zip(sides, spans, strict=True)]
            shared = [name for name in _common(sides, names) if name not in common]
            common += self._random.sample(shared, min(len(shared), self._random.randint(1, _MAX_NAMES)))
            spans = [sorted(side_spans + side_names) for side_spans, side_names in zip(spans, names, strict=True)]
        if not common:
            return pair
        count = min(len(common), len(self._placeholders))
        placeholders = dict(zip(common, self._random.sample(self._placeholders, count), strict=False))
        return Pair(*(replaced(side, side_spans, placeholders) for side, side_spans in zip(sides, spans, strict=True)))


def _names(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans of names and numbers that do not overlap with `spans`."""
    names = [match.span() for match in _NAME.finditer(text)]
    return [(start, end) for start, end in names if not any(start < last and first < end for first, last in spans)]


def _common(sides: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]]) -> list[str]:
    """The strings that are spans of both sides equally often, in source order."""
    source, target = (
        [side[start:end] for start, end in side_spans] for side, side_spans in zip(sides, spans, strict=True)
    )
    return [string for string in dict.fromkeys(source) if source.count(string) == target.count(string)]
