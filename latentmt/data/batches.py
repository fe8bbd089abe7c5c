"""Batches: packed rows for training, padded buckets for inference.

The order of the packed rows of an epoch is a function of the seed and the epoch. The position is counted in rows over
all ranks, so it can be restored exactly, also inside an epoch and with another number of ranks. Rows that were
prefetched but not consumed do not count.
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

_PREFETCH = 4
"""Batches prepared ahead of time."""


@dataclass(frozen=True)
class Cursor:
    """A position in the endless sequence of epochs."""

    epoch: int = 0
    rows: int = 0
    """Rows of this epoch that all ranks together have consumed."""


class PackedBatches:
    """An endless iterator over this rank's batches of `rows` rows, starting at `start`.

    At each step the ranks take consecutive blocks of rows, so `n` ranks with `rows` rows see the same batch as one rank
    with `n * rows` rows. The last batch of an epoch is filled up with empty rows. All ranks have equally many batches.
    """

    def __init__(
        self,
        split: Split,
        packing: Packing,
        rows: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        start: Cursor | None = None,
        pin: bool = False,
    ) -> None:
        if not len(packing):
            raise ValueError("no row to make batches of")
        self._split, self._packing, self._rows = split, packing, rows
        self._seed, self._rank, self._world_size, self._pin = seed, rank, world_size, pin
        self.cursor = start or Cursor()
        """The position after the last batch that was consumed. Saved in checkpoints."""

    def __iter__(self) -> Iterator[Pairs]:
        prefetched: queue.Queue[tuple[Pairs, Cursor] | BaseException] = queue.Queue(_PREFETCH)
        stop = threading.Event()

        def put(item: tuple[Pairs, Cursor] | BaseException) -> None:
            while not stop.is_set():
                with contextlib.suppress(queue.Full):
                    prefetched.put(item, timeout=0.1)
                    return

        def produce() -> None:
            try:
                for item in self._make(self.cursor):
                    put(item)
                    if stop.is_set():
                        return
            except BaseException as error:  # raised again in the consumer
                put(error)

        producer = threading.Thread(target=produce, name="batches", daemon=True)
        producer.start()
        try:
            while True:
                item = prefetched.get()
                if isinstance(item, BaseException):
                    raise item
                batch, self.cursor = item
                yield batch
        finally:
            stop.set()
            while not prefetched.empty():  # wakes the producer, which then stops
                prefetched.get()
            producer.join()

    def _make(self, cursor: Cursor) -> Iterator[tuple[Pairs, Cursor]]:
        global_rows = self._world_size * self._rows
        while True:
            order = epoch_order(len(self._packing), self._seed, cursor.epoch)
            for first in range(cursor.rows, len(order), global_rows):
                chosen = order[first + self._rank * self._rows :][: self._rows]
                batch = rows_to_batch(self._split, self._packing, chosen, self._rows)
                end = first + global_rows
                yield (
                    batch.pin_memory() if self._pin else batch,
                    Cursor(cursor.epoch, end) if end < len(order) else Cursor(cursor.epoch + 1),
                )
            cursor = Cursor(cursor.epoch + 1)


def epoch_order(rows: int, seed: int, epoch: int) -> Int[np.ndarray, rows]:
    """The order of the rows in an epoch."""
    return np.random.default_rng((seed, epoch)).permutation(rows)


def rows_to_batch(split: Split, packing: Packing, chosen: Int[np.ndarray, n], rows: int) -> Pairs:
    """The chosen rows as tensors, filled up with empty rows to `rows`."""
    counts = packing.starts[chosen + 1] - packing.starts[chosen]
    pairs = packing.pairs[_ranges(packing.starts[chosen], counts)]
    row_of_pair = np.repeat(np.arange(len(chosen)), counts)
    segment_of_pair = _ranges(np.zeros(len(chosen), dtype=np.int64), counts) + 1
    sides = (
        _fill(sentences, pairs, row_of_pair, segment_of_pair, (rows, packing.width))
        for sentences in (split.source, split.target)
    )
    return Pairs(*sides)


def padded_batches(lengths: Int[np.ndarray, n], max_tokens: int) -> Iterator[Int[np.ndarray, k]]:
    """Batches of indices of sentences with similar lengths, longest first, each at most `max_tokens` when padded.

    A sentence longer than `max_tokens` is a batch of its own.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, max_tokens // max(1, int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def _fill(
    sentences: Sentences,
    chosen: Int[np.ndarray, n],
    row: Int[np.ndarray, n],
    segment: Int[np.ndarray, n],
    shape: tuple[int, int],
) -> Tokens:
    """Write sentences into rows one after another. `row` is ascending."""
    starts = np.asarray(sentences.offsets[chosen])
    lengths = np.asarray(sentences.offsets[chosen + 1]) - starts
    first_of_row = np.searchsorted(row, row)  # for each sentence, the first one of its row
    ends = np.cumsum(lengths)
    column = ends - lengths - (ends - lengths)[first_of_row] if len(row) else lengths
    indices = _ranges(row * shape[1] + column, lengths)
    position = _ranges(np.zeros(len(lengths), dtype=np.int64), lengths)

    def scatter(values: Int[np.ndarray, "k"] | UInt[np.ndarray, "k"], fill: int) -> Int[Tensor, "r t"]:
        flat = np.full(shape[0] * shape[1], fill, dtype=np.int64)
        flat[indices] = values
        return torch.from_numpy(flat.reshape(shape))

    ids = scatter(sentences.ids[_ranges(starts, lengths)], PAD)
    return Tokens(ids, Layout(scatter(np.repeat(segment, lengths), 0), scatter(position, 0)))


def _ranges(starts: Int[np.ndarray, n], lengths: Int[np.ndarray, n]) -> Int[np.ndarray, total]:
    """The concatenation of `arange(start, start + length)` for each start."""
    ends = np.cumsum(lengths)
    steps = np.arange(ends[-1] if len(ends) else 0)
    return np.asarray(steps + np.repeat(starts - (ends - lengths), lengths))
