"""Model sizes: named presets, whose fields a configuration may override.

A model's configuration inherits `Sized` and lists its sizes by name. A bundle stores the `resolved` configuration, so
that a preset may change later without changing existing models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import Field

from latentmt.config import Section
from latentmt.nn.transformer import StackSize

Count = Annotated[int, Field(ge=1, le=1 << 20)]
Layers = Annotated[int, Field(ge=1, le=1000)]
C = TypeVar("C", bound="Sized")


@dataclass(frozen=True, kw_only=True)
class TransformerSize:
    """A complete size."""

    d_model: int
    d_filter: int
    layers: int
    heads: int
    encoder_layers: int
    dropout: float

    def __post_init__(self) -> None:
        if self.d_model % 2 or self.d_model % self.heads:
            raise ValueError(f"d_model {self.d_model} is not even and a multiple of heads {self.heads}")

    @property
    def stack(self) -> StackSize:
        """The size of a decoder stack."""
        return StackSize(self.d_model, self.d_filter, self.layers, self.heads, self.dropout)

    @property
    def encoder(self) -> StackSize:
        """The size of the encoder."""
        return StackSize(self.d_model, self.d_filter, self.encoder_layers, self.heads, self.dropout)


@dataclass(frozen=True, kw_only=True)
class Sized(Section):
    """A configuration with a preset and overrides."""

    sizes: ClassVar[Mapping[str, TransformerSize]]

    preset: Literal["tiny", "small", "base"] = "small"
    """The preset of unset fields: `tiny` trains on a CPU, `small` is the paper's IWSLT, `base` its WMT."""
    d_model: Count | None = None
    """Width of the states."""
    d_filter: Count | None = None
    """Width inside the feed-forward sublayers."""
    layers: Layers | None = None
    """Layers of each decoder stack."""
    heads: Count | None = None
    """Attention heads."""
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """On embeddings and on the output of every sublayer."""

    def __post_init__(self) -> None:
        _ = self.size  # validates it now, not when the model is built

    @property
    def size(self) -> TransformerSize:
        """The preset with the overrides."""
        preset = self.sizes[self.preset]
        overrides = {name: getattr(self, name, None) for name in asdict(preset)}
        return replace(preset, **{name: value for name, value in overrides.items() if value is not None})

    @property
    def resolved_fields(self) -> dict[str, Any]:
        """The values of the fields that have none of their own."""
        return {name: value for name, value in asdict(self.size).items() if hasattr(self, name)}


@dataclass(frozen=True, kw_only=True)
class WithEncoder(Sized):
    """The configuration of a model with an encoder."""

    encoder_layers: Layers | None = None
    """Layers of the encoder."""

    @property
    def encoder(self) -> StackSize:
        """The size of the encoder."""
        return self.size.encoder


def resolved(config: C) -> C:
    """The same configuration with every field set that the preset decides."""
    return replace(config, **config.resolved_fields)
