"""Fields: a field maps a latent to a direction for one source. A field type makes fields.

A `FieldType` is all that the package knows of a kind of field: its name, how it is bound, whether it compiles and how
it is drawn. Methods, training stages, bundles, command-line choices, report rows and colours follow from the registered
types. A new kind is one file (docs/extending.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from latentmt.data.tokens import Layout
from latentmt.models.latent import LatentModel
from latentmt.ngrams.fusion import Fusion
from latentmt.nn.attention import EncoderOutput, Memory
from latentmt.nn.ngrams import NgramTables

Field = Callable[[Float[Tensor, "r t D"]], Float[Tensor, "r t D"]]
"""z ↦ the direction to move it in; zero at padding."""


@dataclass(frozen=True)
class Style:
    """How a method is drawn in figures and tables."""

    label: str
    color: str
    marker: str


@dataclass(frozen=True)
class Context:
    """What a field is bound to. A layout with n times the source's rows has n adjacent candidates per row."""

    model: LatentModel
    source: EncoderOutput
    """The latent model's `encode(…)`."""
    layout: Layout
    decoder: Memory | None = None
    """The decoder's keys and values of the source, if the caller has them."""
    fusion: Fusion[NgramTables] | None = None
    """The language model that translations are read with, if there is one."""


class FieldType(ABC):
    """A kind of field. One instance is registered (`registry.register_field`)."""

    name: ClassVar[str]
    """The method's name everywhere: options, recipes, bundles, reports."""
    style: ClassVar[Style]
    hint: ClassVar[str] = ""
    """What it does, in a few words, for people who choose a method."""
    learned: ClassVar[bool] = False
    """Whether it has a network, which is trained; then a model has the field if it has that network."""
    compiles: ClassVar[bool] = True
    """Whether torch.compile can trace it. A field that differentiates inside cannot be traced."""

    @abstractmethod
    def bind(self, context: Context, network: nn.Module | None = None) -> Field:
        """The field for a source. Keys and values are projected once for all steps. Learned fields need a network."""
