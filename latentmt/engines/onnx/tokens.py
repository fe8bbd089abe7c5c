"""Rows of tokens or places for one sentence, as arrays: the counterpart of `data/tokens.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from latentmt.data.tokenizer import PAD

FORBIDDEN = np.float32(-1e4)
"""Added to the score of a masked pair (see `nn/attention.py`)."""
MAX_TOKENS = 1024
"""Tokens of one run of a graph, if there are several candidates: about 30 ms, and a bound on its memory."""


@dataclass(frozen=True)
class Layout:
    """Candidates of different lengths, as rows of equal width."""

    lengths: Int[np.ndarray, " n"]
    width: int | None = None
    """Default: that of the longest."""

    @cached_property
    def real(self) -> Bool[np.ndarray, "n t"]:
        """The mask: True for tokens, False for padding."""
        return np.arange(self.width or self.lengths.max()) < self.lengths[:, None]

    @cached_property
    def bias(self) -> Float[np.ndarray, "n 1 t t"]:
        """Keeps self-attention from padding."""
        return self.attended_by(self)

    def attended_by(self, queries: Layout) -> Float[np.ndarray, "n 1 q t"]:
        """Keeps the attention of each row's queries from padding."""
        bias = np.where(self.real, np.float32(0), FORBIDDEN)[:, None, None, :]
        shape = len(self.lengths), 1, queries.real.shape[1], self.real.shape[1]
        return np.ascontiguousarray(np.broadcast_to(bias, shape))

    def repeat(self, times: int) -> Layout:
        """Every row repeated, in adjacent rows."""
        return Layout(self.lengths.repeat(times), self.width)

    def select(self, rows: slice) -> Layout:
        """These rows, as wide as before."""
        return Layout(self.lengths[rows], self.real.shape[1])

    def parts(self) -> Iterator[tuple[slice, Layout]]:
        """Some rows at a time, as many as one run of a graph takes."""
        size = max(1, MAX_TOKENS // self.real.shape[1])
        if size >= len(self.lengths):
            yield slice(None), self
            return
        for start in range(0, len(self.lengths), size):
            rows = slice(start, start + size)
            yield rows, self.select(rows)


@dataclass(frozen=True)
class Tokens:
    """Targets."""

    ids: Int[np.ndarray, "n t"]
    layout: Layout

    @staticmethod
    def padded(rows: Sequence[Sequence[int]]) -> Tokens:
        """A target a row, padded to the longest."""
        layout = Layout(np.array([len(row) for row in rows]))
        ids = np.full(layout.real.shape, PAD)
        ids[layout.real] = [id_ for row in rows for id_ in row]
        return Tokens(ids, layout)

    def select(self, rows: slice) -> Tokens:
        """These rows, as wide as before."""
        return Tokens(self.ids[rows], self.layout.select(rows))

    @property
    def rows(self) -> list[list[int]]:
        """The targets, without padding."""
        return [row[:length].tolist() for row, length in zip(self.ids, self.layout.lengths, strict=True)]
