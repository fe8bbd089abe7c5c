"""Properties of a tokenizer's pieces: where words begin and end, what may be repeated, what has no text.

They follow from the pieces alone, for any language.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool

from latentmt.data.tokenizer import SPECIAL, Tokenizer


@dataclass(frozen=True)
class PieceProperties:
    """Properties of each piece that are needed to find repetitions."""

    repeatable: Bool[np.ndarray, " v"]
    """May follow itself: digits (1100), and bytes, several of which make a letter."""
    starts_word: Bool[np.ndarray, " v"]
    """Begins a word, or is a punctuation mark or symbol, which is a word by itself."""
    ends_word: Bool[np.ndarray, " v"]
    """Ends in such a mark, so that the next piece begins another word."""
    blank: Bool[np.ndarray, " v"]
    """Has no text, or only spaces."""

    @staticmethod
    def from_tokenizer(tokenizer: Tokenizer) -> PieceProperties:
        """The properties of all pieces of a tokenizer."""
        pieces = tokenizer.pieces(range(tokenizer.size))
        texts = ["" if piece.startswith("<0x") else piece.removeprefix("▁") for piece in pieces]
        rows = [
            (
                text.isdigit() or piece.startswith("<0x"),
                id_ in SPECIAL or piece.startswith("▁") or _is_mark(text[:1]),
                id_ in SPECIAL or _is_mark(text[-1:]),
                id_ in SPECIAL or not piece.strip("▁"),
            )
            for id_, (piece, text) in enumerate(zip(pieces, texts, strict=True))
        ]
        return PieceProperties(*np.array(rows).T)


def _is_mark(text: str) -> bool:
    """Whether a character is punctuation or a symbol. (Accents by themselves are neither letters nor marks.)"""
    return text != "" and unicodedata.category(text)[0] in "PS"
