"""Searches in a few fixed shapes, each recorded once and replayed: one launch and one copy each way for a batch.

A batch is padded to the next shape: its number of sentences to a power of two, sources and targets to a multiple of
eight. How long targets may become is guessed from the source; where a search wants a longer one it says so with the
result, and the batch is searched again with more room. The teacher's beam search is recorded a few tokens at a time, so
that it can end when all sentences have. On a GPU what is recorded is a CUDA graph; on a CPU it is simply computed, so
that all of this but the recording can be tried anywhere. The shapes used last are kept.
"""

from __future__ import annotations

import gc
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentmt.data.tokenizer import EOS, PAD
from latentmt.data.tokens import Layout, Tokens
from latentmt.infer.beam import BeamConfig, Beams, Hypothesis, advance, start
from latentmt.infer.how import How
from latentmt.infer.search import Candidates, Networks, search
from latentmt.models.teacher import Teacher
from latentmt.nn.fast import Recording, record
from latentmt.nn.positions import MAX_POSITIONS

T = TypeVar("T")
NoiseOf = Callable[[], Float[Tensor, "samples places D"]]
"""Makes the noise of a search, where it is needed."""

KEPT = 64
"""Shapes whose recordings are kept."""
CHUNK = 8
"""Tokens that a beam search goes on for before anybody asks who is done."""
_STEP = 8
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
        self._width = shape.source
        self._staged = torch.empty((shape.sentences, shape.source + 1), dtype=torch.long, pin_memory=_on_gpu(device))
        self._rows = torch.empty_like(self._staged, device=device)
        self.fill([])

    def fill(self, sentences: Sequence[Sequence[int]]) -> None:
        """Take these sentences; rows that are left over hold an empty one."""
        self._staged.fill_(PAD)
        self._staged[:, 0], self._staged[:, -1] = EOS, 1
        for row, sentence in zip(self._staged, sentences, strict=False):
            row[: len(sentence)] = torch.as_tensor(sentence)
            row[-1] = len(sentence)
        self._rows.copy_(self._staged, non_blocking=True)

    def source(self) -> Tokens:
        """The sentences as they are now."""
        return Tokens(self._rows[:, :-1], Layout.of_lengths(self._rows[:, -1], self._width))


class _Replayed(Generic[T]):
    """Work that is recorded when it is first called for, and replayed from then on; on a CPU, done again."""

    def __init__(self, work: Callable[[], T], device: torch.device, pool: Any) -> None:
        self._work, self._device, self._pool = work, device, pool
        self._recording: Recording[T] | None = None

    def __call__(self) -> T:
        if not _on_gpu(self._device):
            return self._work()
        if self._recording is None:
            self._recording = record(self._work, self._device, pool=self._pool)
        self._recording.replay()
        return self._recording.result


class _Search:
    """A search in one shape."""

    def __init__(
        self, networks: Networks, how: How, shape: Shape, noise: NoiseOf, device: torch.device, pool: Any
    ) -> None:
        self._input, self._shape, self._seed = _Input(shape, device), shape, how.seed
        self._noise = noise()[:, : shape.target].clone()
        self._run = _Replayed(
            lambda: _packed(search(networks, self._input.source(), how, self._noise, shape.target)), device, pool
        )

    def __call__(self, sentences: Sequence[Sequence[int]], how: How, noise: NoiseOf) -> Candidates:
        if self._seed != how.seed:
            self._noise.copy_(noise()[:, : self._shape.target])
            self._seed = how.seed
        self._input.fill(sentences)
        return _unpacked(self._run().cpu(), self._shape, how.candidates)


class _BeamSearch:
    """The teacher's search in one shape, some tokens at a time."""

    def __init__(self, teacher: Teacher, config: BeamConfig, shape: Shape, device: torch.device, pool: Any) -> None:
        self._teacher, self._config = teacher, config
        self._input, self._width = _Input(shape, device), config.longest(shape.source)
        self._places = torch.arange(self._width, device=device)
        starts = range(0, self._width, CHUNK)
        self._chunks = [_Replayed(partial(self._chunk, number), device, pool) for number in range(len(starts))]
        self._after: list[Beams] = []
        """How things stand after each chunk that has been searched; a recorded one leaves them in the same tensors."""

    def __call__(self, sentences: Sequence[Sequence[int]]) -> list[Hypothesis]:
        self._input.fill(sentences)
        for number, chunk in enumerate(self._chunks):
            self._after[number:] = [chunk(), *self._after[number + 1 :]]
            if bool(self._after[number].done[: len(sentences)].all()):
                break
        return self._after[number].best.hypotheses()[: len(sentences)]

    def _chunk(self, number: int) -> Beams:
        if number:
            beams = self._after[number - 1]
        else:
            beams = start(self._teacher, self._input.source(), self._config, self._width)
        for position in range(number * CHUNK, min((number + 1) * CHUNK, self._width)):
            beams = advance(self._teacher, beams, position, self._places[position], self._config.length_penalty)
        return beams


class Graphs:
    """Searches by shape. They share memory, so only one may be under way at a time."""

    def __init__(self, networks: Networks, device: torch.device) -> None:
        self._networks, self._device = networks, device
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._pool = torch.cuda.graph_pool_handle() if _on_gpu(device) else None

    def search(self, sentences: Sequence[Sequence[int]], how: How, noise: NoiseOf) -> Candidates:
        """The candidates of each sentence, on the CPU; there may be more sentences than were asked for."""
        shape, plan = Shape.of(sentences, how.length_bias), replace(how, seed=0)
        while True:
            make = partial(_Search, self._networks, how, shape, noise, self._device, self._pool)
            with torch.inference_mode(False), torch.no_grad():
                found: Candidates = self._get((plan, shape), make)(sentences, how, noise)
            if shape.target == MAX_POSITIONS or not found.cut[: len(sentences)].any():
                return found
            shape = shape.roomier()

    def beam_search(self, sentences: Sequence[Sequence[int]], config: BeamConfig) -> list[Hypothesis]:
        """The teacher's best hypothesis for each sentence."""
        assert self._networks.teacher is not None
        shape = replace(Shape.of(sentences), target=0)
        make = partial(_BeamSearch, self._networks.teacher, config, shape, self._device, self._pool)
        with torch.inference_mode(False), torch.no_grad():
            found: list[Hypothesis] = self._get((config, shape), make)(sentences)
        return found

    def _get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
                gc.collect()  # a recording and its work hold each other, and memory of a GPU
        self._kept.move_to_end(key)
        return self._kept[key]


def _on_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def _rounded(width: int) -> int:
    return -(-width // _STEP) * _STEP


def _packed(found: Candidates) -> Int[Tensor, " numbers"]:
    """All of it as one tensor of integers, to be copied at once; scores as the bits of fp32 numbers."""
    bits = found.score.float().view(torch.int32).long()
    lengths = (tokens.layout.real.sum(1) for tokens in (found.decoded, found.readable))
    ids = (found.decoded.ids, found.readable.ids)
    return torch.cat([part.flatten() for part in (*ids, *lengths, bits, found.best, found.cut.long())])


def _unpacked(numbers: Int[Tensor, " numbers"], shape: Shape, each: int) -> Candidates:
    rows, width = shape.sentences * each, shape.target
    sizes = [rows * width, rows * (width + 1), rows, rows, rows, shape.sentences, shape.sentences]
    decoded, read, decoded_length, read_length, bits, best, cut = numbers.split(sizes)
    return Candidates(
        Tokens(decoded.view(rows, width), Layout.of_lengths(decoded_length, width)),
        Tokens(read.view(rows, width + 1), Layout.of_lengths(read_length, width + 1)),
        bits.int().view(torch.float32).view(shape.sentences, each),
        best,
        cut.bool(),
    )
