"""A latent of two numbers a token can be drawn: the field around every token, and the ways through it (Figure 4).

Measured here, drawn by `plots`. The target's length is the reference's, so that the posterior of the reference is a
point of the same space. Around a token the field is taken with all other tokens at the prior's mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from latentmt.data.normalise import normalise
from latentmt.data.tokens import Layout, Tokens
from latentmt.errors import UserError
from latentmt.infer.plane import square
from latentmt.infer.refine import Field, decode_tokens, delta_field, net_field, refine
from latentmt.infer.translator import Translator
from latentmt.models.latent import LatentModel
from latentmt.nn.attention import EncoderOutput

STEPS = 4
GRID = 15
"""Points a side."""
_FEWEST, _MOST = 4, 9
"""Tokens of a reference, EOS counted, that make a picture."""
_TRIED = 200
"""Such sentences that are looked at when one is chosen."""
_ROOM = 25
"""The most tokens there may be if someone asks for it."""
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
    _check(translator)
    sentences, target = translator.sentences(source), _encoded(translator, reference)
    if len(sentences) != 1:
        raise UserError(f"landscape: expected one sentence, found {len(sentences)}: {source}")
    if not 1 < len(target) <= _ROOM:
        raise UserError(f"landscape: a reference of {len(target) - 1} tokens, and there is room for 1 to {_ROOM - 1}")
    with translator.engine.lock:
        walk = _walk(translator, sentences[0], target, steps)
        places = range(len(target) - 1)  # EOS is no picture
        areas = [
            square(torch.cat([points[:, place] for points in walk.ways.values()]), grid, _MARGIN) for place in places
        ]
        looks = [_look(translator, walk, *place_and_area) for place_and_area in enumerate(areas)]
    pieces = {name: translator.tokenizer.pieces(ids) for name, ids in walk.ends.items()}
    panels = [
        Panel(
            pieces={name: some[place] for name, some in pieces.items()},
            posterior=_listed(walk.ways["posterior"][0, place]),
            prior=_listed(walk.ways["prior"][0, place]),
            delta=_listed(walk.ways["delta"][:, place]),
            score=_listed(walk.ways["score"][:, place]),
            x=_listed(area[0, :, 0]),
            y=_listed(area[:, 0, 1]),
            field=_listed(look.field),
            decoded=look.decoded,
        )
        for place, (area, look) in enumerate(zip(areas, looks, strict=True))
    ]
    texts = translator.texts(list(walk.ends.values()))
    return Landscape(source, reference, dict(zip(walk.ends, texts, strict=True)), panels)


def choose_sentence(translator: Translator, sources: Sequence[str], references: Sequence[str]) -> int:
    """The number of a line worth drawing: short, one sentence, and put right by the score where the prior is wrong.

    Where there is none, one that the score changes; or the first that is short.
    """
    _check(translator)
    changes: dict[int, bool] = {}
    for number, (source, reference) in enumerate(zip(sources, references, strict=True)):
        sentences, target = translator.sentences(source), _encoded(translator, reference)
        if len(sentences) != 1 or not _FEWEST <= len(target) <= _MOST:
            continue
        with translator.engine.lock:
            ends = _walk(translator, sentences[0], target, STEPS).ends
        changes[number] = ends["score"] != ends["prior"]
        if changes[number] and ends["score"] == target:
            return number
        if len(changes) == _TRIED:
            break
    if not changes:
        raise UserError(f"landscape: no line is one sentence with a reference of {_FEWEST} to {_MOST} tokens; name one")
    return max(changes, key=lambda number: changes[number])


@dataclass(frozen=True)
class _Walk:
    encoded: EncoderOutput
    ways: dict[str, Float[Tensor, "_ t 2"]]
    """The points that each way goes through: one, or one a step."""
    ends: dict[str, list[int]]
    """What is decoded at the last of them."""


@dataclass(frozen=True)
class _Look:
    field: Float[Tensor, "y x 2"]
    decoded: list[list[str]]


def _check(translator: Translator) -> None:
    if translator.latent is None or translator.latent.latent_dim != 2 or "score" not in translator.fields:
        raise UserError("landscape: a latent model of two entries (latent_dim: 2) and its score are needed")


def _encoded(translator: Translator, reference: str) -> list[int]:
    return translator.tokenizer.encode([normalise(reference, translator.rules[1])])[0]


@torch.no_grad()
def _walk(translator: Translator, sentence: list[int], reference: list[int], steps: int) -> _Walk:
    model = cast(LatentModel, translator.latent)
    encoded = model.encode(Tokens.padded([sentence]).to(translator.device))
    target = Tokens.padded([reference]).to(translator.device)
    layout, decoder = target.layout, model.decoder_stack.project_kv(encoded)
    prior = model.prior(layout, model.prior_stack.project_kv(encoded)).mean

    def walked(field: Field) -> Float[Tensor, "k t 2"]:
        seen: list[Float[Tensor, "1 t 2"]] = []
        refine(prior, field, steps, on_step=lambda _, z: seen.append(z))
        return torch.cat(seen)

    ways = {
        "posterior": model.posterior(target, model.posterior_stack.project_kv(encoded)).mean,
        "prior": prior,
        "delta": walked(delta_field(model, encoded, layout, decoder)),
        "score": walked(net_field(translator.fields["score"], encoded, layout)),
    }
    ends = {name: decode_tokens(model, points[-1:], layout, decoder).ids[0].tolist() for name, points in ways.items()}
    return _Walk(encoded, ways, ends)


def _look(translator: Translator, walk: _Walk, place: int, area: Float[Tensor, "y x 2"]) -> _Look:
    """The score, and what is decoded, with one token at each point of the grid and the others where the prior is."""
    encoded, prior = walk.encoded, walk.ways["prior"]
    model = cast(LatentModel, translator.latent)
    z = prior.repeat(area.shape[0] * area.shape[1], 1, 1)
    z[:, place] = area.flatten(0, 1).to(z)
    lengths = torch.full((len(z),), z.shape[1], device=z.device)
    layout = Layout.from_lengths(lengths, z.shape[1])
    field = net_field(translator.fields["score"], encoded, layout)(z)[:, place]
    ids = decode_tokens(model, z, layout, model.decoder_stack.project_kv(encoded)).ids[:, place]
    side = area.shape[1]
    pieces = translator.tokenizer.pieces(ids.tolist())
    decoded = [pieces[row : row + side] for row in range(0, len(pieces), side)]
    return _Look(field.view(-1, side, 2), decoded)


def _listed(numbers: Float[Tensor, "*shape"]) -> Any:
    """As lists, to four decimals: nobody sees more."""
    return numbers.double().cpu().mul(1e4).round().div(1e4).tolist()
