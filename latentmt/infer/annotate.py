"""Annotates given targets token by token: cross-attention to the source, and log-probability.

The target may come from any search. The latent model encodes it with its posterior. The teacher is forced to decode it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from latentmt.data.tokenizer import EOS
from latentmt.data.tokens import Tokens
from latentmt.infer.search import Networks
from latentmt.results import LEAST_LOG_PROB, Annotation


@torch.no_grad()
def annotate(
    networks: Networks, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], log_probs: bool = False
) -> list[Annotation]:
    """Annotate pairs, with log-probabilities if they are asked for. Sources end with EOS, targets do not.

    Cross-attention weights of all layers and heads are averaged, and so are those of the places that write a token.
    EOS, which tokens without a source attend to, is left out. What remains is squared, to sharpen it, and normalised.
    """
    network = networks.latent or networks.teacher
    assert network is not None
    device = next(network.parameters()).device
    source = Tokens.padded(sources).to(device)
    target = Tokens.padded([[*ids, EOS] for ids in targets]).to(device)
    weights: list[Tensor] = []
    scores = torch.zeros(len(targets), 0)
    if (teacher := networks.teacher) and (log_probs or not networks.latent):
        memory = teacher.decoder_stack.project_kv(teacher.encode(source))
        scores = teacher.log_prob(target, memory, None if networks.latent else weights)
    if model := networks.latent:
        encoded = model.encode(source)
        places = model.output.places(encoded, target)
        z = model.posterior(target, places, model.posterior_stack.project_kv(encoded)).mean
        states = model.decode(z, places, model.decoder_stack.project_kv(encoded), weights)
        attention = model.output.to_tokens(_mean(weights), states, places, model.embedding, target)
        if log_probs and not teacher:
            scores = model.log_prob(states, places, target).clamp(min=LEAST_LOG_PROB)
    else:
        attention = _mean(weights)
    return [
        Annotation(_sharpened(rows[: len(ids), : len(source_ids) - 1]).numpy(), score[: len(ids)] if log_probs else [])
        for rows, source_ids, ids, score in zip(attention.cpu(), sources, targets, scores.tolist(), strict=True)
    ]


def _mean(weights: list[Float[Tensor, "r h t s"]]) -> Float[Tensor, "r t s"]:
    """Over layers and heads."""
    return torch.stack(weights).float().mean((0, 2))


def _sharpened(weights: Float[Tensor, "t s"]) -> Float[Tensor, "t s"]:
    squares = weights.square()
    return squares / squares.sum(1, keepdim=True).clamp(min=1e-12)
