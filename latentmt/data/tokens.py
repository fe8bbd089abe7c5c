"""Sentences as tensors: ids, and where each of them belongs.

A row may hold one sentence and padding (inference) or several sentences one after another (training); both are the
same thing here: `segment` numbers the sentences of a row from 1 and is 0 where the row is empty, `position` counts
within the sentence. Attention connects equal segments, so packed rows and padded rows go through the same code.

One convention for every sequence, source and target, autoregressive or not: the pieces followed by EOS, and a length
counts that EOS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from latentmt.data.tokenizer import PAD


@dataclass(frozen=True)
class Layout:
    """Where the tokens of a batch of rows belong."""

    segment: Int[Tensor, "r t"]
    """Which sentence of its row a token is part of, from 1; 0 where the row is empty."""
    position: Int[Tensor, "r t"]
    """Its place within that sentence, from 0."""

    @property
    def real(self) -> Bool[Tensor, "r t"]:
        """True where there is a token."""
        return self.segment > 0

    @staticmethod
    def of_lengths(lengths: Int[Tensor, r], width: int) -> Layout:
        """One sentence a row, left-aligned, `width` wide."""
        position = torch.arange(width, device=lengths.device).expand(len(lengths), width)
        return Layout((position < lengths[:, None]).long(), position)

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
        """One sentence a row, padded to the longest or to `width`."""
        lengths = torch.tensor([len(sentence) for sentence in sentences], dtype=torch.long)
        layout = Layout.of_lengths(lengths, int(lengths.max()) if width is None else width)
        flat = torch.tensor([id_ for sentence in sentences for id_ in sentence], dtype=torch.long)
        ids = torch.full(layout.segment.shape, PAD).masked_scatter_(layout.real, flat)
        return Tokens(ids, layout)

    def to(self, device: torch.device | str) -> Tokens:
        return Tokens(self.ids.to(device, non_blocking=True), self.layout.to(device))

    def copy_(self, other: Tokens) -> None:
        """Take over the other's tokens, which are laid out in the same shape."""
        self.ids.copy_(other.ids, non_blocking=True)
        self.layout.segment.copy_(other.layout.segment, non_blocking=True)
        self.layout.position.copy_(other.layout.position, non_blocking=True)

    def split(self, parts: int) -> list[Tokens]:
        """The rows in equal parts, in order."""
        cut = (tensor.chunk(parts) for tensor in (self.ids, self.layout.segment, self.layout.position))
        return [Tokens(ids, Layout(segment, position)) for ids, segment, position in zip(*cut, strict=True)]

    def pinned(self) -> Tokens:
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
        """Take over the other's pairs, which are laid out in the same shape."""
        self.source.copy_(other.source)
        self.target.copy_(other.target)

    def split(self, parts: int) -> list[Pairs]:
        """The rows in equal parts, in order."""
        return [Pairs(*sides) for sides in zip(self.source.split(parts), self.target.split(parts), strict=True)]

    def pinned(self) -> Pairs:
        """In memory that a GPU copies from without waiting."""
        return Pairs(self.source.pinned(), self.target.pinned())
