"""Rerankers: each scores candidates per token, and the highest score is kept.

The teacher scores the readable target. The latent model scores the target that it decoded. Candidates of one source are
adjacent rows. Nothing here synchronises with the device.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from latentmt.data.tokens import Layout, Tokens
from latentmt.infer.marginal import CHUNK, elbo, marginal
from latentmt.models.latent import LatentModel
from latentmt.models.teacher import Teacher
from latentmt.nn.attention import EncoderOutput, Memory


def by_teacher(teacher: Teacher, source: Tokens, readable: Tokens) -> Float[Tensor, " r"]:
    """The teacher's log p(y|x) divided by the length, EOS included (row 13 of the paper's method)."""
    memory = teacher.decoder_stack.project_kv(teacher.encode(source))
    return _per_token(teacher.log_prob(readable, memory).sum(1), readable)


def by_decoder(
    model: LatentModel, z: Float[Tensor, "r p D"], places: Layout, target: Tokens, memory: Memory
) -> Float[Tensor, " r"]:
    """log p(y|z,x) at the latent that the candidate was decoded from. Memory: `decoder_stack.project_kv(source)`."""
    return _per_token(model.log_prob(model.decode(z, places, memory), places, target).sum(1), target)


def by_elbo(model: LatentModel, source: EncoderOutput, places: Layout, target: Tokens) -> Float[Tensor, " r"]:
    """The ELBO at the posterior's mean."""
    return _per_token(elbo(model, source, target, places), target)


def by_marginal(
    model: LatentModel,
    source: EncoderOutput,
    places: Layout,
    target: Tokens,
    noise: Float[Tensor, "samples width D"],
    chunk: int = CHUNK,
    check: Callable[[], None] = lambda: None,
) -> Float[Tensor, " r"]:
    """log p(y|x), given the number of places, by importance sampling. `chunk`, `check`: as for `marginal`."""
    return _per_token(marginal(model, source, target, noise, places, chunk, check).log_prob, target)


def _per_token(total: Float[Tensor, " r"], target: Tokens) -> Float[Tensor, " r"]:
    return total / target.layout.real.sum(1)
