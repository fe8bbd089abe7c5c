"""Words as lines of subtitles: short, few, and about equally long. And a text divided over cues in proportion."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

MAX_LINE = 42
"""The most characters of a line."""


class Word(NamedTuple):
    """A word, and how many characters of it are seen."""

    raw: str
    length: int

    def __add__(self, other: object) -> Word:
        assert isinstance(other, Word)
        return Word(self.raw + other.raw, self.length + other.length)


def broken(words: Sequence[Word]) -> list[str]:
    """The words as lines: as few as possible, then the longest as short as possible."""
    fewest = len(_filled(words, MAX_LINE))
    low, high = 1, MAX_LINE
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(_filled(words, middle)) <= fewest else (middle + 1, high)
    return [" ".join(word.raw for word in line) for line in _filled(words, low)]


def _filled(words: Sequence[Word], width: int) -> list[list[Word]]:
    """Lines of at most this width, unless a word alone is longer."""
    lines: list[list[Word]] = []
    length = width
    for word in words:
        if lines and length + 1 + word.length <= width:
            lines[-1].append(word)
            length += 1 + word.length
        else:
            lines.append([word])
            length = word.length
    return lines


def divided(text: str, weights: Sequence[int]) -> list[str]:
    """The text in as many pieces as there are weights, in proportion to them and rather after punctuation.

    If there are fewer words than pieces, the last word is repeated.
    """
    words = text.split()
    words += words[-1:] * (len(weights) - len(words))
    ends = list(accumulate(len(word) + 1 for word in words))
    cuts = [0]
    total = sum(weights)
    for number, reached in enumerate(list(accumulate(weights))[:-1]):
        ideal = ends[-1] * reached / total
        first, last = cuts[-1] + 1, len(words) - (len(weights) - number - 1)
        near = range(max(first, bisect_left(ends, ideal) - 2), min(last, bisect_left(ends, ideal) + 4) + 1)
        candidates = near or range(min(max(first, bisect_left(ends, ideal)), last), last + 1)
        cuts.append(min(candidates, key=lambda cut: _distance(words[cut - 1], ends[cut - 1], ideal)))
    cuts.append(len(words))
    return [" ".join(words[start:end]) for start, end in pairwise(cuts)]


def _distance(word: str, end: int, ideal: float) -> float:
    """How far a cut after a word is from the ideal one. After punctuation it counts less."""
    return abs(end - ideal) - (6 if word.endswith((",", ";", ":", ".", "!", "?", "…")) else 0)
