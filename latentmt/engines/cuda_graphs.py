"""Searches in a few fixed shapes, each recorded once and replayed: one launch and one copy each way for a batch.

A batch is padded to the next shape: its number of sentences to a power of two, sources and targets to a multiple of
eight. How long targets may become is guessed from the source; where a search wants a longer one it says so with the
result, and the batch is searched again with more room. The teacher's beam search is recorded a few tokens at a time, so
that it can end when all sentences have.

What is recorded on a GPU is a CUDA graph, made when a shape comes up for the second time: recording costs as much as
a few searches. Compiled first it is faster still, but compiling takes longer than most people wait, so it is done
only for those who ask. On a CPU everything is simply computed, so that all of this but the recording can be tried
anywhere. The shapes used last are kept.
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
from latentmt.infer.beam import BeamConfig, Beams, Hypothesis, advance, hypotheses, reach_of, start
from latentmt.infer.search import Networks, search
from latentmt.infer.transfer import SearchResult, pack
from latentmt.models.teacher import Teacher
from latentmt.nn.cuda_graph import CapturedGraph, capture, compiled
from latentmt.nn.positions import LOGITS_CHUNK, MAX_POSITIONS
from latentmt.options import DecodingOptions

P = ParamSpec("P")
T = TypeVar("T")
NoiseOf = Callable[[], Float[Tensor, "samples places D"]]
"""Makes the noise of a search, where it is needed."""

KEPT = 64
"""Shapes whose recordings are kept."""
CHUNK = 8
"""Tokens that a beam search goes on for before anybody asks who is done."""
STEP = 8
"""Widths are multiples of this."""


@dataclass(frozen=True)
class Shape:
    """The size of a batch, padding included."""

    sentences: int
    source: int
    target: int

    @staticmethod
    def of(sentences: Sequence[Sequence[int]], length_bias: float = 0.0) -> Shape:
        """The smallest shape for these sources, with room for targets that are a quarter longer, and a bit."""
        source = _rounded(max(map(len, sentences)))
        target = _rounded(source + source // 4 + math.ceil(max(0.0, length_bias) * source))
        return Shape(1 << (len(sentences) - 1).bit_length(), source, min(target, MAX_POSITIONS))

    def roomier(self) -> Shape:
        """The same with more room for targets."""
        return replace(self, target=min(2 * self.target, MAX_POSITIONS))


class _Input:
    """Where the sentences of a shape go: ids, then the length, a row each; copied to the device at once."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self._staged = torch.empty((shape.sentences, shape.source + 1), dtype=torch.long, pin_memory=_on_gpu(device))
        self._numbers = self._staged.numpy()
        self.rows = torch.empty_like(self._staged, device=device)
        self.fill([])

    def fill(self, sentences: Sequence[Sequence[int]]) -> None:
        """Take these sentences; rows that are left over hold an empty one."""
        self._numbers[:] = PAD
        self._numbers[:, 0], self._numbers[:, -1] = EOS, 1
        for row, sentence in zip(self._numbers, sentences, strict=False):
            row[: len(sentence)] = sentence
            row[-1] = len(sentence)
        self.rows.copy_(self._staged, non_blocking=True)


class _Output:
    """Brings numbers to the host, which then waits for them."""

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


class _Replayed(Generic[T]):
    """Work that is done when it is first called for, then recorded, and replayed from then on; on a CPU, done again."""

    def __init__(self, work: Callable[[], T], device: torch.device, pool: Any) -> None:
        self._work, self._device, self._pool = work, device, pool
        self._done = False
        self._recording: CapturedGraph[T] | None = None

    def __call__(self) -> T:
        if not _on_gpu(self._device) or not self._done:
            self._done = True
            return self._work()
        if self._recording is None:
            self._recording = capture(self._work, self._device, pool=self._pool)
        self._recording.replay()
        return self._recording.result


Searching = Callable[[Int[Tensor, "b s_and_length"], Float[Tensor, "samples w D"], int], Int[Tensor, " numbers"]]
"""From rows of ids with their length at the end, noise, and the width of targets, to what was found, packed."""


def _searching(networks: Networks, options: DecodingOptions) -> Searching:
    def run(
        rows: Int[Tensor, "b s_and_length"], noise: Float[Tensor, "samples w D"], width: int
    ) -> Int[Tensor, " numbers"]:
        return pack(search(networks, _source(rows), options, noise, width))

    return run


class _Search:
    """A search in one shape."""

    def __init__(
        self,
        searching: Searching,
        options: DecodingOptions,
        shape: Shape,
        noise: NoiseOf,
        device: torch.device,
        pool: Any,
    ) -> None:
        self._input, self._output = _Input(shape, device), _Output(device)
        self._shape, self._seed = shape, options.seed
        self._noise = noise()[:, : shape.target].clone()
        self._run = _Replayed(lambda: searching(self._input.rows, self._noise, shape.target), device, pool)

    def __call__(self, sentences: Sequence[Sequence[int]], options: DecodingOptions, noise: NoiseOf) -> SearchResult:
        if self._seed != options.seed:
            self._noise.copy_(noise()[:, : self._shape.target])
            self._seed = options.seed
        self._input.fill(sentences)
        numbers = self._output(self._run())
        return SearchResult.unpack(numbers, self._shape.sentences, options.candidates, self._shape.target)


Advance = Callable[[Teacher, Beams, Int[Tensor, ""], int, float], Beams]


class _BeamSearch:
    """The teacher's search in one shape, some tokens at a time."""

    def __init__(
        self, teacher: Teacher, advance: Advance, config: BeamConfig, shape: Shape, device: torch.device, pool: Any
    ) -> None:
        self._teacher, self._advance, self._config = teacher, advance, config
        self._input, self._output = _Input(shape, device), _Output(device)
        self._width = config.longest(shape.source)
        self._places = torch.arange(self._width, device=device)
        starts = range(0, self._width, CHUNK)
        self._chunks = [_Replayed(partial(self._chunk, number), device, pool) for number in range(len(starts))]
        self._beams: Beams
        """How things stand after the chunk before. What a recorded chunk leaves lies in the same tensors every time,
        and no chunk is called for more often than the one before it: so what it is recorded on stays where it is."""

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
        for position in range(number * CHUNK, min((number + 1) * CHUNK, self._width)):
            place, penalty = self._places[position], self._config.length_penalty
            beams = self._advance(self._teacher, beams, place, reach_of(position), penalty)
        return beams, torch.cat((beams.best.packed(), beams.done.long()[:, None]), 1)

    def _start(self) -> Beams:
        return start(self._teacher, _source(self._input.rows), self._config, self._width)


class _Compiled(Generic[P, T]):
    """A function compiled, or as it is if that fails: a slow translation is better than none."""

    def __init__(self, function: Callable[P, T]) -> None:
        self._plain = function
        self._function = compiled(function, dynamic=True)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> T:
        try:
            return self._function(*arguments, **named)
        except Exception as error:
            if self._function is self._plain:
                raise
            warnings.warn(f"not compiled: {str(error).splitlines()[0]}", RuntimeWarning, stacklevel=2)
            self._function = self._plain
            return self._plain(*arguments, **named)


class Graphs:
    """Searches by shape. They share memory, so only one may be under way at a time."""

    def __init__(self, networks: Networks, device: torch.device) -> None:
        self._networks, self._device = networks, device
        self._kept: OrderedDict[tuple[DecodingOptions, Shape], Any] = OrderedDict()
        self._pool = torch.cuda.graph_pool_handle() if _on_gpu(device) else None
        self._compiled: dict[DecodingOptions, Any] = {}
        """What is compiled, by how it searches."""

    def compile(self, options: DecodingOptions) -> None:
        """From now on compile how this is searched, when it is called for."""
        plan = _plan(options)
        if plan in self._compiled or not self._networks.compiles(options):
            return
        work: Callable[..., Any] = advance if options.method == "teacher" else _searching(self._networks, options)
        self._compiled[plan] = _Compiled(work)
        for key in [key for key in self._kept if key[0] == plan]:
            del self._kept[key]
        gc.collect()

    def search(self, sentences: Sequence[Sequence[int]], options: DecodingOptions, noise: NoiseOf) -> SearchResult:
        """The candidates of each sentence; there may be more sentences than were asked for."""
        shape, plan, plain = (
            Shape.of(sentences, options.length_bias),
            _plan(options),
            _searching(self._networks, options),
        )
        while True:
            # What is scored in several goes would be compiled again for each number of them.
            at_once = shape.sentences * options.candidates * shape.target <= LOGITS_CHUNK
            searching = self._compiled.get(plan, plain) if at_once else plain
            make = partial(_Search, searching, options, shape, noise, self._device, self._pool)
            with torch.inference_mode(False), torch.no_grad():
                found: SearchResult = self._get((plan, shape), make)(sentences, options, noise)
            if shape.target == MAX_POSITIONS or not found.truncated[: len(sentences)].any():
                return found
            shape = shape.roomier()

    def beam_search(self, sentences: Sequence[Sequence[int]], options: DecodingOptions) -> list[Hypothesis]:
        """The teacher's best hypothesis for each sentence."""
        assert self._networks.teacher is not None
        shape, plan = replace(Shape.of(sentences), target=0), _plan(options)
        # For one sentence it is compiled; for more, torch 2.13 stumbles over shapes that vary.
        step = self._compiled.get(plan, advance) if shape.sentences == 1 else advance
        config = BeamConfig(beam=options.beam)
        make = partial(_BeamSearch, self._networks.teacher, step, config, shape, self._device, self._pool)
        with torch.inference_mode(False), torch.no_grad():
            found: list[Hypothesis] = self._get((plan, shape), make)(sentences)
        return found

    def _get(self, key: tuple[DecodingOptions, Shape], make: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
                gc.collect()  # a recording and its work hold each other, and memory of a GPU
        self._kept.move_to_end(key)
        return self._kept[key]


@lru_cache
def _plan(options: DecodingOptions) -> DecodingOptions:
    """What decides the work: all but the seed; of a teacher's, the beam alone."""
    return DecodingOptions("teacher", beam=options.beam) if options.method == "teacher" else replace(options, seed=0)


def _source(rows: Int[Tensor, "b s_and_length"]) -> Tokens:
    return Tokens(rows[:, :-1], Layout.from_lengths(rows[:, -1], rows.shape[1] - 1))


def _on_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def _rounded(width: int) -> int:
    return -(-width // STEP) * STEP
