"""The torch engine: networks on their device, eager or as CUDA graphs, and their batching."""

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
from latentmt.bundle import LANGUAGE_MODEL, Bundle
from latentmt.data.batches import padded_batches
from latentmt.data.tokenizer import EOS, UNK, Tokenizer
from latentmt.data.tokens import Tokens
from latentmt.device import find_device
from latentmt.engines.backend import Backend, CheckCancelled, never_cancelled
from latentmt.engines.cuda_graphs import MAX_SHAPES, WIDTH_MULTIPLE, Graphs
from latentmt.engines.load import load_language_model
from latentmt.errors import UserError
from latentmt.fields.learned import FieldNetwork
from latentmt.infer.annotate import annotate
from latentmt.infer.beam import beam_search
from latentmt.infer.noise import standard_noise
from latentmt.infer.postprocess import PieceTable
from latentmt.infer.search import Networks, Slices, search
from latentmt.infer.trace import field_around, targets_along, trace_sentence
from latentmt.infer.transfer import SearchResult, to_host
from latentmt.models.latent import LatentModel
from latentmt.models.teacher import Teacher
from latentmt.networks import load_network
from latentmt.ngrams.model import NgramModel
from latentmt.nn.fused import enable_fused
from latentmt.nn.ngrams import NgramTables
from latentmt.options import HINTS, MARGINAL_SAMPLES, MAX_POSITIONS, RERANKS, BeamConfig, DecodingOptions
from latentmt.results import Annotation, Candidate, Candidates, SentenceTrace, without_special

T = TypeVar("T")
Indices = npt.NDArray[np.int64]
Sentences = Sequence[Sequence[int]]

BATCH_TOKENS = 4096
"""Source tokens per batch, padding and candidates included. Recorded targets have room for several times as many, so
this limits memory. On an H200, recorded batches of 16,384 are 8 to 17% faster."""
CPU_BATCH_TOKENS = 256
"""The same for a search on a CPU, per core: larger batches only add padding. Of 32 TED sentences, with the preset
`small`, a core translates 64 a second like this, and 37 in one batch. (The teacher is faster with large batches.)"""
MAX_THREADS = 1024
_CORES = torch.get_num_threads()  # before `set_num_threads` is called
TEACHER_TOKENS = 2048
"""The limit for recorded beam searches of the teacher, whose caches live as long as the recording."""


class TorchEngine:
    """Networks on their device.

    `graphs`: whether searches run in fixed shapes, on a GPU as CUDA graphs. By default they do on a GPU.
    `workers`: the number of batches translated in parallel, on a CPU core each.
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
        """Held while the networks are used. A GPU runs batches one after another anyway, and a recording must not be
        replayed concurrently. On a CPU without graphs there is no lock."""

    def variant(self, graphs: bool) -> TorchEngine:
        """The same networks with or without recorded searches."""
        return TorchEngine(self.networks, graphs, self.workers)

    @property
    def methods(self) -> list[str]:
        return self.networks.methods

    @property
    def hints(self) -> dict[str, str]:
        hints = HINTS | {name: field_type.hint for name, field_type in self.networks.types.items()}
        return {method: hints[method] for method in self.methods}

    @property
    def default_method(self) -> str:
        return self.networks.default_method

    @property
    def rerankers(self) -> list[str]:
        return [name for name in RERANKS if name != "teacher" or self.networks.teacher]

    @property
    def has_language_model(self) -> bool:
        latent = self.networks.latent
        return self.networks.language_model is not None and latent is not None and latent.output.fuses

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
            "threads": torch.get_num_threads(),
            "workers": self.workers,
            "batch_tokens": self.batch_tokens,
            "graphed": self.graphed,
            "device": device_name(self.device),
            "dtype": str(self.dtype).removeprefix("torch."),
            "versions": {"latentmt": latentmt.__version__, "torch": str(torch.__version__)},
        }

    @property
    def graphed(self) -> bool:
        """Whether searches are recorded, unless they are too large."""
        return self._graphs is not None

    @property
    def batch_tokens(self) -> int:
        """Source tokens per batch of a search on this device, padding and candidates included."""
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

    def trace(
        self, sentence: list[int], options: DecodingOptions, check_cancelled: CheckCancelled = never_cancelled
    ) -> SentenceTrace:
        with self.lock:
            slices = self._slices(check_cancelled)
            return trace_sentence(self.networks, sentence, options, self.noise(options), slices)

    def targets_along(
        self, sentences: Sentences, options: DecodingOptions, after: Sequence[int]
    ) -> dict[int, list[list[int]]]:
        """The target of each sentence after these numbers of steps (0: before the first), as decoded, EOS included."""

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
        source tokens, candidates included. Unusually long targets and the teacher's late tokens are recorded when they
        first occur.
        """
        if not self._graphs:
            return
        widths = range(WIDTH_MULTIPLE, max_length + WIDTH_MULTIPLE, WIDTH_MULTIPLE)
        if (shapes := len(batches) * len(widths)) > MAX_SHAPES:
            raise UserError(f"warming up {shapes} shapes: only {MAX_SHAPES} are kept; name fewer batches")
        if compiled:
            self.compile(options)
        for batch, width in itertools.product(batches, widths):
            for _ in range(2):  # a shape is recorded when it occurs for the second time
                self.best([[UNK] * (min(width, max_length) - 1) + [EOS]] * batch, options)

    def compile(self, options: DecodingOptions) -> None:
        """Compile this search when it is next run, if searches are recorded."""
        if self._graphs:
            with self.lock:
                self._graphs.compile(options)

    def noise(self, options: DecodingOptions) -> Float[Tensor, "samples positions D"]:
        """The noise of a search with these options."""
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
                return [from_teacher(candidate) for candidate in self._teacher(batch, options, check_cancelled)]
            result = self._search(batch, options, check_cancelled)
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
        """Apply `work` to batches of sentences of similar length with up to `budget` padded tokens.

        Batches run in parallel, a thread each. Threads within a batch would spin while they wait for each other.
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

    def _slices(self, check_cancelled: CheckCancelled) -> Slices | None:
        """On a CPU a search is cut into slices. On a GPU it is short, and the lock is held."""
        return None if self.on_gpu or self._graphs else Slices(self.batch_tokens, check_cancelled)

    def _search(
        self, sentences: Sentences, options: DecodingOptions, check_cancelled: CheckCancelled = never_cancelled
    ) -> SearchResult:
        graphs = self._recorded(sentences, options)
        if graphs and not options.adaptive:  # an adaptive search synchronises with the host
            return graphs.search(sentences, options, lambda: self.noise(options))
        source = Tokens.padded(sentences).to(self.device)
        slices = self._slices(check_cancelled)
        return to_host(search(self.networks, source, options, self.noise(options), slices=slices))

    def _teacher(
        self, sentences: Sentences, options: DecodingOptions, check_cancelled: CheckCancelled
    ) -> list[Candidate]:
        assert self.networks.teacher is not None
        graphs = self._recorded(sentences, options)
        if graphs:
            hypotheses = graphs.beam_search(sentences, options)
        else:
            source = Tokens.padded(sentences).to(self.device)
            check = never_cancelled if self.on_gpu or self._graphs else check_cancelled  # the lock is held
            hypotheses = beam_search(self.networks.teacher, source, BeamConfig(beam=options.beam), check)
        targets = [without_special(hypothesis.ids) for hypothesis in hypotheses]
        return [Candidate(ids, ids, best.score) for ids, best in zip(targets, hypotheses, strict=True)]

    def _recorded(self, sentences: Sentences, options: DecodingOptions) -> Graphs | None:
        """The recorded searches, unless a recording of this one would take too much memory."""
        tokens = len(sentences) * max(map(len, sentences)) * max(options.candidates, options.beam // 4)
        return self._graphs if tokens <= (TEACHER_TOKENS if options.method == "teacher" else BATCH_TOKENS) else None


def torch_engine(backend: Backend) -> TorchEngine:
    """The torch engine of a translator, for code that uses its networks directly."""
    if not isinstance(backend, TorchEngine):
        raise UserError("this needs the torch engine")
    return backend


def load_torch_engine(
    bundles: Mapping[str, Bundle], device: str, threads: int | None, dtype: torch.dtype | None, graphs: bool | None
) -> TorchEngine:
    """Load an engine from bundles. Arguments: as in `Translator.load`."""
    target = find_device(device)
    dtype = dtype or (torch.bfloat16 if target.type == "cuda" else torch.float32)
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise UserError(f"threads {threads}: expected 1 to {MAX_THREADS}")
    parallel = threads is None and target.type == "cpu"
    if parallel or threads:
        torch.set_num_threads(threads or 1)
    loaded: dict[str, Any] = {
        kind: load_network(bundle, target).network.to(dtype)
        for kind, bundle in bundles.items()
        if kind != LANGUAGE_MODEL
    }
    latent, teacher = loaded.pop("latent", None), loaded.pop("teacher", None)
    tokenizer = next(iter(bundles.values())).tokenizer
    workers = _CORES if parallel else 1
    return make_torch_engine(tokenizer, latent, loaded, teacher, graphs, workers, load_language_model(bundles))


def make_torch_engine(
    tokenizer: Tokenizer,
    latent: LatentModel | None,
    fields: Mapping[str, FieldNetwork],
    teacher: Teacher | None,
    graphs: bool | None = None,
    workers: int = 1,
    language_model: NgramModel | None = None,
) -> TorchEngine:
    """An engine with these networks."""
    device = next((latent or cast(Teacher, teacher)).parameters()).device
    pieces = PieceTable.from_tokenizer(tokenizer).to(device)
    tables = NgramTables(language_model).to(device) if language_model else None
    return TorchEngine(Networks(latent, fields, teacher, pieces, tables), graphs, workers)


def device_name(device: torch.device) -> str:
    """The product name of a GPU, or `cpu` with its architecture."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.processor() or platform.machine()})"
