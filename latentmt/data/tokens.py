"""Sentences as tensors: ids, and the segment and position of each.

A row holds one sentence and padding (inference) or several sentences (training). In both cases `segment` numbers the
sentences of a row from 1 and is 0 for padding, and `position` counts within the sentence. Attention connects equal
segments, so packed rows and padded rows use the same code.

Every sequence, source and target, autoregressive or not, is its pieces followed by EOS. Its length includes EOS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor

from latentmt.data.tokenizer import PAD


def changes(segment: Int[Tensor, "r t"]) -> Bool[Tensor, "r t"]:
    """Whether a segment begins here: the one before is another, or there is none."""
    return F.pad(segment[:, 1:] != segment[:, :-1], (1, 0), value=True)


def compact(values: Int[Tensor, "r t"], keep: Bool[Tensor, "r t"], fill: int = PAD) -> Int[Tensor, "r t"]:
    """The kept values moved to the left, the others replaced by the filling."""
    rows, width = values.shape
    column = torch.where(keep, keep.cumsum(1) - 1, width)  # the others go to a column that is cut off
    moved = torch.full((rows, width + 1), fill, dtype=values.dtype, device=values.device).scatter(1, column, values)
    return moved[:, :width]


@dataclass(frozen=True)
class Layout:
    """The segment and position of every token of a batch of rows."""

    segment: Int[Tensor, "r t"]
    """The number of a token's sentence in its row, from 1; 0 for padding."""
    position: Int[Tensor, "r t"]
    """The position within the sentence, from 0."""

    @property
    def real(self) -> Bool[Tensor, "r t"]:
        """The mask: True for tokens, False for padding."""
        return self.segment > 0

    @staticmethod
    def from_lengths(lengths: Int[Tensor, r], width: int) -> Layout:
        """One sentence per row, left-aligned, `width` wide."""
        position = torch.arange(width, device=lengths.device).expand(len(lengths), width)
        return Layout((position < lengths[:, None]).long(), position)

    @staticmethod
    def from_segments(segment: Int[Tensor, "r t"]) -> Layout:
        """The layout of these segments, each of adjacent tokens."""
        index = torch.arange(segment.shape[1], device=segment.device)
        first = torch.where(changes(segment), index, 0).cummax(1).values
        return Layout(segment, index - first)

    def select(self, rows: Int[Tensor, " n"]) -> Layout:
        """The given rows, in that order."""
        return Layout(self.segment.index_select(0, rows), self.position.index_select(0, rows))

    def to(self, device: torch.device | str) -> Layout:
        return Layout(
            self.segment.to(device, non_blocking=True),
            self.position.to(device, non_blocking=True),
        )


@dataclass(frozen=True)
class Tokens:
    """Ids in rows, with their layout."""

    ids: Int[Tensor, "r t"]
    layout: Layout

    @staticmethod
    def padded(sentences: Sequence[Sequence[int]], width: int | None = None) -> Tokens:
        """One sentence per row, padded to the longest or to `width`."""
        lengths = torch.tensor([len(sentence) for sentence in sentences], dtype=torch.long)
        layout = Layout.from_lengths(lengths, int(lengths.max()) if width is None else width)
        flat = torch.tensor([id_ for sentence in sentences for id_ in sentence], dtype=torch.long)
        ids = torch.full(layout.segment.shape, PAD).masked_scatter_(layout.real, flat)
        return Tokens(ids, layout)

    def kept(self, keep: Bool[Tensor, "r t"]) -> Tokens:
        """These tokens only, moved to the left of their rows."""
        return Tokens(compact(self.ids, keep), Layout.from_segments(compact(self.layout.segment, keep, 0)))

    def select(self, rows: Int[Tensor, " n"]) -> Tokens:
        """The given rows, in that order."""
        return Tokens(self.ids.index_select(0, rows), self.layout.select(rows))

    def to(self, device: torch.device | str) -> Tokens:
        return Tokens(self.ids.to(device, non_blocking=True), self.layout.to(device))

    def copy_(self, other: Tokens) -> None:
        """Copy tokens of the same shape."""
        self.ids.copy_(other.ids, non_blocking=True)
        self.layout.segment.copy_(other.layout.segment, non_blocking=True)
        self.layout.position.copy_(other.layout.position, non_blocking=True)

    def split(self, chunks: int) -> list[Tokens]:
        """Split the rows into equal chunks, in order."""
        tensors = (tensor.chunk(chunks) for tensor in (self.ids, self.layout.segment, self.layout.position))
        return [Tokens(ids, Layout(segment, position)) for ids, segment, position in zip(*tensors, strict=True)]

    def pin_memory(self) -> Tokens:
        layout = Layout(self.layout.segment.pin_memory(), self.layout.position.pin_memory())
        return Tokens(self.ids.pin_memory(), layout)


@dataclass(frozen=True)
class Pairs:
    """A batch of sentence pairs: segment i of a source row is translated by segment i of the same target row."""

    source: Tokens
    target: Tokens

    def to(self, device: torch.device | str) -> Pairs:
        return Pairs(self.source.to(device), self.target.to(device))

    def copy_(self, other: Pairs) -> None:
        """Copy pairs of the same shape."""
        self.source.copy_(other.source)
        self.target.copy_(other.target)

    def split(self, chunks: int) -> list[Pairs]:
        """Split the rows into equal chunks, in order."""
        return [Pairs(*sides) for sides in zip(self.source.split(chunks), self.target.split(chunks), strict=True)]

    def pin_memory(self) -> Pairs:
        """A copy in pinned memory, from which a GPU copies asynchronously."""
        return Pairs(self.source.pin_memory(), self.target.pin_memory())
