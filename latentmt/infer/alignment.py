"""Which source tokens each target token came from, as the decoder's cross-attention has it.

The target may come from any search: the latent model is shown it through its posterior, the teacher is made to write
it. Tokens come first, then the characters they stand for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from latentmt.data.normalise import TextRules, normalise, origins
from latentmt.data.tokenizer import EOS, Tokenizer
from latentmt.data.tokens import Tokens
from latentmt.infer.search import Networks

_LEAST = 0.02
"""Weights under this are not worth a link."""


@torch.no_grad()
def align(
    networks: Networks, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[Float[Tensor, "t s"]]:
    """For every pair, how much of each target token is owed to each source token; both without EOS, on the host.

    The weights of all layers and heads are averaged, EOS is left out, where tokens look that look nowhere, and what
    remains is squared, which makes up its mind. Each row sums to 1.
    """
    network = networks.latent or networks.teacher
    assert network is not None
    device = next(network.parameters()).device
    source = Tokens.padded(sources).to(device)
    target = Tokens.padded([[*ids, EOS] for ids in targets]).to(device)
    attention_weights: list[Tensor] = []
    if model := networks.latent:
        encoded = model.encode(source)
        z = model.posterior(target, model.posterior_stack.project_kv(encoded)).mean
        model.decode(z, target.layout, model.decoder_stack.project_kv(encoded), attention_weights)
    elif teacher := networks.teacher:
        teacher.states(target, teacher.decoder_stack.project_kv(teacher.encode(source)), attention_weights)
    mean = torch.stack(attention_weights).float().mean((0, 2)).cpu()
    return [
        _decided(weights[: len(target_ids), : len(source_ids) - 1])
        for weights, source_ids, target_ids in zip(mean, sources, targets, strict=True)
    ]


def _decided(weights: Float[Tensor, "t s"]) -> Float[Tensor, "t s"]:
    squares = weights.square()
    return squares / squares.sum(1, keepdim=True).clamp(min=1e-12)


@dataclass(frozen=True)
class Link:
    """Characters of a text and characters of its translation that belong together."""

    source: tuple[int, int]
    """From where to where."""
    target: tuple[int, int]
    weight: float
    """How much of the target's characters is owed to the source's."""

    def moved(self, source: int, target: int) -> Link:
        """The same where sentence and translation begin at these places."""
        (a, b), (c, d) = self.source, self.target
        return Link((a + source, b + source), (c + target, d + target), self.weight)


def links(
    tokenizer: Tokenizer,
    rules: tuple[TextRules, TextRules],
    sentence: str,
    target: Sequence[int],
    weights: Float[Tensor, "t s"],
) -> list[Link]:
    """The same between the characters of a sentence and those of its translation, the target's text normalised."""
    source = tokenizer.encode([normalise(sentence, rules[0])])[0][:-1]
    places, written = origins(sentence, rules[0]), origins(tokenizer.decode([target])[0], rules[1])
    from_ = [(places[a], places[b - 1] + 1) if a < b <= len(places) else None for a, b in tokenizer.spans(source)]
    to = [(bisect_left(written, a), bisect_left(written, b)) for a, b in tokenizer.spans(target)]
    return [
        Link(start, end, weight)
        for end, row in zip(to, weights.tolist(), strict=True)
        for start, weight in zip(from_, row, strict=True)
        if start and weight >= _LEAST and end[0] < end[1]
    ]
