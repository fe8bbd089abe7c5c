"""Pieces as they were decoded → pieces as they are read: special pieces and repetitions left out.

On tensors and without waiting for the device, so that what is read is also what is rescored. What a word is, only the
pieces say: no language is known here.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from latentmt.data.tokenizer import EOS, PAD, SPECIAL, Tokenizer
from latentmt.data.tokens import Layout, Tokens
from latentmt.options import RemoveRepeats


@dataclass(frozen=True)
class PieceTable:
    """What has to be known of each piece to find repetitions."""

    repeatable: Bool[Tensor, " v"]
    """May well follow itself: digits (1100), and bytes, several of which make a letter."""
    opens: Bool[Tensor, " v"]
    """Begins a word, or is a punctuation mark or symbol, which is a word of its own."""
    closes: Bool[Tensor, " v"]
    """Ends in such a mark: what follows is another word."""
    blank: Bool[Tensor, " v"]
    """Has no text, or only spaces."""

    @staticmethod
    def of(tokenizer: Tokenizer) -> PieceTable:
        """Of all pieces of a tokenizer."""
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
        return PieceTable(*torch.tensor(rows).unbind(1))

    def to(self, device: torch.device | str) -> PieceTable:
        return PieceTable(*(getattr(self, field.name).to(device) for field in fields(self)))

    def is_blank(self, tokens: Tokens) -> Bool[Tensor, " r"]:
        """Where there is nothing to be read."""
        return (self.blank.take(tokens.ids) | ~tokens.layout.real).all(1)


def _is_mark(text: str) -> bool:
    """Whether a character is punctuation or a symbol. (Accents by themselves are neither letters nor marks.)"""
    return text != "" and unicodedata.category(text)[0] in "PS"


def readable(tokens: Tokens, remove: RemoveRepeats, table: PieceTable, source: Tokens | None = None) -> Tokens:
    """Each row's pieces that have text, EOS behind them; one column wider, in case that there was no EOS.

    Repetitions go. `words`: a word that repeats the one before it, unless it holds a digit or a byte, or the source
    says it twice, too. (Source: n rows of the tokens for each of its own.) `pieces`: a piece that repeats the one
    before it, unless it may (Lee et al., 2018); that takes letters of words that are right.
    """
    special = tokens.ids <= max(SPECIAL)
    ids, length = _kept(tokens.ids, tokens.layout.real & ~special)
    if remove != "none":
        repeats = _repeated_words(ids, table, source) if remove == "words" else _repeated_pieces(ids, table)
        place = torch.arange(ids.shape[1], device=ids.device)
        ids, length = _kept(ids, (place < length[:, None]) & ~repeats)
    ids = F.pad(ids, (0, 1), value=PAD).scatter(1, length[:, None], EOS)
    return Tokens(ids, Layout.from_lengths(length + 1, ids.shape[1]))


def _repeated_pieces(ids: Int[Tensor, "r t"], table: PieceTable) -> Bool[Tensor, "r t"]:
    """Pieces that repeat the one before them."""
    return F.pad(ids[:, 1:] == ids[:, :-1], (1, 0)) & ~table.repeatable.take(ids)


def _repeated_words(ids: Int[Tensor, "r t"], table: PieceTable, source: Tokens | None) -> Bool[Tensor, "r t"]:
    """The pieces of words that the next word repeats."""
    word = _words(ids, table)
    repeats = _said_twice(ids, word, table)
    if source is None:
        return repeats
    twice = _said_twice(source.ids, _words(source.ids, table), table)
    said = source.ids.masked_fill(~twice, PAD).repeat_interleave(len(ids) // len(source.ids), 0)
    return repeats & ~_of_all(word, (ids[:, :, None] == said[:, None, :]).any(2))


def _words(ids: Int[Tensor, "r t"], table: PieceTable) -> Bool[Tensor, "r t t"]:
    """Which pieces belong to one word with each piece."""
    number = (table.opens.take(ids) | F.pad(table.closes.take(ids)[:, :-1], (1, 0))).cumsum(1)
    return number[:, :, None] == number[:, None, :]


def _said_twice(ids: Int[Tensor, "r t"], word: Bool[Tensor, "r t t"], table: PieceTable) -> Bool[Tensor, "r t"]:
    """The pieces of words that equal the next one and hold nothing that may well repeat."""
    size = word.sum(2)
    beside = torch.arange(ids.shape[1], device=ids.device) + size  # the same place of the next word, if that is as long
    inside, beside = beside < ids.shape[1], beside.clamp(max=ids.shape[1] - 1)
    same = inside & (ids.gather(1, beside) == ids) & (size.gather(1, beside) == size)
    return _of_all(word, same & ~table.repeatable.take(ids))


def _of_all(word: Bool[Tensor, "r t t"], holds: Bool[Tensor, "r t"]) -> Bool[Tensor, "r t"]:
    """Where something holds for all pieces of a word."""
    return ~(word & ~holds[:, None, :]).any(2)


def _kept(ids: Int[Tensor, "r t"], keep: Bool[Tensor, "r t"]) -> tuple[Int[Tensor, "r t"], Int[Tensor, " r"]]:
    """What is kept, moved to the left, PAD behind it; and how much that is."""
    rows, width = ids.shape
    place = torch.where(keep, keep.cumsum(1) - 1, width)  # what goes, goes to a column that is cut off
    moved = torch.full((rows, width + 1), PAD, dtype=ids.dtype, device=ids.device).scatter(1, place, ids)
    return moved[:, :width], keep.sum(1)
