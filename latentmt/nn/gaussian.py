"""Diagonal Gaussians in fp32: sampling, densities and KL."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

STD_FLOOR = 1e-4
"""The minimum standard deviation."""


@dataclass(frozen=True)
class Gaussian:
    """Independent normal distributions, one per entry. Nothing here sums over entries."""

    mean: Float[Tensor, "*shape"]
    std: Float[Tensor, "*shape"]

    @staticmethod
    def from_output(output: Float[Tensor, "*b two_d"]) -> Gaussian:
        """A network output as mean (first half) and standard deviation (softplus of the second half)."""
        mean, raw = output.to(torch.promote_types(output.dtype, torch.float32)).chunk(2, dim=-1)
        return Gaussian(mean, F.softplus(raw) + STD_FLOOR)

    def sample(self, noise: Float[Tensor, "*more"]) -> Float[Tensor, "*more"]:
        """A sample from standard normal noise (reparameterisation). Additional axes of the noise give more samples."""
        return self.mean + self.std * noise

    def log_prob(self, value: Float[Tensor, "*more"]) -> Float[Tensor, "*more"]:
        """The log-density of each entry."""
        return -0.5 * ((value - self.mean) / self.std).square() - self.std.log() - 0.5 * math.log(2 * math.pi)

    def kl(self, other: Gaussian) -> Float[Tensor, "*shape"]:
        """KL(self ‖ other) of each entry."""
        ratio = self.std / other.std
        shift = (self.mean - other.mean) / other.std
        return 0.5 * (ratio.square() + shift.square() - 1.0) - ratio.log()

    def select(self, rows: Int[Tensor, " n"]) -> Gaussian:
        """The named rows, in that order."""
        return Gaussian(self.mean.index_select(0, rows), self.std.index_select(0, rows))
