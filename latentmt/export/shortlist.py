"""Learns a lexical shortlist from a corpus: which pieces translate which (`engines/onnx/shortlist.py`).

Translation probabilities of pieces are estimated by IBM Model 1 (Brown et al., 1993), with each piece counted once a
sentence.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int

from latentmt.data.arrays import write_arrays
from latentmt.data.corpus import Split
from latentmt.data.tokenizer import EOS, SPECIAL

LIKELY = 100
"""The translations of each piece that are kept."""
COMMON = 400
"""The most frequent pieces, which are in every shortlist."""
MAX_PAIRS = 100_000
_ITERATIONS = 4

Numbers = npt.NDArray[np.integer]


def learn_shortlist(split: Split, vocab_size: int, seed: int = 1) -> bytes:
    """The content of a shortlist's file, from at most `MAX_PAIRS` pairs. It takes 12 bytes a pair of pieces."""
    chosen = np.random.default_rng(seed).permutation(len(split))[:MAX_PAIRS].tolist()
    pairs = [(np.unique(split.source[index]), np.unique(split.target[index])) for index in chosen]
    targets = np.concatenate([target for _, target in pairs])
    combinations, probability = _model_1(pairs, targets, vocab_size)
    frequency = np.bincount(targets, minlength=vocab_size)
    common = np.union1d(np.argsort(-frequency, kind="stable")[:COMMON], sorted(SPECIAL))
    likely = _likeliest(combinations, probability, vocab_size)
    smallest = np.min_scalar_type(vocab_size)
    return write_arrays({"likely": likely.astype(smallest), "common": common.astype(smallest)})


def _model_1(
    pairs: list[tuple[Numbers, Numbers]], targets: Numbers, vocab_size: int
) -> tuple[Int[np.ndarray, " c"], Float[np.ndarray, " c"]]:
    """The combinations of pieces that occur, source · vocab_size + target, and p(target | source) of each.

    An entry below is a source piece and a target piece of one pair. By expectation maximisation, each target piece of
    a pair is shared out among the pair's source pieces.
    """
    starts = np.cumsum([0, *(len(target) for _, target in pairs)])
    entries = [(source.astype(np.int64)[:, None] * vocab_size + target).ravel() for source, target in pairs]
    slots = [
        np.tile(np.arange(start, start + len(target), dtype=np.int32), len(source))
        for start, (source, target) in zip(starts, pairs, strict=False)
    ]
    slot = np.concatenate(slots)
    combinations, entry = np.unique(np.concatenate(entries), return_inverse=True)
    entry, source = entry.astype(np.int32), combinations // vocab_size
    probability = np.ones(len(combinations))
    for _ in range(_ITERATIONS):
        share = probability[entry]
        share /= np.bincount(slot, weights=share, minlength=len(targets))[slot]
        counts = np.bincount(entry, weights=share, minlength=len(combinations))
        probability = counts / np.bincount(source, weights=counts, minlength=vocab_size)[source]
    return combinations, probability


def _likeliest(
    combinations: Int[np.ndarray, " c"], probability: Float[np.ndarray, " c"], vocab_size: int
) -> Int[np.ndarray, "v likely"]:
    """The likeliest translations of each piece; EOS where there are fewer."""
    source, target = np.divmod(combinations, vocab_size)
    order = np.lexsort((-probability, source))
    source, target = source[order], target[order]
    rank = np.arange(len(source)) - np.searchsorted(source, source)
    table = np.full((vocab_size, LIKELY), EOS)
    kept = rank < LIKELY
    table[source[kept], rank[kept]] = target[kept]
    return table
