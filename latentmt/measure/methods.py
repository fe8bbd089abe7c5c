"""What measuring, tables and figures need to know about a method: whether it refines, its name and its look in figures.

The colours are those of Okabe and Ito, which people with any kind of colour vision can tell apart.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from latentmt.errors import UserError
from latentmt.infer.translator import Translator
from latentmt.models.latent import LatentModel
from latentmt.options import Method


@dataclass(frozen=True)
class Style:
    """How a method is named and drawn."""

    label: str
    color: str
    marker: str


_STYLES = {
    "teacher": Style("autoregressive", "#000000", "D"),
    "latent": Style("latent", "#CC79A7", "s"),
    "prior": Style("L = 0", "#7f7f7f", "*"),
    "delta": Style("delta", "#0072B2", "X"),
    "energy": Style("energy", "#D55E00", "^"),
    "score": Style("score", "#009E73", "o"),
}
_COLORS = ("#56B4E9", "#E69F00", "#8C510A", "#542788", "#666600")
_MARKERS = ("v", "P", "p", "h")


def field_style(name: str) -> Style:
    """The style of a method or a training stage. An unknown name has a style too, always the same."""
    number, color = divmod(zlib.crc32(name.encode()), len(_COLORS))
    return _STYLES.get(name) or Style(name, _COLORS[color], _MARKERS[number % len(_MARKERS)])


def refining_methods(translator: Translator) -> list[Method]:
    """The translator's methods that refine a latent."""
    return [method for method in translator.methods if method not in ("prior", "teacher")]


def require_latent(translator: Translator) -> LatentModel:
    """The latent model of a translator; an error where there is none."""
    if translator.engine.networks.latent is None:
        raise UserError("there is no latent model to measure")
    return translator.engine.networks.latent
