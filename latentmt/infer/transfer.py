"""Search results: copied from the device to the host at once, and converted to lists on demand."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor

from latentmt.infer.search import SearchOutput
from latentmt.results import Candidate, Candidates, without_special

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SearchResult:
    """The candidates of a batch of sentences, on the host.

    A recorded search overwrites this memory with its next result. Read this one before.
    """

    decoded: Numbers
    """By sentence, candidate and position."""
    readable: Numbers
    lengths: Numbers
    """Of the readable ids, EOS included."""
    scores: npt.NDArray[np.float64]
    best: Numbers
    """The candidate kept for each sentence."""
    truncated: Numbers
    """1 if a predicted length did not fit, else 0."""

    @staticmethod
    def unpack(numbers: Int[Tensor, " numbers"], sentences: int, candidates: int, width: int) -> SearchResult:
        """The inverse of `pack`, given the numbers of sentences and candidates and the width of targets."""
        rows = sentences * candidates
        sizes = [rows * width, rows * (width + 1), rows, rows, sentences, sentences]
        flat, ends = numbers.numpy(), itertools.accumulate(sizes)
        decoded, readable, lengths, bits, best, truncated = (
            flat[end - size : end] for size, end in zip(sizes, ends, strict=True)
        )
        return SearchResult(
            decoded.reshape(sentences, candidates, width),
            readable.reshape(sentences, candidates, width + 1),
            lengths.reshape(sentences, candidates),
            bits.view(np.float64).reshape(sentences, candidates),
            best,
            truncated,
        )

    def best_of(self, sentence: int) -> Candidate:
        """The kept candidate of a sentence."""
        return self._candidate(sentence, int(self.best[sentence]))

    def all_of(self, sentence: int) -> Candidates:
        """All candidates of a sentence."""
        count = self.decoded.shape[1]
        return Candidates([self._candidate(sentence, number) for number in range(count)], int(self.best[sentence]))

    def _candidate(self, sentence: int, number: int) -> Candidate:
        end = self.lengths[sentence, number] - 1
        return Candidate(
            without_special(self.decoded[sentence, number].tolist()),
            self.readable[sentence, number, :end].tolist(),
            float(self.scores[sentence, number]),
        )


def pack(output: SearchOutput) -> Int[Tensor, " numbers"]:
    """All values as one tensor of integers. Scores are stored as fp64 bits."""
    lengths, bits = output.readable.layout.real.sum(1), output.score.double().view(torch.int64)
    tensors = (output.decoded.ids, output.readable.ids, lengths, bits, output.best, output.truncated.long())
    return torch.cat([tensor.flatten() for tensor in tensors])


def to_host(output: SearchOutput) -> SearchResult:
    """Copy a search's output to the host."""
    sentences, candidates = output.score.shape
    return SearchResult.unpack(pack(output).cpu(), sentences, candidates, output.decoded.ids.shape[1])
