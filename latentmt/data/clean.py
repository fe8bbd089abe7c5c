"""Cleaning: the rules that drop training pairs. Each counts what it drops.

A pair is dropped by the first rule that rejects it, so the counts add up. Rules on text apply before the tokenizer,
rules on length in tokens after it. Only training text is cleaned, never a development or test set.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Bool, Int, UInt64
from pydantic import Field

from latentmt.config import Section
from latentmt.data.text import Pair
from latentmt.errors import UserError


@dataclass(frozen=True, kw_only=True)
class CleanConfig(Section):
    """What training pairs are kept."""

    bad_lines: Literal["error", "drop"] = "error"
    """Invalid UTF-8, NUL bytes and missing columns are an error, or the pair is dropped and counted."""
    max_characters: Annotated[int, Field(ge=1)] = 2000
    """The maximum length of a line in characters."""
    max_length: Annotated[int, Field(ge=2)] = 64
    """The maximum length of a sentence in tokens on either side, including EOS."""
    max_ratio: Annotated[float, Field(ge=1)] = 3.0
    """The maximum ratio of the longer side to the shorter one, in tokens including EOS."""
    duplicates: Literal["drop", "keep"] = "drop"
    """What happens to a pair that occurred before."""
    languages: tuple[str, str] | None = None
    """If given, e.g. [de, en]: drop pairs of which py3langid identifies a side as another language. Sides of fewer than
    40 characters are not checked: py3langid identifies "Danke!" as Danish."""


_MIN_IDENTIFIED = 40


@dataclass
class CleanCounts:
    """The number of pairs read, and dropped by each rule."""

    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    """Additional copies of pairs (`repeat`), before the rules on length."""


class Cleaner:
    """The rules on text, with their state between chunks of a corpus."""

    def __init__(self, config: CleanConfig) -> None:
        self._config = config
        self._seen = _SeenPairs()
        self._languages = _LanguageFilter(config.languages) if config.languages else None

    def keep_text(self, pairs: Sequence[Pair], counts: CleanCounts) -> list[Pair]:
        """The pairs that pass the rules on text, in order."""
        limit = self._config.max_characters
        pairs = _filtered("empty", pairs, [bool(p.source and p.target) for p in pairs], counts)
        pairs = _filtered(
            "too many characters", pairs, [max(len(p.source), len(p.target)) <= limit for p in pairs], counts
        )
        if self._config.duplicates == "drop":
            pairs = _filtered("duplicate", pairs, self._seen.add(pairs), counts)
        if self._languages:
            pairs = _filtered("wrong language", pairs, [self._languages.accepts(p) for p in pairs], counts)
        return list(pairs)


def keep_lengths(
    source: Int[np.ndarray, n], target: Int[np.ndarray, n], config: CleanConfig, counts: CleanCounts
) -> Bool[np.ndarray, n]:
    """True for the pairs that pass the rules on length."""
    longer, shorter = np.maximum(source, target), np.minimum(source, target)
    too_long = longer > config.max_length
    lopsided = ~too_long & (longer > config.max_ratio * shorter)
    counts.dropped["too many tokens"] += int(too_long.sum())
    counts.dropped["length ratio"] += int(lopsided.sum())
    return np.asarray(~too_long & ~lopsided)


def _filtered(
    rule: str, pairs: Sequence[Pair], keep: Sequence[bool] | Bool[np.ndarray, n], counts: CleanCounts
) -> Sequence[Pair]:
    kept = [pair for pair, good in zip(pairs, keep, strict=True) if good]
    counts.dropped[rule] += len(pairs) - len(kept)
    return kept


class _SeenPairs:
    """A set of 64-bit hashes of pairs: 8 bytes per pair, 16 while two runs are merged.

    The hashes are kept in sorted runs, each at least twice as long as the next. The probability of a collision is about
    n²/2⁶⁵ (10⁻⁶ for six million pairs).
    """

    def __init__(self) -> None:
        self._runs: list[UInt64[np.ndarray, n]] = []

    def add(self, pairs: Sequence[Pair]) -> Bool[np.ndarray, n]:
        """Add these pairs. True for those that are new. Of equal ones only the first is new."""
        hashes = np.array([_hash(pair) for pair in pairs], dtype=np.uint64)
        new = np.zeros(len(hashes), dtype=bool)
        new[np.unique(hashes, return_index=True)[1]] = True
        for run in self._runs:
            position = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            new &= run[position] != hashes
        run = np.sort(hashes[new])
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.concatenate([self._runs.pop(), run])
            run.sort()
        if len(run):
            self._runs.append(run)
        return new


def _hash(pair: Pair) -> int:
    text = f"{pair.source}\n{pair.target}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


class _LanguageFilter:
    """Language identification of both sides by py3langid."""

    def __init__(self, languages: tuple[str, str]) -> None:
        try:
            import py3langid
        except ImportError:
            raise UserError("language identification needs py3langid: pip install 'latentmt[train]'") from None
        self._classify = py3langid.classify
        self._languages = languages
        unknown = set(languages) - {language for language, _ in py3langid.rank("")}
        if unknown:
            raise UserError(f"clean.languages: py3langid does not know {', '.join(sorted(unknown))}")

    def accepts(self, pair: Pair) -> bool:
        return all(
            len(text) < _MIN_IDENTIFIED or self._classify(text)[0] == language
            for text, language in zip((pair.source, pair.target), self._languages, strict=True)
        )
