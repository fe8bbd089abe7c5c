"""A latent of two numbers a token can be drawn: the field around every token, and the ways through it (Figure 4).

Measured here, drawn by `plots`. The target's length is the reference's, so that the posterior of the reference is a
point of the same space. Around a token the field is taken with all other tokens at the prior's mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from latentmt.data.tokens import Layout, Tokens
from latentmt.errors import UserError
from latentmt.infer.refine import Field, decode_tokens, delta_field, net_field, refine
from latentmt.infer.translator import Translator
from latentmt.models.latent import LatentModel
from latentmt.nn.attention import Source

STEPS = 4
GRID = 15
"""Points a side."""
_FEWEST, _MOST = 4, 9
"""Tokens of a reference, EOS counted, that make a picture."""
_MARGIN = 0.35
"""Room around the points, as a share of their spread."""

Point = list[float]


@dataclass(frozen=True)
class Panel:
    """One token of the target."""

    pieces: dict[str, str]
    """What it is decoded as: from the `posterior` mean, the `prior` mean, and after `delta` and `score`'s last step."""
    posterior: Point
    prior: Point
    delta: list[Point]
    """After each step."""
    score: list[Point]
    x: list[float]
    """The grid's columns."""
    y: list[float]
    """The grid's rows."""
    field: list[list[Point]]
    """The score at each point, by row and column."""
    decoded: list[list[str]]
    """What the token is decoded as there."""


@dataclass(frozen=True)
class Landscape:
    """A sentence and the panels of its tokens, but for EOS."""

    source: str
    reference: str
    translations: dict[str, str]
    """The whole targets, by the names of the panels' pieces."""
    panels: list[Panel]


@torch.no_grad()
def landscape(translator: Translator, source: str, reference: str, steps: int = STEPS, grid: int = GRID) -> Landscape:
    """Look around a sentence's latents."""
    model = _check(translator)
    sentences = translator.sentences(source)
    if len(sentences) != 1:
        raise UserError(f"landscape: expected one sentence, got {len(sentences)}: {source}")
    target = Tokens.padded(translator.tokenizer.encode([reference])).to(translator.device)
    if target.ids.shape[1] < 2:
        raise UserError("landscape: the reference is empty")
    with translator.engine.turn:
        encoded = model.encode(Tokens.padded(sentences).to(translator.device))
        ways = _ways(translator, encoded, target, steps)
        memory = model.decoder_stack.remember(encoded)
        ends = {name: decode_tokens(model, points[-1:], target.layout, memory).ids[0] for name, points in ways.items()}
        places = range(target.ids.shape[1] - 1)  # EOS is no picture
        squares = [_square(torch.cat([points[:, place] for points in ways.values()]), grid) for place in places]
        looks = [_look(translator, encoded, ways["prior"], place, square) for place, square in enumerate(squares)]
    pieces = {name: translator.tokenizer.pieces(ids.tolist()) for name, ids in ends.items()}
    panels = [
        Panel(
            pieces={name: some[place] for name, some in pieces.items()},
            posterior=ways["posterior"][0, place].tolist(),
            prior=ways["prior"][0, place].tolist(),
            delta=ways["delta"][:, place].tolist(),
            score=ways["score"][:, place].tolist(),
            x=square[0, :, 0].tolist(),
            y=square[:, 0, 1].tolist(),
            field=look.field,
            decoded=look.decoded,
        )
        for place, (square, look) in enumerate(zip(squares, looks, strict=True))
    ]
    texts = translator.texts([ids.tolist() for ids in ends.values()])
    return Landscape(source, reference, dict(zip(ends, texts, strict=True)), panels)


def choose_sentence(translator: Translator, sources: Sequence[str], references: Sequence[str]) -> int:
    """The number of a line worth drawing: short, one sentence, and put right by the score where the prior is wrong.

    Where there is none, one that the score changes; or the first that is short.
    """
    model, changes = _check(translator), {}
    for number, (source, reference) in enumerate(zip(sources, references, strict=True)):
        sentences, ids = translator.sentences(source), translator.tokenizer.encode([reference])
        if len(sentences) != 1 or not _FEWEST <= len(ids[0]) <= _MOST:
            continue
        target = Tokens.padded(ids).to(translator.device)
        with translator.engine.turn, torch.no_grad():
            encoded = model.encode(Tokens.padded(sentences).to(translator.device))
            memory = model.decoder_stack.remember(encoded)
            ways = _ways(translator, encoded, target, STEPS)
            prior, score = (decode_tokens(model, ways[n][-1:], target.layout, memory).ids for n in ("prior", "score"))
        changed, right = bool((score != prior).any()), bool((score == target.ids).all())
        if changed and right:
            return number
        changes[number] = changed
    if not changes:
        raise UserError(f"landscape: no line is one sentence with a reference of {_FEWEST} to {_MOST} tokens; name one")
    return max(changes, key=lambda number: changes[number])


@dataclass(frozen=True)
class _Look:
    field: list[list[Point]]
    decoded: list[list[str]]


def _check(translator: Translator) -> LatentModel:
    if translator.latent is None or translator.latent.latent_dim != 2 or "score" not in translator.fields:
        raise UserError("landscape: a latent model of two entries (latent_dim: 2) and its score are needed")
    return translator.latent


def _ways(translator: Translator, encoded: Source, target: Tokens, steps: int) -> dict[str, Float[Tensor, "k t 2"]]:
    """The points that each way goes through: one, or one a step."""
    model, layout = cast(LatentModel, translator.latent), target.layout
    prior = model.prior(layout, model.prior_stack.remember(encoded)).mean
    posterior = model.posterior(target, model.posterior_stack.remember(encoded)).mean

    def walked(field: Field) -> Float[Tensor, "k t 2"]:
        seen: list[Float[Tensor, "1 t 2"]] = []
        refine(prior, field, steps, on_step=lambda _, z: seen.append(z))
        return torch.cat(seen)

    delta = walked(delta_field(model, encoded, layout))
    score = walked(net_field(translator.fields["score"], encoded, layout))
    return {"posterior": posterior, "prior": prior, "delta": delta, "score": score}


def _square(points: Float[Tensor, "n 2"], grid: int) -> Float[Tensor, "y x 2"]:
    """A grid around the points, with equal scales and some room."""
    low, high = points.min(0).values, points.max(0).values
    half = (0.5 + _MARGIN) * (high - low).max().clamp(min=0.2)
    x, y = (torch.linspace(float(middle - half), float(middle + half), grid) for middle in (low + high) / 2)
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)


def _look(
    translator: Translator, encoded: Source, prior: Float[Tensor, "1 t 2"], place: int, square: Float[Tensor, "y x 2"]
) -> _Look:
    """The score, and what is decoded, with one token at each point of the grid and the others where the prior is."""
    model = cast(LatentModel, translator.latent)
    z = prior.repeat(square.shape[0] * square.shape[1], 1, 1)
    z[:, place] = square.flatten(0, 1).to(z)
    lengths = torch.full((len(z),), z.shape[1], device=z.device)
    layout = Layout.of_lengths(lengths, z.shape[1])
    field = net_field(translator.fields["score"], encoded, layout)(z)[:, place]
    ids = decode_tokens(model, z, layout, model.decoder_stack.remember(encoded)).ids[:, place]
    side = square.shape[1]
    pieces = translator.tokenizer.pieces(ids.tolist())
    return _Look(
        field.float().view(-1, side, 2).tolist(), [pieces[row : row + side] for row in range(0, len(pieces), side)]
    )
