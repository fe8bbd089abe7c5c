"""Translations as they happened: what stood there after every step.

Of one sentence everything, for people and pages to look at; of many their tokens, for counting. The search itself is
the same as everywhere.
"""

from __future__ import annotations

import difflib
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from latentmt.data.batches import padded_batches
from latentmt.data.tokens import Layout, Tokens
from latentmt.infer.engine import Engine
from latentmt.infer.refine import decode_tokens
from latentmt.infer.results import Candidate, on_host, ranked
from latentmt.infer.search import field_of, search
from latentmt.models.latent import LatentModel
from latentmt.nn.attention import Memory
from latentmt.options import DecodingOptions


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
    milliseconds: float = field(default=0.0, compare=False)
    """How long it took to come here from the step before; the first one is encoding, length and prior."""

    @property
    def certainty(self) -> float:
        """The geometric mean of the tokens' probabilities."""
        return min(1.0, math.exp(sum(self.log_probs) / max(len(self.log_probs), 1)))


@dataclass(frozen=True)
class SentenceTrace:
    """A sentence's way from its first latent to its translation."""

    source: list[int]
    steps: list[Step]
    candidates: list[Candidate]
    best: int
    """Which candidate was kept; the steps are its own."""

    @property
    def ranked(self) -> list[Candidate]:
        """The different candidates, the kept one first, then by their scores."""
        return ranked(self.candidates, self.best)


def changed(before: Sequence[Any], after: Sequence[Any]) -> set[int]:
    """The places of the tokens, or words, that were not there before."""
    changes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return {place for kind, _, _, first, last in changes if kind != "equal" for place in range(first, last)}


@torch.no_grad()
def trace_sentence(engine: Engine, sentence: list[int], options: DecodingOptions) -> SentenceTrace:
    """Translate a sentence with the latent model, and keep everything."""
    source = Tokens.padded([sentence]).to(engine.device)
    seen: list[Float[Tensor, "n w D"]] = []
    times: list[float] = []

    def on_step(_: int, z: Float[Tensor, "n w D"]) -> None:
        if z.is_cuda:
            torch.cuda.synchronize(z.device)
        seen.append(z)
        times.append(time.perf_counter())

    noise = engine.noise(options)
    with engine.lock:
        began = time.perf_counter()
        found = search(engine.networks, source, options, noise, on_step=on_step)
        candidates, best = on_host(found).all(0)
        length = int(found.decoded.layout.real[best].sum())
        model = cast(LatentModel, engine.networks.latent)
        memory = model.decoder_stack.project_kv(model.encode(source))
        took = [1e3 * (end - start) for start, end in itertools.pairwise([began, *times])]
        steps = [
            _step(model, memory, number, z[best : best + 1, :length], took[number]) for number, z in enumerate(seen)
        ]
    return SentenceTrace(sentence, steps, candidates, best)


@torch.no_grad()
def targets_along(
    engine: Engine, sentences: Sequence[Sequence[int]], options: DecodingOptions, after: Sequence[int]
) -> dict[int, list[list[int]]]:
    """What each sentence reads after so many steps (0: before the first): ids as decoded, EOS among them."""
    if options.candidates > 1 or options.adaptive or max(after) > options.steps:
        raise ValueError("one candidate that makes all of its steps is followed")
    found: dict[int, list[list[int]]] = {}
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    for group in padded_batches(lengths, engine.batch_tokens):
        source = Tokens.padded([sentences[index] for index in group]).to(engine.device)
        with engine.lock:
            found |= zip(group.tolist(), _rows_along(engine, source, options, after), strict=True)
    return {number: [found[index][place] for index in range(len(sentences))] for place, number in enumerate(after)}


def _rows_along(
    engine: Engine, source: Tokens, options: DecodingOptions, after: Sequence[int]
) -> list[list[list[int]]]:
    """The targets of each row, one for each number of steps."""
    seen: list[Float[Tensor, "n w D"]] = []
    found = search(engine.networks, source, options, engine.noise(options), on_step=lambda _, z: seen.append(z))
    model, layout = cast(LatentModel, engine.networks.latent), found.decoded.layout
    memory = model.decoder_stack.project_kv(model.encode(source))
    read = torch.stack([decode_tokens(model, seen[number], layout, memory).ids for number in after], dim=1)
    sizes = layout.real.sum(1).tolist()
    return [[ids[:size] for ids in some] for some, size in zip(read.tolist(), sizes, strict=True)]


@torch.no_grad()
def field_around(
    engine: Engine, trace: SentenceTrace, options: DecodingOptions, place: int, points: Float[Tensor, "n D"]
) -> Float[Tensor, "n D"]:
    """Where one token would be moved from these points, the others being where they ended up; zero if nothing moves."""
    model = cast(LatentModel, engine.networks.latent)
    if not options.refines:
        return torch.zeros_like(points)
    z = torch.tensor(trace.steps[-1].z, device=engine.device, dtype=points.dtype).repeat(len(points), 1, 1)
    z[:, place] = points.to(z)
    layout = Layout.from_lengths(torch.full((len(z),), z.shape[1], device=z.device), z.shape[1])
    with engine.lock:
        source = model.encode(Tokens.padded([trace.source]).to(engine.device))
        return field_of(engine.networks, options, source, layout)(z)[:, place].to(points)


def _step(model: LatentModel, memory: Memory, number: int, z: Float[Tensor, "1 t D"], took: float) -> Step:
    layout = Layout.from_lengths(torch.tensor([z.shape[1]], device=z.device), z.shape[1])
    states = model.decode(z, layout, memory)
    tokens = Tokens(model.best(states), layout)
    return Step(number, z[0].tolist(), tokens.ids[0].tolist(), model.log_prob(states, tokens)[0].tolist(), took)
