"""The latent model and its fields as graphs: distributions, logits and directions for the candidates of one sentence.

The counterpart of `models/latent.py` and `fields/`, in numpy. It does not search.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from onnxruntime import OrtValue

from latentmt.engines.backend import CheckCancelled
from latentmt.engines.onnx.graphs import Graphs
from latentmt.engines.onnx.outputs import CTCOutput, Logits, Output, TokenOutput
from latentmt.engines.onnx.shortlist import Shortlist
from latentmt.engines.onnx.tokens import Layout, Tokens
from latentmt.errors import UserError
from latentmt.ngrams.fusion import Fusion
from latentmt.ngrams.model import NgramModel

Latents = Float[np.ndarray, "n p D"]
Direction = Callable[[Latents], Latents]
"""z ↦ the direction to move it in; zero at padding."""


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
    """Logits of target − source length; none if it is not predicted."""
    prior: OrtValue
    """Keys and values for the prior."""
    decoder: OrtValue
    """Keys and values for the decoder."""
    shortlist: Int[np.ndarray, " k"] | None = None
    """The pieces that targets are read from, in ascending order. None: all."""


class OnnxLatent:
    """A latent model and its learned fields."""

    def __init__(
        self,
        graphs: Graphs,
        fields: Mapping[str, Graphs],
        shortlist: Shortlist | None,
        latent_dim: int,
        vocab_size: int,
    ) -> None:
        graphs.require("encode", "prior", "decode", "posterior_memory", "posterior", "attention")
        graphs.require(*(["decode_shortlist"] if shortlist else []))
        for field in fields.values():
            field.require("memory", "field")
        self._graphs, self._fields, self._shortlist = graphs, fields, shortlist
        upsampling = graphs.index.upsampling
        self.output: Output = CTCOutput(upsampling) if upsampling else TokenOutput()
        self.latent_dim, self._vocab_size = latent_dim, vocab_size

    def checked(self, check: CheckCancelled) -> OnnxLatent:
        """The same model, with a check before each run of a graph."""
        model = copy.copy(self)
        model._graphs = self._graphs.checked(check)
        model._fields = {kind: graphs.checked(check) for kind, graphs in self._fields.items()}
        return model

    def encode(self, ids: list[int]) -> Source:
        by_token, classes = (1, len(ids), None), self.output.length_classes
        shapes = by_token, *([(classes,)] if classes else []), by_token, by_token
        inputs = {"ids": np.array([ids], dtype=np.int64)}
        states, *lengths, prior, decoder = self._graphs.run("encode", inputs, *shapes)
        shortlist = self._shortlist.pieces(ids) if self._shortlist else None
        return Source(
            ids, states, lengths[0].numpy() if lengths else np.zeros(0, np.float32), prior, decoder, shortlist
        )

    def predict_lengths(self, source: Source, count: int, bias: float) -> Int[np.ndarray, " {count}"]:
        return self.output.predict_lengths(len(source.ids), source.lengths, count, bias)

    def prior(self, layout: Layout, source: Source) -> Gaussian:
        inputs = {"bias": layout.bias, "memory": source.prior}
        return Gaussian(*self._graphs.arrays("prior", inputs, *2 * [self._latents(layout)]))

    def posterior(self, target: Tokens, places: Layout, memory: OrtValue) -> Gaussian:
        """q(z|y,x). Memory: `posterior_memory(source)`."""
        parts = [
            self._graphs.arrays(
                "posterior",
                {**self.output.posterior_inputs(target.select(rows), part), "memory": memory},
                *2 * [self._latents(part)],
            )
            for rows, part in places.parts()
        ]
        mean, std = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return Gaussian(mean, std)

    def posterior_memory(self, source: Source) -> OrtValue:
        return self._graphs.run("posterior_memory", {"states": source.states}, (1, len(source.ids), None))[0]

    def read(self, z: Latents, places: Layout, source: Source, fusion: Fusion[NgramModel] | None = None) -> Tokens:
        """The likeliest y given z and x, of pieces of the shortlist, or the best with a language model."""
        parts = [
            self.output.read(self.shortlisted(z[rows], part, source), part, fusion) for rows, part in places.parts()
        ]
        return parts[0] if len(parts) == 1 else Tokens.padded([row for part in parts for row in part.rows])

    def logits(self, z: Latents, places: Layout, source: Source) -> Logits:
        """The logits of all pieces at each place, which scores need."""
        inputs = {"z": z, "memory": source.decoder, "bias": places.bias}
        (values,) = self._graphs.arrays("decode", inputs, (*places.real.shape, self._vocab_size))
        return Logits(values)

    def shortlisted(self, z: Latents, places: Layout, source: Source) -> Logits:
        """The logits of the shortlist's pieces; of all without one."""
        if (pieces := source.shortlist) is None:
            return self.logits(z, places, source)
        inputs = {"z": z, "memory": source.decoder, "bias": places.bias, "pieces": pieces}
        (values,) = self._graphs.arrays("decode_shortlist", inputs, (*places.real.shape, len(pieces)))
        return Logits(values, pieces)

    def log_prob(self, z: Latents, places: Layout, target: Tokens, source: Source) -> Float[np.ndarray, "n t"]:
        """log p(y|z,x), token by token; 0 at padding."""
        parts = [
            self.output.log_prob(self.logits(z[rows], part, source), part, target.select(rows))
            for rows, part in places.parts()
        ]
        return np.concatenate(parts)

    def attention(self, z: Latents, places: Layout, target: Tokens, source: Source) -> Float[np.ndarray, "t s"]:
        """The decoder's cross-attention of one target, averaged over layers and heads, and over a token's places."""
        inputs = {"z": z, "memory": source.decoder}
        (weights,) = self._graphs.arrays("attention", inputs, (z.shape[1], len(source.ids)))
        return self.output.to_tokens(weights, lambda: self.logits(z, places, source), places, target)

    def field(self, method: str, source: Source, layout: Layout, fusion: Fusion[NgramModel] | None = None) -> Direction:
        """The field of a method. Keys and values are projected once for all steps. Fusion: as in `read`."""
        if method == "delta":
            memory = self.posterior_memory(source)

            def delta(z: Latents) -> Latents:
                mean = self.posterior(self.read(z, layout, source, fusion), layout, memory).mean
                return np.where(layout.real[..., None], mean - z, np.float32(0))

            return delta
        if method not in self._fields:
            raise UserError(f"method {method}: there is no graph of it")
        graphs = self._fields[method]
        projected = graphs.run("memory", {"states": source.states}, (1, len(source.ids), None))[0]

        def learned(z: Latents) -> Latents:
            directions = [
                graphs.arrays("field", {"z": z[rows], "memory": projected, "bias": part.bias}, self._latents(part))[0]
                for rows, part in layout.parts()
            ]
            return np.where(layout.real[..., None], np.concatenate(directions), np.float32(0))

        return learned

    def _latents(self, layout: Layout) -> tuple[int, ...]:
        """The shape of latents."""
        return (*layout.real.shape, self.latent_dim)
