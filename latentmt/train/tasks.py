"""Training tasks: the teacher, the latent model, and a field. One loop trains them all.

A task holds the network and computes the cost of a batch of packed pairs. It does not know the optimizer or where
batches come from. Values that change during a run are passed in as `controls`, which are tensors on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from latentmt.config import Section
from latentmt.data.pack import MAX_PAIRS
from latentmt.data.tokens import Layout, Pairs
from latentmt.infer.refine import delta_field, net_field, refine
from latentmt.models.fields import EnergyNet, ScoreNet
from latentmt.models.latent import LatentModel
from latentmt.models.teacher import Teacher
from latentmt.nn.attention import EncoderOutput
from latentmt.nn.cuda_graph import compiled
from latentmt.nn.gaussian import Gaussian
from latentmt.objectives import (
    displacement_regression,
    free_bits_kl,
    kl_budget,
    length_loss,
    smoothed_cross_entropy,
)

Controls = Mapping[str, Float[Tensor, ""]]


@dataclass(frozen=True)
class Cost:
    """The cost of a batch: sums over its tokens."""

    total: Float[Tensor, ""]
    """The objective to minimise. It is divided by all tokens of a step later."""
    sums: dict[str, Float[Tensor, ""]]
    """For logging. `tokens` is always among them."""


CostFunction = Callable[[Pairs, Controls], Cost]


@runtime_checkable
class Task(Protocol):
    """A training objective and the network it trains."""

    metrics: ClassVar[Mapping[str, tuple[str, str]]]
    """Logged metrics: name → (numerator, denominator), both names of sums."""

    @property
    def network(self) -> nn.Module:
        """The network that is trained."""
        ...

    def controls(self, step: int, total: int) -> dict[str, float]:
        """The values that the cost depends on at a step of a run."""
        ...

    def cost(self, batch: Pairs, controls: Controls) -> Cost: ...

    def compiled_cost(self) -> CostFunction:
        """`cost`, compiled as far as possible."""
        ...


@dataclass(frozen=True)
class TeacherTask:
    """Cross-entropy of the next token."""

    network: Teacher
    smoothing: float

    metrics: ClassVar[Mapping[str, tuple[str, str]]] = {
        "loss": ("loss", "tokens"),
        "nll": ("nll", "tokens"),
        "accuracy": ("correct", "tokens"),
    }

    def controls(self, step: int, total: int) -> dict[str, float]:
        return {}

    def cost(self, batch: Pairs, controls: Controls) -> Cost:
        model, target = self.network, batch.target
        memory = model.decoder_stack.project_kv(model.encode(batch.source))
        loss = smoothed_cross_entropy(
            model.states(target, memory), model.embedding.weight, target.ids, target.layout.real, self.smoothing
        )
        sums = {"loss": loss.loss.detach(), "nll": loss.nll, "correct": loss.correct, "tokens": loss.count}
        return Cost(loss.loss, sums)

    def compiled_cost(self) -> CostFunction:
        return compiled(self.cost)


@dataclass(frozen=True, kw_only=True)
class ElboConfig(Section):
    """Hyperparameters of the ELBO."""

    budget: Annotated[float, Field(ge=0)] = 0.25
    """Free nats of KL per token during the first half of training."""
    budget_floor: Annotated[float, Field(ge=0)] = 0.1
    """The budget decays linearly to this over the second half. With 0 the posterior may collapse."""


@dataclass(frozen=True)
class LatentTask:
    """The ELBO of length and tokens: E_q[log p(y|z,x)] − KL(q(z|y,x) ‖ p(z|x)) + log p(T|x), with free bits.

    The length is part of the output, so its cross-entropy has weight one per sentence.
    """

    network: LatentModel
    smoothing: float
    elbo: ElboConfig

    metrics: ClassVar[Mapping[str, tuple[str, str]]] = {
        "loss": ("loss", "tokens"),
        "nll": ("nll", "tokens"),
        "kl": ("kl", "tokens"),
        "accuracy": ("correct", "tokens"),
        "length": ("right_lengths", "sentences"),
    }

    def controls(self, step: int, total: int) -> dict[str, float]:
        return {"kl_budget": kl_budget(step, total, self.elbo.budget, self.elbo.budget_floor)}

    def cost(self, batch: Pairs, controls: Controls) -> Cost:
        model, target = self.network, batch.target
        source = model.encode(batch.source)
        posterior = model.posterior(target, model.posterior_stack.project_kv(source))
        prior = model.prior(target.layout, model.prior_stack.project_kv(source))
        z = posterior.sample(torch.randn_like(posterior.mean))
        states = model.decode(z, target.layout, model.decoder_stack.project_kv(source))
        real = target.layout.real
        tokens = smoothed_cross_entropy(states, model.embedding.weight, target.ids, real, self.smoothing)
        kl = free_bits_kl(posterior, prior, real, controls["kl_budget"])
        length = length_loss(model.length(source, MAX_PAIRS), batch.source.layout.segment, target.layout.segment)
        total = tokens.loss + kl.loss + length.loss
        sums = {"loss": total.detach(), "nll": tokens.nll, "kl": kl.raw, "correct": tokens.correct}
        sums |= {"tokens": tokens.count, "right_lengths": length.correct, "sentences": length.count}
        return Cost(total, sums)

    def compiled_cost(self) -> CostFunction:
        return compiled(self.cost)


@dataclass(frozen=True, kw_only=True)
class DisplacementConfig(Section):
    """Where a field is trained, and what it is trained on."""

    delta_steps: Annotated[int, Field(ge=1)] = 4
    """k: how many steps of delta inference make the displacement."""
    noise: Annotated[float, Field(ge=0)] = 1.0
    """Training latents are the prior's mean plus its noise, scaled by this and by u ~ U(0, 1) for each row."""
    own_step: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The share of rows that first take one step along the field itself."""
    own_step_from: Annotated[float, Field(ge=0, le=1)] = 0.1
    """From which share of training on they do."""


PriorOf = Callable[[Pairs], tuple[EncoderOutput, Gaussian]]
DisplacementOf = Callable[[Float[Tensor, "r t D"], EncoderOutput, Layout], Float[Tensor, "r t D"]]


@dataclass(frozen=True)
class FieldTask:
    """Regression of a field on the displacement of delta inference. The latent model is frozen (Eq. 4 of the paper)."""

    network: ScoreNet | EnergyNet
    latent: LatentModel
    displacement: DisplacementConfig

    metrics: ClassVar[Mapping[str, tuple[str, str]]] = {
        "loss": ("loss", "tokens"),
        "unexplained": ("residual", "size"),
        "cosine": ("cosine", "tokens"),
        "displacement": ("size", "tokens"),
    }

    def controls(self, step: int, total: int) -> dict[str, float]:
        begun = step >= self.displacement.own_step_from * total
        return {"own_step": self.displacement.own_step if begun else 0.0}

    def cost(self, batch: Pairs, controls: Controls) -> Cost:
        return self._regress(batch, controls, self._prior, self._displacement)

    def compiled_cost(self) -> CostFunction:
        if isinstance(self.network, ScoreNet):
            return compiled(self.cost)
        # A double backward cannot be compiled, so only the frozen parts are.
        prior, displacement = compiled(self._prior), compiled(self._displacement)
        return lambda batch, controls: self._regress(batch, controls, prior, displacement)

    def _regress(self, batch: Pairs, controls: Controls, prior: PriorOf, displacement: DisplacementOf) -> Cost:
        layout = batch.target.layout
        source, beginning = prior(batch)
        z = self._start(beginning, source, layout, controls["own_step"])
        wanted = displacement(z, source, layout)
        field = self.network(z, layout, self.network.stack.project_kv(source))
        loss = displacement_regression(field, wanted, layout.real)
        sums = {"loss": loss.loss.detach(), "residual": loss.loss.detach() + loss.size, "size": loss.size}
        return Cost(loss.loss, sums | {"cosine": loss.cosine, "tokens": loss.count})

    @torch.no_grad()
    def _prior(self, batch: Pairs) -> tuple[EncoderOutput, Gaussian]:
        source = self.latent.encode(batch.source)
        return source, self.latent.prior(batch.target.layout, self.latent.prior_stack.project_kv(source))

    @torch.no_grad()
    def _displacement(self, z: Float[Tensor, "r t D"], source: EncoderOutput, layout: Layout) -> Float[Tensor, "r t D"]:
        return refine(z, delta_field(self.latent, source, layout), self.displacement.delta_steps) - z

    @torch.no_grad()
    def _start(
        self, prior: Gaussian, source: EncoderOutput, layout: Layout, own_step: Float[Tensor, ""]
    ) -> Float[Tensor, "r t D"]:
        rows = len(prior.mean)
        scale = self.displacement.noise * torch.rand(rows, 1, 1, device=prior.mean.device)
        z = prior.sample(torch.randn_like(prior.mean) * scale)
        moves = torch.rand(rows, 1, 1, device=z.device) < own_step
        moved: Tensor = torch.where(moves, z + net_field(self.network, source, layout)(z), z)
        return moved
