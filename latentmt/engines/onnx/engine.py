"""The ONNX engine: a model's graphs on CPU cores, without torch.

Sentences are translated one by one, each on one core, and several at a time. int8 graphs quantise the activations of a
whole call, so a sentence must not share a call with others: its translation would depend on them.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import onnxruntime

import latentmt
from latentmt.bundle import Bundle, is_field
from latentmt.data.pieces import PieceProperties
from latentmt.engines.backend import CheckCancelled, never_cancelled
from latentmt.engines.load import GRAPHS_FILE, load_language_model
from latentmt.engines.onnx.annotate import annotate
from latentmt.engines.onnx.beam import beam_search
from latentmt.engines.onnx.graphs import Graphs
from latentmt.engines.onnx.latent import OnnxLatent
from latentmt.engines.onnx.postprocess import Postprocessor
from latentmt.engines.onnx.search import search
from latentmt.engines.onnx.shortlist import FILE as SHORTLIST_FILE
from latentmt.engines.onnx.shortlist import Shortlist
from latentmt.engines.onnx.teacher import OnnxTeacher
from latentmt.engines.onnx.trace import field_around, trace_sentence
from latentmt.errors import UserError
from latentmt.options import HINTS, RERANKS, BeamConfig, DecodingOptions
from latentmt.results import Annotation, Candidate, Candidates, SentenceTrace
from latentmt.system import cores

MAX_SIZE = 4096
"""The largest width, and the most layers or heads, of a network."""

T = TypeVar("T")
Sentences = Sequence[Sequence[int]]


class OnnxEngine:
    """The graphs of a model. `threads`: those of one sentence; None: one, and as many sentences at once as cores."""

    def __init__(self, bundles: Mapping[str, Bundle], threads: int | None = None) -> None:
        first = next(iter(bundles.values()))
        graphs = {kind: Graphs(bundle, threads or 1) for kind, bundle in bundles.items() if has_graphs(bundle)}
        self._fields = list(filter(is_field, graphs))
        self._hints = HINTS | {kind: graphs[kind].index.hint for kind in self._fields}
        self.latent, self.teacher = _latent(bundles, graphs), _teacher(bundles, graphs)
        self._language_model = load_language_model(bundles)
        self._postprocessor = Postprocessor(PieceProperties.from_tokenizer(first.tokenizer))
        self._threads, self._workers = threads or 1, 1 if threads else self.cores

    @property
    def methods(self) -> list[str]:
        latent = ["prior", "delta", *self._fields] if self.latent else []
        return [*latent, *(["teacher"] if self.teacher else [])]

    @property
    def hints(self) -> dict[str, str]:
        return {method: self._hints[method] for method in self.methods}

    @property
    def default_method(self) -> str:
        """The first learned field; without one delta; without a latent model the teacher."""
        return next(iter([*self._fields, *(["delta"] if self.latent else ["teacher"])]))

    @property
    def rerankers(self) -> list[str]:
        return [name for name in RERANKS if name != "teacher" or self.teacher]

    @property
    def has_language_model(self) -> bool:
        return self._language_model is not None and self.latent is not None and self.latent.output.fuses

    @property
    def latent_dim(self) -> int | None:
        return self.latent.latent_dim if self.latent else None

    @property
    def on_gpu(self) -> bool:
        return False

    @property
    def cores(self) -> int:
        return cores()

    @property
    def info(self) -> dict[str, Any]:
        return {
            "threads": self._threads,
            "workers": self._workers,
            "batch_tokens": 1,  # sentences are translated one by one
            "graphed": False,
            "device": f"cpu ({platform.processor() or platform.machine()})",
            "dtype": "int8",
            "versions": {"latentmt": latentmt.__version__, "onnxruntime": onnxruntime.__version__},
        }

    def best(
        self, sentences: Sentences, options: DecodingOptions, check_cancelled: CheckCancelled = never_cancelled
    ) -> list[Candidate]:
        found = self.candidates(sentences, options, check_cancelled)
        return [candidates.all[candidates.best] for candidates in found]

    def candidates(
        self, sentences: Sentences, options: DecodingOptions, check_cancelled: CheckCancelled = never_cancelled
    ) -> list[Candidates]:
        latent, teacher = self._checked(check_cancelled)

        def work(sentence: Sequence[int]) -> Candidates:
            ids = list(sentence)
            if options.method == "teacher":
                assert teacher is not None
                return Candidates([beam_search(teacher, ids, BeamConfig(beam=options.beam))], 0)
            assert latent is not None
            return search(
                latent, teacher, self._language_model, self._postprocessor, latent.encode(ids), options
            ).candidates

        return self._side_by_side(sentences, work)

    def annotate(
        self,
        sources: Sentences,
        targets: Sentences,
        check_cancelled: CheckCancelled = never_cancelled,
        log_probs: bool = False,
    ) -> list[Annotation]:
        latent, teacher = self._checked(check_cancelled)

        def work(pair: tuple[Sequence[int], Sequence[int]]) -> Annotation:
            return annotate(latent, teacher, *pair, log_probs)

        return self._side_by_side(list(zip(sources, targets, strict=True)), work)

    def trace(
        self, sentence: list[int], options: DecodingOptions, check_cancelled: CheckCancelled = never_cancelled
    ) -> SentenceTrace:
        latent, teacher = self._checked(check_cancelled)
        assert latent is not None
        return trace_sentence(latent, teacher, self._language_model, self._postprocessor, sentence, options)

    def field_around(
        self, trace: SentenceTrace, options: DecodingOptions, position: int, points: Sequence[Sequence[float]]
    ) -> list[list[float]]:
        assert self.latent is not None
        return field_around(self.latent, self._language_model, trace, options, position, points)

    def warmup(
        self, options: DecodingOptions, max_length: int, batches: Sequence[int] = (1,), compiled: bool = True
    ) -> None:
        return None

    def _checked(self, check: CheckCancelled) -> tuple[OnnxLatent | None, OnnxTeacher | None]:
        """The networks, with a check before each run of a graph."""
        return self.latent and self.latent.checked(check), self.teacher and self.teacher.checked(check)

    def _side_by_side(self, items: Sequence[Any], work: Callable[[Any], T]) -> list[T]:
        """Apply `work` to every item, as many at a time as there are workers."""
        if self._workers == 1 or len(items) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(work, items))


def has_graphs(bundle: Bundle) -> bool:
    """Whether a bundle was exported."""
    return GRAPHS_FILE in bundle.about.files


def _latent(bundles: Mapping[str, Bundle], graphs: Mapping[str, Graphs]) -> OnnxLatent | None:
    if "latent" not in graphs:
        return None
    fields = {kind: graph for kind, graph in graphs.items() if is_field(kind)}
    bundle = bundles["latent"]
    latent_dim = _size(bundle, "latent", "latent_dim")
    return OnnxLatent(graphs["latent"], fields, _shortlist(bundle), latent_dim, bundle.tokenizer.size)


def _teacher(bundles: Mapping[str, Bundle], graphs: Mapping[str, Graphs]) -> OnnxTeacher | None:
    if "teacher" not in graphs:
        return None
    bundle = bundles["teacher"]
    layers, heads, width = (_size(bundle, "teacher", name) for name in ("layers", "heads", "d_model"))
    return OnnxTeacher(graphs["teacher"], _shortlist(bundle), layers, heads, width, bundle.tokenizer.size)


def _shortlist(bundle: Bundle) -> Shortlist | None:
    if SHORTLIST_FILE not in bundle.about.files:
        return None
    content = bundle.read(SHORTLIST_FILE)
    try:
        return Shortlist.from_bytes(content, bundle.tokenizer.size)
    except UserError as error:
        raise UserError(f"{bundle.folder / SHORTLIST_FILE}: {error}") from None


def _size(bundle: Bundle, kind: Literal["latent", "teacher"], name: str) -> int:
    """A size of a network. What the graphs return must agree with it."""
    size = (getattr(bundle.header, kind) or {}).get(name)
    if type(size) is not int or not 1 <= size <= MAX_SIZE:
        where = f"{bundle.folder / 'config.yaml'}: {kind}.{name}"
        raise UserError(f"{where}: expected a number from 1 to {MAX_SIZE}, got {size!r:.40}")
    return size
