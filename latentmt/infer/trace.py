"""One sentence's translation as it happened: after every step the latent, the tokens, and how sure the model is.

For people and pages to look at. The search itself is the same as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from latentmt.data.tokens import Layout, Tokens
from latentmt.infer.engine import Engine
from latentmt.infer.found import Candidate, on_host
from latentmt.infer.how import How
from latentmt.infer.search import search
from latentmt.models.latent import LatentModel
from latentmt.nn.attention import Memory


@dataclass(frozen=True)
class Step:
    """Where the kept candidate stood after a number of steps; 0 is where it began."""

    number: int
    z: list[list[float]]
    """The latent of each token."""
    ids: list[int]
    """The likeliest token at each place, EOS among them."""
    log_probs: list[float]
    """log p(y_t|z,x) of each of these tokens."""


@dataclass(frozen=True)
class SentenceTrace:
    """A sentence's way from its first latent to its translation."""

    source: list[int]
    steps: list[Step]
    candidates: list[Candidate]
    best: int
    """Which candidate was kept; the steps are its own."""


@torch.no_grad()
def trace_sentence(engine: Engine, sentence: list[int], how: How) -> SentenceTrace:
    """Translate a sentence with the latent model, and keep everything."""
    source = Tokens.padded([sentence]).to(engine.device)
    seen: list[Float[Tensor, "n w D"]] = []
    with engine.turn:
        found = search(engine.networks, source, how, engine.noise(how), on_step=lambda _, z: seen.append(z))
        candidates, best = on_host(found).all(0)
        length = int(found.decoded.layout.real[best].sum())
        model = cast(LatentModel, engine.networks.latent)
        memory = model.decoder_stack.remember(model.encode(source))
        steps = [_step(model, memory, number, z[best : best + 1, :length]) for number, z in enumerate(seen)]
    return SentenceTrace(sentence, steps, candidates, best)


def _step(model: LatentModel, memory: Memory, number: int, z: Float[Tensor, "1 t D"]) -> Step:
    layout = Layout.of_lengths(torch.tensor([z.shape[1]], device=z.device), z.shape[1])
    states = model.decode(z, layout, memory)
    tokens = Tokens(model.best(states), layout)
    return Step(number, z[0].tolist(), tokens.ids[0].tolist(), model.log_prob(states, tokens)[0].tolist())
