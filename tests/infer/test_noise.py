from __future__ import annotations

import pytest
import torch

from latentmt.data import noise
from latentmt.infer.noise import standard_noise
from latentmt.options import MAX_POSITIONS


def test_fewer_samples_and_positions_are_a_prefix_of_more() -> None:
    most = standard_noise(40, MAX_POSITIONS, 3, seed=5)
    assert most.shape == (40, MAX_POSITIONS, 3)
    for samples, width in ((40, 7), (1, MAX_POSITIONS), (9, 1), (17, 64), (0, 4)):
        assert torch.equal(standard_noise(samples, width, 3, seed=5), most[:samples, :width])


def test_seeds_and_samples_differ() -> None:
    one, other = standard_noise(30, 16, 8, seed=1), standard_noise(30, 16, 8, seed=2)
    assert len(torch.cat((one, other)).flatten(1).unique(dim=0)) == 60


def test_noise_is_standard_normal() -> None:
    noise = standard_noise(500, MAX_POSITIONS, 8, seed=0)
    count = noise.numel()
    assert noise.mean().abs() < 4 * count**-0.5
    assert (noise.square().mean() - 1).abs() < 4 * (2 / count) ** 0.5
    assert (noise.pow(4).mean() - 3).abs() < 4 * (96 / count) ** 0.5
    # Neighbours are independent, along each axis.
    for axis in range(3):
        size = noise.shape[axis] - 1
        product = noise.narrow(axis, 0, size) * noise.narrow(axis, 1, size)
        assert product.mean().abs() < 4 * product.numel() ** -0.5


def test_changing_the_noise_does_not_change_the_cached_one() -> None:
    first = standard_noise(3, 5, 2, seed=9)
    expected = first.clone()
    first.zero_()
    with torch.inference_mode():
        assert torch.equal(standard_noise(3, 5, 2, seed=9), expected)
        standard_noise(3, 5, 2, seed=10)
    again = standard_noise(3, 5, 2, seed=10)
    assert not again.is_inference()
    with pytest.raises(ValueError, match="read-only"):
        noise.standard_noise(3, 5, 2, seed=9)[0, 0, 0] = 1


def test_the_global_generator_is_not_used() -> None:
    state = torch.get_rng_state()
    standard_noise(2, 2, 2, seed=11)
    assert torch.equal(torch.get_rng_state(), state)


def test_more_positions_than_the_maximum_is_an_error() -> None:
    with pytest.raises(ValueError, match="513 positions"):
        standard_noise(1, MAX_POSITIONS + 1, 8, seed=0)
