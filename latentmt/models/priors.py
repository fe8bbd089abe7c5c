"""p(z|x): the prior as a distribution, and the networks that predict it.

A prior is a `PriorNetwork`, registered by name (`LatentConfig.prior`), that predicts a `Prior`. Search, training and
the marginal use only these two interfaces. A mixture or a flow is a network, a distribution and one entry of `PRIORS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentmt.data.tokens import Layout
from latentmt.nn.attention import EncoderOutput, Memory
from latentmt.nn.gaussian import Gaussian
from latentmt.nn.positions import Positions
from latentmt.nn.transformer import DecoderStack, Readout


@runtime_checkable
class Prior(Protocol):
    """A distribution of latents, one for each token of each row."""

    @property
    def mode(self) -> Float[Tensor, "r t D"]:
        """Where refinement starts."""
        ...

    def sample(self, noise: Float[Tensor, "*more t D"]) -> Float[Tensor, "*more t D"]:
        """Map standard normal noise to latents."""
        ...

    def log_ratio(self, proposal: Gaussian, z: Float[Tensor, "r t D"]) -> Float[Tensor, "r t"]:
        """log p(z) − log q(z) of each token's latent."""
        ...

    def kl(self, posterior: Gaussian) -> Float[Tensor, "r t"]:
        """KL(posterior ‖ self) of each token, in closed form or estimated."""
        ...

    def select(self, rows: Int[Tensor, " n"]) -> Prior:
        """These rows, in this order."""
        ...

    def repeat(self, times: int) -> Prior:
        """Every row repeated, in adjacent rows."""
        ...


class PriorNetwork(nn.Module, ABC):
    """Predicts the prior of targets with a given layout."""

    @abstractmethod
    def project_kv(self, source: EncoderOutput) -> Memory:
        """Project the source to keys and values, once for all calls."""

    @abstractmethod
    def forward(self, layout: Layout, memory: Memory) -> Prior:
        """p(z|x). Memory: `project_kv(source)`."""


class GaussianHead(Readout):
    """A Gaussian from every state. Initially means have unit scale and all standard deviations are equal."""

    def __init__(self, width: int, latent_dim: int) -> None:
        super().__init__(width, 2 * latent_dim)
        nn.init.zeros_(self.weight[latent_dim:])

    def distribution(self, states: Float[Tensor, "r t d"]) -> Gaussian:
        return Gaussian.from_output(self(states))


@dataclass(frozen=True)
class GaussianPrior:
    """A diagonal Gaussian."""

    gaussian: Gaussian

    @property
    def mode(self) -> Float[Tensor, "r t D"]:
        return self.gaussian.mean

    def sample(self, noise: Float[Tensor, "*more t D"]) -> Float[Tensor, "*more t D"]:
        return self.gaussian.sample(noise)

    def log_ratio(self, proposal: Gaussian, z: Float[Tensor, "r t D"]) -> Float[Tensor, "r t"]:
        """Subtracted entry by entry: the sums are large and nearly equal, so their difference would lose precision."""
        return (self.gaussian.log_prob(z) - proposal.log_prob(z)).sum(-1)

    def kl(self, posterior: Gaussian) -> Float[Tensor, "r t"]:
        return posterior.kl(self.gaussian).sum(-1)

    def select(self, rows: Int[Tensor, " n"]) -> GaussianPrior:
        return GaussianPrior(self.gaussian.select(rows))

    def repeat(self, times: int) -> GaussianPrior:
        parameters = (self.gaussian.mean, self.gaussian.std)
        return GaussianPrior(Gaussian(*(tensor.repeat_interleave(times, 0) for tensor in parameters)))


class GaussianPriorNetwork(PriorNetwork):
    """A decoder stack whose input is positions and what the stack itself adds, with a Gaussian head."""

    def __init__(self, stack: DecoderStack, latent_dim: int) -> None:
        super().__init__()
        self.positions = Positions(stack.size.width)
        self.stack = stack
        self.head = GaussianHead(stack.size.width, latent_dim)

    def project_kv(self, source: EncoderOutput) -> Memory:
        return self.stack.project_kv(source)

    def forward(self, layout: Layout, memory: Memory) -> GaussianPrior:
        states = self.stack(self.positions(layout.position), layout.segment, memory)
        return GaussianPrior(self.head.distribution(states))


PRIORS: dict[str, Callable[[DecoderStack, int], PriorNetwork]] = {"gaussian": GaussianPriorNetwork}
"""By the name in a configuration. Called with a stack, which the network may use, and the dimension of a latent."""


def prior_and_samples(prior: Prior, noise: Float[Tensor, "samples t D"]) -> Float[Tensor, "rows t D"]:
    """The prior's mode, and a sample for all but the first row of noise: adjacent rows for each row of the prior."""
    samples = len(noise)
    if samples == 1:
        return prior.mode
    rows = len(prior.mode)
    drawn = prior.repeat(samples).sample(noise.to(prior.mode).repeat(rows, 1, 1))
    first = torch.arange(samples, device=drawn.device).repeat(rows)[:, None, None] == 0
    return torch.where(first, prior.mode.repeat_interleave(samples, 0), drawn)
