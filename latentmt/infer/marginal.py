"""The latent model's likelihood of a target on its places: the marginal by importance sampling, and the ELBO.

A row holds one sentence. Networks run in their own precision. Densities, weights and sums are in fp32 or better. Noise
is passed in, results are not divided by the length, and nothing is differentiated through.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentmt.data.tokens import Layout, Tokens
from latentmt.models.latent import LatentModel
from latentmt.models.priors import Prior
from latentmt.nn.attention import EncoderOutput
from latentmt.nn.gaussian import Gaussian

CHUNK = 1024
"""Latents decoded at a time. Each has a copy of its source's keys and values, which dominates the memory."""


@dataclass(frozen=True)
class Marginal:
    """Estimates for each row's target from weighted samples, in nats."""

    log_prob: Float[Tensor, " r"]
    """log p(y|x), given the number of places. Its exponential is unbiased. It is itself biased downwards, less so with
    more samples."""
    elbo: Float[Tensor, " r"]
    """E_q[log p(y|z,x)] − KL(q ‖ p), estimated by the same samples; never above `log_prob`."""
    effective: Float[Tensor, " r"]
    """The effective sample size (Kish): from 1, where one sample dominates, to their number."""

    @staticmethod
    def from_log_weights(log_weights: Float[Tensor, "r samples"]) -> Marginal:
        """log mean w, mean log w and (Σ w)² / Σ w² of each row."""
        return Marginal(
            log_prob=log_weights.logsumexp(1) - math.log(log_weights.shape[1]),
            elbo=log_weights.mean(1),
            effective=log_weights.softmax(1).square().sum(1).reciprocal(),
        )


@torch.no_grad()
def marginal(
    model: LatentModel,
    source: EncoderOutput,
    target: Tokens,
    noise: Float[Tensor, "samples width D"],
    places: Layout | None = None,
    chunk: int = CHUNK,
    check: Callable[[], None] = lambda: None,
) -> Marginal:
    """log 1/S Σ_s p(y|z_s,x) p(z_s|x) / q(z_s|y,x) with z_s = μ_q + σ_q · ε_s (the paper's Figure 2, S = 500).

    `noise`, standard normal and as wide as the places or wider, is the same for every row. No more than `chunk`
    latents are decoded at a time, and `check` is called before. Source: `model.encode(…)`. With n times as many targets
    as sources, each source has n candidates in adjacent rows. `places`: those of the targets, if they are not the usual
    ones.
    """
    places = places or model.output.places(source, target)
    rows, width = places.segment.shape
    samples = len(noise)
    if noise.shape[1] < width:
        raise ValueError(f"noise for {noise.shape[1]} positions, but targets have {width}")
    prior, posterior = _prior_and_posterior(model, source, target, places)
    memory, candidates = model.decoder_stack.project_kv(source), rows // len(source.segment)
    noise = noise[:, :width].to(posterior.mean)

    def log_weights(row: Int[Tensor, " n"], sample: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        check()
        proposal, here = posterior.select(row), places.select(row)
        z = proposal.sample(noise.index_select(0, sample))
        ratio = prior.select(row).log_ratio(proposal, z).masked_fill(~here.real, 0.0).sum(-1)
        states = model.decode(z, here, memory.select(row // candidates))
        return model.log_prob(states, here, target.select(row)).sum(-1) + ratio

    pairs = torch.arange(rows * samples, device=target.ids.device).split(chunk)
    weights = torch.cat([log_weights(pair // samples, pair % samples) for pair in pairs])
    return Marginal.from_log_weights(weights.view(rows, samples))


@torch.no_grad()
def elbo(
    model: LatentModel, source: EncoderOutput, target: Tokens, places: Layout | None = None
) -> Float[Tensor, " r"]:
    """log p(y|μ_q,x) − KL(q(z|y,x) ‖ p(z|x)) of each row: the ELBO with its expectation taken at the posterior's mean.

    It takes one pass and no noise, so candidates can be compared by it. It is a bound only in so far as the decoder's
    log-probability at the mean equals its expectation. Source, places: as in `marginal`.
    """
    places = places or model.output.places(source, target)
    prior, posterior = _prior_and_posterior(model, source, target, places)
    states = model.decode(posterior.mean, places, model.decoder_stack.project_kv(source))
    kl = prior.kl(posterior).masked_fill(~places.real, 0.0)
    return model.log_prob(states, places, target).sum(-1) - kl.sum(-1)


def _prior_and_posterior(
    model: LatentModel, source: EncoderOutput, target: Tokens, places: Layout
) -> tuple[Prior, Gaussian]:
    prior = model.prior(places, model.prior.project_kv(source))
    return prior, model.posterior(target, places, model.posterior_stack.project_kv(source))
