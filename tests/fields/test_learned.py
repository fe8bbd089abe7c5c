from __future__ import annotations

import pytest
import torch
from batches import (
    LATENT,
    SIZE,
    alone,
    close,
    gradients,
    latents,
    packed,
    padded,
    per_sentence,
    same_gradients,
    spread,
)
from torch import Tensor

from latentmt.data.tokens import Layout, Pairs
from latentmt.fields.energy import EnergyNetwork
from latentmt.fields.learned import FieldConfig
from latentmt.fields.registry import field_network
from latentmt.fields.score import ScoreNetwork
from latentmt.nn.attention import EncoderOutput, Memory
from latentmt.objectives import displacement_regression

KINDS = ("score", "energy")


def field(kind: str, positions: bool = True) -> ScoreNetwork | EnergyNetwork:
    torch.manual_seed(0)
    net = field_network(FieldConfig(**SIZE, kind=kind, positions=positions), LATENT).double()
    torch.nn.init.normal_(net.head.weight)  # the score's starts at zero, which would prove nothing
    return net


def encoded(pairs: Pairs) -> EncoderOutput:
    """Stands in for the encoder: a fixed vector for every id and place."""
    table = torch.randn(64, 16, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    tokens = pairs.source
    return EncoderOutput(table[tokens.ids] + table[tokens.layout.position], tokens.layout.segment)


def given(net: ScoreNetwork | EnergyNetwork, pairs: Pairs, values: list[Tensor]) -> tuple[Tensor, Layout, Memory]:
    layout = pairs.target.layout
    return spread(values, layout).nan_to_num(9.0), layout, net.stack.project_kv(encoded(pairs))


@pytest.mark.parametrize("kind", KINDS)
def test_packed_and_padded_rows_equal_one_pair_at_a_time(kind: str) -> None:
    net, z = field(kind), latents(3)
    expected = [net(*given(net, pair, [some]))[0] for pair, some in zip(alone(), z, strict=True)]
    for pairs in (packed(), padded(), padded(extra=4)):
        got = net(*given(net, pairs, z))
        close(per_sentence(got, pairs.target.layout), expected)
        assert not got[~pairs.target.layout.real].any()


@pytest.mark.parametrize("kind", KINDS)
def test_packed_gradients_equal_the_sum_over_single_pairs(kind: str) -> None:
    net, z, moves = field(kind), latents(3), latents(5)

    def loss(pairs: Pairs, some: list[Tensor], wanted: list[Tensor]) -> Tensor:
        layout = pairs.target.layout
        move = spread(wanted, layout).nan_to_num(9.0)
        return displacement_regression(net(*given(net, pairs, some)), move, layout.real).loss

    expected = gradients(net, lambda: sum(loss(p, [a], [b]) for p, a, b in zip(alone(), z, moves, strict=True)))
    same_gradients(gradients(net, lambda: loss(packed(), z, moves)), expected)
    without = {name for name, _ in net.named_parameters()} - expected.keys()
    assert without == (set() if kind == "score" else {"stack.norm.bias"})
    assert all(torch.isfinite(g).all() and g.any() for g in expected.values())


def test_energy_of_a_row_is_the_sum_of_its_sentences() -> None:
    net, z = field("energy"), latents(3)
    assert isinstance(net, EnergyNetwork)
    single = torch.cat([net.energy(*given(net, p, [some])) for p, some in zip(alone(), z, strict=True)])
    close([net.energy(*given(net, padded(extra=1), z))], [single])
    rows = [single[0:3].sum(), single[3], torch.zeros((), dtype=torch.float64), single[4:6].sum()]
    close([net.energy(*given(net, packed(), z))], [torch.stack(rows)])


def test_energy_field_is_minus_the_gradient_by_finite_differences() -> None:
    net = field("energy")
    assert isinstance(net, EnergyNetwork)
    z, layout, memory = given(net, packed(), latents(3))
    found, step = net(z, layout, memory), 1e-5
    for index in torch.randperm(z.numel(), generator=torch.Generator().manual_seed(0))[:40].tolist():
        push = torch.zeros_like(z)
        push.view(-1)[index] = step
        rise = net.energy(z + push, layout, memory).sum() - net.energy(z - push, layout, memory).sum()
        torch.testing.assert_close(found.view(-1)[index], -rise / (2 * step), rtol=1e-4, atol=1e-7)


def test_energy_field_works_without_gradients_and_keeps_no_graph() -> None:
    net = field("energy")
    inputs = given(net, packed(), latents(3))
    with torch.no_grad():
        found = net(*inputs)
        assert not torch.is_grad_enabled()
    assert not found.requires_grad
    assert all(p.grad is None for p in net.parameters())
    close([found], [net(*inputs).detach()])


def test_energy_gradient_of_a_parameter_by_finite_differences() -> None:
    net, pairs, step = field("energy"), packed(), 1e-5
    values, moves = latents(3), spread(latents(5), pairs.target.layout).nan_to_num(0.0)

    def loss() -> Tensor:
        return displacement_regression(net(*given(net, pairs, values)), moves, pairs.target.layout.real).loss

    slopes = gradients(net, loss)
    for name in ("head.weight", "stack.source_keys_values.weight", "latent_input.linear.weight"):
        weight = dict(net.named_parameters())[name].data.view(-1)
        for index in range(0, len(weight), 1 + len(weight) // 5):
            kept = float(weight[index])
            weight[index] = kept + step
            up = loss().detach()
            weight[index] = kept - step
            down = loss().detach()
            weight[index] = kept
            torch.testing.assert_close(slopes[name].view(-1)[index], (up - down) / (2 * step), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_positions_can_be_switched_off(kind: str) -> None:
    for positions in (True, False):
        net = field(kind, positions)
        z, layout, memory = given(net, padded(), [torch.ones_like(some) for some in latents(3)])
        found = net(z, layout, memory)
        assert torch.allclose(found[3, 0], found[3, 1]) is not positions


def test_score_starts_at_zero_and_has_gradients() -> None:
    net = field_network(FieldConfig(**SIZE, kind="score"), LATENT).double()
    z, layout, memory = given(net, packed(), latents(3))
    found = net(z, layout, memory)
    assert not found.any()
    displacement_regression(found, torch.ones_like(found), layout.real).loss.backward()
    assert net.head.weight.grad is not None
    assert net.head.weight.grad.any()


def test_a_field_may_be_narrower_than_the_latent_model() -> None:
    net = field_network(FieldConfig(**{**SIZE, "d_model": 8}, kind="score"), LATENT).double()
    z, layout, memory = given(net, padded(), latents(3))
    assert net(z, layout, memory).shape == z.shape
