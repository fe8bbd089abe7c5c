"""Runs networks on sentences of ids: batches them by length, and hands back what was found in their order.

It knows devices and batches; text is the translator's business, and what a search does is `search`'s.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from latentmt.data.batches import padded_batches
from latentmt.data.tokenizer import EOS, UNK
from latentmt.data.tokens import Tokens
from latentmt.errors import UserError
from latentmt.infer.alignment import align
from latentmt.infer.beam import BeamConfig, beam_search
from latentmt.infer.graphs import KEPT, STEP, Graphs
from latentmt.infer.noise import standard_noise
from latentmt.infer.postprocess import without_special
from latentmt.infer.rerank import MARGINAL_SAMPLES
from latentmt.infer.results import Candidate, SearchResult, on_host
from latentmt.infer.search import Networks, search
from latentmt.nn.fused import enable_fused
from latentmt.nn.positions import MAX_POSITIONS
from latentmt.options import DecodingOptions

T = TypeVar("T")
Indices = npt.NDArray[np.int64]

BATCH_TOKENS = 4096
"""Source tokens translated together, padding and candidates counted. Recorded targets have room for several times as
many, so this is about memory; on an H200 recorded batches of 16,384 are 8 to 17% faster."""
CPU_BATCH_TOKENS = 256
"""The same in a search, for each core of a CPU that searches: more brings nothing but padding. Of 32 TED sentences,
with the preset `small`, a core translates 64 a second like this, and 37 all at once. (The teacher prefers many.)"""
TEACHER_TOKENS = 2048
"""How many of those the teacher may have in a recorded search: its caches stay as long as the recording."""

CheckCancelled = Callable[[], None]
"""Called before every batch. What it raises ends the work, of which nothing is kept."""


def never_cancelled() -> None:
    """Go on whatever happens."""


class Engine:
    """Networks on their device.

    `graphed`: whether searches are done in fixed shapes, on a GPU as CUDA graphs; by default they are on a GPU.
    `workers`: batches that are translated side by side, on a core each of a CPU.
    """

    def __init__(self, networks: Networks, graphed: bool | None = None, workers: int = 1) -> None:
        self.networks, self.workers = networks, workers
        network = networks.latent or networks.teacher
        assert network is not None
        self.device = next(network.parameters()).device
        enable_fused(self.device)
        on_gpu = self.device.type == "cuda"
        self._graphs = Graphs(networks, self.device) if (on_gpu if graphed is None else graphed) else None
        self.lock: AbstractContextManager[object] = threading.Lock() if on_gpu or self.graphed else nullcontext()
        """To be held by whoever uses the networks. A GPU does one thing after another anyway, and a recording must not
        be replayed twice at the same time; on a CPU nobody waits."""

    @property
    def graphed(self) -> bool:
        """Whether searches are recorded, unless they are very large."""
        return self._graphs is not None

    @property
    def batch_tokens(self) -> int:
        """Source tokens that are searched together here, padding and candidates counted."""
        return BATCH_TOKENS if self.device.type == "cuda" else CPU_BATCH_TOKENS * torch.get_num_threads()

    def best(
        self,
        sentences: Sequence[Sequence[int]],
        options: DecodingOptions,
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> list[Candidate]:
        """The candidate that is kept, of each sentence."""
        return self._each(sentences, options, check_cancelled, SearchResult.best, lambda candidate: candidate)

    def all(
        self,
        sentences: Sequence[Sequence[int]],
        options: DecodingOptions,
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> list[tuple[list[Candidate], int]]:
        """All candidates of each sentence, and which one is kept."""
        return self._each(sentences, options, check_cancelled, SearchResult.all, lambda candidate: ([candidate], 0))

    def warmup(
        self, options: DecodingOptions, longest: int, batches: Sequence[int] = (1,), compiled: bool = True
    ) -> None:
        """Record how this is searched, for sources of every length and for batches of these sizes.

        `compiled`: compile it before, which takes a minute or two and makes it about a third faster, up to some 3,000
        source tokens, candidates counted. Targets that are longer than usual, and tokens that the teacher writes late,
        are recorded when they come up.
        """
        if not self._graphs:
            return
        if (shapes := len(batches) * -(-longest // STEP)) > KEPT:
            raise UserError(f"warming up {shapes} shapes: only {KEPT} are kept; name fewer batches")
        if compiled:
            self.compile(options)
        for batch, length in itertools.product(batches, range(STEP, longest + STEP, STEP)):
            for _ in range(2):  # what comes up once is not recorded
                self.best([[UNK] * (min(length, longest) - 1) + [EOS]] * batch, options)

    def align(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> list[Float[Tensor, "t s"]]:
        """How much of each target token is owed to each source token, of every pair; none of them with EOS."""
        results: dict[int, Tensor] = {}
        lengths = [max(len(source), len(target) + 1) for source, target in zip(sources, targets, strict=True)]
        for group in padded_batches(np.array(lengths, dtype=np.int64), self.batch_tokens):
            chosen = group.tolist()
            check_cancelled()
            with self.lock:
                found = align(self.networks, [sources[one] for one in chosen], [targets[one] for one in chosen])
            results |= zip(chosen, found, strict=True)
        return [results[index] for index in range(len(sources))]

    def compile(self, options: DecodingOptions) -> None:
        """Have it compiled when it is next searched like this, where searches are recorded."""
        if self._graphs:
            with self.lock:
                self._graphs.compile(options)

    def noise(self, options: DecodingOptions) -> Float[Tensor, "samples places D"]:
        """What a search with this seed draws from."""
        assert self.networks.latent is not None
        samples = max(options.samples, MARGINAL_SAMPLES if options.rerank == "marginal" else 1)
        noise = standard_noise(samples, MAX_POSITIONS, self.networks.latent.latent_dim, options.seed)
        return noise.to(self.device)

    def _each(
        self,
        sentences: Sequence[Sequence[int]],
        options: DecodingOptions,
        check_cancelled: CheckCancelled,
        of: Callable[[SearchResult, int], T],
        of_teacher: Callable[[Candidate], T],
    ) -> list[T]:
        """What is wanted of each sentence, from batches of similar length."""

        def wanted(group: Indices) -> list[T]:
            some = [sentences[index] for index in group]
            check_cancelled()
            with self.lock:
                if options.method == "teacher":
                    return [of_teacher(candidate) for candidate in self._teacher(some, options)]
                found = self._search(some, options)
                return [of(found, number) for number in range(len(some))]

        lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
        budget = BATCH_TOKENS // self.workers if options.method == "teacher" else self.batch_tokens
        groups = list(padded_batches(lengths, max(1, budget // max(options.candidates, options.beam // 4))))
        results: dict[int, T] = {}
        for group, results_of in zip(groups, self._side_by_side(wanted, groups), strict=True):
            results |= zip(group.tolist(), results_of, strict=True)
        return [results[index] for index in range(len(sentences))]

    def _side_by_side(self, work: Callable[[Indices], list[T]], groups: Sequence[Indices]) -> list[list[T]]:
        """What is made of each group. Threads inside of a batch would wait for each other, and spin while they do."""
        if self.workers == 1 or len(groups) < 2:
            return [work(group) for group in groups]
        with ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, groups))

    def _search(self, sentences: Sequence[Sequence[int]], options: DecodingOptions) -> SearchResult:
        graphs = self._recorded(sentences, options)
        if graphs and not options.adaptive:  # who stops early decides when all stop: that needs the host
            return graphs.search(sentences, options, lambda: self.noise(options))
        found = search(self.networks, Tokens.padded(sentences).to(self.device), options, self.noise(options))
        return on_host(found)

    def _teacher(self, sentences: Sequence[Sequence[int]], options: DecodingOptions) -> list[Candidate]:
        assert self.networks.teacher is not None
        graphs = self._recorded(sentences, options)
        if graphs:
            found = graphs.beam_search(sentences, options)
        else:
            source = Tokens.padded(sentences).to(self.device)
            found = beam_search(self.networks.teacher, source, BeamConfig(beam=options.beam))
        ids = [without_special(best.ids) for best in found]
        return [Candidate(one, one, best.score) for one, best in zip(ids, found, strict=True)]

    def _recorded(self, sentences: Sequence[Sequence[int]], options: DecodingOptions) -> Graphs | None:
        """Who searches this in recorded form: nobody where a recording would hold too much memory."""
        tokens = len(sentences) * max(map(len, sentences)) * max(options.candidates, options.beam // 4)
        return self._graphs if tokens <= (TEACHER_TOKENS if options.method == "teacher" else BATCH_TOKENS) else None
