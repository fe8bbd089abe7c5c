"""The field around every token in a two-dimensional latent space, and the paths of refinement through it (Figure 4).

Measured here, drawn by `plots`. The target's length is the reference's, so that the posterior of the reference is a
point of the same space. Around a token the field is evaluated with all other tokens at the prior's mean.
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
from latentmt.nn.attention import EncoderOutput
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
    """One token of the target."""

    pieces: dict[str, str]
    """What it is decoded as: at the `posterior` mean, at the `prior` mean, and at the end of each method's path."""
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
    """What the token is decoded as at each point."""


@dataclass(frozen=True)
class Landscape:
    """A sentence and the panels of its tokens without EOS."""

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
        panels = [_panel(translator, walk, method, position, grid) for position in range(len(target) - 1)]
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
    layout, decoder = target.layout, model.decoder_stack.project_kv(encoded)
    prior = model.prior(layout, model.prior.project_kv(encoded)).mode

    def path(method: str) -> Float[Tensor, "k t 2"]:
        latents: list[Float[Tensor, "1 t 2"]] = []
        field = torch_engine(translator.backend).networks.bind_field(method, encoded, layout, decoder)
        refine(prior, field, steps, on_step=lambda _, z: latents.append(z))
        return torch.cat(latents)

    points: dict[str, Tensor] = {
        "posterior": model.posterior(target, model.posterior_stack.project_kv(encoded)).mean,
        "prior": prior,
        **{method: path(method) for method in refining_methods(translator)},
    }
    ends = {name: model.read(z[-1:], layout, decoder).ids[0].tolist() for name, z in points.items()}
    return _Walk(encoded, points, ends)


def _panel(translator: Translator, walk: _Walk, method: str, position: int, grid: int) -> Panel:
    """The field, and what is decoded, with one token at each point of a grid and the others at the prior's mean."""
    model, networks = require_latent(translator), torch_engine(translator.backend).networks
    points = {name: z[:, position] for name, z in walk.points.items()}
    area = torch.from_numpy(grid_around(torch.cat(list(points.values())).double().cpu(), grid, _MARGIN))
    z = walk.points["prior"].repeat(grid * grid, 1, 1)
    z[:, position] = area.flatten(0, 1).to(z)
    layout = Layout.from_lengths(torch.full((len(z),), z.shape[1], device=z.device), z.shape[1])
    field = networks.bind_field(method, walk.encoded, layout)(z)[:, position]
    ids = model.read(z, layout, model.decoder_stack.project_kv(walk.encoded)).ids[:, position]
    pieces = translator.tokenizer.pieces(ids.tolist())
    return Panel(
        pieces={name: translator.tokenizer.pieces(ids)[position] for name, ids in walk.ends.items()},
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
