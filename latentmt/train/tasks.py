"""The teacher and the latent model as training tasks. Fields bring their own (`fields/learned.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from latentmt.config import Section, added
from latentmt.data.pack import MAX_PAIRS
from latentmt.data.tokens import Layout, Pairs, Tokens
from latentmt.models.latent import LatentModel
from latentmt.models.priors import Prior
from latentmt.models.teacher import Teacher
from latentmt.nn.attention import Memory
from latentmt.nn.cuda_graph import compiled
from latentmt.objectives import TokenLoss, free_bits_kl, kl_budget, smoothed_cross_entropy
from latentmt.task import Controls, Cost, CostFunction
from latentmt.train.glancing import GlancingConfig, given_places


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
    """Hyperparameters of the ELBO, and of what is learnt beside it."""

    budget: Annotated[float, Field(ge=0)] = 0.25
    """Free nats of KL at each place during the first half of training."""
    budget_floor: Annotated[float, Field(ge=0)] = 0.1
    """The budget decays linearly to this over the second half. With 0 the posterior may collapse."""
    glancing: Annotated[GlancingConfig | None, added(None)] = None
    """If named (`{}` for its defaults), the decoder also learns from the prior's latents (`train/glancing.py`)."""
    deep_supervision: Annotated[bool, added(False)] = False
    """Whether every layer of the decoder predicts the target; the loss is the mean over layers."""
    length_std: Annotated[float, Field(ge=0), added(0.0)] = 0.0
    """The standard deviation of the lengths that are learnt, around the right one; with 0 only that is."""


@dataclass(frozen=True)
class LatentTask:
    """The ELBO of length and tokens: E_q[log p(y|z,x)] − KL(q(z|y,x) ‖ p(z|x)) + log p(T|x), with free bits.

    The length is part of the output, so its cross-entropy has weight one per sentence. The loss of glancing is added
    and replaces nothing: only the reconstruction from the posterior tells the posterior what to say, and with it delta
    inference and the fields. For the same reason the latents that are given are constants.
    """

    network: LatentModel
    smoothing: float
    elbo: ElboConfig

    @property
    def metrics(self) -> Mapping[str, tuple[str, str]]:
        glancing = {"wrong": ("wrong", "places"), "given": ("given", "places")} if self.elbo.glancing else {}
        return {
            "loss": ("loss", "tokens"),
            "nll": ("nll", "tokens"),
            "kl": ("kl", "tokens"),
            "accuracy": ("correct", "tokens"),
            "length": ("right_lengths", "sentences"),
        } | glancing

    def controls(self, step: int, total: int) -> dict[str, float]:
        budget = {"kl_budget": kl_budget(step, total, self.elbo.budget, self.elbo.budget_floor)}
        glancing = self.elbo.glancing
        return budget | ({"glancing_ratio": glancing.ratio_at(step, total)} if glancing else {})

    def cost(self, batch: Pairs, controls: Controls) -> Cost:
        model, target = self.network, batch.target
        source = model.encode(batch.source)
        places = model.output.places(source, target)
        posterior = model.posterior(target, places, model.posterior_stack.project_kv(source))
        prior: Prior = model.prior(places, model.prior.project_kv(source))
        z = posterior.sample(torch.randn_like(posterior.mean))
        memory = model.decoder_stack.project_kv(source)
        tokens = self._token_loss(z, places, memory, target)
        kl = free_bits_kl(prior.kl(posterior), places.real, controls["kl_budget"])
        length = model.output.length_loss(source, places, target.layout, MAX_PAIRS, self.elbo.length_std)
        total = tokens.loss + kl.loss + length.loss
        sums = {"nll": tokens.nll, "kl": kl.raw, "correct": tokens.correct, "tokens": tokens.count}
        sums |= {"right_lengths": length.correct, "sentences": length.count}
        if self.elbo.glancing:
            wrong, given = self._glance(prior, places, memory, target, controls["glancing_ratio"])
            mixed = torch.where(given[..., None], z.detach(), prior.mode)
            rest = self._token_loss(mixed, places, memory, target, ~given)
            total = total + self.elbo.glancing.weight * rest.loss
            sums |= {"wrong": wrong.sum(), "given": given.sum(), "places": places.real.sum()}
        return Cost(total, {"loss": total.detach(), **sums})

    def _token_loss(
        self,
        z: Float[Tensor, "r p D"],
        places: Layout,
        memory: Memory,
        target: Tokens,
        learnt: Bool[Tensor, "r p"] | None = None,
    ) -> TokenLoss:
        """−log p(y|z,x), or its mean over the decoder's layers. Memory: of the decoder."""
        model = self.network
        hidden: list[Tensor] = []
        states = model.decode(z, places, memory, hidden=hidden if self.elbo.deep_supervision else None)
        given = places, model.embedding, target, self.smoothing, learnt
        *earlier, last = [model.output.token_loss(each, *given) for each in (*hidden, states)]
        return replace(last, loss=sum((each.loss for each in earlier), last.loss) / (len(earlier) + 1))

    @torch.no_grad()
    def _glance(
        self, prior: Prior, places: Layout, memory: Memory, target: Tokens, ratio: Float[Tensor, ""]
    ) -> tuple[Bool[Tensor, "r p"], Bool[Tensor, "r p"]]:
        """The places that the first guess has wrong, and those that are given."""
        model = self.network
        guess = model.decode(prior.mode, places, memory)
        wrong = model.output.wrong(guess, places, model.embedding, target)
        return wrong, given_places(wrong, places, ratio)

    def compiled_cost(self) -> CostFunction:
        return compiled(self.cost)
