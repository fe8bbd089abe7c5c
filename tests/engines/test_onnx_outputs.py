"""Output models in numpy are those in torch: places, what is read, likelihoods, and what tokens owe to places."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from ctc import collapsed
from hypothesis import given
from hypothesis import strategies as st

from latentmt.data import tokens as in_torch
from latentmt.data.tokenizer import BLANK, EOS
from latentmt.engines.onnx import outputs, tokens
from latentmt.engines.onnx.outputs import Logits
from latentmt.models.ctc import CTCOutput
from latentmt.models.outputs import OutputConfig, TokenOutput
from latentmt.nn.attention import EncoderOutput
from latentmt.nn.lattice import Lattice
from latentmt.nn.positions import Embedding
from latentmt.nn.transformer import StackSize

VOCABULARY = 6
OWN = {1: outputs.TokenOutput(), 2: outputs.CTCOutput(2), 3: outputs.CTCOutput(3)}
"""By places for each token of the source; of one token a place there is one."""

targets = st.lists(
    st.lists(st.integers(3, VOCABULARY - 1), max_size=5).map(lambda ids: [*ids, EOS]), min_size=1, max_size=3
)
sizes = st.lists(st.integers(2, 8), min_size=3, max_size=3)


@pytest.fixture(scope="module")
def embedding() -> Embedding:
    """Logits are their own states."""
    embedding = Embedding(VOCABULARY, VOCABULARY, dropout=0.0).double().requires_grad_(False)
    embedding.weight.copy_(torch.eye(VOCABULARY))
    return embedding


def other(upsampling: int) -> TokenOutput | CTCOutput:
    size = StackSize(16, 16, 1, 1)
    config = OutputConfig(output="ctc", upsampling=upsampling)
    return (TokenOutput(OutputConfig(), size, 16) if upsampling == 1 else CTCOutput(config, size, 16)).double()


def logits_of(seed: int, layout: tokens.Layout) -> np.ndarray:
    return 3 * np.random.default_rng(seed).normal(size=(*layout.real.shape, VOCABULARY))


def layouts(lengths: list[int]) -> tuple[tokens.Layout, in_torch.Layout]:
    return tokens.Layout(np.array(lengths)), in_torch.Layout.from_lengths(torch.tensor(lengths), max(lengths))


@given(sizes, st.integers(0, 99), st.sampled_from([1, 2]))
def test_the_same_is_read(embedding: Embedding, sizes: list[int], seed: int, upsampling: int) -> None:
    own, exact = OWN[upsampling], other(upsampling)
    places, same = layouts(sizes)
    logits = logits_of(seed, places)
    logits[..., BLANK] += 2
    states = torch.tensor(logits)
    labels = own.labels(Logits(logits), places)
    assert labels.tolist() == exact.labels(states, same, embedding).tolist()
    assert own.written(labels, places).tolist() == exact.written(torch.tensor(labels), same).tolist()
    found, expected = own.read(Logits(logits), places), exact.read(states, same, embedding)
    for row, ids, real in zip(found.rows, expected.ids, expected.layout.real, strict=True):
        assert row == ids[real].tolist()
    if upsampling > 1:
        assert found.rows == [collapsed(row[:size]) for row, size in zip(labels.tolist(), sizes, strict=True)]


@given(targets, sizes, st.integers(0, 99), st.sampled_from([1, 2]))
def test_likelihoods_and_alignments_are_the_same(
    embedding: Embedding, targets: list[list[int]], sizes: list[int], seed: int, upsampling: int
) -> None:
    """Some of the targets cannot be written on their places."""
    own, exact = OWN[upsampling], other(upsampling)
    target, same_target = tokens.Tokens.padded(targets), in_torch.Tokens.padded(targets)
    places, same = layouts([len(row) for row in targets] if upsampling == 1 else sizes[: len(targets)])
    logits = logits_of(seed, places)
    states = torch.tensor(logits)
    found = own.log_prob(Logits(logits), places, target)
    expected = exact.log_prob(states, same, embedding, same_target)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-9)
    values = torch.arange(3 * same.real.shape[1], dtype=torch.float64).reshape(1, -1, 3).expand(len(targets), -1, -1)
    aligned = exact.to_tokens(values, states, same, embedding, same_target)
    written = torch.isfinite(expected.sum(1))
    for row in range(len(targets)):
        size, alone = int(places.lengths[row]), tokens.Tokens.padded([targets[row]])
        only = partial(Logits, logits[row : row + 1, :size])
        mean = own.to_tokens(values[row, :size].numpy(), only, tokens.Layout(places.lengths[row : row + 1]), alone)
        one = aligned[row, : len(targets[row])] if written[row] else torch.zeros(len(targets[row]), 3)
        np.testing.assert_allclose(mean, one.numpy(), atol=1e-9)


@given(targets, sizes, st.integers(0, 99))
def test_a_place_writes_a_token_as_probably_as_in_torch(targets: list[list[int]], sizes: list[int], seed: int) -> None:
    own, sizes = OWN[2], sizes[: len(targets)]
    target, same_target = tokens.Tokens.padded(targets), in_torch.Tokens.padded(targets)
    places, same = layouts(sizes)
    lattice = own._lattice(Logits(logits_of(seed, places)), places, target)
    scores = torch.tensor(logits_of(seed, places)).log_softmax(2)
    labels = torch.nn.functional.pad(same_target.ids, (0, 1), value=BLANK)
    scores = scores.gather(2, labels[:, None].expand(-1, scores.shape[1], -1))
    exact = Lattice.walk(scores, same.segment, same_target.ids, same_target.layout.segment)
    possible = torch.isfinite(exact.log_prob()) & same.real
    expected = torch.where(possible[..., None], exact.posterior()[..., :-1], 0.0)
    np.testing.assert_allclose(lattice.posterior(), expected.numpy(), atol=1e-9)


@given(st.integers(1, 60), st.integers(1, 7), st.floats(-0.6, 0.6), st.sampled_from([2, 3]))
def test_ctc_has_as_many_places_as_in_torch(size: int, count: int, bias: float, upsampling: int) -> None:
    source = EncoderOutput(torch.zeros(1, size, 16), torch.ones(1, size, dtype=torch.long))
    expected = other(upsampling).predict_lengths(source, count, bias)
    found = OWN[upsampling].predict_lengths(size, np.zeros(0, np.float32), count, bias)
    assert found.tolist() == expected[0].tolist()
    given = [[EOS]]
    places = OWN[upsampling].places(size, tokens.Tokens.padded(given))
    assert (
        places.lengths.tolist() == other(upsampling).places(source, in_torch.Tokens.padded(given)).real.sum(1).tolist()
    )


def test_no_source_has_more_places_than_there_are_positions() -> None:
    places = OWN[3].places(400, tokens.Tokens.padded([[EOS]]))
    source = EncoderOutput(torch.zeros(1, 400, 16), torch.ones(1, 400, dtype=torch.long))
    assert places.lengths.tolist() == [512]
    assert other(3).places(source, in_torch.Tokens.padded([[EOS]])).real.sum() == 512
