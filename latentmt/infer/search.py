"""From a source to its target: choose lengths, start latents, refine them, read off tokens, keep the best candidate.

Plain decoding is a search with one candidate. Each candidate has its own length and is masked by it, so a longer one
than the likeliest survives whole. It knows nothing of text; and given the width of the targets, it never waits for
the device: a length that does not fit is cut and flagged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentmt.data.tokens import Layout, Tokens
from latentmt.infer.postprocess import PieceTable, readable
from latentmt.infer.refine import Field, OnStep, Stop, decode_tokens, delta_field, net_field, refine
from latentmt.infer.rerank import MARGINAL_SAMPLES, by_decoder, by_elbo, by_marginal, by_teacher
from latentmt.models.fields import EnergyNet, ScoreNet
from latentmt.models.latent import LENGTH_LIMIT, LatentModel
from latentmt.models.teacher import Teacher
from latentmt.nn.attention import EncoderOutput, Memory, segment_lengths
from latentmt.nn.gaussian import Gaussian
from latentmt.nn.positions import MAX_POSITIONS
from latentmt.options import DecodingOptions

SHORTEST = 2
"""A target is a piece and EOS, at least."""


@dataclass(frozen=True)
class Networks:
    """What translates: a latent model with its fields, a teacher, or both."""

    latent: LatentModel | None
    fields: Mapping[str, ScoreNet | EnergyNet]
    teacher: Teacher | None
    pieces: PieceTable
    """What is known of the vocabulary."""


@dataclass(frozen=True)
class Candidates:
    """Every candidate of every sentence; those of one sentence lie beside each other, likeliest length first."""

    decoded: Tokens
    """As decoded."""
    readable: Tokens
    """As read: without special pieces and repetitions, EOS last."""
    score: Float[Tensor, "b n"]
    """What they were ranked by."""
    best: Int[Tensor, " b"]
    """Which candidate of each sentence is kept: one that says something, if there is one."""
    cut: Bool[Tensor, " b"]
    """Where a wanted length did not fit into the width."""


def predict_lengths(
    model: LatentModel, source: EncoderOutput, count: int = 1, bias: float = 0.0
) -> Int[Tensor, "r {count}"]:
    """The likeliest target lengths of each row's one sentence, likeliest first, from the shortest to what has a place.

    `bias` is added to each, as a share of the source's length. They differ, as far as there are so many.
    """
    size = segment_lengths(source.segment, 1)
    difference = torch.arange(-LENGTH_LIMIT, LENGTH_LIMIT + 1, device=size.device)
    lengths = size + difference + (bias * size.double()).round().long()
    possible = (lengths >= SHORTEST) & (lengths <= MAX_POSITIONS)
    best = model.length(source, 1)[:, 0].masked_fill(~possible, -torch.inf).topk(count).indices
    return lengths.gather(1, best).clamp(SHORTEST, MAX_POSITIONS)


@torch.no_grad()
def search(
    networks: Networks,
    source: Tokens,
    options: DecodingOptions,
    noise: Float[Tensor, "samples places D"],
    width: int | None = None,
    on_step: OnStep | None = None,
) -> Candidates:
    """Translate rows of one sentence each (the paper's Algorithm 1, and its search over lengths and latents).

    `noise` is standard normal and the same for every sentence; its first sample is not used, since the first latent
    is the prior's mean. Without a `width` the longest wanted length is taken, which waits for the device. `on_step`
    is shown the latents before the first step, too.
    """
    model = networks.latent
    assert model is not None
    encoded = model.encode(source)
    wanted = predict_lengths(model, encoded, options.lengths, options.length_bias)
    width = int(wanted.max()) if width is None else width
    lengths = wanted.clamp(max=width).flatten()
    shape = Layout.from_lengths(lengths, width)
    prior = model.prior(shape, model.prior_stack.project_kv(encoded))
    layout = Layout.from_lengths(lengths.repeat_interleave(options.samples), width)
    decoder = model.decoder_stack.project_kv(encoded)
    z = _starts(prior, options.samples, noise[:, :width])
    if on_step:
        on_step(0, z)
    if options.refines:
        field = field_of(networks, options, encoded, layout, decoder)
        z = refine(z, field, options.steps, stop=Stop(layout) if options.adaptive else None, on_step=on_step)
    decoded = decode_tokens(model, z, layout, decoder)
    read = readable(decoded, options.remove_repeats, networks.pieces, source)
    score = _score(networks, options, source, encoded, decoder, z, decoded, read, noise)
    score = score.view(len(source.ids), options.candidates)
    blank = networks.pieces.is_blank(read).view_as(score)
    best = score.masked_fill(blank, -torch.inf).argmax(1)  # where all are blank, the first one
    return Candidates(decoded, read, score, best, (wanted > width).any(1))


def _starts(prior: Gaussian, samples: int, noise: Float[Tensor, "s w D"]) -> Float[Tensor, "r w D"]:
    """The prior's mean and samples of it, beside each other, for each of its rows."""
    mean, std = (part.repeat_interleave(samples, 0) for part in (prior.mean, prior.std))
    if samples == 1:
        return mean
    used = torch.cat((torch.zeros_like(noise[:1]), noise[1:samples])).to(mean)
    return mean + std * used.repeat(len(prior.mean), 1, 1)


def field_of(
    networks: Networks, options: DecodingOptions, source: EncoderOutput, layout: Layout, decoder: Memory | None = None
) -> Field:
    """The field that refines like this. Source: the latent model's `encode(…)`."""
    if options.method == "delta":
        assert networks.latent is not None
        return delta_field(networks.latent, source, layout, decoder)
    return net_field(networks.fields[options.method], source, layout)


def _score(
    networks: Networks,
    options: DecodingOptions,
    source: Tokens,
    encoded: EncoderOutput,
    decoder: Memory,
    z: Float[Tensor, "r w D"],
    decoded: Tokens,
    read: Tokens,
    noise: Float[Tensor, "samples places D"],
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
