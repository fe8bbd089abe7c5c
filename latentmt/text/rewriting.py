"""A text with parts of it replaced by others, and where its characters went. It does not know why."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True, order=True)
class Replacement:
    """Characters of a text, and what stands there instead."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Rewritten:
    """A text with replacements, which are in order and do not overlap."""

    before: str
    replacements: Sequence[Replacement] = ()

    @cached_property
    def text(self) -> str:
        """What it has become."""
        parts, place = [], 0
        for one in self.replacements:
            parts += [self.before[place : one.start], one.text]
            place = one.end
        return "".join([*parts, self.before[place:]])

    def after(self, start: int, end: int) -> tuple[int, int]:
        """Where characters of the text before are now; those of a replaced part are all of what replaced it."""
        return _moved(start, end, [(one.start, one.end, len(one.text)) for one in self.replacements])

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Where characters of the new text were before; those of a replacement were all of what it replaced."""
        grown = accumulate((len(one.text) - (one.end - one.start) for one in self.replacements), initial=0)
        places = [
            (one.start + shift, one.start + shift + len(one.text), one.end - one.start)
            for one, shift in zip(self.replacements, grown, strict=False)
        ]
        return _moved(start, end, places)


def _moved(start: int, end: int, parts: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    """A span where each part, from … to …, has another length."""
    starts = [part[0] for part in parts]
    shifts = [0, *accumulate(size - (last - first) for first, last, size in parts)]

    def place(at: int, is_end: bool) -> int:
        number = bisect_right(starts, at - is_end)
        if number:
            first, last, size = parts[number - 1]
            if first <= at < last or (is_end and first < at <= last):  # inside: the whole of it
                return first + shifts[number - 1] + (size if is_end else 0)
        return at + shifts[number]

    return place(start, False), max(place(start, False), place(end, True))
