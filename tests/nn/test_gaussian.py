from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from latentmt.nn.gaussian import STD_FLOOR, Gaussian


def gaussian(seed: int) -> Gaussian:
    generator = torch.Generator().manual_seed(seed)
    return Gaussian.from_output(3 * torch.randn(4, 5, 6, generator=generator))


def test_log_prob_and_kl_equal_those_of_torch() -> None:
    q, p = gaussian(0), gaussian(1)
    value = torch.randn(7, 4, 5, 3)
    torch.testing.assert_close(q.log_prob(value), Normal(q.mean, q.std).log_prob(value))
    torch.testing.assert_close(q.kl(p), kl_divergence(Normal(q.mean, q.std), Normal(p.mean, p.std)))
    assert not q.kl(q).any()


def test_samples_are_reparameterised() -> None:
    mean, std = torch.zeros(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
    noise = torch.tensor([[1.0, -1.0, 0.5], [0.0, 2.0, 1.0]])
    sample = Gaussian(mean, std).sample(noise)
    torch.testing.assert_close(sample, 2 * noise)
    sample.sum().backward()
    torch.testing.assert_close(mean.grad, torch.full((3,), 2.0))
    torch.testing.assert_close(std.grad, noise.sum(0))


def test_network_output_is_read_in_fp32_with_a_floor() -> None:
    output = torch.tensor([[1.5, -100.0]], dtype=torch.bfloat16)
    read = Gaussian.from_output(output)
    assert read.mean.dtype == read.std.dtype == torch.float32
    assert read.mean.item() == 1.5
    torch.testing.assert_close(read.std, torch.tensor([[STD_FLOOR]]))


def test_standard_deviations_are_a_softplus() -> None:
    read = Gaussian.from_output(torch.tensor([0.0, 0.0, 0.0, -2.0, 0.0, 3.0]))
    assert read.mean.tolist() == [0.0, 0.0, 0.0]
    expected = [math.log(1 + math.exp(raw)) + STD_FLOOR for raw in (-2.0, 0.0, 3.0)]
    assert read.std.tolist() == pytest.approx(expected, rel=1e-6)


def test_kl_with_unequal_variances_by_hand() -> None:
    """log(σ_p / σ_q) + (σ_q² + (μ_q − μ_p)²) / 2σ_p² − ½, which is another number the other way round."""
    q, p = (Gaussian(torch.tensor([mean]), torch.tensor([std])) for mean, std in ((1.0, 2.0), (-0.5, 0.5)))
    assert q.kl(p).item() == pytest.approx(math.log(0.25) + (4 + 2.25) / 0.5 - 0.5)
    assert p.kl(q).item() == pytest.approx(math.log(4) + (0.25 + 2.25) / 8 - 0.5)
