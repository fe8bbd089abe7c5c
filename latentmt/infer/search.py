"""Search with the latent model: predict lengths, start latents, refine them, decode tokens, keep the best candidate.

Plain decoding is a search with one candidate. Each candidate has its own length and mask. The search works on ids. With
a given target width it never synchronises with the device: a length that does not fit is truncated and flagged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from latentmt.ngrams.fusion import Fusion, fusion_of
from latentmt.nn.attention import EncoderOutput, Memory
from latentmt.nn.ngrams import NgramTables
from latentmt.options import MARGINAL_SAMPLES, DecodingOptions


@dataclass(frozen=True)
class Networks:
    """The networks of a model: a latent model with its fields, a teacher, or both."""

    latent: LatentModel | None
    fields: Mapping[str, FieldNetwork]
    teacher: Teacher | None
    pieces: PieceTable
    """Properties of the vocabulary's pieces."""
    language_model: NgramTables | None = None
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
        """Whether a search can be compiled.

        Not an adaptive one, where the host decides when to stop, nor one that takes a loop over all places, for its
        likelihoods or with a language model: it would be compiled anew for each number of places.
        """
        reads = bool(options.lm_weight)
        judges = options.rerank in ("decoder", "elbo", "marginal")
        loops = (reads or judges) and self.latent is not None and self.latent.output.loops
        return not (options.adaptive or loops) and (not options.refines or self.types[options.method].compiles)

    def bind_field(
        self,
        method: str,
        source: EncoderOutput,
        layout: Layout,
        decoder: Memory | None = None,
        fusion: Fusion[NgramTables] | None = None,
    ) -> Field:
        """The field of a method. Source: the latent model's `encode(…)`; decoder and fusion: see `Context`."""
        assert self.latent is not None
        context = Context(self.latent, source, layout, decoder, fusion)
        return self.types[method].bind(context, self.fields.get(method))


@dataclass(frozen=True)
class SearchOutput:
    """Every candidate of every sentence. Those of one sentence are adjacent rows, likeliest length first."""

    places: Layout
    """Those of the latents."""
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


@dataclass(frozen=True)
class Slices:
    """How a search is cut into parts, so that it can be interrupted."""

    tokens: int
    """Target tokens of a part, padding included; at least one candidate of each sentence."""
    check: Callable[[], None]
    """Called before each part and after each refinement step. An exception from it cancels the search."""


@torch.no_grad()
def search(
    networks: Networks,
    source: Tokens,
    options: DecodingOptions,
    noise: Float[Tensor, "samples positions D"],
    width: int | None = None,
    on_step: OnStep | None = None,
    slices: Slices | None = None,
) -> SearchOutput:
    """Translate rows of one sentence each (the paper's Algorithm 1, and its search over lengths and latents).

    `noise` is standard normal and the same for every sentence; its first sample is not used, since the first latent
    is the prior's mode. Without a `width` the longest predicted length is taken, which synchronises with the device.
    `on_step` is also called with the latents before the first step. With `slices`, candidates are computed some at a
    time, and `on_step` sees them so.
    """
    model = networks.latent
    assert model is not None
    encoded = model.encode(source)
    predicted = model.output.predict_lengths(encoded, options.lengths, options.length_bias)
    width = int(predicted.max()) if width is None else width
    lengths = predicted.clamp(max=width).flatten()
    rows, fusion = _Rows(len(source.ids), width, slices), fusion_of(networks.language_model, options)
    prior_memory, decoder = model.prior.project_kv(encoded), model.decoder_stack.project_kv(encoded)

    def start(lengths: Int[Tensor, " n"]) -> tuple[Tensor, ...]:
        prior = model.prior(Layout.from_lengths(lengths, width), prior_memory)
        return (prior_and_samples(prior, noise[: options.samples, :width]),)

    def finish(z: Float[Tensor, "n w D"], lengths: Int[Tensor, " n"]) -> tuple[Tensor, ...]:
        places = Layout.from_lengths(lengths, width)
        if options.refines:
            bound = networks.bind_field(options.method, encoded, places, decoder, fusion)
            stop = Stop(places) if options.adaptive else None
            z = refine(z, bound, options.steps, stop=stop, on_step=rows.checked(on_step))
        decoded = model.read(z, places, decoder, fusion)
        read = readable(decoded, options.remove_repeats, networks.pieces, source)
        score = _score(networks, options, source, encoded, decoder, z, places, decoded, read, noise, slices)
        return decoded.ids, decoded.layout.segment, read.ids, read.layout.segment, score

    (z,) = rows.apply(start, lengths)
    if on_step:
        on_step(0, z)
    repeated = lengths.repeat_interleave(options.samples)
    ids, segment, read_ids, read_segment, score = rows.apply(finish, z, repeated)
    decoded, read = _tokens(ids, segment), _tokens(read_ids, read_segment)
    score = score.view(len(source.ids), options.candidates)
    blank = networks.pieces.is_blank(read).view_as(score)
    best = score.masked_fill(blank, -torch.inf).argmax(1)  # if all are blank, the first one
    places = Layout.from_lengths(repeated, width)
    return SearchOutput(places, decoded, read, score, best, (predicted > width).any(1))


@dataclass(frozen=True)
class _Rows:
    """Rows of targets, as many for each source, in the order of the sources."""

    sources: int
    width: int
    slices: Slices | None

    def apply(self, work: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> tuple[Tensor, ...]:
        """Apply some work to all rows; with slices, to some of each source at a time."""
        if self.slices is None:
            return work(*tensors)
        size = max(1, self.slices.tokens // (self.sources * self.width))
        by_source = [tensor.unflatten(0, (self.sources, -1)).split(size, 1) for tensor in tensors]
        results = []
        for parts in zip(*by_source, strict=True):
            self.slices.check()
            results.append(
                [result.unflatten(0, (self.sources, -1)) for result in work(*(p.flatten(0, 1) for p in parts))]
            )
        return tuple(torch.cat(parts, 1).flatten(0, 1) for parts in zip(*results, strict=True))

    def checked(self, on_step: OnStep | None) -> OnStep | None:
        """The same, with a check after each step."""
        if self.slices is None:
            return on_step
        check = self.slices.check

        def step(number: int, z: Float[Tensor, "n w D"]) -> None:
            if on_step:
                on_step(number, z)
            check()

        return step


def _tokens(ids: Int[Tensor, "r t"], segment: Int[Tensor, "r t"]) -> Tokens:
    return Tokens(ids, Layout(segment, torch.arange(ids.shape[1], device=ids.device).expand_as(ids)))


def _score(
    networks: Networks,
    options: DecodingOptions,
    source: Tokens,
    encoded: EncoderOutput,
    decoder: Memory,
    z: Float[Tensor, "r w D"],
    places: Layout,
    decoded: Tokens,
    read: Tokens,
    noise: Float[Tensor, "samples positions D"],
    slices: Slices | None,
) -> Float[Tensor, " r"]:
    model = networks.latent
    assert model is not None
    match options.rerank:
        case "teacher":
            assert networks.teacher is not None
            return by_teacher(networks.teacher, source, read)
        case "decoder":
            return by_decoder(model, z, places, decoded, decoder)
        case "elbo":
            return by_elbo(model, encoded, places, decoded)
        case "marginal":
            if slices is None:
                return by_marginal(model, encoded, places, decoded, noise[:MARGINAL_SAMPLES])
            chunk = max(1, slices.tokens // places.segment.shape[1])
            return by_marginal(model, encoded, places, decoded, noise[:MARGINAL_SAMPLES], chunk, slices.check)
    return z.new_zeros(len(z))
