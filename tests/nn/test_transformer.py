from __future__ import annotations

import copy
import math

import pytest
import torch

from latentmt.nn import positions as positions_module
from latentmt.nn.attention import EncoderOutput, Memory, attention_bias
from latentmt.nn.positions import Embedding, Positions
from latentmt.nn.transformer import DecoderStack, EncoderStack, StackSize
from latentmt.options import MAX_POSITIONS

SIZE = StackSize(width=8, filter=16, layers=3, heads=2)
SEGMENT = torch.tensor([[1, 1, 2, 2, 0], [1, 1, 1, 0, 0]])


def source() -> EncoderOutput:
    torch.manual_seed(1)
    return EncoderStack(SIZE)(torch.randn(2, 5, 8), SEGMENT)


@pytest.mark.parametrize("causal", [False, True])
def test_segments_do_not_attend_to_each_other(causal: bool) -> None:
    stack, memory_of = DecoderStack(SIZE, causal=causal), source()
    x = torch.randn(2, 5, 8)
    before = stack(x, SEGMENT, stack.project_kv(memory_of))
    changed, states = x.clone(), memory_of.states.clone()
    changed[0, 2:] = 3.0
    states[0, 2:] = -3.0
    after = stack(changed, SEGMENT, stack.project_kv(EncoderOutput(states, SEGMENT)))
    torch.testing.assert_close(after[0, :2], before[0, :2])
    assert not torch.allclose(after[0, 2:4], before[0, 2:4])


@pytest.mark.parametrize("input_skip", [False, True])
def test_hidden_states_are_those_of_shallower_stacks(input_skip: bool) -> None:
    stack, hidden = DecoderStack(SIZE, input_skip=input_skip), []
    memory, x = stack.project_kv(source()), torch.randn(2, 5, 8)
    whole = stack(x, SEGMENT, memory, hidden=hidden)
    assert len(hidden) == SIZE.layers - 1
    torch.testing.assert_close(whole, stack(x, SEGMENT, memory))
    for layers, states in enumerate(hidden, start=1):
        shallow = copy.deepcopy(stack)
        shallow.layers = shallow.layers[:layers]
        first = Memory(memory.keys_values[:layers], memory.segment)
        torch.testing.assert_close(states, shallow(x, SEGMENT, first))


@pytest.mark.parametrize("input_skip", [False, True])
def test_a_stack_that_reads_its_source_at_the_places_has_it_added_to_its_input(input_skip: bool) -> None:
    encoded, places = source(), SEGMENT.repeat_interleave(2, 1)
    stack = DecoderStack(SIZE, input_skip=input_skip, upsampling=2)
    plain = DecoderStack(SIZE, input_skip=input_skip)
    own = stack.source_keys_values
    for name in ("weight", "bias"):  # the last block is what is added
        *rest, _ = getattr(own, name).data.split(SIZE.width)
        getattr(plain.source_keys_values, name).data = torch.cat(rest)
    weights = {name: value for name, value in stack.state_dict().items() if not name.startswith("source_keys_values")}
    plain.load_state_dict(weights, strict=False)
    added = encoded.states @ own.weight[-SIZE.width :].T + own.bias[-SIZE.width :]
    x = torch.randn(2, 10, SIZE.width)
    expected = plain(x + added.repeat_interleave(2, 1), places, plain.project_kv(encoded))
    found = stack(x, places, stack.project_kv(encoded))
    torch.testing.assert_close(found[places > 0], expected[places > 0])


def test_cached_steps_equal_the_full_forward_pass() -> None:
    stack, memory = DecoderStack(SIZE, causal=True), None
    memory = stack.project_kv(source())
    segment = torch.ones(2, 4, dtype=torch.long)
    x = torch.randn(2, 4, 8)
    cache, place = stack.cache(2, 1, 6), torch.arange(6).expand(2, 1, 6)
    steps = [stack.step(x[:, i : i + 1], cache, place <= i, memory, torch.tensor(i)) for i in range(4)]
    torch.testing.assert_close(torch.cat(steps, dim=1), stack(x, segment, memory).detach())


def test_hypotheses_in_one_row_equal_the_full_forward_pass() -> None:
    """Whoever continues whom: each hypothesis is what it would be alone, and no key is copied."""
    stack = DecoderStack(SIZE, causal=True)
    memory, parents = stack.project_kv(source()), torch.tensor([[[0, 0, 2], [2, 1, 0]], [[1, 1, 0], [0, 2, 2]]])
    inputs = torch.randn(3, 2, 3, 8)  # at each position, of each row, for each hypothesis
    cache, history = stack.cache(2, 3, 5), inputs[0][:, :, None]
    seen, own = torch.zeros(2, 3, 15, dtype=torch.bool), torch.eye(3, dtype=torch.bool)
    for position in range(3):
        if position:
            parent = parents[position - 1]
            seen = seen.gather(1, parent[:, :, None].expand_as(seen))
            history = history.gather(1, parent[:, :, None, None].expand_as(history))
            history = torch.cat((history, inputs[position][:, :, None]), dim=2)
        seen[:, :, 3 * position : 3 * position + 3] = own
        last = stack.step(inputs[position], cache.first(4), seen[:, :, :12], memory, torch.tensor(position))
    segment = torch.ones(6, 3, dtype=torch.long)
    whole = stack(history.flatten(0, 1), segment, memory)[:, -1]
    torch.testing.assert_close(last.flatten(0, 1), whole.detach())


def test_steps_need_a_causal_stack() -> None:
    stack, seen = DecoderStack(SIZE), torch.ones(2, 1, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="causal"):
        stack.step(torch.zeros(2, 1, 8), stack.cache(2, 1, 3), seen, stack.project_kv(source()), torch.tensor(0))


def test_input_skip_adds_the_input_after_every_layer() -> None:
    stack = DecoderStack(SIZE, input_skip=True)
    x, memory = torch.randn(2, 5, 8), stack.project_kv(source())
    bias, expected = attention_bias(SEGMENT, SEGMENT, torch.float32), x
    for layer, keys_values in zip(stack.layers, memory.keys_values, strict=True):
        expected = (layer(expected, bias, keys_values, bias) + x) / math.sqrt(2)  # a layer feels the scale of its input
    torch.testing.assert_close(stack(x, SEGMENT, memory), stack.norm(expected))


def test_autocast_stays_close_to_fp32() -> None:
    stack, memory_of = DecoderStack(SIZE, causal=True), source()
    x = torch.randn(2, 5, 8)
    exact = stack(x, SEGMENT, stack.project_kv(memory_of))
    with torch.autocast("cpu", torch.bfloat16):
        memory = stack.project_kv(memory_of)
        rough = stack(x, SEGMENT, memory)
        assert memory.keys_values.dtype == stack.cache(1, 1, 1).keys_values.dtype == torch.bfloat16
    torch.testing.assert_close(rough, exact, rtol=0.05, atol=0.05)


def test_positions_are_sines_and_cosines_clamped_at_the_end() -> None:
    positions = Positions(6)
    table = positions(torch.arange(MAX_POSITIONS + 2)[None])[0]
    assert table[3, 1].item() == pytest.approx(math.sin(3 * 10_000 ** (-2 / 6)), abs=1e-6)
    assert table[3, 4].item() == pytest.approx(math.cos(3 * 10_000 ** (-2 / 6)), abs=1e-6)
    assert torch.equal(table[MAX_POSITIONS - 1], table[MAX_POSITIONS + 1])
    assert not positions.state_dict()


def test_embeddings_are_scaled_and_positions_added() -> None:
    embedding = Embedding(11, 8, dropout=0.0)
    ids, position = torch.tensor([[3, 7, 3]]), torch.tensor([[0, 1, 5]])
    expected = embedding.weight[ids] * math.sqrt(8) + embedding.positions.table[position]
    torch.testing.assert_close(embedding(ids, position), expected)


def test_log_prob_does_not_depend_on_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    embedding = Embedding(11, 8, dropout=0.0)
    states, ids = torch.randn(3, 5, 8), torch.randint(11, (3, 5))
    expected = embedding.logits(states).log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    for chunk in (4, 100):
        monkeypatch.setattr(positions_module, "LOGITS_CHUNK", chunk)
        torch.testing.assert_close(embedding.log_prob(states, ids), expected)
