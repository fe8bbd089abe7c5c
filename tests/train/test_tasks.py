"""What a batch costs, derived once more to be read: one sentence at a time, token by token, entry by entry.

Networks are taken as they are, and every sentence goes through them alone: no packing, no padding, no mask. All around
them is plain arithmetic, written down from the paper and not from the package. Costs, what is reported beside them and
all gradients must be equal, given the same noise.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import torch
from batches import LATENT, OUTPUTS, ROWS, SIZE, VOCABULARY, alone, gradients, packed, per_sentence
from ctc import nll_alone, read_alone
from torch import Tensor, nn

from latentmt.data.tokenizer import BLANK, BOS, EOS
from latentmt.data.tokens import Layout, Pairs, Tokens
from latentmt.fields.energy import EnergyNetwork
from latentmt.fields.learned import DisplacementConfig, DisplacementTask, FieldConfig
from latentmt.fields.registry import field_network, learned_field
from latentmt.fields.score import ScoreNetwork
from latentmt.models.ctc import CTCOutput
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.nn.attention import EncoderOutput
from latentmt.nn.lattice import Lattice
from latentmt.options import LENGTH_LIMIT
from latentmt.task import Cost, Task
from latentmt.train.glancing import GlancingConfig, given_places
from latentmt.train.tasks import ElboConfig, LatentTask, TeacherTask

SMOOTHING = 0.2
ROW_OF = [row for row, members in enumerate(ROWS) for _ in members]
"""Which row of the packed batch holds each pair."""


@pytest.fixture(params=OUTPUTS)
def config(request: pytest.FixtureRequest) -> LatentConfig:
    return OUTPUTS[request.param]


@pytest.fixture
def latent(config: LatentConfig) -> LatentModel:
    """Untrained, but with means and variances of its own for every place."""
    torch.manual_seed(0)
    model = LatentModel(config, VOCABULARY).double()
    with torch.no_grad():
        for head in (model.prior.head, model.posterior_head):
            head.weight.normal_(std=0.3)
        model.embedding.weight.mul_(4)  # else one step of delta inference would find what four find
        if model.decoder_stack.upsampling:  # nor would it if places saw little but their source
            model.decoder_stack.source_keys_values.weight[-SIZE["d_model"] :] *= 0.1
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


def places_of(model: LatentModel, pair: Pairs) -> Layout:
    """Those of one sentence: the target's tokens, or three for every token of the source."""
    size = 3 * len(pair.source.ids[0]) if isinstance(model.output, CTCOutput) else len(pair.target.ids[0])
    return Layout.from_lengths(torch.tensor([size]), size)


def tokens_by_hand(logits: Tensor, target: list[int], given: list[bool], out: ByHand) -> Tensor:
    """One token a place: the cross-entropy of each that is not given."""
    total = torch.zeros((), dtype=torch.float64)
    for place, label in enumerate(target):
        if not given[place]:
            cost, nll = smoothed(logits[place], label)
            total = total + cost
            out.count(nll=nll, correct=logits[place].argmax() == label, tokens=1)
    return total


def ctc_by_hand(logits: Tensor, target: list[int], given: list[bool], out: ByHand) -> Tensor:
    """The likelihood over all ways to write the target; of smoothing, what is spread over the vocabulary.

    Places that are given take part, but nothing is learnt there.
    """
    constant = torch.tensor(given)[:, None]
    log_prob = torch.where(constant, logits.detach(), logits).log_softmax(-1)
    nll = nll_alone(log_prob, target)
    uniform = -log_prob.mean(-1)[~constant[:, 0]].sum()
    if any(given):
        return (1 - SMOOTHING) * nll + SMOOTHING * uniform
    (share,) = torch.autograd.grad(nll, logits, retain_graph=True)
    posterior = (log_prob.exp() - share).detach()  # how probably each place has each label, given the target
    for label in target:
        peak = posterior[:, label].argmax()
        out.count(correct=logits[peak].argmax() == label, tokens=1)
    out.count(nll=nll)
    return (1 - SMOOTHING) * nll + SMOOTHING * uniform


def length_by_hand(model: LatentModel, source: EncoderOutput, pair: Pairs, out: ByHand) -> Tensor:
    if isinstance(model.output, CTCOutput):
        out.count(right_lengths=1, sentences=1)
        return torch.zeros((), dtype=torch.float64)
    lengths = model.output.length_head(torch.relu(model.output.length_hidden(source.states[0].mean(0))))
    label = len(pair.target.ids[0]) - len(pair.source.ids[0]) + LENGTH_LIMIT
    out.count(right_lengths=lengths.argmax() == label, sentences=1)
    return -(lengths.exp()[label] / lengths.exp().sum()).log()


@dataclass
class Glance:
    """What is drawn for glancing, and what is done with it."""

    weight: float
    ratio: float
    chance: Tensor
    """A number from 0 to 1 for every place."""


def glance_by_hand(model: LatentModel, pair: Pairs, z: Tensor, glance: Glance, out: ByHand) -> Tensor:
    """The loss of the places that are not given."""
    source, places, target = model.encode(pair.source), places_of(model, pair), pair.target.ids[0].tolist()
    mode = model.prior(places, model.prior.project_kv(source)).mode
    memory = model.decoder_stack.project_kv(source)
    guess = (model.decode(mode, places, memory)[0] @ model.embedding.weight.T).argmax(-1).tolist()
    right = target
    if isinstance(model.output, CTCOutput):  # the likeliest of all ways to write the target
        guess[-1] = EOS
        log_prob = (model.decode(mode, places, memory)[0] @ model.embedding.weight.T).log_softmax(-1)
        labels, one = [*target, BLANK], torch.ones(1, len(log_prob), dtype=torch.long)
        lattice = Lattice.walk(log_prob[:, labels][None], one, torch.tensor([target]), one[:, : len(target)], best=True)
        right = [labels[label] for label in lattice.best_label()[0].tolist()]
    wrong = [a != b for a, b in zip(guess, right, strict=True)]
    share = sum(wrong) / len(wrong)
    given = [float(chance) < glance.ratio * share for chance in glance.chance]
    mixed = torch.where(torch.tensor(given)[None, :, None], z.detach(), mode)
    write = ctc_by_hand if isinstance(model.output, CTCOutput) else tokens_by_hand
    rest = write(model.decode(mixed, places, memory)[0] @ model.embedding.weight.T, target, given, ByHand())
    out.count(wrong=sum(wrong), given=sum(given), places=len(given))
    return glance.weight * rest


def latent_by_hand(
    model: LatentModel, pair: Pairs, epsilon: Tensor, budget: float, out: ByHand, glance: Glance | None = None
) -> list[float]:
    """Adds a sentence's cost; returns the KL of its places."""
    source, target, places = model.encode(pair.source), pair.target, places_of(model, pair)
    q = model.posterior(target, places, model.posterior_stack.project_kv(source))
    p = model.prior(places, model.prior.project_kv(source)).gaussian
    z = q.mean + q.std * epsilon
    states = model.decode(z, places, model.decoder_stack.project_kv(source))[0]
    write = ctc_by_hand if isinstance(model.output, CTCOutput) else tokens_by_hand
    none = [False] * len(states)
    total = write(states @ model.embedding.weight.T, target.ids[0].tolist(), none, out)
    if glance:
        total = total + glance_by_hand(model, pair, z, glance, out)
    divergences = []
    for place in range(len(states)):
        divergence = torch.zeros((), dtype=torch.float64)
        for entry in range(LATENT.latent_dim):
            divergence = divergence + kl(*(value[0, place, entry] for value in (q.mean, q.std, p.mean, p.std)))
        total = total + (divergence if divergence > budget else budget)
        out.count(kl=divergence)
        divergences.append(divergence.item())
    total = total + length_by_hand(model, source, pair, out)
    out.total = out.total + total
    out.count(loss=total)
    return divergences


@pytest.mark.parametrize("budget", [0.0, 10.0])
def test_the_latent_models_cost_is_the_elbo_of_length_and_tokens(latent: LatentModel, budget: float) -> None:
    task = LatentTask(latent, SMOOTHING, ElboConfig())
    with torch.no_grad():
        latent.embedding.weight.div_(4)  # else several places are as sure of a token as can be
    divergences: list[float] = []

    def expected() -> ByHand:
        torch.manual_seed(4)
        layout = latent.output.places(latent.encode(packed().source), packed().target)
        noise = torch.randn(*layout.segment.shape, LATENT.latent_dim, dtype=torch.float64)
        out = ByHand()
        for pair, epsilon in zip(alone(), per_sentence(noise, layout), strict=True):
            divergences.extend(latent_by_hand(latent, pair, epsilon[None], budget, out))
        return out

    same(task, {"kl_budget": budget}, 4, expected)
    assert min(divergences) < 10 < max(divergences)  # the budget decides for some tokens, and for some not


@pytest.mark.parametrize("ratio", [0.0, 0.4, 0.7])
def test_glancing_adds_the_loss_of_the_places_that_are_not_given(latent: LatentModel, ratio: float) -> None:
    task = LatentTask(latent, SMOOTHING, ElboConfig(glancing=GlancingConfig(weight=0.8)))
    with torch.no_grad():
        latent.embedding.weight.div_(4)
    sums: dict[str, float] = {}

    def expected() -> ByHand:
        torch.manual_seed(4)
        layout = latent.output.places(latent.encode(packed().source), packed().target)
        noise = torch.randn(*layout.segment.shape, LATENT.latent_dim, dtype=torch.float64)
        chances = torch.rand(layout.segment.shape)
        out, rows = ByHand(), (per_sentence(noise, layout), per_sentence(chances, layout))
        for pair, epsilon, chance in zip(alone(), *rows, strict=True):
            latent_by_hand(latent, pair, epsilon[None], 0.1, out, Glance(0.8, ratio, chance))
        sums.update(out.sums)
        return out

    same(task, {"kl_budget": 0.1, "glancing_ratio": ratio}, 4, expected)
    assert (0 < sums["given"] < sums["places"]) if ratio else sums["given"] == 0
    assert 0 < sums["wrong"] <= sums["places"]
    assert {"wrong", "given"} <= task.metrics.keys()


def test_deep_supervision_is_the_mean_loss_of_the_decoders_layers(latent: LatentModel) -> None:
    """The same weights with fewer layers of the decoder, one model after another; all else is the same."""
    controls = {"kl_budget": torch.tensor(0.1, dtype=torch.float64)}
    plain, batch = LatentTask(latent, SMOOTHING, ElboConfig()), packed()

    def drawn(task: LatentTask) -> Cost:
        torch.manual_seed(4)
        return task.cost(batch, controls)

    deep = drawn(LatentTask(latent, SMOOTHING, ElboConfig(deep_supervision=True)))
    costs = [drawn(plain)]
    stack = latent.decoder_stack
    for layers in range(1, len(stack.layers)):
        shallow = copy.deepcopy(latent)
        shallow.decoder_stack.layers = shallow.decoder_stack.layers[:layers]
        size = replace(stack.size, layers=layers)
        given = stack.source_keys_values
        blocks = [*range(2 * layers), *range(2 * stack.size.layers, given.blocks)]  # the last is no layer's
        projection = nn.Linear(given.in_features, len(blocks) * size.width).double()
        projection.weight.data, projection.bias.data = (
            torch.cat([parameter.data.split(size.width)[block] for block in blocks])
            for parameter in (given.weight, given.bias)
        )
        shallow.decoder_stack.source_keys_values, shallow.decoder_stack.size = projection, size
        costs.append(drawn(LatentTask(shallow, SMOOTHING, ElboConfig())))
    assert len(costs) > 1
    mean = sum(cost.total for cost in costs) / len(costs)
    torch.testing.assert_close(deep.total, mean)
    for name in ("nll", "kl", "correct", "tokens"):
        assert deep.sums[name] == costs[0].sums[name]  # what is reported is the last layer's


def test_the_ratio_of_glancing_changes_during_a_run(latent: LatentModel) -> None:
    task = LatentTask(latent, SMOOTHING, ElboConfig(glancing=GlancingConfig(ratio=0.6, ratio_end=0.2)))
    ratios = [task.controls(step, 200)["glancing_ratio"] for step in (0, 50, 100, 200, 300)]
    assert ratios == pytest.approx([0.6, 0.5, 0.4, 0.2, 0.2])
    assert "glancing_ratio" not in LatentTask(latent, SMOOTHING, ElboConfig()).controls(0, 200)


def test_as_many_places_are_given_as_are_wrong_in_proportion() -> None:
    """In each sentence, whichever of its places are wrong; and no padding."""
    segment = torch.tensor([[1] * 400 + [2] * 400 + [0] * 200]).expand(50, -1)
    places = Layout.from_segments(segment)
    wrong = places.real & torch.cat((torch.arange(400) < 100, torch.ones(600, dtype=torch.bool)))
    torch.manual_seed(0)
    given = given_places(wrong, places, torch.tensor(0.6))
    shares = [float(given[segment == number].float().mean()) for number in (0, 1, 2)]
    assert shares == pytest.approx([0.0, 0.6 * 0.25, 0.6], abs=0.01)
    among = float(given[:, :100].float().mean()), float(given[:, 100:400].float().mean())
    assert among == pytest.approx((0.15, 0.15), abs=0.015)
    assert not given_places(torch.zeros_like(wrong), places, torch.tensor(1.0)).any()


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
        logits = states @ model.embedding.weight.T
        alone = Tokens.padded([read_alone(logits[0])]) if isinstance(model.output, CTCOutput) else None
        best = alone or Tokens(logits.argmax(-1), layout)
        end = model.posterior(best, layout, model.posterior_stack.project_kv(source)).mean
    return end - z


def field_by_hand(task: DisplacementTask, pair: Pairs, epsilon: Tensor, first_moves: bool, out: ByHand) -> None:
    model, layout = task.latent, places_of(task.latent, pair)
    with torch.no_grad():
        source = model.encode(pair.source)
        prior = model.prior(layout, model.prior.project_kv(source))
        z = prior.gaussian.mean + prior.gaussian.std * epsilon
    if first_moves:
        z = (z + direction(task.network, z, source, layout)).detach()
    wanted = displacement(model, z, source, layout, task.displacement.delta_steps)[0]
    found = direction(task.network, z, source, layout)[0]
    for g, d in zip(found, wanted, strict=True):  # of each place
        squared = sum(g[entry] ** 2 for entry in range(len(g)))
        product = sum(g[entry] * d[entry] for entry in range(len(g)))
        size = sum(d[entry].item() ** 2 for entry in range(len(g)))
        distance = sum((g[entry] - d[entry]).item() ** 2 for entry in range(len(g)))
        out.total = out.total + squared - 2 * product
        out.count(loss=squared - 2 * product, residual=distance, size=size, tokens=1)
        out.count(cosine=product.item() / math.sqrt(squared.item() * size))


def field_task(config: LatentConfig, latent: LatentModel, kind: str, steps: int = 3) -> DisplacementTask:
    torch.manual_seed(1)
    net = field_network(FieldConfig(**SIZE, kind=kind), config).double()  # type: ignore[arg-type]
    nn.init.normal_(net.head.weight, std=0.3)  # the score's starts at zero, which would prove nothing
    displacement = DisplacementConfig(delta_steps=steps, noise=0.8)
    return DisplacementTask(learned_field(kind), net, latent.eval().requires_grad_(False), displacement)


@pytest.mark.parametrize("own_step", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("kind", ["score", "energy"])
def test_a_fields_cost_is_regression_on_deltas_displacement(
    config: LatentConfig, latent: LatentModel, kind: str, own_step: float
) -> None:
    task = field_task(config, latent, kind)
    moving: list[bool] = []

    def expected() -> ByHand:
        torch.manual_seed(6)
        layout = latent.output.places(latent.encode(packed().source), packed().target)
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


def test_the_displacement_has_as_many_steps_as_are_configured(config: LatentConfig, latent: LatentModel) -> None:
    """Were the first one the last, the costs above would not know how many there are."""
    batch, found = packed(), []
    torch.manual_seed(3)
    layout = latent.output.places(latent.encode(batch.source), batch.target)
    z = torch.randn(*layout.segment.shape, LATENT.latent_dim, dtype=torch.float64)
    for steps in (1, 2, 3, 4):
        source = latent.encode(batch.source)
        found.append(field_task(config, latent, "score", steps)._displacement(z, source, layout)[layout.real])
        ends = [
            displacement(latent, some[None], latent.encode(pair.source), places_of(latent, pair), steps)[0]
            for pair, some in zip(alone(), per_sentence(z, layout), strict=True)
        ]
        torch.testing.assert_close(found[-1], torch.cat(ends))
    assert all(not torch.allclose(a, b) for a, b in itertools.pairwise(found))


def test_rows_take_their_own_step_after_the_first_tenth(config: LatentConfig, latent: LatentModel) -> None:
    task = field_task(config, latent, "score")
    assert [task.controls(step, 50)["own_step"] for step in (0, 4, 5, 6, 25, 50)] == [0.0, 0.0, 0.5, 0.5, 0.5, 0.5]
    other = DisplacementTask(task.field, task.network, latent, DisplacementConfig(own_step=0.3, own_step_from=0.5))
    assert [other.controls(step, 50)["own_step"] for step in (24, 25)] == [0.0, 0.3]


def test_defaults_are_as_documented() -> None:
    assert DisplacementConfig() == DisplacementConfig(delta_steps=4, noise=1.0, own_step=0.5, own_step_from=0.1)
    assert ElboConfig() == ElboConfig(budget=0.25, budget_floor=0.1)  # not the authors' 1 → 0: docs/LOG.md


def test_every_sentence_ends() -> None:
    """The loops above count on it: the last id of each pair is EOS, and nothing is empty."""
    assert all(side.ids[0, -1] == EOS for pair in alone() for side in (pair.source, pair.target))
