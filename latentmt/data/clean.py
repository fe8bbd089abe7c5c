"""Which pairs are kept: the rules that drop a training pair, each counting what it drops.

Every pair is dropped by the first rule that objects, so the counts add up. Rules on text come before the tokenizer,
rules on length in tokens after it. Only training text is cleaned: a development or test set stays whole.
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
    """What a training pair must be like."""

    bad_lines: Literal["error", "drop"] = "error"
    """Invalid UTF-8, NUL bytes and missing columns stop the work, or drop the pair and are counted."""
    max_characters: Annotated[int, Field(ge=1)] = 2000
    """The longest line, before the tokenizer sees it."""
    max_length: Annotated[int, Field(ge=2)] = 64
    """The longest sentence in tokens, EOS counted, on either side."""
    max_ratio: Annotated[float, Field(ge=1)] = 3.0
    """The longer side over the shorter one, in tokens, EOS counted."""
    duplicates: Literal["drop", "keep"] = "drop"
    """What happens to a pair that has been there before."""
    languages: tuple[str, str] | None = None
    """If given, e.g. [de, en]: drop pairs in which py3langid takes a side for another language. It is only asked
    about sides of 40 characters or more: it takes "Danke!" for Danish."""


_SHORTEST_IDENTIFIED = 40


@dataclass
class Tally:
    """How many pairs were read, and how many each rule dropped."""

    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    """Pairs that were used once more, before rules on length."""


class Cleaner:
    """The rules, with what they must remember between chunks of a corpus."""

    def __init__(self, config: CleanConfig) -> None:
        self._config = config
        self._seen = _SeenPairs()
        self._languages = _LanguageFilter(config.languages) if config.languages else None

    def keep_text(self, pairs: Sequence[Pair], tally: Tally) -> list[Pair]:
        """The pairs whose text is acceptable, in order."""
        limit = self._config.max_characters
        pairs = _filtered("empty", pairs, [bool(p.source and p.target) for p in pairs], tally)
        pairs = _filtered(
            "too many characters", pairs, [max(len(p.source), len(p.target)) <= limit for p in pairs], tally
        )
        if self._config.duplicates == "drop":
            pairs = _filtered("duplicate", pairs, self._seen.add(pairs), tally)
        if self._languages:
            pairs = _filtered("wrong language", pairs, [self._languages.accepts(p) for p in pairs], tally)
        return list(pairs)


def keep_lengths(
    source: Int[np.ndarray, n], target: Int[np.ndarray, n], config: CleanConfig, tally: Tally
) -> Bool[np.ndarray, n]:
    """True for the pairs whose lengths in tokens are acceptable."""
    longer, shorter = np.maximum(source, target), np.minimum(source, target)
    too_long = longer > config.max_length
    lopsided = ~too_long & (longer > config.max_ratio * shorter)
    tally.dropped["too many tokens"] += int(too_long.sum())
    tally.dropped["length ratio"] += int(lopsided.sum())
    return np.asarray(~too_long & ~lopsided)


def _filtered(
    rule: str, pairs: Sequence[Pair], keep: Sequence[bool] | Bool[np.ndarray, n], tally: Tally
) -> Sequence[Pair]:
    kept = [pair for pair, good in zip(pairs, keep, strict=True) if good]
    tally.dropped[rule] += len(pairs) - len(kept)
    return kept


class _SeenPairs:
    """Remembers pairs as 64-bit hashes: 8 bytes a pair, 16 while two runs are merged.

    The hashes are kept in sorted runs, each at least twice as long as the next; two different pairs are taken for
    one with a probability of about n²/2⁶⁵ (10⁻⁶ for six million pairs).
    """

    def __init__(self) -> None:
        self._runs: list[UInt64[np.ndarray, n]] = []

    def add(self, pairs: Sequence[Pair]) -> Bool[np.ndarray, n]:
        """Remember these pairs; True for those that are new, the first of equals being so."""
        hashes = np.array([_hash(pair) for pair in pairs], dtype=np.uint64)
        fresh = np.zeros(len(hashes), dtype=bool)
        fresh[np.unique(hashes, return_index=True)[1]] = True
        for run in self._runs:
            place = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            fresh &= run[place] != hashes
        run = np.sort(hashes[fresh])
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.concatenate([self._runs.pop(), run])
            run.sort()
        if len(run):
            self._runs.append(run)
        return fresh


def _hash(pair: Pair) -> int:
    text = f"{pair.source}\n{pair.target}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


class _LanguageFilter:
    """py3langid's opinion of both sides."""

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
            len(text) < _SHORTEST_IDENTIFIED or self._classify(text)[0] == language
            for text, language in zip((pair.source, pair.target), self._languages, strict=True)
        )
