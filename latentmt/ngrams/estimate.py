"""Estimates an n-gram model: Kneser-Ney smoothing, pruned to a size.

Interpolated, with modified discounts (Chen and Goodman, 1999). An n-gram is kept for what it gains: its count times the
difference that leaving it out makes to log p (Seymore and Rosenfeld, 1996). Backoff weights are those of what is kept,
so that every distribution still sums to one.

An n-gram is one integer of 64 bits, its first token highest, so that sorting and searching are numpy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Bool, Float, Int, UInt
from pydantic import Field

from latentmt.config import Section
from latentmt.data.corpus import Sentences
from latentmt.data.tokenizer import EOS
from latentmt.errors import UserError
from latentmt.ngrams.model import MAX_COST, MAX_ORDER, STEP, ZERO_BACKOFF, Level, NgramModel

Keys = UInt[np.ndarray, " n"]
Counts = tuple[UInt[np.ndarray, " _"], Int[np.ndarray, " _"]]
"""The n-grams of a length, ascending, and how often each occurs: equally many."""


@dataclass(frozen=True, kw_only=True)
class NgramConfig(Section):
    """The size of a language model."""

    order: Annotated[int, Field(ge=2, le=MAX_ORDER)] = 4
    """The most tokens of an n-gram."""
    ngrams: Annotated[int, Field(ge=1, le=10_000_000)] = 1_000_000
    """About how many n-grams of two tokens and more are kept."""


@dataclass(frozen=True)
class _Ngrams:
    """The n-grams of one length, with p(last token | the others) and the backoff weights of their contexts."""

    keys: Keys
    """Ascending."""
    prob: Float[np.ndarray, " n"]
    contexts: UInt[np.ndarray, " contexts"]
    """The contexts that occur, ascending."""
    backoff: Float[np.ndarray, " contexts"]


class _Packing:
    """How tokens are packed into keys."""

    def __init__(self, vocab_size: int, order: int) -> None:
        self.bits = (vocab_size - 1).bit_length()
        if order * self.bits > 64:
            raise UserError(f"language_model.order {order}: {vocab_size:,} pieces allow {64 // self.bits}")
        self.shift = np.uint64(self.bits)

    def append(self, keys: Keys, tokens: Keys) -> Keys:
        return (keys << self.shift) | tokens

    def context(self, keys: Keys) -> Keys:
        """All tokens but the last."""
        return keys >> self.shift

    def suffix(self, keys: Keys, length: int) -> Keys:
        """The last tokens."""
        return keys & np.uint64((1 << (self.bits * length)) - 1)

    def first(self, keys: Keys, length: int) -> Keys:
        """The first token of keys of this length."""
        return keys >> np.uint64(self.bits * (length - 1))


def estimate(sentences: Sentences, held_out: Sentences, vocab_size: int, config: NgramConfig) -> NgramModel:
    """The model of sentences that end with EOS. What a token costs on average is that of others, held out."""
    packing = _Packing(vocab_size, config.order)
    counts = _count(sentences, packing, config.order)
    full = _smoothed(counts, packing, vocab_size)
    levels = _levels(_pruned(full, counts, packing, config.ngrams), packing, vocab_size)
    model = NgramModel(levels, surprisal=0)
    log_prob = sum(model.log_prob(held_out[number].tolist()) for number in range(len(held_out)))
    return NgramModel(levels, round(-log_prob / STEP / max(1, len(held_out.ids))))


def _count(sentences: Sentences, packing: _Packing, order: int) -> list[Counts]:
    """The n-grams of each length. The EOS before a sentence is a context only."""
    ids = np.concatenate(([EOS], sentences.ids)).astype(np.uint64)
    lengths = sentences.lengths
    position = np.arange(len(sentences.ids)) - np.repeat(sentences.offsets[:-1] - sentences.offsets[0], lengths)
    counts, keys = [], ids[1:]
    for length in range(1, order + 1):
        if length > 1:  # the key of the n-gram that ends one token earlier, and this token
            keys = packing.append(np.concatenate((ids[:1], keys[:-1])), ids[1:])
        counts.append(np.unique(keys[position >= length - 2], return_counts=True))
    return counts


def _smoothed(counts: Sequence[Counts], packing: _Packing, vocab_size: int) -> list[_Ngrams]:
    """All n-grams. Those of less than the full length count the tokens before them instead of their occurrences."""
    result: list[_Ngrams] = []
    for length, (keys, count) in enumerate(counts, 1):
        if length < len(counts):
            keys, count = _continuations(keys, count, counts[length][0], packing, length)
        discount = _discounts(count)[np.minimum(count, 3)]
        if length == 1:
            left = discount.sum() / count.sum() / vocab_size
            prob = np.full(vocab_size, left)
            prob[keys.astype(np.int64)] += (count - discount) / count.sum()
            result.append(_Ngrams(np.arange(vocab_size, dtype=np.uint64), prob, keys[:0], prob[:0]))
            continue
        contexts, of = np.unique(packing.context(keys), return_inverse=True)
        total = np.bincount(of, count)
        backoff = np.bincount(of, discount) / total
        lower = _prob(result, packing, packing.suffix(keys, length - 1))
        result.append(_Ngrams(keys, (count - discount) / total[of] + backoff[of] * lower, contexts, backoff))
    return result


def _continuations(
    keys: Keys, count: Int[np.ndarray, " n"], longer: UInt[np.ndarray, " longer"], packing: _Packing, length: int
) -> tuple[UInt[np.ndarray, " m"], Int[np.ndarray, " m"]]:
    """How many different tokens stand before each n-gram. At the beginning of a sentence nothing does: occurrences."""
    ends, before = np.unique(packing.suffix(longer, length), return_counts=True)
    different = np.zeros_like(count)
    different[np.searchsorted(keys, ends)] = before
    if length > 1:
        different = np.where(packing.first(keys, length) == EOS, count, different)
    seen = different > 0
    return keys[seen], different[seen]


def _discounts(count: Int[np.ndarray, " n"]) -> Float[np.ndarray, "4"]:
    """What is taken from counts of 0, 1, 2, and of 3 and more. Half of one where there are too few to tell."""
    n = [int((count == number).sum()) for number in range(1, 5)]
    if not all(n):
        return np.array([0.0, 0.5, 0.5, 0.5])
    common = n[0] / (n[0] + 2 * n[1])
    discounts = [number - (number + 1) * common * n[number] / n[number - 1] for number in (1, 2, 3)]
    return np.array([0.0, *np.clip(discounts, 0.1, [0.9, 1.9, 2.9])])


def _prob(levels: Sequence[_Ngrams], packing: _Packing, keys: Keys) -> Float[np.ndarray, " n"]:
    """p of n-grams of the length of the last level, with backoff."""
    level = levels[-1]
    if len(levels) == 1:
        return level.prob[keys.astype(np.int64)]
    at, found = _find(level.keys, keys)
    prob = level.prob[at]
    missing = keys[~found]
    at, known = _find(level.contexts, packing.context(missing))
    backoff = np.where(known, level.backoff[at], 1.0)
    prob[~found] = backoff * _prob(levels[:-1], packing, packing.suffix(missing, len(levels) - 1))
    return prob


def _find(ascending: UInt[np.ndarray, " all"], keys: Keys) -> tuple[Int[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Where keys are, and whether they are there."""
    at = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    return at, ascending[at] == keys


def _pruned(full: Sequence[_Ngrams], counts: Sequence[Counts], packing: _Packing, size: int) -> list[_Ngrams]:
    """The n-grams that gain most, about so many, with their prefixes and suffixes."""
    gains = []
    for length in range(2, len(full) + 1):
        level = full[length - 1]
        lower = _prob(full[: length - 1], packing, packing.suffix(level.keys, length - 1))
        backoff = level.backoff[np.searchsorted(level.contexts, packing.context(level.keys))]
        keys, count = counts[length - 1]
        gains.append(count[np.searchsorted(keys, level.keys)] * np.log(level.prob / (backoff * lower)))
    every = np.concatenate(gains)
    least = np.partition(every, len(every) - size)[len(every) - size] if size < len(every) else -np.inf
    kept = [gain >= least for gain in gains]
    for length in range(len(full), 2, -1):  # prefixes and suffixes, the longest first
        keys, shorter = full[length - 1].keys[kept[length - 2]], full[length - 2].keys
        for needed in (packing.context(keys), packing.suffix(keys, length - 1)):
            at, found = _find(shorter, needed)
            kept[length - 3][at[found]] = True
    result = [full[0]]
    for length in range(2, len(full) + 1):
        level = full[length - 1]
        keys, prob = level.keys[kept[length - 2]], level.prob[kept[length - 2]]
        contexts, of = np.unique(packing.context(keys), return_inverse=True)
        lower = _prob(result, packing, packing.suffix(keys, length - 1))
        left, left_lower = (1 - np.bincount(of, each, len(contexts)) for each in (prob, lower))
        backoff = np.maximum(left, 1e-9) / np.maximum(left_lower, 1e-9)
        result.append(_Ngrams(keys, prob, contexts, backoff))
    return result


def _levels(levels: Sequence[_Ngrams], packing: _Packing, vocab_size: int) -> list[Level]:
    """The same as a trie, in steps."""
    result = []
    for length, level in enumerate(levels, 1):
        size = len(level.keys)
        children, backoff = np.zeros(size, dtype=np.int64), np.ones(size)
        if length < len(levels):
            longer = levels[length]
            parents = np.searchsorted(level.keys, packing.context(longer.keys))
            children = np.bincount(parents, minlength=size)
            backoff[np.searchsorted(level.keys, longer.contexts)] = longer.backoff
        costs = np.clip(np.rint(-np.log(level.prob) / STEP), 0, MAX_COST)
        backoffs = np.clip(np.rint(np.log(backoff) / STEP) + ZERO_BACKOFF, 0, MAX_COST)
        tokens = packing.suffix(level.keys, 1)
        result.append(
            Level(
                tokens.astype(np.min_scalar_type(vocab_size - 1)),
                costs.astype(np.uint8),
                backoffs.astype(np.uint8),
                children.astype(np.min_scalar_type(int(children.max(initial=0)))),
            )
        )
    return result
