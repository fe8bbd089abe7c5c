"""Search with the latent model: predict lengths, start latents, refine them, decode tokens, keep the best candidate.

Plain decoding is a search with one candidate. Each candidate has its own length and mask. The search works on ids. With
a given target width it never synchronises with the device: a length that does not fit is truncated and flagged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentmt.data.tokens import Layout, Tokens
from latentmt.fields.base import Context, Field, FieldType
from latentmt.fields.learned import FieldNetwork
from latentmt.fields.refine import OnStep, Stop, refine
from latentmt.fields.registry import field_types, preferred_field
from latentmt.infer.postprocess import PieceTable, readable
from latentmt.infer.rerank import by_decoder, by_elbo, by_marginal, by_teacher
from latentmt.models.latent import LatentModel
from latentmt.models.priors import prior_and_samples
from latentmt.models.teacher import Teacher
from latentmt.nn.attention import EncoderOutput, Memory
from latentmt.options import MARGINAL_SAMPLES, DecodingOptions


@dataclass(frozen=True)
class Networks:
    """The networks of a model: a latent model with its fields, a teacher, or both."""

    latent: LatentModel | None
    fields: Mapping[str, FieldNetwork]
    teacher: Teacher | None
    pieces: PieceTable
    """Properties of the vocabulary's pieces."""
    types: Mapping[str, FieldType] = field(default_factory=field_types)
    """The registered fields. Looked up once, outside of compiled code."""

    @property
    def methods(self) -> list[str]:
        """The methods that these networks allow."""
        fields = [name for name, field_type in self.types.items() if name in self.fields or not field_type.learned]
        return [*(["prior", *fields] if self.latent else []), *(["teacher"] if self.teacher else [])]

    @property
    def default_method(self) -> str:
        """The first learned field; without one, the first other field; without a latent model, the teacher."""
        return preferred_field(self.methods) or "teacher"

    def compiles(self, options: DecodingOptions) -> bool:
        """Whether a search can be compiled: not an adaptive one, where the host decides when to stop."""
        return not options.adaptive and (not options.refines or self.types[options.method].compiles)

    def bind_field(self, method: str, source: EncoderOutput, layout: Layout, decoder: Memory | None = None) -> Field:
        """The field of a method. Source: the latent model's `encode(…)`; decoder: see `Context`."""
        assert self.latent is not None
        context = Context(self.latent, source, layout, decoder)
        return self.types[method].bind(context, self.fields.get(method))


@dataclass(frozen=True)
class SearchOutput:
    """Every candidate of every sentence. Those of one sentence are adjacent rows, likeliest length first."""

    decoded: Tokens
    """As decoded."""
    readable: Tokens
    """Without special pieces and repetitions, EOS last."""
    score: Float[Tensor, "b n"]
    """The score that ranks the candidates."""
    best: Int[Tensor, " b"]
    """The candidate kept for each sentence: one that is not blank, if there is one."""
    truncated: Bool[Tensor, " b"]
    """Where a predicted length did not fit into the width."""


@torch.no_grad()
def search(
    networks: Networks,
    source: Tokens,
    options: DecodingOptions,
    noise: Float[Tensor, "samples positions D"],
    width: int | None = None,
    on_step: OnStep | None = None,
) -> SearchOutput:
    """Translate rows of one sentence each (the paper's Algorithm 1, and its search over lengths and latents).

    `noise` is standard normal and the same for every sentence; its first sample is not used, since the first latent
    is the prior's mode. Without a `width` the longest predicted length is taken, which synchronises with the device.
    `on_step` is also called with the latents before the first step.
    """
    model = networks.latent
    assert model is not None
    encoded = model.encode(source)
    predicted = model.output.predict_lengths(encoded, options.lengths, options.length_bias)
    width = int(predicted.max()) if width is None else width
    lengths = predicted.clamp(max=width).flatten()
    prior = model.prior(Layout.from_lengths(lengths, width), model.prior.project_kv(encoded))
    layout = Layout.from_lengths(lengths.repeat_interleave(options.samples), width)
    decoder = model.decoder_stack.project_kv(encoded)
    z = prior_and_samples(prior, noise[: options.samples, :width])
    if on_step:
        on_step(0, z)
    if options.refines:
        bound = networks.bind_field(options.method, encoded, layout, decoder)
        z = refine(z, bound, options.steps, stop=Stop(layout) if options.adaptive else None, on_step=on_step)
    decoded = model.read(z, layout, decoder)
    read = readable(decoded, options.remove_repeats, networks.pieces, source)
    score = _score(networks, options, source, encoded, decoder, z, decoded, read, noise)
    score = score.view(len(source.ids), options.candidates)
    blank = networks.pieces.is_blank(read).view_as(score)
    best = score.masked_fill(blank, -torch.inf).argmax(1)  # if all are blank, the first one
    return SearchOutput(decoded, read, score, best, (predicted > width).any(1))


def _score(
    networks: Networks,
    options: DecodingOptions,
    source: Tokens,
    encoded: EncoderOutput,
    decoder: Memory,
    z: Float[Tensor, "r w D"],
    decoded: Tokens,
    read: Tokens,
    noise: Float[Tensor, "samples positions D"],
) -> Float[Tensor, " r"]:
    model = networks.latent
    assert model is not None
    match options.rerank:
        case "teacher":
            assert networks.teacher is not None
            return by_teacher(networks.teacher, source, read)
        case "decoder":
            return by_decoder(model, z, decoded, decoder)
        case "elbo":
            return by_elbo(model, encoded, decoded)
        case "marginal":
            return by_marginal(model, encoded, decoded, noise[:MARGINAL_SAMPLES])
    return z.new_zeros(len(z))
