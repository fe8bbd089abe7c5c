"""What a batch costs, derived once more to be read: one sentence at a time, token by token, entry by entry.

Networks are taken as they are, and every sentence goes through them alone: no packing, no padding, no mask. All around
them is plain arithmetic, written down from the paper and not from the package. Costs, what is reported beside them and
all gradients must be equal, given the same noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from batches import LATENT, ROWS, SIZE, VOCABULARY, alone, gradients, packed, per_sentence
from torch import Tensor, nn

from latentmt.data.tokenizer import BOS, EOS
from latentmt.data.tokens import Layout, Pairs, Tokens
from latentmt.fields.energy import EnergyNetwork
from latentmt.fields.learned import DisplacementConfig, DisplacementTask, FieldConfig
from latentmt.fields.registry import field_network, learned_field
from latentmt.fields.score import ScoreNetwork
from latentmt.models.latent import LatentModel
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.nn.attention import EncoderOutput
from latentmt.options import LENGTH_LIMIT
from latentmt.task import Task
from latentmt.train.tasks import ElboConfig, LatentTask, TeacherTask

SMOOTHING = 0.2
ROW_OF = [row for row, members in enumerate(ROWS) for _ in members]
"""Which row of the packed batch holds each pair."""


@pytest.fixture
def latent() -> LatentModel:
    """Untrained, but with means and variances of its own for every token."""
    torch.manual_seed(0)
    model = LatentModel(LATENT, VOCABULARY).double()
    with torch.no_grad():
        for head in (model.prior.head, model.posterior_head):
            head.weight.normal_(std=0.3)
        model.embedding.weight.mul_(4)  # else one step of delta inference would find what four find
    return model


@dataclass
class ByHand:
    """A cost, and what is reported beside it."""

    total: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    sums: dict[str, float] = field(default_factory=dict)

    def count(self, **values: float | Tensor) -> None:
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(torch.as_tensor(value).detach())


def same(task: Task, controls: dict[str, float], seed: int, expected: Callable[[], ByHand]) -> None:
    """The task's cost of the packed batch is the expected one, with all that is reported and all gradients."""
    given = {name: torch.tensor(value, dtype=torch.float64) for name, value in controls.items()}

    def total() -> Tensor:
        torch.manual_seed(seed)
        return task.cost(packed(), given).total

    by_hand = expected()
    torch.manual_seed(seed)
    found = task.cost(packed(), given)
    torch.testing.assert_close(found.total, by_hand.total, rtol=1e-7, atol=0)  # the length's part is in fp32
    assert {name: value.item() for name, value in found.sums.items()} == pytest.approx(by_hand.sums, rel=1e-6)
    left, right = gradients(task.network, total), gradients(task.network, lambda: expected().total)
    torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-7)


def smoothed(logits: Tensor, label: int) -> tuple[Tensor, Tensor]:
    """−Σ_v w_v log p_v, a share of w spread over the vocabulary and the rest at the label; and −log p_label."""
    chance = logits.exp() / logits.exp().sum()
    cost = torch.zeros((), dtype=torch.float64)
    for token in range(VOCABULARY):
        weight = SMOOTHING / VOCABULARY + (1 - SMOOTHING) * (token == label)
        cost = cost - weight * chance[token].log()
    return cost, -chance[label].log()


# The teacher: the next token, from those before it.


def teacher_by_hand(teacher: Teacher, pair: Pairs, out: ByHand) -> None:
    memory = teacher.decoder_stack.project_kv(teacher.encode(pair.source))
    target = pair.target.ids[0].tolist()
    for place, label in enumerate(target):
        before = [BOS, *target[:place]]  # what comes later does not exist
        layout = Layout.from_lengths(torch.tensor([len(before)]), len(before))
        x = teacher.embedding(torch.tensor([before]), layout.position)
        logits = teacher.decoder_stack(x, layout.segment, memory)[0, -1] @ teacher.embedding.weight.T
        cost, nll = smoothed(logits, label)
        out.total = out.total + cost
        out.count(loss=cost, nll=nll, correct=logits.argmax() == label, tokens=1)


def test_the_teacher_cost_is_next_token_cross_entropy() -> None:
    torch.manual_seed(0)
    task = TeacherTask(Teacher(TeacherConfig(**SIZE), VOCABULARY).double(), SMOOTHING)

    def expected() -> ByHand:
        out = ByHand()
        for pair in alone():
            teacher_by_hand(task.network, pair, out)
        return out

    same(task, {}, 1, expected)
    assert task.controls(3, 10) == {}


# The latent model: reconstruction from a sample of the posterior, max(KL(q‖p), budget), and the length.


def kl(q_mean: Tensor, q_std: Tensor, p_mean: Tensor, p_std: Tensor) -> Tensor:
    """E_q[log q − log p] of two normal distributions."""
    return (p_std / q_std).log() + (q_std**2 + (q_mean - p_mean) ** 2) / (2 * p_std**2) - 0.5


def latent_by_hand(model: LatentModel, pair: Pairs, epsilon: Tensor, budget: float, out: ByHand) -> list[float]:
    """Adds a sentence's cost; returns the KL of its tokens."""
    source, target = model.encode(pair.source), pair.target
    q = model.posterior(target, model.posterior_stack.project_kv(source))
    p = model.prior(target.layout, model.prior.project_kv(source)).gaussian
    z = q.mean + q.std * epsilon
    states = model.decode(z, target.layout, model.decoder_stack.project_kv(source))[0]
    divergences, total = [], torch.zeros((), dtype=torch.float64)
    for place, label in enumerate(target.ids[0].tolist()):
        logits = states[place] @ model.embedding.weight.T
        cost, nll = smoothed(logits, label)
        divergence = torch.zeros((), dtype=torch.float64)
        for entry in range(LATENT.latent_dim):
            divergence = divergence + kl(*(value[0, place, entry] for value in (q.mean, q.std, p.mean, p.std)))
        total = total + cost + (divergence if divergence > budget else budget)
        out.count(nll=nll, kl=divergence, correct=logits.argmax() == label, tokens=1)
        divergences.append(divergence.item())
    pooled = source.states[0].mean(0)
    lengths = model.output.length_head(torch.relu(model.output.length_hidden(pooled)))
    label = len(target.ids[0]) - len(pair.source.ids[0]) + LENGTH_LIMIT
    total = total - (lengths.exp()[label] / lengths.exp().sum()).log()
    out.total = out.total + total
    out.count(loss=total, right_lengths=lengths.argmax() == label, sentences=1)
    return divergences


@pytest.mark.parametrize("budget", [0.0, 10.0])
def test_the_latent_models_cost_is_the_elbo_of_length_and_tokens(latent: LatentModel, budget: float) -> None:
    task = LatentTask(latent, SMOOTHING, ElboConfig())
    divergences: list[float] = []

    def expected() -> ByHand:
        torch.manual_seed(4)
        layout = packed().target.layout
        noise = torch.randn(*layout.segment.shape, LATENT.latent_dim, dtype=torch.float64)
        out = ByHand()
        for pair, epsilon in zip(alone(), per_sentence(noise, layout), strict=True):
            divergences.extend(latent_by_hand(latent, pair, epsilon[None], budget, out))
        return out

    same(task, {"kl_budget": budget}, 4, expected)
    assert min(divergences) < 10 < max(divergences)  # the budget decides for some tokens, and for some not


def test_the_kl_budget_decays_during_a_run(latent: LatentModel) -> None:
    task = LatentTask(latent, SMOOTHING, ElboConfig(budget=2.0, budget_floor=0.5))
    budgets = [task.controls(step, 200)["kl_budget"] for step in (0, 99, 100, 150, 200)]
    assert budgets == pytest.approx([2.0, 2.0, 2.0, 1.25, 0.5])


# A field: ‖g‖² − 2 g·d, where d is how far k steps of delta inference go.


def direction(net: ScoreNetwork | EnergyNetwork, z: Tensor, source: EncoderOutput, layout: Layout) -> Tensor:
    """g at z: what the score network says, or the energy's steepest descent."""
    memory = net.stack.project_kv(source)
    if isinstance(net, ScoreNetwork):
        return net.hidden(z, layout, memory) @ net.head.weight.T + net.head.bias
    z = z.detach().requires_grad_()
    energy = net.hidden(z, layout, memory, create_graph=True)[0].mean(0) @ net.head.weight[0]
    (slope,) = torch.autograd.grad(energy, z, create_graph=True)
    return -slope


@torch.no_grad()
def displacement(model: LatentModel, z: Tensor, source: EncoderOutput, layout: Layout, steps: int) -> Tensor:
    """ŷ = argmax p(y|z,x), then the mean of q(z|ŷ,x), again and again; and from z to there."""
    end = z
    for _ in range(steps):
        states = model.decode(end, layout, model.decoder_stack.project_kv(source))
        best = Tokens((states @ model.embedding.weight.T).argmax(-1), layout)
        end = model.posterior(best, model.posterior_stack.project_kv(source)).mean
    return end - z


def field_by_hand(task: DisplacementTask, pair: Pairs, epsilon: Tensor, first_moves: bool, out: ByHand) -> None:
    model, layout = task.latent, pair.target.layout
    with torch.no_grad():
        source = model.encode(pair.source)
        prior = model.prior(layout, model.prior.project_kv(source))
        z = prior.gaussian.mean + prior.gaussian.std * epsilon
    if first_moves:
        z = (z + direction(task.network, z, source, layout)).detach()
    wanted = displacement(model, z, source, layout, task.displacement.delta_steps)[0]
    found = direction(task.network, z, source, layout)[0]
    for g, d in zip(found, wanted, strict=True):  # of each token
        squared = sum(g[entry] ** 2 for entry in range(len(g)))
        product = sum(g[entry] * d[entry] for entry in range(len(g)))
        size = sum(d[entry].item() ** 2 for entry in range(len(g)))
        distance = sum((g[entry] - d[entry]).item() ** 2 for entry in range(len(g)))
        out.total = out.total + squared - 2 * product
        out.count(loss=squared - 2 * product, residual=distance, size=size, tokens=1)
        out.count(cosine=product.item() / math.sqrt(squared.item() * size))


def field_task(latent: LatentModel, kind: str, steps: int = 3) -> DisplacementTask:
    torch.manual_seed(1)
    net = field_network(FieldConfig(**SIZE, kind=kind), LATENT).double()  # type: ignore[arg-type]
    nn.init.normal_(net.head.weight, std=0.3)  # the score's starts at zero, which would prove nothing
    displacement = DisplacementConfig(delta_steps=steps, noise=0.8)
    return DisplacementTask(learned_field(kind), net, latent.eval().requires_grad_(False), displacement)


@pytest.mark.parametrize("own_step", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("kind", ["score", "energy"])
def test_a_fields_cost_is_regression_on_deltas_displacement(latent: LatentModel, kind: str, own_step: float) -> None:
    task = field_task(latent, kind)
    moving: list[bool] = []

    def expected() -> ByHand:
        torch.manual_seed(6)
        layout = packed().target.layout
        scale = 0.8 * torch.rand(len(ROWS), 1, 1)  # u ~ U(0, 1) of each row
        noise = torch.randn(*layout.segment.shape, LATENT.latent_dim, dtype=torch.float64)
        chance = torch.rand(len(ROWS), 1, 1).flatten().tolist()
        out = ByHand()
        for pair, row, epsilon in zip(alone(), ROW_OF, per_sentence(noise, layout), strict=True):
            moving.append(chance[row] < own_step)
            field_by_hand(task, pair, float(scale[row]) * epsilon[None], moving[-1], out)
        return out

    same(task, {"own_step": own_step}, 6, expected)
    assert set(moving) == {0.0: {False}, 0.6: {False, True}, 1.0: {True}}[own_step]


def test_the_displacement_has_as_many_steps_as_are_configured(latent: LatentModel) -> None:
    """Were the first one the last, the costs above would not know how many there are."""
    batch = packed()
    torch.manual_seed(3)
    z = torch.randn(*batch.target.layout.segment.shape, LATENT.latent_dim, dtype=torch.float64)
    layout, found = batch.target.layout, []
    for steps in (1, 2, 3, 4):
        source = latent.encode(batch.source)
        found.append(field_task(latent, "score", steps)._displacement(z, source, layout)[layout.real])
        ends = [
            displacement(latent, some[None], latent.encode(pair.source), pair.target.layout, steps)[0]
            for pair, some in zip(alone(), per_sentence(z, layout), strict=True)
        ]
        torch.testing.assert_close(found[-1], torch.cat(ends))
    assert all(not torch.allclose(a, b) for a, b in itertools.pairwise(found))


def test_rows_take_their_own_step_after_the_first_tenth(latent: LatentModel) -> None:
    task = field_task(latent, "score")
    assert [task.controls(step, 50)["own_step"] for step in (0, 4, 5, 6, 25, 50)] == [0.0, 0.0, 0.5, 0.5, 0.5, 0.5]
    other = DisplacementTask(task.field, task.network, latent, DisplacementConfig(own_step=0.3, own_step_from=0.5))
    assert [other.controls(step, 50)["own_step"] for step in (24, 25)] == [0.0, 0.3]


def test_defaults_are_as_documented() -> None:
    assert DisplacementConfig() == DisplacementConfig(delta_steps=4, noise=1.0, own_step=0.5, own_step_from=0.1)
    assert ElboConfig() == ElboConfig(budget=0.25, budget_floor=0.1)  # not the authors' 1 → 0: docs/LOG.md


def test_every_sentence_ends() -> None:
    """The loops above count on it: the last id of each pair is EOS, and nothing is empty."""
    assert all(side.ids[0, -1] == EOS for pair in alone() for side in (pair.source, pair.target))
