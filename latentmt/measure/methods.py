"""What measuring, tables and figures need to know about a method: whether it refines, its name and its style."""

from __future__ import annotations

import zlib

from latentmt.engines.torch_engine import torch_engine
from latentmt.errors import UserError
from latentmt.fields.base import Style
from latentmt.fields.registry import field_types
from latentmt.models.latent import LatentModel
from latentmt.translator import Translator

_STYLES = {
    "teacher": Style("autoregressive", "#000000", "D"),
    "latent": Style("latent", "#CC79A7", "s"),
    "prior": Style("L = 0", "#7f7f7f", "*"),
}
_COLORS = ("#56B4E9", "#E69F00", "#8C510A", "#542788", "#666600")
_MARKERS = ("v", "P", "p", "h")


def field_style(name: str) -> Style:
    """The style of a method or a training stage. An unknown name has a style too, always the same."""
    if field := field_types().get(name):
        return field.style
    number, color = divmod(zlib.crc32(name.encode()), len(_COLORS))
    return _STYLES.get(name) or Style(name, _COLORS[color], _MARKERS[number % len(_MARKERS)])


def refining_methods(translator: Translator) -> list[str]:
    """The translator's methods that refine a latent."""
    return [method for method in translator.methods if method not in ("prior", "teacher")]


def require_latent(translator: Translator) -> LatentModel:
    """The latent model of a translator; an error where there is none."""
    latent = torch_engine(translator.backend).networks.latent
    if latent is None:
        raise UserError("there is no latent model to measure")
    return latent
