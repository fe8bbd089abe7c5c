"""An n-gram model as tensors says what the trie says."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from grams import random_model

from latentmt.ngrams.model import Level, NgramModel, State
from latentmt.nn.ngrams import NONE, NgramTables

VOCABULARY = 9


def padded(state: State, order: int) -> list[int]:
    return [*state, *[NONE] * (order - 1 - len(state))]


@pytest.mark.parametrize("ngrams", [1, 30, 1000])
@pytest.mark.parametrize("order", [2, 3, 4, 5])
def test_every_step_is_that_of_the_trie(order: int, ngrams: int) -> None:
    """From every state that a sentence of any tokens reaches. Some are of contexts that the trie does not have."""
    for seed in range(3):
        model = random_model(seed, VOCABULARY, order, ngrams)
        tables, reached = NgramTables(model), {model.start, ()}
        assert tables.start.tolist() == padded(model.start, order)
        assert (tables.order, tables.surprisal) == (order, model.surprisal)
        for _ in range(order + 1):
            reached |= {model.step(state, token)[1] for state in reached for token in range(VOCABULARY)}
        pairs = list(itertools.product(sorted(reached), range(VOCABULARY)))
        assert max(map(len, reached)) == min(order - 1, sum(size > 0 for size in model.sizes))
        states = torch.tensor([padded(state, order) for state, _ in pairs]).view(-1, VOCABULARY, order - 1)
        tokens = torch.tensor([token for _, token in pairs]).view(-1, VOCABULARY)
        costs, after = tables.step(states, tokens)
        expected = [model.step(state, token) for state, token in pairs]
        assert costs.dtype == torch.float32
        assert costs.flatten().tolist() == [cost for cost, _ in expected]
        assert after.flatten(0, 1).tolist() == [padded(state, order) for _, state in expected]


def test_a_model_without_long_ngrams_backs_off() -> None:
    model = random_model(0, VOCABULARY, 4, 1)
    assert model.sizes[2:] == [0, 0]
    cost, after = NgramTables(model).step(torch.tensor([[5, NONE, NONE]]), torch.tensor([6]))
    assert (cost.tolist(), after.tolist()) == ([model.step((5,), 6)[0]], [padded(model.step((5,), 6)[1], 4)])


def test_an_ngram_without_its_suffix_is_not_found() -> None:
    """As in the trie. A file may hold such a model: EOS 4 5 without 4 5."""

    def level(tokens: list[int], children: list[int]) -> Level:
        costs = np.arange(len(tokens), dtype=np.uint8)
        return Level(
            np.array(tokens, np.uint8), costs + np.uint8(9), costs + np.uint8(100), np.array(children, np.uint8)
        )

    model = NgramModel([level([0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 0, 0]), level([4], [1]), level([5], [0])], 0)
    cost, after = NgramTables(model).step(torch.tensor([4, 0]), torch.tensor(5))
    assert model.step((4, 0), 5) == (9 + 5 + (128 - 104) + (128 - 100), (5,))
    assert (cost.item(), after.tolist()) == (model.step((4, 0), 5)[0], [5, NONE])


def test_tables_are_no_weights() -> None:
    """A bundle has them already."""
    assert not NgramTables(random_model(0, VOCABULARY, 3)).state_dict()
