"""The Gaussian prior against closed forms, and the latents that a search starts from."""

from __future__ import annotations

import math

import pytest
import torch

from latentmt.models.priors import GaussianPrior, Prior, prior_and_samples
from latentmt.nn.gaussian import Gaussian


def gaussian(seed: int, rows: int = 2) -> Gaussian:
    generator = torch.Generator().manual_seed(seed)
    mean, std = torch.randn(2, rows, 3, 4, generator=generator, dtype=torch.float64)
    return Gaussian(mean, std.exp())


def test_kl_is_that_of_the_posterior_from_the_prior_summed_over_entries() -> None:
    """KL(q‖p) is 10.61 for the first entry, KL(p‖q) would be 1.20; the second entry is equal in both."""
    posterior = Gaussian(torch.tensor([[[1.0, 3.0]]]), torch.tensor([[[2.0, 1.0]]]))
    prior = GaussianPrior(Gaussian(torch.tensor([[[-0.5, 3.0]]]), torch.tensor([[[0.5, 1.0]]])))
    expected = math.log(0.5 / 2) + (2**2 + 1.5**2) / (2 * 0.5**2) - 0.5
    assert prior.kl(posterior).tolist() == [[pytest.approx(expected)]]


def test_log_ratio_is_the_difference_of_log_densities() -> None:
    prior, proposal = gaussian(1), gaussian(2)
    z = proposal.sample(torch.randn(2, 3, 4, dtype=torch.float64))
    p, q = (torch.distributions.Normal(normal.mean, normal.std).log_prob(z).sum(-1) for normal in (prior, proposal))
    torch.testing.assert_close(GaussianPrior(prior).log_ratio(proposal, z), p - q)


def test_the_mode_comes_first_then_samples_of_the_same_row() -> None:
    prior, noise = gaussian(1, rows=3), torch.randn(3, 3, 4, dtype=torch.float64)
    assert isinstance(GaussianPrior(prior), Prior)
    z = prior_and_samples(GaussianPrior(prior), noise).view(3, 3, 3, 4)
    assert torch.equal(z[:, 0], prior.mean)
    for sample in (1, 2):
        torch.testing.assert_close(z[:, sample], prior.mean + prior.std * noise[sample])


def test_one_sample_is_the_mode() -> None:
    prior = GaussianPrior(gaussian(1))
    assert prior_and_samples(prior, torch.randn(1, 3, 4, dtype=torch.float64)) is prior.mode


def test_rows_are_selected_and_repeated_in_order() -> None:
    prior = GaussianPrior(gaussian(1))
    repeated, selected = prior.repeat(2), prior.select(torch.tensor([1, 0]))
    assert torch.equal(repeated.mode, prior.mode[[0, 0, 1, 1]])
    assert torch.equal(selected.gaussian.std, prior.gaussian.std[[1, 0]])
