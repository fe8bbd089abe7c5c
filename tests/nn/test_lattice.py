"""The lattice of CTC equals the sum, or the best, of all ways to write a sentence, one after another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from ctc import collapsed
from torch import Tensor

from latentmt.data.tokenizer import BLANK, EOS
from latentmt.nn.lattice import Lattice

VOCABULARY = 5
SENTENCES = [([1, 0, EOS], 5), ([EOS], 3), ([1, 1, EOS], 5), ([4, 4, 4, EOS], 6), ([0, 1, 0, 1, EOS], 5), ([EOS], 1)]
"""Tokens and places. Some of them just fit."""


def ways(tokens: list[int], places: int) -> Iterator[tuple[int, ...]]:
    """All paths that write the tokens and end in the last one."""
    for path in itertools.product(range(VOCABULARY), repeat=places):
        if path[-1] == tokens[-1] and collapsed(path) == tokens:
            yield path


def log_probs(seed: int, places: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(places, VOCABULARY, generator=generator, dtype=torch.float64).log_softmax(1)


def scores(log_prob: Tensor, tokens: list[int]) -> Tensor:
    return log_prob[:, [*tokens, BLANK]]


def walked(tokens: list[int], log_prob: Tensor, best: bool = False) -> Lattice:
    places, ids = torch.ones(1, len(log_prob), dtype=torch.long), torch.tensor([tokens])
    return Lattice.walk(scores(log_prob, tokens)[None], places, ids, torch.ones_like(ids), best)


def of_path(log_prob: Tensor, path: tuple[int, ...]) -> Tensor:
    return log_prob[torch.arange(len(path)), list(path)].sum()


@pytest.mark.parametrize(("tokens", "places"), SENTENCES, ids=str)
def test_the_likelihood_is_the_sum_over_all_ways(tokens: list[int], places: int) -> None:
    log_prob = log_probs(1, places)
    paths = list(ways(tokens, places))
    expected = torch.stack([of_path(log_prob, path) for path in paths]).logsumexp(0)
    torch.testing.assert_close(walked(tokens, log_prob).log_prob(), expected.expand(1, places))


@pytest.mark.parametrize(("tokens", "places"), SENTENCES, ids=str)
def test_the_posterior_is_the_share_of_the_ways_with_a_label_at_a_place(tokens: list[int], places: int) -> None:
    log_prob = log_probs(2, places)
    found = walked(tokens, log_prob).posterior()[0]
    expected, total = torch.zeros_like(found), torch.zeros(())
    for path in ways(tokens, places):
        chance, token = of_path(log_prob, path).exp(), -1
        total = total + chance
        for place, label in enumerate(path):
            token += label != BLANK and (place == 0 or path[place - 1] != label)
            expected[place, len(tokens) if label == BLANK else token] += chance
    torch.testing.assert_close(found, expected / total)


@pytest.mark.parametrize(("tokens", "places"), SENTENCES, ids=str)
def test_the_best_labels_are_those_of_the_likeliest_way(tokens: list[int], places: int) -> None:
    for seed in range(5):
        log_prob = log_probs(seed, places)
        likeliest = max(ways(tokens, places), key=lambda path: float(of_path(log_prob, path)))
        found = walked(tokens, log_prob, best=True).best_label()[0]
        assert torch.tensor([*tokens, BLANK])[found].tolist() == list(likeliest)


@pytest.mark.parametrize(("tokens", "places"), SENTENCES[:5], ids=str)
def test_a_prefix_is_as_likely_as_all_that_begins_with_it(tokens: list[int], places: int) -> None:
    log_prob = log_probs(3, places)
    found = walked(tokens, log_prob).prefix_log_prob()[0].exp()
    expected = torch.zeros_like(found)
    for path in itertools.product(range(VOCABULARY), repeat=places):
        written = collapsed(path)
        for size in range(1, len(tokens) + 1):
            if written[:size] == tokens[:size]:
                expected[size - 1] += of_path(log_prob, path).exp()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("tokens", "places"), [([1, 0, EOS], 2), ([1, 1, EOS], 3), ([4, 4, 4, EOS], 5)], ids=str)
def test_what_does_not_fit_has_no_probability_and_is_no_nan(tokens: list[int], places: int) -> None:
    lattice = walked(tokens, log_probs(1, places).float())
    assert (lattice.log_prob() == -torch.inf).all()
    assert lattice.posterior().isfinite().all()
    assert not list(ways(tokens, places))


def test_sentences_of_a_row_and_padding_do_not_mix() -> None:
    """Packed rows, with padding between, around and behind, equal one sentence a row."""
    rows = [[0, 2], [1, 5, 3], [4]]
    width, most = 16, 12
    ids, tokens = torch.full((3, most), 7), torch.zeros(3, most, dtype=torch.long)
    places, given = torch.zeros(3, width, dtype=torch.long), torch.randn(3, width, most + 1, dtype=torch.float64)
    where = []
    for row, members in enumerate(rows):
        place, token = row, 0
        for number, member in enumerate(members, start=1):
            sentence, size = SENTENCES[member]
            there, here = slice(place, place + size), slice(token, token + len(sentence))
            ids[row, here], tokens[row, here], places[row, there] = torch.tensor(sentence), number, number
            log_prob = log_probs(member, size)
            given[row, there, here], given[row, there, -1] = log_prob[:, sentence], log_prob[:, BLANK]
            where.append((member, row, there, here))
            place, token = place + size + row, token + len(sentence)
    for best in (False, True):
        together = Lattice.walk(given, places, ids, tokens, best)
        assert (together.log_prob()[places == 0] == -torch.inf).all()
        for member, row, there, here in where:
            sentence, size = SENTENCES[member]
            alone = walked(sentence, log_probs(member, size), best)
            torch.testing.assert_close(together.log_prob()[row, there], alone.log_prob()[0])
            posterior = together.posterior()[row, there]
            torch.testing.assert_close(posterior[:, here], alone.posterior()[0, :, :-1])
            torch.testing.assert_close(posterior[:, -1], alone.posterior()[0, :, -1])
            torch.testing.assert_close(together.prefix_log_prob()[row, here], alone.prefix_log_prob()[0])
            best_label = together.best_label()[row, there]
            expected = torch.where(alone.best_label()[0] == len(sentence), most, alone.best_label()[0] + here.start)
            assert torch.equal(best_label, expected)


def test_a_long_row_is_as_exact_in_fp32() -> None:
    tokens, log_prob = [1, 0, 0, 4] * 12 + [EOS], log_probs(1, 128)
    exact, found = walked(tokens, log_prob), walked(tokens, log_prob.float())
    torch.testing.assert_close(found.log_prob().double(), exact.log_prob(), rtol=1e-6, atol=0)
    torch.testing.assert_close(found.posterior().double(), exact.posterior(), rtol=0, atol=1e-4)
