"""Normalisation of text, the same for training and inference.

It applies to every sentence that a model sees, so the rules are stored in the model's bundle. Dropping pairs is done by
`clean`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from latentmt.config import Section


@dataclass(frozen=True, kw_only=True)
class TextRules(Section):
    """Optional rules for one side. NFC, control characters and white space are always normalised."""

    lowercase: bool = False
    """Lower-case everything."""
    language_rules: Literal["none", "romanian", "german"] = "none"
    """`romanian`: replace cedilla by comma letters, then remove all diacritics (Sennrich et al., 2016).
    `german`: write ss for ß after short vowels, as has been right since 1996 ("daß" becomes "dass")."""


# Control characters are replaced by spaces. Zero-width characters are removed.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
# A row of symbols in which there may be too many combining marks. Marks are no word characters.
_MANY_SYMBOLS = re.compile(r"[^\w\s\x00-\x7f]{31,}")
MAX_MARKS = 30
"""Combining marks in a row. More are dropped: NFC sorts them in time quadratic in their number. No language has so many
(Unicode's stream-safe text has the same bound)."""
_WORD = re.compile(r"[^\s\x00-\x1f\x7f-\x9f]+")
_CEDILLA_TO_COMMA = str.maketrans("şţŞŢ", "șțȘȚ")
_ROMANIAN_TO_PLAIN = str.maketrans("ășțâîĂȘȚÂÎ", "astaiASTAI")
# The vowel before a ß that is ss today. An i or e is short unless a diphthong ends with it; other vowels are by stem.
_SHORT_VOWEL_ESZETT = re.compile(
    r"""(?ix) (?: (?<!e)i | (?<!i)e
    | \b(?:so)?da | elsa | fa | ha | kra | la | na | (?<!s)pa | hä | lä | (?<!s)pä | rä(?=ßli)
    | bewu | dru | flu | gu(?!ße) | ku | mu(?!ße) | nu | ru(?=ßl) | schlu | schu | wu
    | kü(?=ßt) | mü(?=ßt) | nü(?=ßl) | wü(?=ßt)
    | ambo | geno | gescho | (?<!r)go | kolo | \bro | schlo | spro ) ß"""
)


def normalise(text: str, rules: TextRules) -> str:
    """The text in NFC, on one line, single-spaced, with the rules applied. Idempotent."""
    text = _CONTROL.sub(" ", text)
    if not text.isascii():
        text = _nfc(_INVISIBLE.sub("", text))
    text = " ".join(text.split())
    if rules.language_rules == "romanian":
        text = text.translate(_CEDILLA_TO_COMMA).translate(_ROMANIAN_TO_PLAIN)
    if rules.language_rules == "german" and "ß" in text:
        text = _SHORT_VOWEL_ESZETT.sub(lambda found: found[0][:-1] + "ss", text)
    if rules.lowercase:
        text = text.lower()
    return text if text.isascii() else _nfc(text)  # lower-casing can undo NFC


def _nfc(text: str) -> str:
    """NFC, with a bounded number of marks in a row before and after. (Some characters are decomposed.)"""
    return _bounded_marks(unicodedata.normalize("NFC", _bounded_marks(text)))


def _bounded_marks(text: str) -> str:
    return _MANY_SYMBOLS.sub(lambda symbols: "".join(_without_excess(symbols[0])), text)


def _without_excess(symbols: str) -> Iterator[str]:
    """The symbols without the marks that follow too many others."""
    marks = 0
    for symbol in symbols:
        marks = marks + 1 if unicodedata.category(symbol).startswith("M") else 0
        if marks <= MAX_MARKS:
            yield symbol


def origins(text: str, rules: TextRules) -> list[int]:
    """The position in the text of each character of `normalise(text)`. A space maps to the end of the previous word.

    Within a word whose number of characters changes, positions are interpolated.
    """
    positions: list[int] = []
    for word in _WORD.finditer(text):
        normalised, (start, end) = normalise(word[0], rules), word.span()
        if normalised:
            positions += [positions[-1] + 1] if positions else []
            positions += [start + index * (end - start) // len(normalised) for index in range(len(normalised))]
    return positions
