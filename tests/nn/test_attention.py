from __future__ import annotations

import pytest
import torch
from torch import nn

from latentmt.nn.attention import (
    FORBIDDEN,
    EncoderOutput,
    PackedLinear,
    SelfAttention,
    attention_bias,
    membership,
    seen_bias,
    segment_lengths,
    segment_sizes,
)

SEGMENT = torch.tensor([[1, 1, 2, 2, 2, 0], [1, 0, 0, 0, 0, 0]])


def test_bias_is_zero_for_equal_segments() -> None:
    bias = attention_bias(SEGMENT, SEGMENT, torch.float32)[0, 0]
    assert (bias == 0).int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [0, 0, 1, 1, 1, 0],
        [0, 0, 1, 1, 1, 0],
        [0, 0, 1, 1, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ]
    assert set(bias.unique().tolist()) == {FORBIDDEN, 0.0}


def test_causal_bias_masks_later_tokens() -> None:
    bias = attention_bias(torch.ones(1, 4, dtype=torch.long), torch.ones(1, 4, dtype=torch.long), torch.float32, True)
    assert torch.equal(bias == 0, torch.ones(4, 4).tril().bool()[None, None])
    assert torch.equal(seen_bias(torch.ones(1, 4, 4).tril().bool(), torch.float32), bias)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_masked_pairs_have_zero_weight_in_any_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    attention = SelfAttention(8, 2).to(dtype)
    x = torch.randn(2, 6, 8, dtype=dtype)
    bias = attention_bias(SEGMENT, SEGMENT, dtype)
    changed = x.clone()
    changed[0, 2:] = torch.randn(4, 8, dtype=dtype)
    norm, dropout = nn.LayerNorm(8).to(dtype), nn.Dropout(0.0)
    assert torch.equal(attention(x, bias, norm, dropout)[0, :2], attention(changed, bias, norm, dropout)[0, :2])


def test_attention_is_softmax_of_scaled_products() -> None:
    torch.manual_seed(0)
    attention = SelfAttention(6, 2)
    x, norm = torch.randn(1, 4, 6), nn.LayerNorm(6)
    query, key, value = attention.query_key_value(norm(x))[0].split(6, dim=1)
    heads = []
    for part in (slice(0, 3), slice(3, 6)):
        weights = (query[:, part] @ key[:, part].T / 3**0.5).softmax(1)
        heads.append(weights @ value[:, part])
    expected = x + attention.out(torch.cat(heads, dim=1))[None]
    torch.testing.assert_close(attention(x, torch.zeros(1, 1, 4, 4), norm, nn.Dropout(0.0)), expected)


def test_counting_by_segment() -> None:
    assert segment_lengths(SEGMENT, 3).tolist() == [[2, 3, 0], [1, 0, 0]]
    assert membership(SEGMENT, 2)[0].int().tolist() == [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0]]
    assert segment_sizes(SEGMENT)[0].tolist() == [2, 2, 3, 3, 3, 1]


def test_packed_projections_are_initialised_as_separate_layers() -> None:
    torch.manual_seed(0)
    alone, packed = PackedLinear(64, 64).weight.std(), PackedLinear(64, 64, blocks=6).weight.std()
    torch.testing.assert_close(packed, alone, rtol=0.05, atol=0)


def test_every_state_has_its_places_and_the_last_one_those_left_over() -> None:
    numbers = torch.arange(1.0, 13.0).view(2, 6, 1)  # state 1 is the first of row 1, state 7 that of row 2
    states = EncoderOutput(numbers, SEGMENT)
    places = SEGMENT.repeat_interleave(2, 1)
    found = states.spread(places, 2)[..., 0]
    assert found[places > 0].tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 7, 7]
    longer, shorter = torch.tensor([[1] * 7]), torch.tensor([[1, 1, 1, 0, 0, 0, 0]])
    one = EncoderOutput(numbers[:1, :3], torch.tensor([[1, 1, 0]]))  # with padding
    assert one.spread(longer, 2)[0, :, 0].tolist() == [1, 1, 2, 2, 2, 2, 2]
    assert one.spread(shorter, 2)[0, :3, 0].tolist() == [1, 1, 2]
    both = one.spread(torch.cat((longer, shorter)), 2)  # candidates for one source
    assert torch.equal(both[0], one.spread(longer, 2)[0])
    assert torch.equal(both[1, :3], one.spread(shorter, 2)[0, :3])


def test_selected_and_repeated_states_keep_their_segments() -> None:
    states = EncoderOutput(torch.arange(12.0).view(2, 6, 1), SEGMENT)
    assert torch.equal(states.select(torch.tensor([1, 0])).states, states.states.flip(0))
    assert torch.equal(states.select(torch.tensor([1, 0])).segment, SEGMENT.flip(0))
    assert states.repeat(2).states[:, 0, 0].tolist() == [0, 0, 6, 6]
    assert torch.equal(states.repeat(2).segment, SEGMENT[[0, 0, 1, 1]])
