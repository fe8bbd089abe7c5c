"""Output models in numpy: the places of a source, and how they and the tokens of a target belong together.

The counterpart of `models/outputs.py` and `models/ctc.py`, for rows of one sentence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from latentmt.data.tokenizer import BLANK, EOS, PAD
from latentmt.engines.onnx.ctc_beam import beam_search
from latentmt.engines.onnx.lattice import Lattice
from latentmt.engines.onnx.tokens import Layout, Tokens
from latentmt.engines.onnx.weights import Array
from latentmt.ngrams.fusion import Fusion
from latentmt.ngrams.model import NgramModel
from latentmt.options import LENGTH_LIMIT, MAX_POSITIONS

MIN_LENGTH = 2
"""The shortest target: a piece and EOS."""

Labels = Int[np.ndarray, "n p"]


@dataclass(frozen=True)
class Logits:
    """The logits of pieces at each place."""

    values: Float[np.ndarray, "n p v"]
    pieces: Int[np.ndarray, " v"] | None = None
    """The piece of each column, in ascending order. None: all pieces."""

    def best(self) -> Labels:
        """The likeliest id at each place."""
        columns = self.values.argmax(-1)
        return columns if self.pieces is None else self.pieces[columns]

    def log_probs(self, ids: Int[np.ndarray, "n p k"]) -> Float[np.ndarray, "n p k"]:
        """log softmax at these ids, for which all pieces are needed."""
        assert self.pieces is None
        highest = self.values.max(-1, keepdims=True)
        normaliser = highest + np.log(np.exp(self.values - highest).sum(-1, keepdims=True))
        return np.take_along_axis(self.values, ids, 2) - normaliser

    def rows(self, places: Layout) -> Iterator[Float[np.ndarray, "p v"]]:
        """The logits of each row at its places."""
        return (row[:length] for row, length in zip(self.values, places.lengths, strict=True))


class Output(ABC):
    """Maps logits to targets. Each method is that of the same name in `models/outputs.py`."""

    fuses: ClassVar[bool] = False
    """Whether targets can be read with a language model."""
    length_classes: int
    """Logits of lengths; 0 if they are not predicted."""

    @abstractmethod
    def predict_lengths(
        self, size: int, logits: Float[np.ndarray, " classes"], count: int, bias: float
    ) -> Int[np.ndarray, " {count}"]:
        """The likeliest numbers of places. `size`: tokens of the source. `logits`: those of lengths, if predicted."""

    @abstractmethod
    def places(self, size: int, target: Tokens) -> Layout:
        """The places of given targets."""

    @abstractmethod
    def posterior_inputs(self, target: Tokens, places: Layout) -> dict[str, Array]:
        """The inputs of the posterior's graph, except its memory."""

    @abstractmethod
    def log_prob(self, logits: Logits, places: Layout, target: Tokens) -> Float[np.ndarray, "n t"]:
        """log p of each token given those before it, z and x; 0 at padding."""

    @abstractmethod
    def labels(self, logits: Logits, places: Layout) -> Labels:
        """The likeliest id at each place; PAD at padding."""

    @abstractmethod
    def labels_of(self, logits: Logits, places: Layout, target: Tokens) -> Labels:
        """The ids of the likeliest way to write a target on the places."""

    @abstractmethod
    def written(self, labels: Labels, places: Layout) -> Bool[np.ndarray, "n p"]:
        """The places that write a token of the target: their label."""

    def read(self, logits: Logits, places: Layout, fusion: Fusion[NgramModel] | None = None) -> Tokens:
        """The target that the likeliest ids write; or with a language model, which needs CTC, the best target found."""
        assert fusion is None
        labels = self.labels(logits, places)
        rows = zip(labels, self.written(labels, places), strict=True)
        return Tokens.padded([row[written].tolist() for row, written in rows])

    @abstractmethod
    def to_tokens(
        self, values: Float[np.ndarray, "p k"], logits: Callable[[], Logits], places: Layout, target: Tokens
    ) -> Float[np.ndarray, "t k"]:
        """Values of one target's places as values of its tokens. `logits` is called if they are needed."""


class TokenOutput(Output):
    """One token per place."""

    length_classes = 2 * LENGTH_LIMIT + 1

    def predict_lengths(
        self, size: int, logits: Float[np.ndarray, " classes"], count: int, bias: float
    ) -> Int[np.ndarray, " {count}"]:
        lengths = size + np.arange(-LENGTH_LIMIT, LENGTH_LIMIT + 1) + round(bias * size)
        possible = (lengths >= MIN_LENGTH) & (lengths <= MAX_POSITIONS)
        best = np.argsort(-np.where(possible, logits, -np.inf), kind="stable")[:count]
        return np.clip(lengths[best], MIN_LENGTH, MAX_POSITIONS)

    def places(self, size: int, target: Tokens) -> Layout:
        return target.layout

    def posterior_inputs(self, target: Tokens, places: Layout) -> dict[str, Array]:
        return {"ids": target.ids, "bias": places.bias}

    def log_prob(self, logits: Logits, places: Layout, target: Tokens) -> Float[np.ndarray, "n t"]:
        return np.where(places.real, logits.log_probs(target.ids[..., None])[..., 0], 0.0)

    def labels(self, logits: Logits, places: Layout) -> Labels:
        return np.where(places.real, logits.best(), PAD)

    def labels_of(self, logits: Logits, places: Layout, target: Tokens) -> Labels:
        return target.ids

    def written(self, labels: Labels, places: Layout) -> Bool[np.ndarray, "n p"]:
        return places.real

    def to_tokens(
        self, values: Float[np.ndarray, "p k"], logits: Callable[[], Logits], places: Layout, target: Tokens
    ) -> Float[np.ndarray, "t k"]:
        return values


class CTCOutput(Output):
    """Several places for each token of the source, of which some write nothing."""

    fuses = True
    length_classes = 0

    def __init__(self, upsampling: int) -> None:
        self._upsampling = upsampling

    def predict_lengths(
        self, size: int, logits: Float[np.ndarray, " classes"], count: int, bias: float
    ) -> Int[np.ndarray, " {count}"]:
        number, usual = np.arange(count), self._upsampling * size + round(bias * size)
        return np.clip(usual + (number + 1) // 2 * (2 * (number % 2) - 1), MIN_LENGTH, MAX_POSITIONS)

    def places(self, size: int, target: Tokens) -> Layout:
        return Layout(np.full(len(target.ids), min(self._upsampling * size, MAX_POSITIONS)))

    def posterior_inputs(self, target: Tokens, places: Layout) -> dict[str, Array]:
        return {"ids": target.ids, "target_bias": target.layout.attended_by(places), "bias": places.bias}

    def log_prob(self, logits: Logits, places: Layout, target: Tokens) -> Float[np.ndarray, "n t"]:
        lattice, last = self._lattice(logits, places, target), target.layout.lengths - 1
        total, prefix = lattice.log_prob(), lattice.prefix_log_prob()
        prefix[np.arange(len(prefix)), last] = total
        conditional = np.diff(prefix, axis=1, prepend=0.0)
        conditional[total == -np.inf] = -np.inf
        return np.where(target.layout.real, conditional, 0.0)

    def labels(self, logits: Logits, places: Layout) -> Labels:
        labels = np.where(places.real, logits.best(), PAD)
        labels[np.arange(len(labels)), places.lengths - 1] = EOS
        return labels

    def labels_of(self, logits: Logits, places: Layout, target: Tokens) -> Labels:
        labels = np.concatenate((target.ids, np.full((len(target.ids), 1), BLANK)), 1)
        return np.take_along_axis(labels, self._lattice(logits, places, target, best=True).best_label(), 1)

    def written(self, labels: Labels, places: Layout) -> Bool[np.ndarray, "n p"]:
        changed = np.ones_like(places.real)
        changed[:, 1:] = labels[:, 1:] != labels[:, :-1]
        return places.real & (labels != BLANK) & changed

    def read(self, logits: Logits, places: Layout, fusion: Fusion[NgramModel] | None = None) -> Tokens:
        if fusion is None:
            return super().read(logits, places)
        return Tokens.padded([beam_search(row, fusion, logits.pieces) for row in logits.rows(places)])

    def to_tokens(
        self, values: Float[np.ndarray, "p k"], logits: Callable[[], Logits], places: Layout, target: Tokens
    ) -> Float[np.ndarray, "t k"]:
        weight = self._lattice(logits(), places, target).posterior()[0].astype(values.dtype)
        return (weight / np.maximum(weight.sum(0), 1e-12)).T @ values

    def _lattice(self, logits: Logits, places: Layout, target: Tokens, best: bool = False) -> Lattice:
        blank = np.full((len(target.ids), 1), BLANK)
        labels = np.concatenate((target.ids, blank), 1)[:, None]
        return Lattice.walk(logits.log_probs(labels.repeat(logits.values.shape[1], 1)), places, target, best)
