"""CTC as an output model: its places, what is read from them, and what a target's tokens owe to them."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from batches import VOCABULARY, alone, close, packed, padded, per_sentence
from ctc import collapsed
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from latentmt.data.tokenizer import BLANK, EOS, PAD
from latentmt.data.tokens import Layout, Tokens
from latentmt.models.ctc import CTCOutput
from latentmt.models.outputs import OutputConfig
from latentmt.nn.attention import EncoderOutput
from latentmt.nn.positions import Embedding
from latentmt.nn.transformer import StackSize
from latentmt.options import MAX_POSITIONS


def make(upsampling: int = 2) -> CTCOutput:
    return CTCOutput(OutputConfig(output="ctc", upsampling=upsampling), StackSize(16, 16, 1, 1), 16).double()


def encoded(layout: Layout) -> EncoderOutput:
    return EncoderOutput(torch.zeros(*layout.segment.shape, 16, dtype=torch.float64), layout.segment)


@pytest.fixture
def embedding() -> Embedding:
    """Ids are their own states."""
    embedding = Embedding(VOCABULARY, VOCABULARY, dropout=0.0).double().requires_grad_(False)
    embedding.weight.copy_(torch.eye(VOCABULARY))
    return embedding


def states_of(labels: Tensor) -> Tensor:
    return F.one_hot(labels, VOCABULARY).double()


# Places.


def test_every_source_token_has_its_places_in_its_sentence() -> None:
    pairs = packed()
    places = make(3).places(encoded(pairs.source.layout), pairs.target)
    assert places.segment.tolist() == pairs.source.layout.segment.repeat_interleave(3, 1).tolist()
    for row in per_sentence(places.position, places):
        assert row.tolist() == list(range(len(row)))


def test_a_target_that_cannot_be_written_has_no_places() -> None:
    """Two places a token: of lengths 3, 5, 1, 7, 4, 2, the third and the last are too short for 3 and 5 tokens."""
    pairs = packed()
    places = make().places(encoded(pairs.source.layout), pairs.target)
    sizes = [[int((row == number).sum()) for number in (1, 2, 3)] for row in places.segment]
    assert sizes == [[6, 10, 0], [14, 0, 0], [0, 0, 0], [8, 0, 0]]
    loss = make().length_loss(encoded(pairs.source.layout), places, pairs.target.layout, 3)
    assert (loss.loss, loss.correct, loss.count) == (0, 4, 6)


@pytest.mark.parametrize(
    ("target", "fits"),
    [([5, 6, 7, EOS], True), ([5, 5, 6, EOS], False), ([5, 5, EOS], True), ([5, 5, 5, EOS], False), ([EOS], True)],
)
def test_equal_neighbours_need_a_place_more(target: list[int], fits: bool) -> None:
    places = make().places(encoded(Layout.from_lengths(torch.tensor([2]), 3)), Tokens.padded([target]))
    assert places.segment.tolist() == [[1, 1, 1, 1, 0, 0] if fits else [0] * 6]


def test_neighbours_in_different_sentences_may_be_equal() -> None:
    segment = torch.tensor([[1, 2, 2]])
    target = Tokens(torch.tensor([[EOS, EOS, PAD]]), Layout.from_segments(torch.tensor([[1, 2, 0]])))
    assert make(1).places(encoded(Layout.from_segments(segment)), target).segment.tolist() == [[1, 2, 2]]


def test_numbers_of_places() -> None:
    source = encoded(Layout.from_lengths(torch.tensor([1, 4, 300]), 300))
    output = make()
    assert output.predict_lengths(source).tolist() == [[2], [8], [MAX_POSITIONS]]
    assert output.predict_lengths(source, 5)[:2].tolist() == [[2, 3, 2, 4, 2], [8, 9, 7, 10, 6]]
    assert output.predict_lengths(source, 1, 0.5).tolist() == [[2], [10], [MAX_POSITIONS]]
    for count, bias in ((1, 0.0), (5, 0.0), (2, 0.5), (3, -0.5)):
        needed = output.predict_lengths(encoded(Layout.from_lengths(torch.tensor([40]), 40)), count, bias).max()
        assert needed <= output.room(40, count, bias) <= needed + 41
    assert output.room(40) == 80
    long = make().places(source, Tokens.padded([[EOS]] * 3))
    assert long.real.sum(1).tolist() == [2, 8, MAX_POSITIONS]  # as many in training


# Reading.


def test_repetitions_are_read_once_and_blanks_not_at_all(embedding: Embedding) -> None:
    labels = torch.tensor(
        [
            [5, 5, BLANK, 5, 6, 6, 7, BLANK, PAD],
            [BLANK, BLANK, 8, 8, 8, BLANK, EOS, 9, 9],
            [5, 5, 6, 6, 6, 4, BLANK, BLANK, 7],
        ]
    )
    places = Layout.from_segments(torch.tensor([[1] * 8 + [0], [1] * 9, [1, 1, 1, 2, 2, 2, 3, 3, 0]]))
    read = make().read(states_of(labels), places, embedding)
    assert [ids[real].tolist() for ids, real in zip(read.ids, read.layout.real, strict=True)] == [
        [5, 5, 6, 7, EOS],  # the last place is EOS's
        [8, EOS, 9, EOS],
        [5, EOS, 6, EOS, EOS],
    ]
    assert read.layout.segment[2].tolist() == [1, 1, 2, 2, 3, 0, 0, 0, 0]
    assert read.layout.position[2, :5].tolist() == [0, 1, 0, 1, 0]
    assert (read.ids[~read.layout.real] == PAD).all()


@given(st.lists(st.lists(st.sampled_from([BLANK, EOS, 5, 6, 7]), min_size=2, max_size=6), min_size=1, max_size=4))
@settings(deadline=None)
def test_what_is_read_can_be_written_again(sentences: list[list[int]]) -> None:
    """Each sentence alone, all in one row, and against the definition."""
    embedding = Embedding(VOCABULARY, VOCABULARY, dropout=0.0).double().requires_grad_(False)
    embedding.weight.copy_(torch.eye(VOCABULARY))
    output = make(1)
    expected = [collapsed([*labels[:-1], EOS]) for labels in sentences]
    flat = torch.tensor([[label for labels in sentences for label in labels]])
    numbers = [number for number, labels in enumerate(sentences, start=1) for _ in labels]
    places = Layout.from_segments(torch.tensor([numbers]))
    read = output.read(states_of(flat), places, embedding)
    assert [row.tolist() for row in per_sentence(read.ids, read.layout)] == expected
    assert torch.equal(output.places(encoded(places), read).segment, places.segment)
    labels = output.labels(states_of(flat), places, embedding)
    written = labels[output.written(labels, places)].tolist()
    assert written == [id_ for ids in expected for id_ in ids]
    assert output.log_prob(states_of(flat), places, embedding, read).isfinite().all()


# Likelihoods.


def by_hand(log_prob: Tensor, tokens: list[int]) -> list[float]:
    """log p of each token given those before it, from all labellings of the places."""
    size, ways = len(log_prob), {}
    for path in itertools.product(sorted({*tokens, BLANK, 9}), repeat=size):
        chance = log_prob[torch.arange(size), list(path)].sum().exp()
        key = tuple(collapsed(list(path))), path[-1] == EOS
        ways[key] = ways.get(key, 0.0) + float(chance)
    prefixes = [sum(chance for (y, _), chance in ways.items() if list(y[:n]) == tokens[:n]) for n in range(len(tokens))]
    prefixes[0] = 1.0
    chances = torch.tensor([*prefixes, ways[tuple(tokens), True]], dtype=torch.float64)
    return (chances[1:] / chances[:-1]).log().tolist()


@pytest.mark.parametrize("tokens", [[5, 6, EOS], [5, 5, EOS], [EOS], [6, 5, 6, EOS]], ids=str)
def test_log_probabilities_are_those_of_tokens_given_the_ones_before(embedding: Embedding, tokens: list[int]) -> None:
    """Only the ids 2, 3, 5, 6 and 9 can be written here, so that all ways can be counted."""
    torch.manual_seed(1)
    states = torch.full((1, 5, VOCABULARY), -60.0, dtype=torch.float64)
    states[..., [BLANK, EOS, 5, 6, 9]] = torch.randn(1, 5, 5, dtype=torch.float64)
    log_prob = states[0].log_softmax(-1)
    ids = sorted({*tokens, BLANK, 9})
    others = [id_ for id_ in (BLANK, EOS, 5, 6, 9) if id_ not in ids]
    log_prob[:, 9] = log_prob[:, [9, *others]].logsumexp(-1)  # what is none of the tokens is all the same
    places = Layout.from_lengths(torch.tensor([5]), 5)
    found = make().log_prob(states, places, embedding, Tokens.padded([tokens]))
    assert found[0].tolist() == pytest.approx(by_hand(log_prob, tokens), abs=1e-9)


def test_a_rows_log_probabilities_add_up_to_the_loss_of_its_sentences() -> None:
    torch.manual_seed(1)
    output, embedding, pairs = make(3), Embedding(VOCABULARY, 16, 0.0).double(), packed()
    places = output.places(encoded(pairs.source.layout), pairs.target)
    states = torch.randn(*places.segment.shape, 16, dtype=torch.float64)
    found = output.log_prob(states, places, embedding, pairs.target)
    loss = output.token_loss(states, places, embedding, pairs.target, 0.0)
    close([-found.sum()], [loss.nll])
    assert not found[~pairs.target.layout.real].any()
    assert (found[pairs.target.layout.real] < 0).all()
    single = [
        output.log_prob(some[None], Layout.from_lengths(torch.tensor([len(some)]), len(some)), embedding, pair.target)[
            0
        ]
        for some, pair in zip(per_sentence(states, places), alone(), strict=True)
    ]
    close(per_sentence(found, pairs.target.layout), single)


def test_what_cannot_be_written_has_no_probability() -> None:
    output, embedding, pairs = make(), Embedding(VOCABULARY, 16, 0.0).double(), padded()
    places = output.places(encoded(pairs.source.layout), pairs.target)
    states = torch.randn(*places.segment.shape, 16, dtype=torch.float64)
    total = output.log_prob(states, places, embedding, pairs.target).sum(1)
    assert (total == -torch.inf).tolist() == [False, False, True, False, False, True]
    assert output.token_loss(states, places, embedding, pairs.target, 0.1).loss.isfinite()
    usual = Layout.from_lengths(output.predict_lengths(encoded(pairs.source.layout))[:, 0], places.segment.shape[1])
    close([output.log_prob(states, usual, embedding, pairs.target).sum(1)], [total])


# Alignment.


def test_values_of_places_go_to_the_tokens_they_write(embedding: Embedding) -> None:
    """`5 5 · 6 · EOS`: the first token has the mean of two places."""
    labels = torch.tensor([[5, 5, BLANK, 6, BLANK, EOS]])
    places, target = Layout.from_lengths(torch.tensor([6]), 6), Tokens.padded([[5, 6, EOS]], 4)
    values = torch.arange(6.0, dtype=torch.float64)[None, :, None] ** torch.tensor([1.0, 2.0])
    found = make().to_tokens(values, 50 * states_of(labels), places, embedding, target)
    expected = [[0.5, 0.5], [3.0, 9.0], [5.0, 25.0]]
    torch.testing.assert_close(found[0, :3], torch.tensor(expected, dtype=torch.float64))
    assert not found[0, 3].any()


def test_unsure_places_share_a_token(embedding: Embedding) -> None:
    """Two places, EOS at the second: the first is a blank or EOS too, one as likely as the other."""
    states = torch.zeros(1, 2, VOCABULARY, dtype=torch.float64)
    places, target = Layout.from_lengths(torch.tensor([2]), 2), Tokens.padded([[EOS]])
    found = make().to_tokens(torch.tensor([[[1.0], [4.0]]]).double(), states, places, embedding, target)
    assert found.item() == pytest.approx((0.5 * 1 + 1 * 4) / 1.5)


def test_nothing_is_owed_to_places_of_other_sentences() -> None:
    torch.manual_seed(1)
    output, embedding, pairs = make(3), Embedding(VOCABULARY, 16, 0.0).double(), packed()
    places = output.places(encoded(pairs.source.layout), pairs.target)
    states = torch.randn(*places.segment.shape, 16, dtype=torch.float64)
    of_segment = F.one_hot(places.segment, 4).double()
    found = output.to_tokens(of_segment, states, places, embedding, pairs.target)
    expected = F.one_hot(pairs.target.layout.segment, 4).double()
    torch.testing.assert_close(found[pairs.target.layout.real], expected[pairs.target.layout.real])


# What is wrong.


@given(st.lists(st.sampled_from([BLANK, EOS, 5, 6, 7]), min_size=1, max_size=7))
@settings(deadline=None)
def test_nothing_is_wrong_if_the_target_is_what_is_read(labels: list[int]) -> None:
    embedding = Embedding(VOCABULARY, VOCABULARY, dropout=0.0).double().requires_grad_(False)
    embedding.weight.copy_(torch.eye(VOCABULARY))
    states, places = states_of(torch.tensor([labels])), Layout.from_lengths(torch.tensor([len(labels)]), len(labels))
    output = make()
    assert not output.wrong(states, places, embedding, output.read(states, places, embedding)).any()


def test_wrong_places_differ_from_the_likeliest_way_to_write_the_target(embedding: Embedding) -> None:
    """`5 · 7 6 · EOS` for 5 6 EOS: only the 7 is wrong. For 5 8 6 EOS too, which stands there."""
    states = states_of(torch.tensor([[5, BLANK, 7, 6, BLANK, EOS, 9]]))
    places = Layout.from_lengths(torch.tensor([6]), 7)
    for target in ([5, 6, EOS], [5, 8, 6, EOS]):
        wrong = make().wrong(states, places, embedding, Tokens.padded([target]))
        assert wrong.tolist() == [[False, False, True, False, False, False, False]]
