"""Text → the same text in one spelling, for training and at inference alike.

What is done here is done to every sentence the model ever sees, so the rules travel inside a model's bundle. Dropping
pairs is `clean`'s business.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from latentmt.config import Section


@dataclass(frozen=True, kw_only=True)
class TextRules(Section):
    """How one side's text is written. NFC, control characters and white space are always put in order."""

    lowercase: bool = False
    """Lower-case everything."""
    language_rules: Literal["none", "romanian"] = "none"
    """`romanian`: cedilla letters become comma letters, then all diacritics go (Sennrich et al., 2016)."""


# Control characters act as white space; characters without width, which no reader sees, go altogether.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
_WORD = re.compile(r"[^\s\x00-\x1f\x7f-\x9f]+")
_CEDILLA_TO_COMMA = str.maketrans("şţŞŢ", "șțȘȚ")
_ROMANIAN_TO_PLAIN = str.maketrans("ășțâîĂȘȚÂÎ", "astaiASTAI")


def normalise(text: str, rules: TextRules) -> str:
    """The text in NFC, in one line, single-spaced, and as the rules ask. Idempotent."""
    text = _CONTROL.sub(" ", text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", _INVISIBLE.sub("", text))
    text = " ".join(text.split())
    if rules.language_rules == "romanian":
        text = text.translate(_CEDILLA_TO_COMMA).translate(_ROMANIAN_TO_PLAIN)
    if rules.lowercase:
        text = text.lower()
    return text if text.isascii() else unicodedata.normalize("NFC", text)  # lower-casing can undo it


def origins(text: str, rules: TextRules) -> list[int]:
    """Where in the text each character of `normalise(text)` comes from; a space from behind the word before it.

    Within a word whose number of characters changes, places are in proportion.
    """
    places: list[int] = []
    for word in _WORD.finditer(text):
        written, (start, end) = normalise(word[0], rules), word.span()
        if written:
            places += [places[-1] + 1] if places else []
            places += [start + place * (end - start) // len(written) for place in range(len(written))]
    return places
