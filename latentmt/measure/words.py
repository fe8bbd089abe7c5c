"""Words that nobody writes, and numbers that get lost: what a translation has against its source and known words.

A word is a maximal run of letters, its case folded; a number is a maximal run of digits. It compares texts, and knows
nothing of how they were made.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from latentmt.data.text import all_text, read_lines
from latentmt.errors import UserError

_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"\d+")


def words_of(text: str) -> list[str]:
    """The words of a text, in order."""
    return [word.casefold() for word in _WORD.findall(text)]


def read_words(paths: Sequence[Path]) -> frozenset[str]:
    """The different words of text files. None at all is an error."""
    chunks: set[str] = set()
    for line in all_text(read_lines(paths)):
        chunks.update(line.split())  # no word has white space in it, and few chunks differ
    words = frozenset(word for chunk in chunks for word in words_of(chunk))
    if not words:
        raise UserError(f"{', '.join(map(str, paths))}: no words")
    return words


def non_words(texts: Sequence[str], sources: Sequence[str], known: Collection[str]) -> float:
    """The share of the words of all texts that are neither known nor in their own source."""
    written = unknown = 0
    for text, source in zip(texts, sources, strict=True):
        words = words_of(text)
        copied = set(words_of(source))
        written += len(words)
        unknown += sum(word not in known and word not in copied for word in words)
    return unknown / max(1, written)


def numbers_kept(texts: Sequence[str], sources: Sequence[str]) -> float | None:
    """The share of the numbers of all sources that are in their translations, as often; None if there are none."""
    expected = kept = 0
    for text, source in zip(texts, sources, strict=True):
        numbers = Counter(_NUMBER.findall(source))
        expected += numbers.total()
        kept += (numbers & Counter(_NUMBER.findall(text))).total()
    return kept / expected if expected else None
