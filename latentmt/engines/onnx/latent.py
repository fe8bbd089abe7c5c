"""The latent model and its fields as graphs: distributions, logits and directions for the candidates of one sentence.

The counterpart of `models/latent.py` and `fields/`, in numpy. It does not search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from onnxruntime import OrtValue

from latentmt.data.tokenizer import PAD
from latentmt.engines.onnx.graphs import Graphs
from latentmt.errors import UserError
from latentmt.options import LENGTH_LIMIT, MAX_POSITIONS

FORBIDDEN = np.float32(-1e4)
"""Added to the score of a masked pair (see `nn/attention.py`)."""
MIN_LENGTH = 2
"""The shortest target: a piece and EOS."""

Latents = Float[np.ndarray, "n t D"]
Ids = Int[np.ndarray, "n t"]
Direction = Callable[[Latents], Latents]
"""z ↦ the direction to move it in; zero at padding."""


@dataclass(frozen=True)
class Layout:
    """Candidates of different lengths, as rows of equal width."""

    lengths: Int[np.ndarray, " n"]
    real: Bool[np.ndarray, "n t"]
    """The mask: True for tokens, False for padding."""
    bias: Float[np.ndarray, "n 1 t t"]
    """Keeps self-attention from padding."""

    @staticmethod
    def from_lengths(lengths: Int[np.ndarray, " n"]) -> Layout:
        width = int(lengths.max())
        real = np.arange(width) < lengths[:, None]
        bias = np.where(real, np.float32(0), FORBIDDEN)[:, None, None, :]
        return Layout(lengths, real, np.ascontiguousarray(np.broadcast_to(bias, (len(lengths), 1, width, width))))

    def repeat(self, times: int) -> Layout:
        """Every row repeated, in adjacent rows."""
        return Layout.from_lengths(self.lengths.repeat(times))


@dataclass(frozen=True)
class Gaussian:
    """Independent normal distributions, one per entry."""

    mean: Latents
    std: Latents

    def repeat(self, times: int) -> Gaussian:
        return Gaussian(self.mean.repeat(times, 0), self.std.repeat(times, 0))

    def log_prob(self, value: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """The log-density of each entry, less a constant."""
        return -0.5 * np.square((value - self.mean) / self.std) - np.log(self.std)

    def kl(self, other: Gaussian) -> Latents:
        """KL(self ‖ other) of each entry."""
        ratio, shift = self.std / other.std, (self.mean - other.mean) / other.std
        return 0.5 * (np.square(ratio) + np.square(shift) - 1) - np.log(ratio)


@dataclass(frozen=True)
class Source:
    """A sentence, encoded."""

    ids: list[int]
    states: OrtValue
    lengths: Float[np.ndarray, " classes"]
    """Logits of target − source length."""
    prior: OrtValue
    """Keys and values for the prior."""
    decoder: OrtValue
    """Keys and values for the decoder."""


class OnnxLatent:
    """A latent model and its learned fields."""

    def __init__(self, graphs: Graphs, fields: Mapping[str, Graphs], latent_dim: int, vocab_size: int) -> None:
        graphs.require("encode", "prior", "decode", "posterior_memory", "posterior", "attention")
        for field in fields.values():
            field.require("memory", "field")
        self._graphs, self._fields = graphs, fields
        self.latent_dim, self._vocab_size = latent_dim, vocab_size

    def encode(self, ids: list[int]) -> Source:
        by_token = (1, len(ids), None)
        inputs = {"ids": np.array([ids], dtype=np.int64)}
        shapes = by_token, (2 * LENGTH_LIMIT + 1,), by_token, by_token
        states, lengths, prior, decoder = self._graphs.run("encode", inputs, *shapes)
        return Source(ids, states, lengths.numpy(), prior, decoder)

    def predict_lengths(self, source: Source, count: int, bias: float) -> Int[np.ndarray, " {count}"]:
        """The likeliest lengths: see `TokenOutput.predict_lengths`."""
        size = len(source.ids)
        lengths = size + np.arange(-LENGTH_LIMIT, LENGTH_LIMIT + 1) + round(bias * size)
        possible = (lengths >= MIN_LENGTH) & (lengths <= MAX_POSITIONS)
        best = np.argsort(-np.where(possible, source.lengths, -np.inf), kind="stable")[:count]
        return np.clip(lengths[best], MIN_LENGTH, MAX_POSITIONS)

    def prior(self, layout: Layout, source: Source) -> Gaussian:
        inputs = {"bias": layout.bias, "memory": source.prior}
        return Gaussian(*self._graphs.arrays("prior", inputs, *2 * [self._latents(layout)]))

    def posterior(self, ids: Ids, layout: Layout, memory: OrtValue) -> Gaussian:
        """q(z|y,x). Memory: `posterior_memory(source)`."""
        inputs = {"ids": ids, "bias": layout.bias, "memory": memory}
        return Gaussian(*self._graphs.arrays("posterior", inputs, *2 * [self._latents(layout)]))

    def posterior_memory(self, source: Source) -> OrtValue:
        return self._graphs.run("posterior_memory", {"states": source.states}, (1, len(source.ids), None))[0]

    def read(self, z: Latents, layout: Layout, source: Source) -> Ids:
        """argmax p(y|z,x)."""
        return np.where(layout.real, self.logits(z, layout, source).argmax(-1), PAD)

    def logits(self, z: Latents, layout: Layout, source: Source) -> Float[np.ndarray, "n t v"]:
        """The logits of all pieces."""
        inputs = {"z": z, "memory": source.decoder, "bias": layout.bias}
        return self._graphs.arrays("decode", inputs, (*layout.real.shape, self._vocab_size))[0]

    def log_prob(self, z: Latents, ids: Ids, layout: Layout, source: Source) -> Float[np.ndarray, "n t"]:
        """log p(y|z,x) of each token; 0 at padding."""
        logits = self.logits(z, layout, source)
        highest = logits.max(-1, keepdims=True)
        normaliser = highest[..., 0] + np.log(np.exp(logits - highest).sum(-1))
        return np.where(layout.real, np.take_along_axis(logits, ids[..., None], 2)[..., 0] - normaliser, 0.0)

    def attention(self, z: Latents, source: Source) -> Float[np.ndarray, "t s"]:
        """The decoder's cross-attention of one candidate, averaged over layers and heads."""
        inputs = {"z": z, "memory": source.decoder}
        return self._graphs.arrays("attention", inputs, (z.shape[1], len(source.ids)))[0]

    def field(self, method: str, source: Source, layout: Layout) -> Direction:
        """The field of a method. Keys and values are projected once for all steps."""
        if method == "delta":
            memory = self.posterior_memory(source)

            def delta(z: Latents) -> Latents:
                mean = self.posterior(self.read(z, layout, source), layout, memory).mean
                return np.where(layout.real[..., None], mean - z, np.float32(0))

            return delta
        if method not in self._fields:
            raise UserError(f"method {method}: there is no graph of it")
        graphs = self._fields[method]
        projected = graphs.run("memory", {"states": source.states}, (1, len(source.ids), None))[0]

        def learned(z: Latents) -> Latents:
            inputs = {"z": z, "memory": projected, "bias": layout.bias}
            (direction,) = graphs.arrays("field", inputs, self._latents(layout))
            return np.where(layout.real[..., None], direction, np.float32(0))

        return learned

    def _latents(self, layout: Layout) -> tuple[int, ...]:
        """The shape of latents."""
        return (*layout.real.shape, self.latent_dim)
