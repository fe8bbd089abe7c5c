"""Learns from parallel text what names look like (`text/names.py`).

A word of a source is an example, and whether the target has it, too, is its label. Frequent words are not better
examples than rare ones: a few of each count. The weights are those of a logistic regression, learnt by Adagrad.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from latentmt.data.text import Pair
from latentmt.errors import UserError
from latentmt.text.names import BUCKETS, LETTERS, STEP, WORD, ZERO, Names, Word, WordSet, features, find_words

EXAMPLES = 6
"""The most examples of a word."""
MIN_SEEN = 2
"""A word that was seen as often and not copied is no name, …"""
MAX_COPIED = 0.75
"""… that is, copied in a smaller share of its sentences."""
MIN_PROBABILITY = 0.02
"""Of its examples, one looks at least as much like a name. Beside other words it might look more like one."""
MIN_KNOWN = 3
"""A word that targets have as often is known."""

_EPOCHS, _BATCH, _RATE = 2, 2048, 0.1


@dataclass
class _Type:
    """A word, wherever it stands."""

    seen: int = 0
    copied: int = 0
    examples: list[tuple[Word, bool]] = field(default_factory=list)


@dataclass(frozen=True)
class _Examples:
    """The features of words, one after the other."""

    features: Int[np.ndarray, " f"]
    ends: Int[np.ndarray, " n_and_start"]
    labels: Bool[np.ndarray, " n"]

    @staticmethod
    def of(examples: Iterable[tuple[Word, bool]]) -> _Examples:
        rows = [(np.array(sorted(features(word)), dtype=np.int32), label) for word, label in examples]
        ends = np.cumsum([0, *(len(row) for row, _ in rows)])
        return _Examples(np.concatenate([row for row, _ in rows]), ends, np.array([label for _, label in rows]))

    def scores(self, weights: Float[np.ndarray, " b"], rows: slice) -> Float[np.ndarray, " n"]:
        ends = self.ends[rows.start : rows.stop + 1]
        values = weights[self.features[ends[0] : ends[-1]]]
        scores: Float[np.ndarray, " n"] = np.add.reduceat(values, ends[:-1] - ends[0])
        return scores


def learn_names(pairs: Iterable[Pair], seed: int = 1) -> Names:
    """What names look like in these pairs. Pairs whose sides are equal are left out."""
    rng, types, known = random.Random(seed), dict[str, _Type](), Counter[str]()
    for pair in pairs:
        if pair.source == pair.target:
            continue
        known.update(word.lower() for word in LETTERS.findall(pair.target))
        written = set(WORD.findall(pair.target))
        for word in find_words(pair.source):
            _add(types.setdefault(word.text, _Type()), word, word.text in written, rng)
    examples = [example for one in types.values() for example in one.examples]
    if not any(copied for _, copied in examples):
        raise UserError("no word with a capital is on both sides of a pair: nothing is learnt about names")
    rng.shuffle(examples)
    stored = np.clip(np.rint(_weights(_Examples.of(examples)) / STEP) + ZERO, 0, 255).astype(np.uint8)
    names = Names(stored, WordSet.of(()), WordSet.of(()))
    translated = (text for text, one in types.items() if _is_translated(one, names))
    return Names(stored, WordSet.of(translated), WordSet.of(word for word, n in known.items() if n >= MIN_KNOWN))


def _add(one: _Type, word: Word, copied: bool, rng: random.Random) -> None:
    """Count a word. Its examples are drawn evenly (reservoir sampling)."""
    one.seen += 1
    one.copied += copied
    if len(one.examples) < EXAMPLES:
        one.examples.append((word, copied))
    elif (place := rng.randrange(one.seen)) < EXAMPLES:
        one.examples[place] = (word, copied)


def _is_translated(one: _Type, names: Names) -> bool:
    """Whether a word is no name though it may look like one."""
    if one.seen < MIN_SEEN or one.copied >= MAX_COPIED * one.seen:
        return False
    return max(names.probability(word) for word, _ in one.examples) >= MIN_PROBABILITY


def _weights(examples: _Examples) -> Float[np.ndarray, " b"]:
    """The weights of a logistic regression."""
    weights, squares = np.zeros(BUCKETS), np.zeros(BUCKETS)
    count = len(examples.labels)
    for _ in range(_EPOCHS):
        for start in range(0, count, _BATCH):
            rows = slice(start, min(start + _BATCH, count))
            ends = examples.ends[rows.start : rows.stop + 1]
            error = 1 / (1 + np.exp(-examples.scores(weights, rows))) - examples.labels[rows]
            inside = examples.features[ends[0] : ends[-1]]
            gradient = np.bincount(inside, np.repeat(error, np.diff(ends)), BUCKETS) / len(error)
            squares += gradient**2
            weights -= _RATE * gradient / (np.sqrt(squares) + 1e-10)
    return weights
