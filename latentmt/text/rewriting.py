"""A text with some spans replaced, and the mapping between characters of the original and of the result."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import itemgetter


@dataclass(frozen=True, order=True)
class Replacement:
    """A span of a text and its new text."""

    start: int
    end: int
    text: str

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end


@dataclass(frozen=True)
class Rewritten:
    """A text with replacements, which are sorted and do not overlap."""

    original: str
    replacements: Sequence[Replacement] = ()

    @cached_property
    def text(self) -> str:
        """The result."""
        parts, end = [], 0
        for replacement in self.replacements:
            parts += [self.original[end : replacement.start], replacement.text]
            end = replacement.end
        return "".join([*parts, self.original[end:]])

    def to_rewritten(self, start: int, end: int) -> tuple[int, int]:
        """Map a span of the original to the result. A part of a replaced span maps to all of its new text."""
        return _mapped(start, end, [(*replacement.span, len(replacement.text)) for replacement in self.replacements])

    def to_original(self, start: int, end: int) -> tuple[int, int]:
        """Map a span of the result to the original. A part of a new text maps to all of the span it replaced."""
        shifts = accumulate((len(new.text) - (new.end - new.start) for new in self.replacements), initial=0)
        changes = [
            (new.start + shift, new.start + shift + len(new.text), new.end - new.start)
            for new, shift in zip(self.replacements, shifts, strict=False)
        ]
        return _mapped(start, end, changes)


def _mapped(start: int, end: int, changes: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    """Map a span, given the start, the end and the new length of each changed part."""
    first = _position(start, False, changes)
    return first, max(first, _position(end, True, changes))


def _position(at: int, is_end: bool, changes: Sequence[tuple[int, int, int]]) -> int:
    """Map the start or the end of a span."""
    number = bisect_right(changes, at - is_end, key=itemgetter(0))
    shift = sum(size - (last - first) for first, last, size in changes[: max(number - 1, 0)])
    if number == 0:
        return at
    first, last, size = changes[number - 1]
    if first <= at < last or (is_end and first < at <= last):  # inside: the whole part
        return first + shift + (size if is_end else 0)
    return at + shift + size - (last - first)
