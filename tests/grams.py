"""Small n-gram models for tests, and CTC with a language model by brute force."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ctc import collapsed

from latentmt.bundle import LANGUAGE_MODEL
from latentmt.data.corpus import Sentences
from latentmt.data.tokenizer import BLANK, EOS, Tokenizer
from latentmt.networks import BundleConfig, save_bundle
from latentmt.ngrams.estimate import NgramConfig, estimate
from latentmt.ngrams.fusion import Fusion
from latentmt.ngrams.model import FILE, NgramModel

Rows = Sequence[Sequence[int]]


def corpus(rows: Rows, dtype: type[np.unsignedinteger] = np.uint16) -> Sentences:
    """Sentences of ids, EOS included."""
    ids = np.array([id_ for row in rows for id_ in row], dtype=dtype)
    return Sentences(ids, np.cumsum([0, *map(len, rows)]))


def random_rows(seed: int, count: int, vocabulary: int, longest: int = 6) -> list[list[int]]:
    """Sentences whose tokens depend on the one before, so that n-grams repeat."""
    rng = np.random.default_rng(seed)
    likely = rng.dirichlet(np.full(vocabulary - 4, 0.3), size=vocabulary)
    rows = []
    for _ in range(count):
        row = [EOS]
        for _ in range(rng.integers(longest + 1)):
            row.append(4 + int(rng.choice(vocabulary - 4, p=likely[row[-1]])))
        rows.append([*row[1:], EOS])
    return rows


@functools.cache
def random_model(seed: int, vocabulary: int, order: int, ngrams: int = 60) -> NgramModel:
    """A pruned model of random sentences."""
    rows = random_rows(seed, 60, vocabulary)
    return estimate(corpus(rows), corpus(rows[:9]), vocabulary, NgramConfig(order=order, ngrams=ngrams))


def scores(logits: np.ndarray, fusion: Fusion[NgramModel]) -> dict[tuple[int, ...], float]:
    """The log-probability of every target, up to a constant, and what the language model adds.

    All labels of all places are tried. The last place is EOS's; nothing but EOS is behind a target's EOS.
    """
    places, labels = len(logits), [BLANK, EOS, *range(4, logits.shape[1])]
    ways: dict[tuple[int, ...], list[float]] = {}
    for path in itertools.product(labels, repeat=places - 1):
        target = tuple(collapsed([*path, EOS]))
        if EOS not in target[:-1]:
            total = sum(float(logits[place, label]) for place, label in enumerate(path))
            ways.setdefault(target, []).append(total)
    return {target: float(np.logaddexp.reduce(each)) + bonus(target, fusion) for target, each in ways.items()}


def bonus(target: Sequence[int], fusion: Fusion[NgramModel]) -> float:
    """Weight · (log p(target) + a token's average cost for each)."""
    model = fusion.model
    return fusion.weight * (model.log_prob(target) + len(target) * model.surprisal / 16)


def perplexity(model: NgramModel, rows: Rows) -> float:
    return math.exp(-sum(map(model.log_prob, rows)) / sum(map(len, rows)))


def save_language_model(folder: Path, tokenizer: Tokenizer, rows: Rows, text: Mapping[str, Any]) -> NgramModel:
    """Write a bundle into the folder of a model, and return what is in it. Text: languages and rules."""
    config = NgramConfig(order=3, ngrams=300)
    model = estimate(corpus(rows), corpus(rows), tokenizer.size, config)
    bundle = BundleConfig(**text, language_model=config)
    files = {FILE: model.to_bytes()}
    save_bundle(folder / LANGUAGE_MODEL, bundle, tokenizer, {}, files=files, parameters={"3-grams": model.sizes[2]})
    return model
