"""An n-gram language model with backoff, as a trie of ids.

Level n holds the n-grams: the children of a node of level n − 1 are its continuations, in ascending order. With an
n-gram, its prefix and its suffix are in the trie, too. Probabilities are stored in steps of 1/16 nat.

A sentence begins after EOS and ends with EOS. What is here knows nothing of estimation (`estimate`) or of search.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, UInt

from latentmt.data.arrays import read_arrays, write_arrays
from latentmt.data.tokenizer import EOS
from latentmt.errors import UserError

FILE = "ngrams.npz"
"""The file in the bundle of a language model."""
STEP = 1 / 16
"""Log-probabilities are stored as multiples of this."""
MAX_COST = 255
"""The largest negative log-probability, in steps."""
ZERO_BACKOFF = 128
"""How a logarithmic backoff of 0 is stored: it may have either sign."""
MAX_ORDER = 5
MAX_NGRAMS = 1 << 24
"""The most n-grams of all lengths, ids included."""

State = tuple[int, ...]
"""The nodes of the last 1, 2, … tokens, as far as the trie has them."""


@dataclass(frozen=True)
class Level:
    """The n-grams of one length, in the order of their parents. At the first level the nodes are all ids."""

    tokens: UInt[np.ndarray, " n"]
    """The last token of each."""
    costs: UInt[np.ndarray, " n"]
    """−log p of that token given the others, in steps."""
    backoffs: UInt[np.ndarray, " n"]
    """log of the backoff weight as a context, in steps, plus `ZERO_BACKOFF`. Not used at the last level."""
    children: UInt[np.ndarray, " n"]
    """The number of continuations. None at the last level."""


class NgramModel:
    """log p(token | the tokens before it)."""

    def __init__(self, levels: Sequence[Level], surprisal: int) -> None:
        self.levels, self.order = list(levels), len(levels)
        self.surprisal = surprisal
        """What a token costs on average in text that was held out."""
        self.first: list[Int[np.ndarray, " n_and_end"]] = [
            np.concatenate(([0], np.cumsum(level.children, dtype=np.int64))) for level in self.levels[:-1]
        ]
        """For each level but the last, where the children of each node begin, and their end."""
        # Reading a number from a view or from bytes is faster than from an array.
        self._tokens = [np.ascontiguousarray(level.tokens).data for level in self.levels]
        self._first = [starts.data for starts in self.first]
        self._costs = [level.costs.astype(np.uint8).tobytes() for level in self.levels]
        self._backoffs = [level.backoffs.astype(np.uint8).tobytes() for level in self.levels]
        self.start: State = self.step((), EOS)[1]
        """The state at the beginning of a sentence."""

    @property
    def sizes(self) -> list[int]:
        """The number of n-grams of each length."""
        return [len(level.tokens) for level in self.levels]

    def step(self, state: State, token: int) -> tuple[int, State]:
        """−log p of a token in steps, and the state after it."""
        nodes, cost = [token], self._costs[0][token]
        for level, context in enumerate(state, 1):
            tokens, first = self._tokens[level], self._first[level - 1]
            end = first[context + 1]
            child = bisect_left(tokens, token, first[context], end)
            if child == end or tokens[child] != token:
                break
            nodes.append(child)
            cost = self._costs[level][child]
        for level in range(len(nodes) - 1, len(state)):
            cost += ZERO_BACKOFF - self._backoffs[level][state[level]]
        return cost, tuple(nodes[: self.order - 1])

    def log_prob(self, tokens: Iterable[int]) -> float:
        """log p of a sentence, EOS included."""
        state, total = self.start, 0
        for token in tokens:
            cost, state = self.step(state, token)
            total += cost
        return -STEP * total

    def to_bytes(self) -> bytes:
        """The content of a file."""
        arrays = {"surprisal": np.array([self.surprisal], dtype=np.uint8)}
        for number, level in enumerate(self.levels, 1):
            arrays |= {f"{name}_{number}": getattr(level, name) for name in _names(number, self.order)}
        return write_arrays(arrays)

    @staticmethod
    def from_bytes(content: bytes, order: int, vocab_size: int) -> NgramModel:
        """The content of a file. The error says what is wrong with it."""
        try:
            levels: list[Level] = []
            for number in range(1, order + 1):
                levels.append(_level(content, number, order))
                if sum(len(level.tokens) for level in levels) > MAX_NGRAMS:
                    raise ValueError("too many")
            (surprisal,) = read_arrays(content, ["surprisal"])
            _check(levels, vocab_size)
            (average,) = surprisal.tolist()
        except (ValueError, TypeError):
            raise UserError(f"not an n-gram model of order {order} for {vocab_size:,} pieces") from None
        return NgramModel(levels, average)


def _names(number: int, order: int) -> list[str]:
    """The arrays of a level that are stored."""
    inner = ["backoffs", "children"] if number < order else []
    return ["tokens", "costs", *inner]


def _level(content: bytes, number: int, order: int) -> Level:
    names = _names(number, order)
    arrays = dict(zip(names, read_arrays(content, [f"{name}_{number}" for name in names]), strict=True))
    missing = np.zeros(len(arrays["tokens"]), dtype=np.uint8)
    return Level(**{"backoffs": missing, "children": missing, **arrays})


def _check(levels: Sequence[Level], vocab_size: int) -> None:
    """Refuse arrays that are no trie: a search in them might leave them."""
    if not np.array_equal(levels[0].tokens, np.arange(vocab_size)):
        raise ValueError("other ids")
    for level in levels:
        arrays = (level.tokens, level.costs, level.backoffs, level.children)
        if any(array.shape != level.tokens.shape or array.ndim != 1 for array in arrays):
            raise ValueError("arrays of different length")
        if max(int(array.max(initial=0)) for array in (level.costs, level.backoffs)) > MAX_COST:
            raise ValueError("numbers that are too large")
    for parent, level in itertools.pairwise(levels):
        starts = np.cumsum(parent.children, dtype=np.int64)
        if int(starts.max(initial=0)) != len(level.tokens) or int(level.tokens.max(initial=0)) >= vocab_size:
            raise ValueError("children without parents")
        ascending = np.diff(level.tokens.astype(np.int64)) > 0
        ascending[starts[(starts > 0) & (starts < len(level.tokens))] - 1] = True  # from one parent to the next
        if not ascending.all():
            raise ValueError("children in another order")
