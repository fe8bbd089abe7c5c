"""Searches in a few fixed shapes, each recorded once and replayed: one launch and one copy each way for a batch.

A batch is padded to the next shape: its number of sentences to a power of two, sources and targets to a multiple of
eight. The target width is estimated from the source. If a predicted length does not fit, the result says so and the
search is repeated with a larger width. The teacher's beam search is recorded in chunks of a few tokens, so that it can
end when all sentences are done.

On a GPU a recording is a CUDA graph, made when a shape occurs for the second time, because recording costs as much as a
few searches. Compiling before recording makes it faster, but takes minutes, so it is done only on request. On a CPU
nothing is recorded and every search is computed, so that the rest can be tested anywhere. The most recently used shapes
are kept.
"""

from __future__ import annotations

import gc
import math
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentmt.data.tokenizer import EOS, PAD
from latentmt.data.tokens import Layout, Tokens
from latentmt.infer.beam import Beams, Hypothesis, advance, attended_positions, hypotheses, start
from latentmt.infer.search import Networks, search
from latentmt.infer.transfer import SearchResult, pack
from latentmt.models.teacher import Teacher
from latentmt.nn.cuda_graph import CapturedGraph, capture, compiled
from latentmt.nn.positions import LOGITS_CHUNK
from latentmt.options import MAX_POSITIONS, BeamConfig, DecodingOptions

P = ParamSpec("P")
T = TypeVar("T")
MakeNoise = Callable[[], Float[Tensor, "samples positions D"]]
"""Makes the noise of a search when it is needed."""

MAX_SHAPES = 64
"""The number of recorded shapes that are kept."""
CHUNK_TOKENS = 8
"""Tokens of a beam search between two checks for done sentences."""
WIDTH_MULTIPLE = 8
"""Widths are multiples of this."""


@dataclass(frozen=True)
class Shape:
    """The size of a batch, padding included."""

    sentences: int
    source: int
    target: int

    @staticmethod
    def from_sentences(sentences: Sequence[Sequence[int]], length_bias: float = 0.0) -> Shape:
        """The smallest shape for these sources, with targets that are at least a quarter longer."""
        source = _rounded(max(map(len, sentences)))
        target = _rounded(source + source // 4 + math.ceil(max(0.0, length_bias) * source))
        return Shape(1 << (len(sentences) - 1).bit_length(), source, min(target, MAX_POSITIONS))

    def with_longer_targets(self) -> Shape:
        """The same shape with twice the target width."""
        return replace(self, target=min(2 * self.target, MAX_POSITIONS))


class _Input:
    """The input buffer of a shape: a row of ids and their length per sentence, copied to the device at once."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self._staged = torch.empty((shape.sentences, shape.source + 1), dtype=torch.long, pin_memory=_on_gpu(device))
        self._numbers = self._staged.numpy()
        self.rows = torch.empty_like(self._staged, device=device)
        self.fill([])

    def fill(self, sentences: Sequence[Sequence[int]]) -> None:
        """Copy these sentences in. The remaining rows hold an empty sentence."""
        self._numbers[:] = PAD
        self._numbers[:, 0], self._numbers[:, -1] = EOS, 1
        for row, sentence in zip(self._numbers, sentences, strict=False):
            row[: len(sentence)] = sentence
            row[-1] = len(sentence)
        self.rows.copy_(self._staged, non_blocking=True)


class _Output:
    """Copies numbers to the host and waits for them."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._staged = device, torch.empty(0, dtype=torch.long)

    def __call__(self, numbers: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        if not _on_gpu(self._device):
            return numbers
        if self._staged.shape != numbers.shape:
            self._staged = torch.empty(numbers.shape, dtype=torch.long, pin_memory=True)
        self._staged.copy_(numbers, non_blocking=True)
        torch.cuda.current_stream(self._device).synchronize()
        return self._staged


class _Recorded(Generic[T]):
    """A function that is run at the first call, recorded at the second and then replayed. On a CPU it is always run."""

    def __init__(self, work: Callable[[], T], device: torch.device, pool: Any) -> None:
        self._work, self._device, self._pool = work, device, pool
        self._ran = False
        self._recording: CapturedGraph[T] | None = None

    def __call__(self) -> T:
        if not _on_gpu(self._device) or not self._ran:
            self._ran = True
            return self._work()
        if self._recording is None:
            self._recording = capture(self._work, self._device, pool=self._pool)
        self._recording.replay()
        return self._recording.result


SearchFunction = Callable[[Int[Tensor, "b s_and_length"], Float[Tensor, "samples w D"], int], Int[Tensor, " numbers"]]
"""From rows of ids and their length, noise and the target width to the packed results."""


def _search_function(networks: Networks, options: DecodingOptions) -> SearchFunction:
    def run(
        rows: Int[Tensor, "b s_and_length"], noise: Float[Tensor, "samples w D"], width: int
    ) -> Int[Tensor, " numbers"]:
        return pack(search(networks, _tokens(rows), options, noise, width))

    return run


class _Search:
    """A search with the latent model in one shape."""

    def __init__(
        self,
        function: SearchFunction,
        options: DecodingOptions,
        shape: Shape,
        noise: MakeNoise,
        device: torch.device,
        pool: Any,
    ) -> None:
        self._input, self._output = _Input(shape, device), _Output(device)
        self._shape, self._seed = shape, options.seed
        self._noise = noise()[:, : shape.target].clone()
        self._run = _Recorded(lambda: function(self._input.rows, self._noise, shape.target), device, pool)

    def __call__(self, sentences: Sequence[Sequence[int]], options: DecodingOptions, noise: MakeNoise) -> SearchResult:
        if self._seed != options.seed:
            self._noise.copy_(noise()[:, : self._shape.target])
            self._seed = options.seed
        self._input.fill(sentences)
        numbers = self._output(self._run())
        return SearchResult.unpack(numbers, self._shape.sentences, options.candidates, self._shape.target)


Advance = Callable[[Teacher, Beams, Int[Tensor, ""], int, float], Beams]


class _BeamSearch:
    """The teacher's beam search in one shape, a chunk of tokens at a time."""

    def __init__(
        self, teacher: Teacher, advance: Advance, config: BeamConfig, shape: Shape, device: torch.device, pool: Any
    ) -> None:
        self._teacher, self._advance, self._config = teacher, advance, config
        self._input, self._output = _Input(shape, device), _Output(device)
        self._width = config.max_target_length(shape.source)
        self._positions = torch.arange(self._width, device=device)
        starts = range(0, self._width, CHUNK_TOKENS)
        self._chunks = [_Recorded(partial(self._chunk, number), device, pool) for number in range(len(starts))]
        self._beams: Beams
        """The state after the previous chunk. A recorded chunk writes to the same tensors every time, and no chunk runs
        more often than the one before it. So the inputs of a recording keep their addresses."""

    def __call__(self, sentences: Sequence[Sequence[int]]) -> list[Hypothesis]:
        self._input.fill(sentences)
        for chunk in self._chunks:
            self._beams, result = chunk()
            numbers = self._output(result)[: len(sentences)]
            if bool(numbers[:, -1].all()):
                break
        return hypotheses(numbers[:, :-1])

    def _chunk(self, number: int) -> tuple[Beams, Int[Tensor, "b numbers"]]:
        beams = self._beams if number else self._start()
        for position in range(number * CHUNK_TOKENS, min((number + 1) * CHUNK_TOKENS, self._width)):
            attended, penalty = attended_positions(position), self._config.length_penalty
            beams = self._advance(self._teacher, beams, self._positions[position], attended, penalty)
        return beams, torch.cat((beams.best.packed(), beams.done.long()[:, None]), 1)

    def _start(self) -> Beams:
        return start(self._teacher, _tokens(self._input.rows), self._config, self._width)


class _Compiled(Generic[P, T]):
    """A compiled function. If compiling fails, it warns and runs the function uncompiled."""

    def __init__(self, function: Callable[P, T]) -> None:
        self._plain = function
        self._function = compiled(function, dynamic=True)

    def __call__(self, *arguments: P.args, **keywords: P.kwargs) -> T:
        try:
            return self._function(*arguments, **keywords)
        except Exception as error:
            if self._function is self._plain:
                raise
            warnings.warn(f"not compiled: {str(error).splitlines()[0]}", RuntimeWarning, stacklevel=2)
            self._function = self._plain
            return self._plain(*arguments, **keywords)


class Graphs:
    """Searches by shape. They share memory, so only one may run at a time."""

    def __init__(self, networks: Networks, device: torch.device) -> None:
        self._networks, self._device = networks, device
        self._searches: OrderedDict[tuple[DecodingOptions, Shape], Any] = OrderedDict()
        self._pool = torch.cuda.graph_pool_handle() if _on_gpu(device) else None
        self._compiled: dict[DecodingOptions, Any] = {}
        """Compiled functions by their key."""

    def compile(self, options: DecodingOptions) -> None:
        """Compile searches with these options when they are next run."""
        key = _cache_key(options)
        if key in self._compiled or not self._networks.compiles(options):
            return
        work: Callable[..., Any] = advance if options.method == "teacher" else _search_function(self._networks, options)
        self._compiled[key] = _Compiled(work)
        for stale in [entry for entry in self._searches if entry[0] == key]:
            del self._searches[stale]
        gc.collect()

    def search(self, sentences: Sequence[Sequence[int]], options: DecodingOptions, noise: MakeNoise) -> SearchResult:
        """The candidates of each sentence. Padding sentences follow."""
        shape, key, plain = (
            Shape.from_sentences(sentences, options.length_bias),
            _cache_key(options),
            _search_function(self._networks, options),
        )
        while True:
            # A search whose logits are chunked would be compiled again for each number of chunks.
            unchunked = shape.sentences * options.candidates * shape.target <= LOGITS_CHUNK
            function = self._compiled.get(key, plain) if unchunked else plain
            make = partial(_Search, function, options, shape, noise, self._device, self._pool)
            with torch.inference_mode(False), torch.no_grad():
                result: SearchResult = self._get((key, shape), make)(sentences, options, noise)
            if shape.target == MAX_POSITIONS or not result.truncated[: len(sentences)].any():
                return result
            shape = shape.with_longer_targets()

    def beam_search(self, sentences: Sequence[Sequence[int]], options: DecodingOptions) -> list[Hypothesis]:
        """The teacher's best hypothesis for each sentence."""
        assert self._networks.teacher is not None
        shape, key = replace(Shape.from_sentences(sentences), target=0), _cache_key(options)
        # Compiled for one sentence only: with more, torch 2.13 fails on varying shapes.
        step = self._compiled.get(key, advance) if shape.sentences == 1 else advance
        config = BeamConfig(beam=options.beam)
        make = partial(_BeamSearch, self._networks.teacher, step, config, shape, self._device, self._pool)
        with torch.inference_mode(False), torch.no_grad():
            result: list[Hypothesis] = self._get((key, shape), make)(sentences)
        return result

    def _get(self, key: tuple[DecodingOptions, Shape], make: Callable[[], Any]) -> Any:
        if key not in self._searches:
            self._searches[key] = make()
            if len(self._searches) > MAX_SHAPES:
                self._searches.popitem(last=False)
                gc.collect()  # a recording and its function refer to each other and hold GPU memory
        self._searches.move_to_end(key)
        return self._searches[key]


@lru_cache
def _cache_key(options: DecodingOptions) -> DecodingOptions:
    """The options that determine the computation: all but the seed; for a teacher, only the beam."""
    return DecodingOptions("teacher", beam=options.beam) if options.method == "teacher" else replace(options, seed=0)


def _tokens(rows: Int[Tensor, "b s_and_length"]) -> Tokens:
    return Tokens(rows[:, :-1], Layout.from_lengths(rows[:, -1], rows.shape[1] - 1))


def _on_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def _rounded(width: int) -> int:
    return -(-width // WIDTH_MULTIPLE) * WIDTH_MULTIPLE
