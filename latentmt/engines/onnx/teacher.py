"""The teacher as graphs: the scores of targets, and the next tokens of hypotheses, for one sentence."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from onnxruntime import OrtValue

from latentmt.data.tokenizer import BOS, EOS, PAD
from latentmt.engines.backend import CheckCancelled
from latentmt.engines.onnx.graphs import Graphs, Input
from latentmt.engines.onnx.shortlist import Shortlist
from latentmt.errors import UserError


@dataclass(frozen=True)
class _Vocabulary:
    """The pieces that are predicted: all, or those of a shortlist."""

    size: int
    pieces: Int[np.ndarray, " k"] | None = None
    """The shortlist, in ascending order."""
    rows: OrtValue | None = None
    """Their rows of the output matrix."""

    def graph(self, name: str) -> str:
        return name if self.pieces is None else f"{name}_shortlist"

    @property
    def inputs(self) -> dict[str, Input]:
        return {} if self.rows is None else {"rows": self.rows}

    def ids(self, places: Int[np.ndarray, "*b"]) -> Int[np.ndarray, "*b"]:
        return places if self.pieces is None else self.pieces[places]

    def places(self, ids: Int[np.ndarray, "*b"]) -> Int[np.ndarray, "*b"]:
        return ids if self.pieces is None else np.searchsorted(self.pieces, ids)


class OnnxTeacher:
    """A teacher. `layers` and `heads` are those of its decoder, `width` that of its states."""

    def __init__(
        self, graphs: Graphs, shortlist: Shortlist | None, layers: int, heads: int, width: int, vocab_size: int
    ) -> None:
        graphs.require("encode", "attention")
        graphs.require(*(("rows", "score_shortlist", "step_shortlist") if shortlist else ("score", "step")))
        self.graphs, self._shortlist, self._vocab_size = graphs, shortlist, vocab_size
        self.caches = [f"{side}_{layer}" for layer in range(layers) for side in ("key", "value")]
        """The names of the cached tensors."""
        self.empty_cache = np.zeros((1, heads, 0, width // heads), dtype=np.float32)

    def checked(self, check: CheckCancelled) -> OnnxTeacher:
        """The same teacher, with a check before each run of a graph."""
        teacher = copy.copy(self)
        teacher.graphs = self.graphs.checked(check)
        return teacher

    def encode(self, ids: Sequence[int]) -> OrtValue:
        """The keys and values of a source."""
        return self.graphs.run("encode", {"ids": np.array([ids], dtype=np.int64)}, (1, len(ids), None))[0]

    def log_probs(self, source: Sequence[int], targets: Sequence[Sequence[int]]) -> Float[np.ndarray, "n t"]:
        """log p of each token of targets, EOS added; 0 at padding. A shortlist is extended by their pieces."""
        width = max(map(len, targets)) + 1
        labels = np.full((len(targets), width), PAD, dtype=np.int64)
        for row, target in zip(labels, targets, strict=True):
            row[: len(target)] = target
            row[len(target)] = EOS
        previous = np.concatenate((np.full((len(targets), 1), BOS), labels[:, :-1]), 1)
        vocabulary = self.vocabulary(source, labels)
        inputs = {"previous": previous, "memory": self.encode(source), "labels": vocabulary.places(labels)[..., None]}
        (scores,) = self.graphs.arrays(vocabulary.graph("score"), inputs | vocabulary.inputs, (*labels.shape, 1))
        real = np.arange(width) <= np.array([[len(target)] for target in targets])
        return np.where(real, scores[..., 0], 0.0)

    def score(self, source: Sequence[int], targets: Sequence[Sequence[int]]) -> Float[np.ndarray, " n"]:
        """log p(y|x) of targets divided by their length, EOS included."""
        return self.log_probs(source, targets).sum(1) / np.array([len(target) + 1 for target in targets])

    def attention(self, source: Sequence[int], target: Sequence[int]) -> Float[np.ndarray, "t s"]:
        """The decoder's cross-attention, averaged over layers and heads."""
        previous = np.array([[BOS, *target]], dtype=np.int64)
        inputs = {"previous": previous, "memory": self.encode(source)}
        return self.graphs.arrays("attention", inputs, (previous.shape[1], len(source)))[0]

    def vocabulary(self, source: Sequence[int], needed: Int[np.ndarray, "*b"] | None = None) -> _Vocabulary:
        """The shortlist of a source, with the ids that are needed; all pieces without a shortlist."""
        if self._shortlist is None:
            return _Vocabulary(self._vocab_size)
        pieces = self._shortlist.pieces(source, needed)
        (rows,) = self.graphs.run("rows", {"pieces": pieces}, (len(pieces), None))
        return _Vocabulary(len(pieces), pieces, rows)


class Decoder:
    """A teacher that decodes one sentence, token by token, with several hypotheses."""

    def __init__(self, teacher: OnnxTeacher, source: Sequence[int]) -> None:
        self._teacher, self._vocabulary = teacher, teacher.vocabulary(source)
        self._memory = teacher.encode(source)
        self._caches: list[Input] = [teacher.empty_cache for _ in teacher.caches]
        self._position = 0

    def next_tokens(
        self, previous: Sequence[int], parents: Sequence[int], count: int
    ) -> tuple[Float[np.ndarray, "k n"], Int[np.ndarray, "k n"]]:
        """Log-probabilities and ids of the `count` likeliest next tokens of each hypothesis, the likeliest first.

        `previous`: the last token of each hypothesis. `parents`: which hypothesis of the previous call it continues.
        """
        count = min(count, self._vocabulary.size)
        inputs = {
            "previous": np.array(previous, dtype=np.int64)[:, None],
            "parents": np.array(parents, dtype=np.int64),
            "position": np.array([self._position]),
            "count": np.array([count]),
            "memory": self._memory,
        }
        caches = {f"past_{name}": cache for name, cache in zip(self._teacher.caches, self._caches, strict=True)}
        name, rows = self._vocabulary.graph("step"), len(previous)
        self._position += 1
        grown = rows, self._teacher.empty_cache.shape[1], self._position, self._teacher.empty_cache.shape[3]
        shapes = 2 * [(rows, 1, count)] + [grown] * len(caches)
        log_probs, found, *self._caches = self._teacher.graphs.run(
            name, inputs | caches | self._vocabulary.inputs, *shapes
        )
        places = found.numpy()[:, 0].astype(np.int64)
        if not ((places >= 0) & (places < self._vocabulary.size)).all():
            raise UserError(f"{self._teacher.graphs.path(name)}: returns tokens that there are not")
        return log_probs.numpy()[:, 0], self._vocabulary.ids(places)
