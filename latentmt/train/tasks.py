"""The teacher and the latent model as training tasks. Fields bring their own (`fields/learned.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from latentmt.config import Section
from latentmt.data.pack import MAX_PAIRS
from latentmt.data.tokens import Pairs
from latentmt.models.latent import LatentModel
from latentmt.models.priors import Prior
from latentmt.models.teacher import Teacher
from latentmt.nn.cuda_graph import compiled
from latentmt.objectives import free_bits_kl, kl_budget, smoothed_cross_entropy
from latentmt.task import Controls, Cost, CostFunction


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
        places = model.output.places(source, target)
        posterior = model.posterior(target, places, model.posterior_stack.project_kv(source))
        prior: Prior = model.prior(places, model.prior.project_kv(source))
        z = posterior.sample(torch.randn_like(posterior.mean))
        states = model.decode(z, places, model.decoder_stack.project_kv(source))
        tokens = model.output.token_loss(states, places, model.embedding, target, self.smoothing)
        kl = free_bits_kl(prior.kl(posterior), places.real, controls["kl_budget"])
        length = model.output.length_loss(source, places, target.layout, MAX_PAIRS)
        total = tokens.loss + kl.loss + length.loss
        sums = {"loss": total.detach(), "nll": tokens.nll, "kl": kl.raw, "correct": tokens.correct}
        sums |= {"tokens": tokens.count, "right_lengths": length.correct, "sentences": length.count}
        return Cost(total, sums)

    def compiled_cost(self) -> CostFunction:
        return compiled(self.cost)
