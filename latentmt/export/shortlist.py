"""Learns a lexical shortlist from a corpus: which pieces translate which (`engines/onnx/shortlist.py`).

Translation probabilities of pieces are estimated by IBM Model 1 (Brown et al., 1993), with each piece counted once a
sentence. Two million pairs take two minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from latentmt.bundle import check_memory
from latentmt.data.arrays import write_arrays
from latentmt.data.corpus import Sentences, Split
from latentmt.data.tokenizer import EOS, SPECIAL

LIKELY = {"latent": 50, "teacher": 100}
"""The translations of each piece that are kept for a network, beside those that are in every shortlist."""
COMMON = 400
"""The most frequent pieces, which are in every shortlist."""
_ITERATIONS = 4
_BLOCK = 10_000
"""Pairs that are counted at a time."""


@dataclass(frozen=True)
class _Side:
    """The pieces of some sentences, each once a sentence."""

    ids: Int[np.ndarray, " n"]
    counts: Int[np.ndarray, " sentences"]
    """How many each sentence has."""

    @staticmethod
    def of(sentences: Sentences, rows: slice, vocab_size: int) -> _Side:
        offsets = sentences.offsets[rows.start : rows.stop + 1]
        row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        ids = sentences.ids[offsets[0] : offsets[-1]].astype(np.int64)
        row, ids = np.divmod(np.unique(row * vocab_size + ids), vocab_size)
        return _Side(ids.astype(np.int32), np.bincount(row, minlength=len(offsets) - 1))


Block = tuple[_Side, _Side]
"""Sources and targets."""


def learn_shortlist(split: Split, pieces: Sequence[str], count: int) -> bytes:
    """The content of a shortlist's file. `pieces`: all of the tokenizer's, as it writes them; `count`: see `LIKELY`.

    It takes 8 bytes of memory for each piece and each piece that targets have.
    """
    size, starts = len(pieces), range(0, len(split), _BLOCK)
    rows = [slice(start, min(start + _BLOCK, len(split))) for start in starts]
    blocks = [(_Side.of(split.source, some, size), _Side.of(split.target, some, size)) for some in rows]
    frequency = sum((np.bincount(target.ids, minlength=size) for _, target in blocks), np.zeros(size, dtype=np.int64))
    common = np.union1d(np.argsort(-frequency, kind="stable")[:COMMON], _always(pieces))
    occurring = np.flatnonzero(frequency)
    check_memory(8 * size * len(occurring), f"a shortlist of {size:,} pieces")
    probability = _model_1(blocks, size, occurring)
    probability[:, np.isin(occurring, common)] = 0.0
    smallest = np.min_scalar_type(size)
    likely = _likeliest(probability, occurring, count)
    return write_arrays({"likely": likely.astype(smallest), "common": common.astype(smallest)})


def _always(pieces: Sequence[str]) -> list[int]:
    """What any name may be spelt with: characters, among them placeholders, digits and punctuation, and bytes."""
    spelling = (id_ for id_, piece in enumerate(pieces) if len(piece.removeprefix("▁")) <= 1 or piece.startswith("<0x"))
    return sorted({*spelling, *SPECIAL})


def _model_1(blocks: Sequence[Block], vocab_size: int, occurring: Int[np.ndarray, " t"]) -> Float[np.ndarray, "v t"]:
    """p(target | source) of all pieces and those that occur in targets.

    By expectation maximisation, each target piece of a pair is shared out among the pair's source pieces.
    """
    column = np.zeros(vocab_size, dtype=np.int64)
    column[occurring] = np.arange(len(occurring))
    shape = vocab_size, len(occurring)
    probability = np.ones(shape, dtype=np.float32)
    for _ in range(_ITERATIONS):
        counts = np.zeros(shape, dtype=np.float32)
        for source, target in blocks:
            row, slot = _combinations(source, target)
            entry = row.astype(np.int64) * len(occurring) + column[target.ids][slot]
            share = probability.ravel()[entry]
            share /= np.bincount(slot, weights=share)[slot].astype(np.float32)
            np.add.at(counts.ravel(), entry, share)
        counts /= np.maximum(counts.sum(1, keepdims=True), np.float32(1e-12))
        probability = counts
    return probability


def _combinations(source: _Side, target: _Side) -> tuple[Int[np.ndarray, " c"], Int[np.ndarray, " c"]]:
    """Each source piece of each pair with each of the pair's target pieces: its id, and where that is in `target`."""
    times = np.repeat(target.counts, source.counts)
    begin = np.repeat(np.cumsum(target.counts) - target.counts, source.counts)
    first = np.cumsum(times) - times
    return np.repeat(source.ids, times), np.arange(times.sum()) - np.repeat(first - begin, times)


def _likeliest(
    probability: Float[np.ndarray, "v t"], occurring: Int[np.ndarray, " t"], count: int
) -> Int[np.ndarray, "v likely"]:
    """The likeliest translations of each piece, ascending, which takes less space; EOS where there are fewer."""
    table, kept = np.full((len(probability), count), EOS), min(count, len(occurring))
    for row, line in zip(table, probability, strict=True):
        some = np.sort(np.argpartition(-line, kept - 1)[:kept])
        row[:kept] = np.where(line[some] > 0, occurring[some], EOS)
    return table
