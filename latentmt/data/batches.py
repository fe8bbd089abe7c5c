"""Batches: packed rows for training, padded buckets for inference.

Training runs through epoch after epoch of packed rows, in an order that is a function of the seed and the epoch. The
position is counted in rows over all ranks, so it can be restored exactly, in the middle of an epoch and with another
number of ranks; rows that were prefetched but not consumed do not count.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int, UInt
from torch import Tensor

from latentmt.data.corpus import Sentences, Split
from latentmt.data.pack import Packing
from latentmt.data.tokenizer import PAD
from latentmt.data.tokens import Layout, Pairs, Tokens

_AHEAD = 4
"""Batches made before they are asked for."""


@dataclass(frozen=True)
class Cursor:
    """A place in the endless run of epochs."""

    epoch: int = 0
    rows: int = 0
    """Rows of this epoch that all ranks together have consumed."""


class PackedBatches:
    """This rank's share of the batches: `rows` rows at a time, from `start` on, without end.

    At each step the ranks take consecutive blocks of rows, so that `n` ranks with `rows` rows see what one rank with
    `n * rows` rows would. The last batch of an epoch is filled with empty rows; every rank has equally many batches.
    """

    def __init__(
        self,
        split: Split,
        packing: Packing,
        rows: int,
        seed: int,
        rank: int = 0,
        ranks: int = 1,
        start: Cursor | None = None,
        pin: bool = False,
    ) -> None:
        if not len(packing):
            raise ValueError("no row to make batches of")
        self._split, self._packing, self._rows = split, packing, rows
        self._seed, self._rank, self._ranks, self._pin = seed, rank, ranks, pin
        self.cursor = start or Cursor()
        """How far the batches handed out reach: what to save, and to start from."""

    def __iter__(self) -> Iterator[Pairs]:
        made: queue.Queue[tuple[Pairs, Cursor] | BaseException] = queue.Queue(_AHEAD)
        stop = threading.Event()

        def put(item: tuple[Pairs, Cursor] | BaseException) -> None:
            while not stop.is_set():
                with contextlib.suppress(queue.Full):
                    made.put(item, timeout=0.1)
                    return

        def make() -> None:
            try:
                for item in self._make(self.cursor):
                    put(item)
                    if stop.is_set():
                        return
            except BaseException as error:  # handed over to whoever waits for batches
                put(error)

        maker = threading.Thread(target=make, name="batches", daemon=True)
        maker.start()
        try:
            while True:
                item = made.get()
                if isinstance(item, BaseException):
                    raise item
                batch, self.cursor = item
                yield batch
        finally:
            stop.set()
            while not made.empty():  # whoever waits for room wakes up and stops
                made.get()
            maker.join()

    def _make(self, cursor: Cursor) -> Iterator[tuple[Pairs, Cursor]]:
        together = self._ranks * self._rows
        while True:
            order = epoch_order(len(self._packing), self._seed, cursor.epoch)
            for first in range(cursor.rows, len(order), together):
                mine = order[first + self._rank * self._rows :][: self._rows]
                batch = rows_to_batch(self._split, self._packing, mine, self._rows)
                after = first + together
                yield (
                    batch.pinned() if self._pin else batch,
                    Cursor(cursor.epoch, after) if after < len(order) else Cursor(cursor.epoch + 1),
                )
            cursor = Cursor(cursor.epoch + 1)


def epoch_order(rows: int, seed: int, epoch: int) -> Int[np.ndarray, rows]:
    """The order of an epoch's rows."""
    return np.random.default_rng((seed, epoch)).permutation(rows)


def rows_to_batch(split: Split, packing: Packing, chosen: Int[np.ndarray, n], rows: int) -> Pairs:
    """These rows as tensors, with empty rows up to `rows`."""
    counts = packing.starts[chosen + 1] - packing.starts[chosen]
    pairs = packing.pairs[_ranges(packing.starts[chosen], counts)]
    row_of_pair = np.repeat(np.arange(len(chosen)), counts)
    segment_of_pair = _ranges(np.zeros(len(chosen), dtype=np.int64), counts) + 1
    sides = (
        _fill(sentences, pairs, row_of_pair, segment_of_pair, (rows, packing.width))
        for sentences in (split.source, split.target)
    )
    return Pairs(*sides)


def padded_batches(lengths: Int[np.ndarray, n], budget: int) -> Iterator[Int[np.ndarray, k]]:
    """Groups of sentence numbers of similar length, longest first, each at most `budget` tokens when padded.

    A sentence longer than the budget is a group of its own.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, budget // max(1, int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def _fill(
    sentences: Sentences,
    chosen: Int[np.ndarray, n],
    row: Int[np.ndarray, n],
    segment: Int[np.ndarray, n],
    shape: tuple[int, int],
) -> Tokens:
    """Lay sentences into rows, one after another; `row` ascends."""
    starts = np.asarray(sentences.offsets[chosen])
    lengths = np.asarray(sentences.offsets[chosen + 1]) - starts
    first_of_row = np.searchsorted(row, row)  # for each sentence, the first one of its row
    ends = np.cumsum(lengths)
    column = ends - lengths - (ends - lengths)[first_of_row] if len(row) else lengths
    places = _ranges(row * shape[1] + column, lengths)
    position = _ranges(np.zeros(len(lengths), dtype=np.int64), lengths)

    def laid(values: Int[np.ndarray, "k"] | UInt[np.ndarray, "k"], empty: int) -> Int[Tensor, "r t"]:
        flat = np.full(shape[0] * shape[1], empty, dtype=np.int64)
        flat[places] = values
        return torch.from_numpy(flat.reshape(shape))

    ids = laid(sentences.ids[_ranges(starts, lengths)], PAD)
    return Tokens(ids, Layout(laid(np.repeat(segment, lengths), 0), laid(position, 0)))


def _ranges(starts: Int[np.ndarray, n], lengths: Int[np.ndarray, n]) -> Int[np.ndarray, total]:
    """start, start + 1, … for each start, as long as its length, one after another."""
    ends = np.cumsum(lengths)
    steps = np.arange(ends[-1] if len(ends) else 0)
    return np.asarray(steps + np.repeat(starts - (ends - lengths), lengths))
