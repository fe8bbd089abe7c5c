"""The torch engine: networks on their device, eager or as CUDA graphs, and how sentences are batched for them."""

from __future__ import annotations

import itertools
import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

import latentmt
from latentmt.bundle import Bundle
from latentmt.data.batches import padded_batches
from latentmt.data.tokenizer import EOS, UNK, Tokenizer
from latentmt.data.tokens import Tokens
from latentmt.device import find_device
from latentmt.engines.backend import Backend, CheckCancelled, never_cancelled
from latentmt.engines.cuda_graphs import KEPT, STEP, Graphs
from latentmt.errors import UserError
from latentmt.fields.learned import FieldNetwork
from latentmt.infer.annotate import annotate
from latentmt.infer.beam import BeamConfig, beam_search
from latentmt.infer.noise import standard_noise
from latentmt.infer.postprocess import PieceTable
from latentmt.infer.rerank import MARGINAL_SAMPLES
from latentmt.infer.search import Networks, search
from latentmt.infer.trace import field_around, targets_along, trace_sentence
from latentmt.infer.transfer import SearchResult, to_host
from latentmt.models.latent import LatentModel
from latentmt.models.teacher import Teacher
from latentmt.networks import load_network
from latentmt.nn.fused import enable_fused
from latentmt.nn.positions import MAX_POSITIONS
from latentmt.options import RERANKS, DecodingOptions
from latentmt.results import Annotation, Candidate, Candidates, SentenceTrace, without_special

T = TypeVar("T")
Indices = npt.NDArray[np.int64]
Sentences = Sequence[Sequence[int]]

BATCH_TOKENS = 4096
"""Source tokens translated together, padding and candidates counted. Recorded targets have room for several times as
many, so this is about memory; on an H200 recorded batches of 16,384 are 8 to 17% faster."""
CPU_BATCH_TOKENS = 256
"""The same in a search, for each core of a CPU that searches: more brings nothing but padding. Of 32 TED sentences,
with the preset `small`, a core translates 64 a second like this, and 37 all at once. (The teacher prefers many.)"""
MAX_THREADS = 1024
_CORES = torch.get_num_threads()  # as torch found them, before it is told to use fewer
TEACHER_TOKENS = 2048
"""How many of those the teacher may have in a recorded search: its caches stay as long as the recording."""


class TorchEngine:
    """Networks on their device.

    `graphs`: whether searches run in fixed shapes, on a GPU as CUDA graphs; by default they do on a GPU.
    `workers`: batches that are translated side by side, on a core each of a CPU.
    """

    def __init__(self, networks: Networks, graphs: bool | None = None, workers: int = 1) -> None:
        self.networks, self.workers = networks, workers
        network = networks.latent or networks.teacher
        assert network is not None
        weight = next(network.parameters())
        self.device, self.dtype = weight.device, weight.dtype
        enable_fused(self.device)
        on_gpu = self.device.type == "cuda"
        self._graphs = Graphs(networks, self.device) if (on_gpu if graphs is None else graphs) else None
        self.lock: AbstractContextManager[object] = threading.Lock() if on_gpu or self._graphs else nullcontext()
        """Held by whoever uses the networks. A GPU does one thing after another anyway, and a recording must not be
        replayed twice at the same time; on a CPU nobody waits."""

    def variant(self, graphs: bool) -> TorchEngine:
        """The same networks with or without recorded searches."""
        return TorchEngine(self.networks, graphs, self.workers)

    @property
    def methods(self) -> list[str]:
        return self.networks.methods

    @property
    def hints(self) -> dict[str, str]:
        others = {
            "prior": "no refinement: the first guess",
            "teacher": "the autoregressive teacher, word after word, instead",
        }
        fields = {name: field_type.hint for name, field_type in self.networks.types.items()}
        return {method: (others | fields)[method] for method in self.methods}

    @property
    def default_method(self) -> str:
        return self.networks.default_method

    @property
    def rerankers(self) -> list[str]:
        return [name for name in RERANKS if name != "teacher" or self.networks.teacher]

    @property
    def latent_dim(self) -> int | None:
        return self.networks.latent.latent_dim if self.networks.latent else None

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def cores(self) -> int:
        return _CORES

    @property
    def info(self) -> dict[str, Any]:
        return {
            "batch_tokens": self.batch_tokens,
            "graphed": self.graphed,
            "device": device_name(self.device),
            "dtype": str(self.dtype).removeprefix("torch."),
            "versions": {"latentmt": latentmt.__version__, "torch": str(torch.__version__)},
        }

    @property
    def graphed(self) -> bool:
        """Whether searches are recorded, unless they are very large."""
        return self._graphs is not None

    @property
    def batch_tokens(self) -> int:
        """Source tokens that are searched together here, padding and candidates counted."""
        return BATCH_TOKENS if self.device.type == "cuda" else CPU_BATCH_TOKENS * torch.get_num_threads()

    def best(
        self, sentences: Sentences, options: DecodingOptions, check_cancelled: CheckCancelled = never_cancelled
    ) -> list[Candidate]:
        return self._decode(sentences, options, check_cancelled, SearchResult.best_of, lambda candidate: candidate)

    def candidates(
        self, sentences: Sentences, options: DecodingOptions, check_cancelled: CheckCancelled = never_cancelled
    ) -> list[Candidates]:
        return self._decode(
            sentences, options, check_cancelled, SearchResult.all_of, lambda candidate: Candidates([candidate], 0)
        )

    def annotate(
        self,
        sources: Sentences,
        targets: Sentences,
        check_cancelled: CheckCancelled = never_cancelled,
        log_probs: bool = False,
    ) -> list[Annotation]:
        lengths = [max(len(source), len(target) + 1) for source, target in zip(sources, targets, strict=True)]

        def work(group: Indices) -> list[Annotation]:
            pairs = [sources[index] for index in group], [targets[index] for index in group]
            return annotate(self.networks, *pairs, log_probs)

        return self._in_batches(lengths, self.batch_tokens, work, check_cancelled)

    def trace(self, sentence: list[int], options: DecodingOptions) -> SentenceTrace:
        with self.lock:
            return trace_sentence(self.networks, sentence, options, self.noise(options))

    def targets_along(
        self, sentences: Sentences, options: DecodingOptions, after: Sequence[int]
    ) -> dict[int, list[list[int]]]:
        """What each sentence reads after so many steps (0: before the first): ids as decoded, EOS included."""

        def work(group: Indices) -> list[list[list[int]]]:
            source = Tokens.padded([sentences[index] for index in group]).to(self.device)
            return targets_along(self.networks, source, options, self.noise(options), after)

        rows = self._in_batches([len(sentence) for sentence in sentences], self.batch_tokens, work)
        return {steps: [row[number] for row in rows] for number, steps in enumerate(after)}

    def field_around(
        self, trace: SentenceTrace, options: DecodingOptions, position: int, points: Sequence[Sequence[float]]
    ) -> list[list[float]]:
        with self.lock:
            moves: list[list[float]] = field_around(self.networks, trace, options, position, points).tolist()
        return moves

    def warmup(
        self, options: DecodingOptions, max_length: int, batches: Sequence[int] = (1,), compiled: bool = True
    ) -> None:
        """Record the search for sources of every length and for batches of these sizes.

        `compiled`: compile it before, which takes a minute or two and makes it about a third faster, up to some 3,000
        source tokens, candidates counted. Targets that are longer than usual, and tokens that the teacher writes late,
        are recorded when they come up.
        """
        if not self._graphs:
            return
        if (shapes := len(batches) * -(-max_length // STEP)) > KEPT:
            raise UserError(f"warming up {shapes} shapes: only {KEPT} are kept; name fewer batches")
        if compiled:
            self.compile(options)
        for batch, length in itertools.product(batches, range(STEP, max_length + STEP, STEP)):
            for _ in range(2):  # what comes up once is not recorded
                self.best([[UNK] * (min(length, max_length) - 1) + [EOS]] * batch, options)

    def compile(self, options: DecodingOptions) -> None:
        """Have this search compiled when it is next run, where searches are recorded."""
        if self._graphs:
            with self.lock:
                self._graphs.compile(options)

    def noise(self, options: DecodingOptions) -> Float[Tensor, "samples places D"]:
        """What a search with this seed draws from."""
        assert self.networks.latent is not None
        samples = max(options.samples, MARGINAL_SAMPLES if options.rerank == "marginal" else 1)
        noise = standard_noise(samples, MAX_POSITIONS, self.networks.latent.latent_dim, options.seed)
        return noise.to(self.device)

    def _decode(
        self,
        sentences: Sentences,
        options: DecodingOptions,
        check_cancelled: CheckCancelled,
        from_search: Callable[[SearchResult, int], T],
        from_teacher: Callable[[Candidate], T],
    ) -> list[T]:
        def work(group: Indices) -> list[T]:
            batch = [sentences[index] for index in group]
            if options.method == "teacher":
                return [from_teacher(candidate) for candidate in self._teacher(batch, options)]
            result = self._search(batch, options)
            return [from_search(result, number) for number in range(len(batch))]

        budget = BATCH_TOKENS // self.workers if options.method == "teacher" else self.batch_tokens
        budget = max(1, budget // max(options.candidates, options.beam // 4))
        return self._in_batches([len(sentence) for sentence in sentences], budget, work, check_cancelled, self.workers)

    def _in_batches(
        self,
        lengths: Sequence[int],
        budget: int,
        work: Callable[[Indices], list[T]],
        check_cancelled: CheckCancelled = never_cancelled,
        workers: int = 1,
    ) -> list[T]:
        """What `work` makes of each sentence, in batches of similar length with up to `budget` padded tokens.

        Batches run side by side, a thread each: threads inside of a batch would wait for each other, and spin.
        """

        def run(group: Indices) -> list[T]:
            check_cancelled()
            with self.lock:
                return work(group)

        groups = list(padded_batches(np.array(lengths, dtype=np.int64), budget))
        if workers == 1 or len(groups) < 2:
            results = [run(group) for group in groups]
        else:
            with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                results = list(pool.map(run, groups))
        ordered: dict[int, T] = {}
        for group, result in zip(groups, results, strict=True):
            ordered |= zip(group.tolist(), result, strict=True)
        return [ordered[index] for index in range(len(lengths))]

    def _search(self, sentences: Sentences, options: DecodingOptions) -> SearchResult:
        graphs = self._recorded(sentences, options)
        if graphs and not options.adaptive:  # where sentences stop by themselves, the host has to look
            return graphs.search(sentences, options, lambda: self.noise(options))
        source = Tokens.padded(sentences).to(self.device)
        return to_host(search(self.networks, source, options, self.noise(options)))

    def _teacher(self, sentences: Sentences, options: DecodingOptions) -> list[Candidate]:
        assert self.networks.teacher is not None
        graphs = self._recorded(sentences, options)
        if graphs:
            hypotheses = graphs.beam_search(sentences, options)
        else:
            source = Tokens.padded(sentences).to(self.device)
            hypotheses = beam_search(self.networks.teacher, source, BeamConfig(beam=options.beam))
        ids = [without_special(best.ids) for best in hypotheses]
        return [Candidate(one, one, best.score) for one, best in zip(ids, hypotheses, strict=True)]

    def _recorded(self, sentences: Sentences, options: DecodingOptions) -> Graphs | None:
        """The recorded searches, unless a recording of this one would hold too much memory."""
        tokens = len(sentences) * max(map(len, sentences)) * max(options.candidates, options.beam // 4)
        return self._graphs if tokens <= (TEACHER_TOKENS if options.method == "teacher" else BATCH_TOKENS) else None


def torch_engine(backend: Backend) -> TorchEngine:
    """The torch engine behind a translator, for those who measure the networks themselves."""
    if not isinstance(backend, TorchEngine):
        raise UserError("this needs the torch engine")
    return backend


def load_torch_engine(
    bundles: Mapping[str, Bundle], device: str, threads: int | None, dtype: torch.dtype | None, graphs: bool | None
) -> TorchEngine:
    """An engine with these bundles loaded; arguments as in `Translator.load`."""
    target = find_device(device)
    dtype = dtype or (torch.bfloat16 if target.type == "cuda" else torch.float32)
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise UserError(f"threads {threads}: expected 1 to {MAX_THREADS}")
    side_by_side = threads is None and target.type == "cpu"
    if side_by_side or threads:
        torch.set_num_threads(threads or 1)
    loaded: dict[str, Any] = {kind: load_network(bundle, target).network.to(dtype) for kind, bundle in bundles.items()}
    latent, teacher = loaded.pop("latent", None), loaded.pop("teacher", None)
    tokenizer = next(iter(bundles.values())).tokenizer
    return engine_of(tokenizer, latent, loaded, teacher, graphs, _CORES if side_by_side else 1)


def engine_of(
    tokenizer: Tokenizer,
    latent: LatentModel | None,
    fields: Mapping[str, FieldNetwork],
    teacher: Teacher | None,
    graphs: bool | None = None,
    workers: int = 1,
) -> TorchEngine:
    """An engine with these networks."""
    device = next((latent or cast(Teacher, teacher)).parameters()).device
    return TorchEngine(Networks(latent, fields, teacher, PieceTable.of(tokenizer).to(device)), graphs, workers)


def device_name(device: torch.device) -> str:
    """The product name of a GPU, or `cpu` with its architecture."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.processor() or platform.machine()})"
