"""What a search found, brought from the device to the host in one copy and read as lists.

It knows no networks and does not search.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor

from latentmt.infer.postprocess import without_special
from latentmt.infer.search import Candidates

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Candidate:
    """A target for a sentence."""

    decoded: list[int]
    """As decoded, but for special pieces: what repetitions are counted in."""
    readable: list[int]
    """As it is read."""
    score: float
    """What candidates are ranked by, per token; the teacher's own score where it translates; 0 without a rerank."""


def ranked(candidates: Sequence[Candidate], best: int) -> list[Candidate]:
    """The candidates that read differently, the kept one first, then by their scores."""
    ordered = [candidates[best], *sorted(candidates, key=lambda candidate: -candidate.score)]
    first: dict[tuple[int, ...], Candidate] = {}
    for candidate in ordered:
        first.setdefault(tuple(candidate.readable), candidate)
    return list(first.values())


@dataclass(frozen=True)
class SearchResult:
    """The candidates of a batch of sentences, on the host; made into lists when they are asked for.

    A recorded search brings the next ones to the same place: ask before it is made again.
    """

    decoded: Numbers
    """By sentence, candidate and place."""
    readable: Numbers
    lengths: Numbers
    """Of what is readable, EOS counted."""
    scores: npt.NDArray[np.float64]
    kept: Numbers
    """Which candidate of each sentence is kept."""
    cut: Numbers
    """1 where a wanted length did not fit, 0 elsewhere."""

    @staticmethod
    def unpacked(numbers: Int[Tensor, " numbers"], sentences: int, candidates: int, width: int) -> SearchResult:
        """What `packed` made of candidates for so many sentences, with targets of this width."""
        rows = sentences * candidates
        sizes = [rows * width, rows * (width + 1), rows, rows, sentences, sentences]
        all_, ends = numbers.numpy(), itertools.accumulate(sizes)
        decoded, read, lengths, bits, kept, cut = (
            all_[end - size : end] for size, end in zip(sizes, ends, strict=True)
        )
        return SearchResult(
            decoded.reshape(sentences, candidates, width),
            read.reshape(sentences, candidates, width + 1),
            lengths.reshape(sentences, candidates),
            bits.view(np.float64).reshape(sentences, candidates),
            kept,
            cut,
        )

    def best(self, sentence: int) -> Candidate:
        """The one that is kept."""
        return self._candidate(sentence, int(self.kept[sentence]))

    def all(self, sentence: int) -> tuple[list[Candidate], int]:
        """All of them, and which one is kept."""
        each = self.decoded.shape[1]
        return [self._candidate(sentence, number) for number in range(each)], int(self.kept[sentence])

    def _candidate(self, sentence: int, number: int) -> Candidate:
        end = self.lengths[sentence, number] - 1
        return Candidate(
            without_special(self.decoded[sentence, number].tolist()),
            self.readable[sentence, number, :end].tolist(),
            float(self.scores[sentence, number]),
        )


def packed(found: Candidates) -> Int[Tensor, " numbers"]:
    """All of it as one tensor of integers; scores as the bits of fp64 numbers."""
    lengths, bits = found.readable.layout.real.sum(1), found.score.double().view(torch.int64)
    parts = (found.decoded.ids, found.readable.ids, lengths, bits, found.best, found.cut.long())
    return torch.cat([part.flatten() for part in parts])


def on_host(found: Candidates) -> SearchResult:
    """The same on the host."""
    sentences, each = found.score.shape
    return SearchResult.unpacked(packed(found).cpu(), sentences, each, found.decoded.ids.shape[1])
