"""Removes special pieces and repetitions from decoded targets.

It works on tensors without synchronising, so that the readable target can be rescored.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from latentmt.data.pieces import PieceProperties
from latentmt.data.tokenizer import EOS, PAD, SPECIAL, Tokenizer
from latentmt.data.tokens import Layout, Tokens
from latentmt.options import RemoveRepeats


@dataclass(frozen=True)
class PieceTable:
    """`PieceProperties` as tensors."""

    repeatable: Bool[Tensor, " v"]
    starts_word: Bool[Tensor, " v"]
    ends_word: Bool[Tensor, " v"]
    blank: Bool[Tensor, " v"]

    @staticmethod
    def from_tokenizer(tokenizer: Tokenizer) -> PieceTable:
        """The properties of all pieces of a tokenizer."""
        properties = PieceProperties.from_tokenizer(tokenizer)
        return PieceTable(*(torch.tensor(getattr(properties, field.name)) for field in fields(PieceTable)))

    def to(self, device: torch.device | str) -> PieceTable:
        return PieceTable(*(getattr(self, field.name).to(device) for field in fields(self)))

    def is_blank(self, tokens: Tokens) -> Bool[Tensor, " r"]:
        """Rows without text."""
        return (self.blank.take(tokens.ids) | ~tokens.layout.real).all(1)


def readable(tokens: Tokens, remove: RemoveRepeats, table: PieceTable, source: Tokens | None = None) -> Tokens:
    """Each row's pieces that have text, followed by EOS. One column is added, in case there was no EOS.

    Repetitions are removed. `words`: a word that repeats the one before it, unless it has a digit or a byte, or the
    source repeats it too. (Each row of the source has n rows of tokens.) `pieces`: a piece that repeats the one before
    it, unless it is repeatable (Lee et al., 2018); this also removes double letters of correct words.
    """
    special = tokens.ids <= max(SPECIAL)
    ids, length = _compact(tokens.ids, tokens.layout.real & ~special)
    if remove != "none":
        repeats = _repeated_words(ids, table, source) if remove == "words" else _repeated_pieces(ids, table)
        position = torch.arange(ids.shape[1], device=ids.device)
        ids, length = _compact(ids, (position < length[:, None]) & ~repeats)
    ids = F.pad(ids, (0, 1), value=PAD).scatter(1, length[:, None], EOS)
    return Tokens(ids, Layout.from_lengths(length + 1, ids.shape[1]))


def _repeated_pieces(ids: Int[Tensor, "r t"], table: PieceTable) -> Bool[Tensor, "r t"]:
    """Pieces that repeat the one before them."""
    return F.pad(ids[:, 1:] == ids[:, :-1], (1, 0)) & ~table.repeatable.take(ids)


def _repeated_words(ids: Int[Tensor, "r t"], table: PieceTable, source: Tokens | None) -> Bool[Tensor, "r t"]:
    """The pieces of words that equal the next word, unless the source repeats them too."""
    word = _words(ids, table)
    repeats = _repeats_of_next(ids, word, table)
    if source is None:
        return repeats
    source_repeats = _repeats_of_next(source.ids, _words(source.ids, table), table)
    repeated_in_source = source.ids.masked_fill(~source_repeats, PAD).repeat_interleave(len(ids) // len(source.ids), 0)
    return repeats & ~_all_in_word(word, (ids[:, :, None] == repeated_in_source[:, None, :]).any(2))


def _words(ids: Int[Tensor, "r t"], table: PieceTable) -> Bool[Tensor, "r t t"]:
    """Whether two pieces belong to the same word."""
    number = (table.starts_word.take(ids) | F.pad(table.ends_word.take(ids)[:, :-1], (1, 0))).cumsum(1)
    return number[:, :, None] == number[:, None, :]


def _repeats_of_next(ids: Int[Tensor, "r t"], word: Bool[Tensor, "r t t"], table: PieceTable) -> Bool[Tensor, "r t"]:
    """The pieces of words that equal the next word and have no repeatable piece."""
    size = word.sum(2)
    next_position = torch.arange(ids.shape[1], device=ids.device) + size  # in the next word, if that is as long
    inside, next_position = next_position < ids.shape[1], next_position.clamp(max=ids.shape[1] - 1)
    same = inside & (ids.gather(1, next_position) == ids) & (size.gather(1, next_position) == size)
    return _all_in_word(word, same & ~table.repeatable.take(ids))


def _all_in_word(word: Bool[Tensor, "r t t"], holds: Bool[Tensor, "r t"]) -> Bool[Tensor, "r t"]:
    """Whether a condition holds for all pieces of each piece's word."""
    return ~(word & ~holds[:, None, :]).any(2)


def _compact(ids: Int[Tensor, "r t"], keep: Bool[Tensor, "r t"]) -> tuple[Int[Tensor, "r t"], Int[Tensor, " r"]]:
    """The kept ids moved to the left and padded, and their number in each row."""
    rows, width = ids.shape
    position = torch.where(keep, keep.cumsum(1) - 1, width)  # the others go to a column that is cut off
    moved = torch.full((rows, width + 1), PAD, dtype=ids.dtype, device=ids.device).scatter(1, position, ids)
    return moved[:, :width], keep.sum(1)
