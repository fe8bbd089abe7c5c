"""The field around every place in a two-dimensional latent space, and the paths of refinement through it (Figure 4).

Measured here, drawn by `plots`. The places are the reference's, so that the posterior of the reference is a point of
the same space. Around a place the field is evaluated with all other places at the prior's mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from latentmt.data.normalise import normalise
from latentmt.data.tokens import Layout, Tokens
from latentmt.engines.torch_engine import torch_engine
from latentmt.errors import UserError
from latentmt.fields.refine import refine
from latentmt.fields.registry import preferred_field
from latentmt.measure.methods import refining_methods, require_latent
from latentmt.nn.attention import EncoderOutput, Memory
from latentmt.projection import grid_around
from latentmt.translator import Translator

STEPS = 4
GRID = 15
"""Points a side."""
_MIN_TOKENS, _MAX_TOKENS = 4, 9
"""Tokens, EOS counted, of a reference that is chosen."""
_MAX_TRIED = 200
"""Such sentences that are tried when one is chosen."""
_MAX_EXAMPLE_TOKENS = 25
"""Tokens, EOS counted, of a reference that the caller names."""
_MARGIN = 0.35
"""Room around the points, as a share of their spread."""

Point = list[float]


@dataclass(frozen=True)
class Panel:
    """One place: that of a token of the target, unless an output model has others."""

    pieces: dict[str, str]
    """What it is decoded as: at the `posterior` mean, at the `prior` mean, and at the end of each method's path. A dot
    is nothing."""
    posterior: Point
    prior: Point
    paths: dict[str, list[Point]]
    """Method → the latent after each step."""
    x: list[float]
    """The grid's columns."""
    y: list[float]
    """The grid's rows."""
    field: list[list[Point]]
    """The field at each point, by row and column."""
    decoded: list[list[str]]
    """What it is decoded as at each point."""


@dataclass(frozen=True)
class Landscape:
    """A sentence and the panels of its places without the last one, which is EOS's."""

    source: str
    reference: str
    method: str
    """The method whose field is shown."""
    translations: dict[str, str]
    """The whole targets, by the keys of the panels' pieces."""
    panels: list[Panel]


@torch.no_grad()
def landscape(translator: Translator, source: str, reference: str, steps: int = STEPS, grid: int = GRID) -> Landscape:
    """The field and the paths of refinement around the latents of a sentence."""
    method = _field_method(translator)
    sentences, target = translator.sentences(source), _encoded(translator, reference)
    if len(sentences) != 1:
        raise UserError(f"landscape: expected one sentence, found {len(sentences)}: {source}")
    if not 1 < len(target) <= _MAX_EXAMPLE_TOKENS:
        limit = f"there is room for 1 to {_MAX_EXAMPLE_TOKENS - 1}"
        raise UserError(f"landscape: a reference of {len(target) - 1} tokens, and {limit}")
    with torch_engine(translator.backend).lock:
        walk = _walk(translator, sentences[0], target, steps)
        last = walk.points["prior"].shape[1] - 1
        panels = [_panel(translator, walk, method, position, grid) for position in range(last)]
    texts = translator.texts(list(walk.ends.values()))
    return Landscape(source, reference, method, dict(zip(walk.ends, texts, strict=True)), panels)


def choose_sentence(translator: Translator, sources: Sequence[str], references: Sequence[str]) -> int:
    """The index of a line to draw: a short sentence that is wrong at the prior's mean and right after refinement.

    Where there is none, one that refinement changes, or else the first short one.
    """
    method = _field_method(translator)
    changes: dict[int, bool] = {}
    for number, (source, reference) in enumerate(zip(sources, references, strict=True)):
        sentences, target = translator.sentences(source), _encoded(translator, reference)
        if len(sentences) != 1 or not _MIN_TOKENS <= len(target) <= _MAX_TOKENS:
            continue
        with torch_engine(translator.backend).lock:
            ends = _walk(translator, sentences[0], target, STEPS).ends
        changes[number] = ends[method] != ends["prior"]
        if changes[number] and ends[method] == target:
            return number
        if len(changes) == _MAX_TRIED:
            break
    if not changes:
        limits = f"{_MIN_TOKENS} to {_MAX_TOKENS} tokens"
        raise UserError(f"landscape: no line is one sentence with a reference of {limits}; name one")
    return max(changes, key=lambda number: changes[number])


@dataclass(frozen=True)
class _Walk:
    encoded: EncoderOutput
    points: dict[str, Float[Tensor, "_ t 2"]]
    """The posterior's mean, the prior's mean, and the latents after each step of each method."""
    ends: dict[str, list[int]]
    """What is decoded at the last of the points."""
    pieces: dict[str, list[str]]
    """The same place by place."""


def _field_method(translator: Translator) -> str:
    """The method whose field is drawn: a learned one."""
    networks = torch_engine(translator.backend).networks
    learned = [method for method in refining_methods(translator) if method in networks.fields]
    if networks.latent is None or networks.latent.latent_dim != 2 or not learned:
        raise UserError("landscape: a latent model of two entries (latent_dim: 2) with a learned field is needed")
    return str(preferred_field(learned))


def _encoded(translator: Translator, reference: str) -> list[int]:
    return translator.tokenizer.encode([normalise(reference, translator.rules[1])])[0]


@torch.no_grad()
def _walk(translator: Translator, sentence: list[int], reference: list[int], steps: int) -> _Walk:
    model = require_latent(translator)
    encoded = model.encode(Tokens.padded([sentence]).to(torch_engine(translator.backend).device))
    target = Tokens.padded([reference]).to(torch_engine(translator.backend).device)
    places, decoder = model.output.places(encoded, target), model.decoder_stack.project_kv(encoded)
    if not places.real.any():
        raise UserError(f"landscape: a reference of {len(reference) - 1} tokens is too long for its source")
    prior = model.prior(places, model.prior.project_kv(encoded)).mode

    def path(method: str) -> Float[Tensor, "k t 2"]:
        latents: list[Float[Tensor, "1 t 2"]] = []
        field = torch_engine(translator.backend).networks.bind_field(method, encoded, places, decoder)
        refine(prior, field, steps, on_step=lambda _, z: latents.append(z))
        return torch.cat(latents)

    points: dict[str, Tensor] = {
        "posterior": model.posterior(target, places, model.posterior_stack.project_kv(encoded)).mean,
        "prior": prior,
        **{method: path(method) for method in refining_methods(translator)},
    }
    read = {name: model.read(z[-1:], places, decoder) for name, z in points.items()}
    ends = {name: tokens.ids[tokens.layout.real].tolist() for name, tokens in read.items()}
    pieces = {name: _pieces(translator, z[-1:], places, decoder)[0] for name, z in points.items()}
    return _Walk(encoded, points, ends, pieces)


def _pieces(translator: Translator, z: Float[Tensor, "r p 2"], places: Layout, decoder: Memory) -> list[list[str]]:
    """The piece that each place writes, or a dot."""
    model = require_latent(translator)
    labels = model.output.labels(model.decode(z, places, decoder), places, model.embedding)
    written = model.output.written(labels, places).tolist()
    return [
        [piece if writes else "·" for piece, writes in zip(translator.tokenizer.pieces(ids), row, strict=True)]
        for ids, row in zip(labels.tolist(), written, strict=True)
    ]


def _panel(translator: Translator, walk: _Walk, method: str, position: int, grid: int) -> Panel:
    """The field, and what is decoded, with one place at each point of a grid and the others at the prior's mean."""
    model, networks = require_latent(translator), torch_engine(translator.backend).networks
    points = {name: z[:, position] for name, z in walk.points.items()}
    area = torch.from_numpy(grid_around(torch.cat(list(points.values())).double().cpu(), grid, _MARGIN))
    z = walk.points["prior"].repeat(grid * grid, 1, 1)
    z[:, position] = area.flatten(0, 1).to(z)
    places = Layout.from_lengths(torch.full((len(z),), z.shape[1], device=z.device), z.shape[1])
    field = networks.bind_field(method, walk.encoded, places)(z)[:, position]
    decoder = model.decoder_stack.project_kv(walk.encoded)
    pieces = [row[position] for row in _pieces(translator, z, places, decoder)]
    return Panel(
        pieces={name: each[position] for name, each in walk.pieces.items()},
        posterior=_listed(points["posterior"][0]),
        prior=_listed(points["prior"][0]),
        paths={name: _listed(path) for name, path in points.items() if name not in ("posterior", "prior")},
        x=_listed(area[0, :, 0]),
        y=_listed(area[:, 0, 1]),
        field=_listed(field.view(grid, grid, 2)),
        decoded=[pieces[row : row + grid] for row in range(0, len(pieces), grid)],
    )


def _listed(numbers: Float[Tensor, "*shape"]) -> Any:
    """As lists, to the four decimals that a figure can show."""
    return numbers.double().cpu().mul(1e4).round().div(1e4).tolist()
