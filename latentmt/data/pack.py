"""Packing sentence pairs into rows of fixed width on both sides.

A training row has `width` source and `width` target tokens and holds several pairs. So there is one static shape and
little padding. Attention stays within a pair, so packing does not affect what is learnt. Rows are composed once per
corpus, and only their order is shuffled each epoch.

Lengths are small integers, so there are few classes of pairs (source length, target length), and packing works on their
histogram: find a good row for the largest class left, repeat it as often as the histogram allows, continue. The cost
depends on the number of distinct rows, not on the size of the corpus.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

MAX_PAIRS = 16
"""The maximum number of pairs in a row: a static bound for per-pair computations such as the length loss."""


@dataclass(frozen=True)
class Packing:
    """Rows of indices of pairs: row i is `pairs[starts[i]:starts[i + 1]]`."""

    pairs: Int[np.ndarray, n]
    starts: Int[np.ndarray, rows_and_one]
    width: int
    """Tokens per row on either side."""

    def __len__(self) -> int:
        return len(self.starts) - 1


def pack(source_lengths: Int[np.ndarray, n], target_lengths: Int[np.ndarray, n], width: int, seed: int) -> Packing:
    """Rows with every pair of at most `width` tokens on either side exactly once. Longer pairs are left out.

    The seed determines which pairs of equal lengths share a row.
    """
    fits = np.flatnonzero((source_lengths <= width) & (target_lengths <= width))
    shuffled = np.random.default_rng(seed).permutation(fits)
    classes = source_lengths[shuffled] * (width + 1) + target_lengths[shuffled]
    by_class = shuffled[np.argsort(classes, kind="stable")]
    histogram = np.bincount(classes, minlength=(width + 1) ** 2)
    next_of_class = np.concatenate([[0], np.cumsum(histogram)[:-1]])

    rows: list[Int[np.ndarray, "k m"]] = []
    for members, times in _plan(histogram.reshape(width + 1, width + 1)):
        row = np.empty((times, len(members)), dtype=np.int64)
        for column, (source, target) in enumerate(members):
            class_ = source * (width + 1) + target
            start = next_of_class[class_]
            row[:, column] = by_class[start : start + times]
            next_of_class[class_] += times
        rows.append(row)
    sizes = np.concatenate([np.zeros(0, dtype=np.int64), *(np.full(len(row), row.shape[1]) for row in rows)])
    pairs = np.concatenate([np.zeros(0, dtype=np.int64), *(row.ravel() for row in rows)])
    return Packing(pairs, np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), width)


def _plan(histogram: Int[np.ndarray, "w w"]) -> list[tuple[list[tuple[int, int]], int]]:
    """The distinct rows, each a list of (source length, target length), and how often each is used.

    A row starts with the largest class left. It is filled with the pair that leaves the least room on its emptier side.
    This keeps both sides balanced: on Tatoeba 98% of the positions are filled, against 93% with the largest pair that
    fits.
    """
    width = len(histogram) - 1
    source, target = (index.ravel() for index in np.indices(histogram.shape))
    order = np.argsort(-(source + target), kind="stable")
    source, target, left = source[order], target[order], histogram.ravel()[order]
    plan = []
    while (alive := np.flatnonzero(left)).size:
        source, target, left = source[alive], target[alive], left[alive]
        members = [0]
        unused = left.copy()
        unused[0] -= 1
        while len(members) < MAX_PAIRS:
            room_source = width - source[members].sum() - source
            room_target = width - target[members].sum() - target
            fitting = (unused > 0) & (room_source >= 0) & (room_target >= 0)
            if not fitting.any():
                break
            best = int(np.argmin(np.where(fitting, np.maximum(room_source, room_target), width)))
            members.append(best)
            unused[best] -= 1
        uses = np.bincount(members, minlength=left.size)
        times = int((left[members] // uses[members]).min())
        left = left - times * uses
        plan.append(([(int(source[m]), int(target[m])) for m in members], times))
    return plan
