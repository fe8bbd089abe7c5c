from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Sequence

import pytest
import torch

from latentmt.config import from_dict
from latentmt.data.tokenizer import BOS, EOS, PAD
from latentmt.data.tokens import Tokens
from latentmt.errors import UserError
from latentmt.infer import beam
from latentmt.infer.beam import Hypothesis, beam_search
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.objectives import smoothed_cross_entropy
from latentmt.options import BeamConfig

VOCABULARY = 19
SIZE = TeacherConfig(preset="tiny", d_model=16, d_filter=32, dropout=0.0)


def sources(count: int, longest: int, seed: int, vocabulary: int = VOCABULARY) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [[*torch.randint(4, vocabulary, (n - 1,), generator=generator).tolist(), EOS] for n in lengths]


SOURCES = sources(12, 9, seed=1)


@pytest.fixture(scope="module")
def teacher() -> Teacher:
    """Half taught to repeat the source backwards, so that it ends its sentences but is not sure of anything."""
    torch.manual_seed(0)
    teacher = Teacher(SIZE, VOCABULARY)
    adam = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for step in range(60):
        some = sources(32, 9, seed=100 + step)
        source, target = Tokens.padded(some), Tokens.padded([[*ids[-2::-1], EOS] for ids in some])
        states = teacher.states(target, teacher.decoder_stack.project_kv(teacher.encode(source)))
        loss = smoothed_cross_entropy(states, teacher.embedding.weight, target.ids, target.layout.real)
        adam.zero_grad()
        (loss.loss / loss.count).backward()
        adam.step()
    return teacher.double().eval()


@torch.no_grad()
def next_token(teacher: Teacher, source: Sequence[int], prefix: Sequence[int]) -> list[float]:
    """log p of every next token, without a cache; −∞ for what no sentence has."""
    memory = teacher.decoder_stack.project_kv(teacher.encode(Tokens.padded([source])))
    states = teacher.states(Tokens.padded([[*prefix, EOS]]), memory)
    log_prob = teacher.logits(states[0, -1]).log_softmax(-1)
    log_prob[[PAD, BOS]] = -torch.inf
    return log_prob.tolist()


def greedy(teacher: Teacher, source: Sequence[int], limit: int) -> list[int]:
    ids: list[int] = []
    while len(ids) < limit and EOS not in ids:
        scores = next_token(teacher, source, ids)
        ids.append(scores.index(max(scores)))
    return ids


def plain_beam(teacher: Teacher, source: Sequence[int], config: BeamConfig) -> Hypothesis:
    """The same search written with lists, one sentence and one hypothesis at a time, without a cache."""
    limit = config.max_target_length(len(source))
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[Hypothesis] = []
    for length in range(1, limit + 1):
        grown = sorted(
            (
                (log_prob + score, [*ids, token])
                for log_prob, ids in live
                for token, score in enumerate(next_token(teacher, source, ids))
                if score > -torch.inf
            ),
            reverse=True,
        )
        for log_prob, ids in grown[: config.beam]:
            if ids[-1] == EOS:
                finished.append(Hypothesis(tuple(ids), log_prob / length**config.length_penalty, log_prob, True))
        live = [(log_prob, ids) for log_prob, ids in grown if ids[-1] != EOS][: config.beam]
        best = max(finished, key=lambda hypothesis: hypothesis.score, default=None)
        if len(finished) >= config.beam or (best and best.score >= live[0][0] / limit**config.length_penalty):
            break
    if best is None:
        return Hypothesis(tuple(live[0][1]), live[0][0] / limit**config.length_penalty, live[0][0], False)
    return best


def same(left: Sequence[Hypothesis], right: Sequence[Hypothesis]) -> None:
    for a, b in zip(left, right, strict=True):
        assert (a.ids, a.finished) == (b.ids, b.finished)
        assert (a.score, a.log_prob) == pytest.approx((b.score, b.log_prob), rel=1e-9)


CONFIGS = [
    BeamConfig(),
    BeamConfig(beam=1),
    BeamConfig(beam=3, length_penalty=0.0),
    BeamConfig(beam=7, length_penalty=1.6, max_ratio=1.3, max_extra=1),
    BeamConfig(beam=2, max_ratio=0.0, max_extra=3),
    BeamConfig(beam=5, max_length=6),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_batched_and_cached_equals_a_plain_search(teacher: Teacher, config: BeamConfig) -> None:
    found = beam_search(teacher, Tokens.padded(SOURCES), config)
    same(found, [plain_beam(teacher, source, config) for source in SOURCES])
    assert all((h.ids[-1] == EOS) == h.finished and EOS not in h.ids[:-1] for h in found)
    assert all(len(h.ids) <= config.max_target_length(len(source)) for h, source in zip(found, SOURCES, strict=True))


def test_the_compared_configs_give_different_results(teacher: Teacher) -> None:
    found = {config: beam_search(teacher, Tokens.padded(SOURCES), config) for config in CONFIGS}
    assert len({tuple(h.ids for h in some) for some in found.values()}) == len(CONFIGS)
    assert {h.finished for some in found.values() for h in some} == {True, False}
    assert len({len(h.ids) for h in found[CONFIGS[0]]}) > 3
    assert any(a.score > b.score for a, b in zip(found[CONFIGS[0]], found[CONFIGS[1]], strict=True))


def test_beam_1_is_greedy_decoding(teacher: Teacher) -> None:
    config = BeamConfig(beam=1)
    found = beam_search(teacher, Tokens.padded(SOURCES), config)
    expected = [greedy(teacher, source, config.max_target_length(len(source))) for source in SOURCES]
    assert [list(h.ids) for h in found] == expected


@pytest.mark.parametrize("config", CONFIGS[:4])
def test_batched_equals_one_by_one_and_extra_padding_changes_nothing(teacher: Teacher, config: BeamConfig) -> None:
    found = beam_search(teacher, Tokens.padded(SOURCES), config)
    same(found, [beam_search(teacher, Tokens.padded([source]), config)[0] for source in SOURCES])
    same(found, beam_search(teacher, Tokens.padded(SOURCES, 14), config))
    same(found[::-1], beam_search(teacher, Tokens.padded(SOURCES[::-1]), config))


def test_scores_are_the_teachers_log_probabilities(teacher: Teacher) -> None:
    for config in CONFIGS:
        found = beam_search(teacher, Tokens.padded(SOURCES), config)
        memory = teacher.decoder_stack.project_kv(teacher.encode(Tokens.padded(SOURCES)))
        log_prob = teacher.log_prob(Tokens.padded([h.ids for h in found]), memory).sum(1).tolist()
        assert [h.log_prob for h in found] == pytest.approx(log_prob, rel=1e-9)
        expected = [total / len(h.ids) ** config.length_penalty for total, h in zip(log_prob, found, strict=True)]
        assert [h.score for h in found] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_a_wide_beam_is_exhaustive_search(penalty: float) -> None:
    torch.manual_seed(3)
    teacher, tokens, longest = Teacher(SIZE, 7).double(), (1, 4, 5, 6), 4
    some = sources(5, 4, seed=4, vocabulary=7)
    every = itertools.chain.from_iterable(itertools.product(tokens, repeat=length) for length in range(longest))
    targets = [[*ids, EOS] for ids in every]
    config = BeamConfig(beam=400, length_penalty=penalty, max_ratio=0.0, max_extra=longest)
    found = beam_search(teacher, Tokens.padded(some), config)
    for source, hypothesis in zip(some, found, strict=True):
        memory = teacher.decoder_stack.project_kv(teacher.encode(Tokens.padded([source])))
        log_prob = teacher.log_prob(Tokens.padded(targets), memory).sum(1).detach()
        scores = log_prob / torch.tensor([len(ids) for ids in targets]) ** penalty
        assert list(hypothesis.ids) == targets[int(scores.argmax())]
        assert hypothesis.score == pytest.approx(float(scores.max()), rel=1e-9)
        assert hypothesis.finished


def test_removing_done_sentences_changes_no_result(teacher: Teacher, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    step = Teacher.step
    monkeypatch.setattr(Teacher, "step", lambda self, ids, *rest: rows.append(len(ids)) or step(self, ids, *rest))

    def search(every: int, share: float) -> list[Hypothesis]:
        rows.clear()
        monkeypatch.setattr(beam, "_CHECK_EVERY", every)
        monkeypatch.setattr(beam, "_COMPACT_BELOW", share)
        return beam_search(teacher, Tokens.padded(SOURCES), BeamConfig())

    never = search(10_000, 1.0)
    steps = BeamConfig().max_target_length(9)
    assert rows == [12] * steps
    same(search(1, 0.0), never)
    assert rows == [12] * len(rows)
    assert len(rows) < steps  # it stops when all are done
    same(search(1, 1.0), never)
    assert len(set(rows)) > 4
    same(search(3, 0.5), never)
    assert rows == sorted(rows, reverse=True)


def test_the_search_ends_when_no_live_hypothesis_can_win(teacher: Teacher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A teacher that is sure of an empty target has one hypothesis after one step, not four."""
    sure = copy.deepcopy(teacher)
    with torch.no_grad():
        sure.decoder_stack.norm.bias += 50 * sure.embedding.weight[EOS]
    steps: list[int] = []
    step = Teacher.step
    monkeypatch.setattr(Teacher, "step", lambda self, *rest: steps.append(1) or step(self, *rest))
    monkeypatch.setattr(beam, "_CHECK_EVERY", 1)
    found = beam_search(sure, Tokens.padded(SOURCES), BeamConfig())
    assert {h.ids for h in found} == {(EOS,)}
    assert len(steps) == 1


def test_a_teacher_in_bf16_is_scored_in_fp32(teacher: Teacher) -> None:
    low = copy.deepcopy(teacher).bfloat16()
    found = beam_search(low, Tokens.padded(SOURCES), BeamConfig())
    memory = low.decoder_stack.project_kv(low.encode(Tokens.padded(SOURCES)))
    log_prob = low.log_prob(Tokens.padded([h.ids for h in found]), memory).sum(1)
    torch.testing.assert_close(torch.tensor([h.log_prob for h in found]), log_prob.detach(), rtol=0.03, atol=0.1)
    assert any(float(torch.tensor(h.log_prob).bfloat16()) != h.log_prob for h in found)


def test_attending_to_a_part_of_the_cache_changes_no_result(teacher: Teacher, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = beam_search(teacher, Tokens.padded(SOURCES), BeamConfig())
    for growth in (1, 3, 1000):
        monkeypatch.setattr(beam, "_CACHE_GROWTH", growth)
        same(beam_search(teacher, Tokens.padded(SOURCES), BeamConfig()), expected)


def test_an_empty_batch_and_an_empty_source(teacher: Teacher) -> None:
    assert beam_search(teacher, Tokens.padded([], width=3), BeamConfig()) == []
    both = beam_search(teacher, Tokens.padded([[], SOURCES[0]]), BeamConfig())
    same(both[1:], beam_search(teacher, Tokens.padded(SOURCES[:1]), BeamConfig()))
    assert 0 < len(both[0].ids) <= BeamConfig().max_target_length(0)


def test_special_tokens_are_never_written(teacher: Teacher) -> None:
    """Even where the teacher would like nothing better than padding."""
    biased = copy.deepcopy(teacher)
    with torch.no_grad():
        biased.embedding.weight[[PAD, BOS]] = biased.embedding.weight[7] * 3
    for config in CONFIGS:
        assert all({PAD, BOS}.isdisjoint(h.ids) for h in beam_search(biased, Tokens.padded(SOURCES), config))


def test_invalid_beam_configs_are_refused() -> None:
    for wrong in ({"beam": 0}, {"length_penalty": -1.0}, {"max_extra": 0}, {"max_length": 10_000}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            from_dict(wrong, BeamConfig, "here")
    assert dataclasses.replace(BeamConfig(), max_length=20).max_target_length(64) == 20


def test_a_search_is_checked_before_each_token(teacher: Teacher) -> None:
    checks = []

    def check() -> None:
        checks.append(1)
        if len(checks) == 3:
            raise InterruptedError

    source = Tokens.padded(SOURCES)
    with pytest.raises(InterruptedError):
        beam_search(teacher, source, BeamConfig(), check)
    assert beam_search(teacher, source, BeamConfig(), lambda: None) == beam_search(teacher, source, BeamConfig())
