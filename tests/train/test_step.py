"""The effect of one step on weights, moments and the EMA, against torch and closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from batches import SIZE, VOCABULARY, packed, padded
from torch import Tensor

from latentmt.data.tokens import Pairs
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.train.ranks import Ranks
from latentmt.train.step import TrainStep
from latentmt.train.tasks import TeacherTask

BETAS, EPSILON = (0.9, 0.98), 1e-3
"""An epsilon with which Adam feels the scale of a gradient at once."""


def make(clip: float) -> tuple[TeacherTask, TrainStep]:
    torch.manual_seed(0)
    task = TeacherTask(Teacher(TeacherConfig(**SIZE), VOCABULARY), 0.1)
    return task, TrainStep(task, Ranks(), betas=BETAS, epsilon=EPSILON, max_grad_norm=clip, controls=())


def mean_gradient(task: TeacherTask, batch: Pairs) -> list[Tensor]:
    """Of the cost a token."""
    cost = task.cost(batch, {})
    return list(torch.autograd.grad(cost.total / cost.sums["tokens"], list(task.network.parameters())))


def norm_of(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(tensor.square().sum()) for tensor in tensors))


def weights(train_step: TrainStep) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in train_step.parameters]


@pytest.mark.parametrize("share", [0.01, 0.5, 2.0])
def test_a_gradient_with_a_larger_norm_is_clipped(share: float) -> None:
    task, _ = make(1.0)
    whole = mean_gradient(task, packed())
    clip = share * norm_of(whole)
    task, train_step = make(clip)
    train_step.run([packed()], {"learning_rate": 1e-3, "ema_decay": 0.9}, seed=1)
    # Adam's first moment after its first step is (1 − β₁) times what it was given.
    given = [train_step.tensors()[f"exp_avg.{name}"] / (1 - BETAS[0]) for name in train_step.names]
    assert norm_of(given) == pytest.approx(min(clip, norm_of(whole)), rel=1e-4)
    torch.testing.assert_close(given, [min(share, 1.0) * gradient for gradient in whole], rtol=1e-3, atol=1e-7)
    assert train_step.read_sums()["norm"] == pytest.approx(norm_of(whole), rel=1e-5)  # as it was before


def test_steps_equal_torch_adam_on_clipped_mean_gradients() -> None:
    """Batches of different sizes and lengths of gradients; some steps are clipped and some are not."""
    _, train_step = make(clip=1.6)
    (other, _), rates, norms = make(clip=1.0), (0.02, 0.01, 0.03, 0.02), []
    adam = torch.optim.Adam(other.network.parameters(), betas=BETAS, eps=EPSILON)
    for step, rate in enumerate(rates):
        batch = packed() if step % 2 else padded(extra=step)
        train_step.run(batch.split(2), {"learning_rate": rate, "ema_decay": 0.9}, seed=step)
        for parameter, gradient in zip(other.network.parameters(), mean_gradient(other, batch), strict=True):
            parameter.grad = gradient
        norms.append(float(torch.nn.utils.clip_grad_norm_(other.network.parameters(), 1.6)))
        adam.param_groups[0]["lr"] = rate
        adam.step()
    assert min(norms) < 1.6 < max(norms)
    torch.testing.assert_close(
        weights(train_step), [p.detach() for p in other.network.parameters()], rtol=1e-4, atol=1e-5
    )


def test_the_ema_weighs_every_step_by_the_decays_after_it() -> None:
    """a_n = d_1 ⋯ d_n w_0 + Σ_i (1 − d_i) d_{i+1} ⋯ d_n w_i."""
    task, train_step = make(clip=1.0)
    decays, history = (0.1, 0.5, 0.9, 0.8), [weights(train_step)]
    for step, decay in enumerate(decays):
        train_step.run([packed()], {"learning_rate": 0.05, "ema_decay": decay}, seed=step)
        history.append(weights(train_step))
    shares = [math.prod(decays), *((1 - d) * math.prod(decays[i + 1 :]) for i, d in enumerate(decays))]
    assert sum(shares) == pytest.approx(1)
    expected = [
        sum(share * tensor for share, tensor in zip(shares, same, strict=True)) for same in zip(*history, strict=True)
    ]
    torch.testing.assert_close(train_step.ema, expected, rtol=1e-5, atol=1e-6)
    assert all((a - b).abs().max() > 0.01 for a, b in zip(history[0], history[-1], strict=True))
    last = history[-1]
    with train_step.ema_weights():
        torch.testing.assert_close(weights(train_step), expected, rtol=1e-5, atol=1e-6)
        assert not task.network.training
    torch.testing.assert_close(weights(train_step), last, rtol=0, atol=0)
    torch.testing.assert_close(list(train_step.ema_state_dict().values()), train_step.ema)
