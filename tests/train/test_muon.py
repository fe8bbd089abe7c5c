"""Muon: orthogonal steps of the right size for the matrices of layers, and Adam for everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch
from batches import SIZE, VOCABULARY, packed, padded
from torch import Tensor, nn

from latentmt.data.batches import Cursor
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.nn.attention import PackedLinear
from latentmt.train.checkpoint import Progress, load_checkpoint, save_checkpoint
from latentmt.train.muon import ADAM_RMS, MOMENTUM, Muon, orthogonalised
from latentmt.train.ranks import Ranks
from latentmt.train.step import TrainStep
from latentmt.train.tasks import TeacherTask

ZERO, ONE = torch.zeros(()), torch.ones(())


def make(optimizer: Literal["adam", "muon"]) -> tuple[Teacher, TrainStep]:
    torch.manual_seed(0)
    teacher = Teacher(TeacherConfig(**SIZE), VOCABULARY)
    train_step = TrainStep(
        TeacherTask(teacher, 0.1),
        Ranks(),
        optimizer=optimizer,
        betas=(0.9, 0.98),
        epsilon=1e-3,
        max_grad_norm=1e9,
        controls=(),
    )
    return teacher, train_step


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 8, 40), (4, 40, 8)])
def test_singular_values_become_about_one_and_vectors_stay(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(1)
    matrices = torch.randn(shape)
    u, s, v = torch.linalg.svd(matrices, full_matrices=False)
    matrices = u @ torch.diag_embed(s.clamp(min=0.1 * float(s.max()))) @ v
    found = orthogonalised(1e-4 * matrices, torch.float32)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.65
    assert values.max() < 1.25
    mixed = u.mT @ found @ v.mT  # diagonal if the singular vectors are the same
    off = mixed - torch.diag_embed(mixed.diagonal(dim1=1, dim2=2))
    assert off.abs().max() < 1e-3


def test_every_block_is_a_matrix_of_its_own() -> None:
    """A layer with three blocks moves as three layers do."""
    torch.manual_seed(2)
    together, gradient = PackedLinear(8, 8, blocks=3), torch.randn(24, 8)
    apart = nn.ModuleList(PackedLinear(8, 8) for _ in range(3))
    with torch.no_grad():
        for layer, block in zip(apart, together.weight.chunk(3), strict=True):
            layer.weight.copy_(block)
    for network, gradients in ((together, [gradient]), (apart, gradient.chunk(3))):
        muon = Muon(network, torch.float32)
        for weight, own in zip(muon.parameters, gradients, strict=True):
            weight.grad = own.clone()
        muon.step(torch.tensor(0.1), ONE, ZERO)
    torch.testing.assert_close(together.weight, torch.cat([layer.weight for layer in apart]))


def test_a_step_is_nesterovs_momentum_made_orthogonal() -> None:
    torch.manual_seed(3)
    layer = PackedLinear(8, 16)
    weight, momentum = layer.weight.detach().clone(), torch.zeros(16, 8)
    muon = Muon(layer, torch.float32)
    for rate, divisor in ((0.1, 4.0), (0.05, 2.0)):
        gradient = torch.randn(16, 8)
        layer.weight.grad = divisor * gradient
        muon.step(torch.tensor(rate), torch.tensor(divisor), ZERO)
        momentum = MOMENTUM * momentum + (1 - MOMENTUM) * gradient
        direction = MOMENTUM * momentum + (1 - MOMENTUM) * gradient
        weight -= rate * ADAM_RMS * 16**0.5 * orthogonalised(direction[None], torch.float32)[0]
        torch.testing.assert_close(layer.weight.detach(), weight)
        torch.testing.assert_close(muon.momenta[layer.weight], momentum)


def test_an_entry_moves_as_far_as_adams_do() -> None:
    """The root mean square of a square matrix's step is about 0.2 times the rate."""
    torch.manual_seed(4)
    layer = PackedLinear(64, 64)
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.randn(64, 64)
    Muon(layer, torch.float32).step(ONE, ONE, ZERO)
    assert float((layer.weight.detach() - before).square().mean().sqrt()) == pytest.approx(ADAM_RMS, rel=0.25)


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    _, train_step = make("muon")
    train_step.run([packed()], {"learning_rate": 0.01, "ema_decay": 0.5}, seed=1)
    before = {name: tensor.clone() for name, tensor in train_step.tensors().items()}
    embedding = train_step.parameters[0]
    hook = embedding.register_hook(lambda gradient: gradient * torch.nan)
    train_step.run([packed()], {"learning_rate": 0.01, "ema_decay": 0.5}, seed=2)
    hook.remove()
    after = train_step.tensors()
    assert any(name.startswith("momentum.") for name in before)
    for name, tensor in before.items():
        if not name.startswith("average."):
            torch.testing.assert_close(after[name], tensor, rtol=0, atol=0)
    assert train_step.read_sums()["skipped"] == 1


def test_matrices_of_layers_are_muons_and_the_others_are_adams() -> None:
    teacher, train_step = make("muon")
    _, adam_step = make("adam")
    batch = padded()
    for each in (train_step, adam_step):
        each.run([batch], {"learning_rate": 0.01, "ema_decay": 0.5}, seed=1)
    matrices = {f"{name}.weight" for name, module in teacher.named_modules() if isinstance(module, PackedLinear)}
    assert {name.removeprefix("momentum.") for name in train_step.tensors() if name.startswith("momentum.")} == matrices
    assert "embedding.weight" not in matrices
    weights: list[dict[str, Tensor]] = [
        dict(zip(each.names, each.parameters, strict=True)) for each in (train_step, adam_step)
    ]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]) == (name not in matrices), name


def test_gradients_of_a_step_do_not_reach_the_next() -> None:
    _, train_step = make("muon")
    train_step.run([packed()], {"learning_rate": 0.0, "ema_decay": 0.5}, seed=1)
    first = train_step.read_sums()["norm"]
    train_step.run([packed()], {"learning_rate": 0.0, "ema_decay": 0.5}, seed=1)
    assert train_step.read_sums()["norm"] == pytest.approx(first, rel=1e-6)


def test_a_resumed_run_goes_on_as_it_would_have(tmp_path: Path) -> None:
    controls = {"learning_rate": 0.01, "ema_decay": 0.5}
    _, whole = make("muon")
    for seed in range(4):
        whole.run([packed()], controls, seed)
    _, first = make("muon")
    for seed in range(2):
        first.run([packed()], controls, seed)
    file = tmp_path / "state.safetensors"
    save_checkpoint(file, Progress(run="a", total=4, step=2, cursor=Cursor()), first.tensors())
    _, second = make("muon")
    assert load_checkpoint(file, "a", second.tensors())
    for seed in range(2, 4):
        second.run([packed()], controls, seed)
    for name, tensor in whole.tensors().items():
        torch.testing.assert_close(second.tensors()[name], tensor, rtol=0, atol=0)
