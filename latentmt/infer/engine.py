"""Runs networks on sentences of ids: batches them by length, and hands back what was found in their order.

It knows devices and batches; text is the translator's business, and what a search does is `search`'s.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from latentmt.data.batches import padded_batches
from latentmt.data.tokens import Tokens
from latentmt.infer.beam import BeamConfig, beam_search
from latentmt.infer.graphs import Graphs
from latentmt.infer.how import How
from latentmt.infer.noise import standard_noise
from latentmt.infer.postprocess import without_special
from latentmt.infer.rerank import MARGINAL_SAMPLES
from latentmt.infer.search import Candidates, Networks, search
from latentmt.nn.positions import MAX_POSITIONS

BATCH_TOKENS = 4096
"""Source tokens translated together, padding and candidates counted."""


@dataclass(frozen=True)
class Candidate:
    """A target for a sentence."""

    decoded: list[int]
    """As decoded, but for special pieces: what repetitions are counted in."""
    readable: list[int]
    """As it is read."""
    score: float
    """What candidates are ranked by, per token; the teacher's own score where it translates; 0 without a rerank."""


class Engine:
    """Networks on their device. `graphed`: whether searches are done in fixed shapes, on a GPU as CUDA graphs."""

    def __init__(self, networks: Networks, graphed: bool = False) -> None:
        self.networks = networks
        network = networks.latent or networks.teacher
        assert network is not None
        self.device = next(network.parameters()).device
        self.graphed = graphed
        self._graphs = Graphs(networks, self.device) if self.graphed else None
        single = self.device.type == "cuda" or self.graphed
        self.turn: AbstractContextManager[object] = threading.Lock() if single else nullcontext()
        """To be held by whoever uses the networks. A GPU does one thing after another anyway, and a recording must not
        be replayed twice at the same time; on a CPU nobody waits."""

    def best(self, sentences: Sequence[Sequence[int]], how: How) -> list[Candidate]:
        """The candidate that is kept, of each sentence."""
        return [found[best] for found, best in self.all(sentences, how)]

    def all(self, sentences: Sequence[Sequence[int]], how: How) -> list[tuple[list[Candidate], int]]:
        """All candidates of each sentence, and which one is kept."""
        results: list[tuple[list[Candidate], int]] = [([], 0)] * len(sentences)
        lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
        run = self._teacher if how.method == "teacher" else self._search
        for group in padded_batches(lengths, max(1, BATCH_TOKENS // max(how.candidates, how.beam // 4))):
            with self.turn:
                found = run([sentences[index] for index in group], how)
            for index, result in zip(group, found, strict=True):
                results[index] = result
        return results

    def noise(self, how: How) -> Float[Tensor, "samples places D"]:
        """What a search with this seed draws from."""
        assert self.networks.latent is not None
        samples = max(how.samples, MARGINAL_SAMPLES if how.rerank == "marginal" else 1)
        noise = standard_noise(samples, MAX_POSITIONS, self.networks.latent.latent_dim, how.seed)
        return noise.to(self.device)

    def _search(self, sentences: Sequence[Sequence[int]], how: How) -> list[tuple[list[Candidate], int]]:
        if self._graphs and not how.adaptive:  # who stops early decides when all stop: that needs the host
            found = self._graphs.search(sentences, how, lambda: self.noise(how))
        else:
            found = search(self.networks, Tokens.padded(sentences).to(self.device), how, self.noise(how))
        return list(listed(found, how.candidates))[: len(sentences)]

    def _teacher(self, sentences: Sequence[Sequence[int]], how: How) -> list[tuple[list[Candidate], int]]:
        assert self.networks.teacher is not None
        config = BeamConfig(beam=how.beam)
        if self._graphs:
            found = self._graphs.beam_search(sentences, config)
        else:
            found = beam_search(self.networks.teacher, Tokens.padded(sentences).to(self.device), config)
        ids = [without_special(best.ids) for best in found]
        return [([Candidate(one, one, best.score)], 0) for one, best in zip(ids, found, strict=True)]


def listed(found: Candidates, each: int) -> Iterator[tuple[list[Candidate], int]]:
    """Candidates as lists, those of one sentence after the other."""
    ends = found.readable.layout.real.sum(1) - 1  # without EOS
    columns = zip(
        found.decoded.ids.tolist(),
        found.readable.ids.tolist(),
        ends.tolist(),
        found.score.flatten().tolist(),
        strict=True,
    )
    made = [Candidate(without_special(ids), read[:end], score) for ids, read, end, score in columns]
    for number, best in enumerate(found.best.tolist()):
        yield made[number * each : (number + 1) * each], best
