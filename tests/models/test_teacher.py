from __future__ import annotations

import pytest
import torch
from batches import (
    SIZE,
    TARGETS,
    VOCABULARY,
    alone,
    close,
    gradients,
    packed,
    padded,
    per_sentence,
    same_gradients,
)
from torch import Tensor

from latentmt.data.tokenizer import BOS, EOS
from latentmt.data.tokens import Layout, Pairs, Tokens
from latentmt.models.teacher import Teacher, TeacherConfig, shift_right
from latentmt.objectives import smoothed_cross_entropy


@pytest.fixture
def teacher() -> Teacher:
    torch.manual_seed(0)
    return Teacher(TeacherConfig(**SIZE), VOCABULARY).double()


def seen(rows: int, width: int, position: int) -> Tensor:
    """What a single hypothesis a row has seen at a position: itself and all before it."""
    return (torch.arange(width) <= position).expand(rows, 1, width)


def states(teacher: Teacher, pairs: Pairs) -> Tensor:
    return teacher.states(pairs.target, teacher.decoder_stack.project_kv(teacher.encode(pairs.source)))


def loss(teacher: Teacher, pairs: Pairs) -> Tensor:
    target = pairs.target
    return smoothed_cross_entropy(
        states(teacher, pairs), teacher.embedding.weight, target.ids, target.layout.real, chunk=5
    ).loss


def test_shift_right_stays_within_its_sentence() -> None:
    ids = torch.tensor([[7, 8, EOS, 9, EOS, 0]])
    layout = Layout(torch.tensor([[1, 1, 1, 2, 2, 0]]), torch.tensor([[0, 1, 2, 0, 1, 0]]))
    assert shift_right(Tokens(ids, layout))[0, :5].tolist() == [BOS, 7, 8, BOS, 9]


def test_packed_and_padded_rows_equal_one_pair_at_a_time(teacher: Teacher) -> None:
    expected = [states(teacher, pair)[0] for pair in alone()]
    for pairs in (packed(), padded(), padded(extra=3)):
        close(per_sentence(states(teacher, pairs), pairs.target.layout), expected)


def test_packed_gradients_equal_the_sum_over_single_pairs(teacher: Teacher) -> None:
    expected = gradients(teacher, lambda: sum(loss(teacher, pair) for pair in alone()))
    same_gradients(gradients(teacher, lambda: loss(teacher, packed())), expected)
    same_gradients(gradients(teacher, lambda: loss(teacher, padded(extra=2))), expected)
    assert expected.keys() == dict(teacher.named_parameters()).keys()
    assert all(torch.isfinite(g).all() for g in expected.values())


def test_the_decoder_is_causal(teacher: Teacher) -> None:
    pairs = padded()
    changed = pairs.target.ids.clone()
    changed[3, 3] = 5 if changed[3, 3] != 5 else 6
    other = Pairs(pairs.source, Tokens(changed, pairs.target.layout))
    before, after = states(teacher, pairs)[3], states(teacher, other)[3]
    close([before[:4]], [after[:4]])
    assert not torch.allclose(before[4], after[4])


def test_log_prob_is_that_of_the_softmax(teacher: Teacher) -> None:
    pairs = packed()
    target = pairs.target
    memory = teacher.decoder_stack.project_kv(teacher.encode(pairs.source))
    expected = teacher.logits(teacher.states(target, memory)).log_softmax(-1)
    expected = expected.gather(-1, target.ids[..., None])[..., 0] * target.layout.real
    close([teacher.log_prob(target, memory)], [expected])


def test_cached_steps_equal_teacher_forcing(teacher: Teacher) -> None:
    pairs = padded()
    rows, width = pairs.target.ids.shape
    memory = teacher.decoder_stack.project_kv(teacher.encode(pairs.source))
    expected = per_sentence(teacher.logits(teacher.states(pairs.target, memory)), pairs.target.layout)
    cache = teacher.cache(rows, 1, width + 2)
    inputs = shift_right(pairs.target)
    steps = [
        teacher.step(inputs[:, i : i + 1], cache, seen(rows, width + 2, i), memory, torch.tensor(i))
        for i in range(width)
    ]
    close(per_sentence(torch.cat(steps, dim=1), pairs.target.layout), expected)


def test_a_selected_cache_continues_the_chosen_rows(teacher: Teacher) -> None:
    pairs = padded()
    memory = teacher.decoder_stack.project_kv(teacher.encode(pairs.source))
    inputs = shift_right(pairs.target)
    order, cache = torch.tensor([3, 3, 0, 5, 1]), teacher.cache(len(inputs), 1, 4)
    for i in range(2):
        teacher.step(inputs[:, i : i + 1], cache, seen(len(inputs), 4, i), memory, torch.tensor(i))
    chosen, last = cache.select(order), torch.tensor(2)
    expected = teacher.step(inputs[:, 2:3], cache, seen(len(inputs), 4, 2), memory, last)[order]
    close([teacher.step(inputs[order, 2:3], chosen, seen(len(order), 4, 2), memory.select(order), last)], [expected])


def test_candidates_share_the_memory_of_their_source(teacher: Teacher) -> None:
    pairs = padded()
    memory = teacher.decoder_stack.project_kv(teacher.encode(pairs.source))
    create_graph = Tokens.padded([t for t in TARGETS for _ in range(2)])
    scores = teacher.log_prob(create_graph, memory)
    close(
        [scores[::2], scores[1::2]],
        [teacher.log_prob(pairs.target, memory)] * 2,
    )


def test_empty_rows_stay_finite(teacher: Teacher) -> None:
    pairs = packed()
    assert not pairs.source.layout.real[2].any()
    assert torch.isfinite(states(teacher, pairs)).all()
    # A row without a source whose target is not empty must not poison the batch either.
    empty = Tokens(torch.zeros(1, 4, dtype=torch.long), Layout.from_lengths(torch.tensor([0]), 4))
    memory = teacher.decoder_stack.project_kv(teacher.encode(empty))
    first = teacher.step(torch.tensor([[BOS]]), teacher.cache(1, 1, 3), seen(1, 3, 0), memory, torch.tensor(0))
    assert torch.isfinite(first).all()
