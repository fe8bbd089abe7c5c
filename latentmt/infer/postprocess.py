"""Pieces as they were decoded → pieces as they are read: special pieces and repetitions left out.

On tensors and without waiting for the device, so that what is read is also what is rescored.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from latentmt.data.tokenizer import EOS, PAD, SPECIAL, Tokenizer
from latentmt.data.tokens import Layout, Tokens


def repeatable_pieces(tokenizer: Tokenizer) -> Bool[Tensor, " v"]:
    """Pieces that may well follow themselves: digits (1100), and bytes, several of which make a letter."""
    pieces = tokenizer.pieces(range(tokenizer.size))
    return torch.tensor([piece.removeprefix("▁").isdigit() or piece.startswith("<0x") for piece in pieces])


def readable(tokens: Tokens, repeatable: Bool[Tensor, " v"] | None) -> Tokens:
    """Each row's pieces that have text, EOS behind them; one column wider, in case that there was no EOS.

    With a table of what may repeat, pieces that repeat the one before them go too (Lee et al., 2018).
    """
    special = tokens.ids <= max(SPECIAL)
    ids, length = _kept(tokens.ids, tokens.layout.real & ~special)
    if repeatable is not None:
        repeats = F.pad(ids[:, 1:] == ids[:, :-1], (1, 0))
        place = torch.arange(ids.shape[1], device=ids.device)
        ids, length = _kept(ids, (place < length[:, None]) & ~(repeats & ~repeatable.take(ids)))
    ids = F.pad(ids, (0, 1), value=PAD).scatter(1, length[:, None], EOS)
    return Tokens(ids, Layout.of_lengths(length + 1, ids.shape[1]))


def _kept(ids: Int[Tensor, "r t"], keep: Bool[Tensor, "r t"]) -> tuple[Int[Tensor, "r t"], Int[Tensor, " r"]]:
    """What is kept, moved to the left, PAD behind it; and how much that is."""
    rows, width = ids.shape
    place = torch.where(keep, keep.cumsum(1) - 1, width)  # what goes, goes to a column that is cut off
    moved = torch.full((rows, width + 1), PAD, dtype=ids.dtype, device=ids.device).scatter(1, place, ids)
    return moved[:, :width], keep.sum(1)


def count_repeats(ids: Sequence[int]) -> int:
    """How many ids repeat the one before them."""
    return sum(first == second for first, second in itertools.pairwise(ids))


def without_special(ids: Sequence[int]) -> list[int]:
    """The ids that have text."""
    return [id_ for id_ in ids if id_ not in SPECIAL]
