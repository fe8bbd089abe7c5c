"""Names: words that a translation should have as they are, and whether it has them.

Whether a word is a name is a logistic regression on its letters and the words beside it, learnt from parallel text
(`export/names.py`): was it copied? Words that were seen and not copied are no names. Nothing here is about a language.
A word that only may be a name counts where the translation spoils it: where it has a similar word that nobody writes.
This file finds words. Translating again is the translator's task.
"""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

import numpy as np
from jaxtyping import UInt

from latentmt.data.arrays import read_arrays, write_arrays
from latentmt.errors import UserError

FILE = "names.npz"
"""The file beside a model's bundles."""
MAX_BYTES = 1 << 20
"""The most bytes of the file."""
BUCKETS = 1 << 15
"""Features are hashed to so many weights."""
STEP, ZERO = 1 / 16, 128
"""Weights are stored as multiples of this, plus that."""
LIKELY = 0.5
"""From this probability on a word is a name."""
POSSIBLE = 0.1
"""From this probability on a word is a name if the translation spoils it."""

_SET_BITS = 1 << 20
_MIN_LETTERS = 3
"""Of a name. Initials come back."""
_MIN_SIMILARITY = 0.5
"""A spoilt word is as similar to the name (twice the matching letters, as a share of both words' letters)."""
WORD = re.compile(r"\w+(?:[-'’]\w+)*")
LETTERS = re.compile(r"[^\W\d_]+")
# How a name may be written otherwise, after its accents are removed: "Müller" or "Mueller", "Łódź" or "Lodz".
_SPELLINGS = {"ł": "l", "ø": "o", "đ": "d", "ı": "i", "æ": "a", "œ": "o", "ae": "a", "oe": "o", "ue": "u"}
_SPELLING = re.compile("|".join(_SPELLINGS))
_ENDING = r"(?:['’]?s|es)?"
"""What a name may end in in the translation. A name that ends in s may lack it: a genitive does."""


@dataclass(frozen=True)
class Word:
    """A word with a capital, and what stands beside it."""

    start: int
    end: int
    text: str
    before: str
    """The word before it, if there is one."""
    mark: str
    """The first sign between the two, "^" at the beginning of a text."""
    after: str

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end


def find_words(text: str) -> list[Word]:
    """The words that may be names: those with a capital and without digits. None in a text that has capitals only."""
    if text == text.upper():
        return []
    words, found = list(WORD.finditer(text)), []
    for number, match in enumerate(words):
        word = match[0]
        if len(word) < _MIN_LETTERS or not word[0].isupper() or any(map(str.isdigit, word)):
            continue
        last = words[number - 1] if number else None
        mark = text[last.end() : match.start()].strip()[:1] if last else "^"
        after = words[number + 1][0] if number + 1 < len(words) else ""
        found.append(Word(*match.span(), word, last[0] if last else "", mark, after))
    return found


def features(word: Word) -> frozenset[int]:
    """The weights that a word's score is the sum of."""
    return _own_features(word.text) | _other_features(word)


@lru_cache(1 << 12)
def _own_features(word: str) -> frozenset[int]:
    shape = re.sub(r"(.)\1+", r"\1", "".join("X" if letter.isupper() else "x" for letter in word))
    return _hashed(["", f"l:{min(len(word) // 2, 8)}", f"s:{shape}", *_grams(f"^{word}$", 1, 2, 3)])


def _other_features(word: Word) -> frozenset[int]:
    names = [word.before[:1].isupper(), word.after[:1].isupper()]
    found = [f"p:{word.before}", f"g:{word.mark}", f"n:{word.after}", f"c:{names}"]
    if names[0]:
        found += [f"q{gram}" for gram in _grams(f"^{word.before}$", 2, 3)]
    if names[1]:
        found += [f"r{gram}" for gram in _grams(f"^{word.after}$", 2, 3)]
    return _hashed(found)


def _grams(text: str, *sizes: int) -> Iterator[str]:
    return (text[start : start + size] for size in sizes for start in range(len(text) - size + 1))


def _hashed(names: Iterable[str]) -> frozenset[int]:
    return frozenset(_hash(name) % BUCKETS for name in names)


def _hash(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


class WordSet:
    """A set of words as hashes of 20 bits. Of other words, as many seem to be in it as it has bits set."""

    def __init__(self, bits: UInt[np.ndarray, " n"]) -> None:
        self.bits = bits
        self._bits = bits.tobytes()

    @staticmethod
    def of(words: Iterable[str]) -> WordSet:
        bits = np.zeros(_SET_BITS, dtype=np.uint8)
        bits[[_hash(word) % _SET_BITS for word in words]] = 1
        return WordSet(np.packbits(bits))

    def __contains__(self, word: str) -> bool:
        place, bit = divmod(_hash(word) % _SET_BITS, 8)
        return bool(self._bits[place] >> (7 - bit) & 1)


class Names:
    """What names look like between two languages."""

    def __init__(self, weights: UInt[np.ndarray, " n"], translated: WordSet, known: WordSet) -> None:
        self._weights, self._translated, self._known = weights, translated, known
        self._values = [STEP * (weight - ZERO) for weight in weights.tolist()]

    @staticmethod
    def from_bytes(content: bytes) -> Names:
        """The content of a file. The error says what is wrong with it."""
        try:
            weights, translated, known = read_arrays(content, ["weights", "translated", "known"])
        except ValueError:
            raise UserError("not a file of names") from None
        shapes = [(BUCKETS,), (_SET_BITS // 8,), (_SET_BITS // 8,)]
        arrays = [weights, translated, known]
        if [array.shape for array in arrays] != shapes or any(array.dtype != np.uint8 for array in arrays):
            raise UserError("not a file of names of this version")
        return Names(weights, WordSet(translated), WordSet(known))

    def to_bytes(self) -> bytes:
        """The content of a file."""
        return write_arrays({"weights": self._weights, "translated": self._translated.bits, "known": self._known.bits})

    def probability(self, word: Word) -> float:
        """How likely a word is copied, if it is not one that was seen and not copied."""
        return 1 / (1 + math.exp(-sum(self._values[feature] for feature in features(word))))

    def missing(self, source: str, translation: str) -> list[tuple[int, int]]:
        """Where the source has names that the translation lacks."""
        written = set(WORD.findall(translation))
        others = [word for word in find_words(source) if word.text not in written and word.text not in self._translated]
        likely = [(word, probability) for word in others if (probability := self.probability(word)) >= POSSIBLE]
        if not likely:
            return []
        folded = _folded(translation)
        return [
            word.span
            for word, probability in likely
            if not _is_present(word.text, folded)
            and (probability >= LIKELY or self._is_spoilt(word.text, source, translation))
        ]

    def _is_spoilt(self, name: str, source: str, translation: str) -> bool:
        """Whether the translation has a similar word that is neither the source's nor known."""
        own, folded = {word.lower() for word in LETTERS.findall(source)}, _folded(name)
        return any(
            word.lower() not in own
            and word.lower() not in self._known
            and SequenceMatcher(None, folded, _folded(word)).ratio() > _MIN_SIMILARITY
            for word in LETTERS.findall(translation)
            if len(word) > 1
        )


def _is_present(name: str, folded: str) -> bool:
    """Whether a folded translation has a name, perhaps with another ending or another spelling of its accents."""
    stem = _folded(name)
    found = re.search(rf"(?<!\w){re.escape(stem)}{_ENDING}(?!\w)", folded)
    return bool(found or (stem.endswith("s") and re.search(rf"(?<!\w){re.escape(stem[:-1])}(?!\w)", folded)))


def _folded(text: str) -> str:
    """Without capitals and accents."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return _SPELLING.sub(lambda match: _SPELLINGS[match[0]], plain)
