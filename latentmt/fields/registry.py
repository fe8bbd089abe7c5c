"""The registry of field types, by name. All code that depends on the kinds of fields uses it."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, Any, TypeVar

from pydantic import PlainSerializer, PlainValidator

from latentmt.config import from_dict, to_dict
from latentmt.errors import UserError
from latentmt.fields.base import FieldType
from latentmt.fields.delta import Delta
from latentmt.fields.energy import Energy
from latentmt.fields.learned import FieldConfig, FieldNetwork, LearnedField
from latentmt.fields.score import Score
from latentmt.models.latent import LatentConfig

ENTRY_POINTS = "latentmt.fields"
"""The group of entry points. An installed package that names a `FieldType` class in it adds a field."""

T = TypeVar("T", bound=type[FieldType])

_RESERVED = frozenset(
    (
        *("prior", "posterior", "teacher", "latent", "language_model"),  # methods and bundles
        *("corpus", "distilled", "training", "replaced", "report"),  # folders beside a field's bundle
    )
)
_TYPES: dict[str, FieldType] = {}


def register_field(type_: T) -> T:
    """Add a field type; usable as a decorator. A name is taken once."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", type_.name):
        raise UserError(f"field {type_.name}: expected a name of lower-case letters, digits and underscores")
    if type_.name in _RESERVED or type(_TYPES.get(type_.name)) not in (type(None), type_):
        raise UserError(f"field {type_.name}: the name is taken")
    _TYPES[type_.name] = type_()
    return type_


for _builtin in (Delta, Score, Energy):
    register_field(_builtin)


def field_types() -> dict[str, FieldType]:
    """All registered field types, those of this package first."""
    _load_plugins()
    return dict(_TYPES)


def learned_fields() -> dict[str, LearnedField]:
    """Those that are trained."""
    return {name: type_ for name, type_ in field_types().items() if isinstance(type_, LearnedField)}


def preferred_field(names: Collection[str]) -> str | None:
    """Of these fields, the one to use when none is asked for: the first learned one, else the first."""
    types = [type_ for type_ in field_types().values() if type_.name in names]
    return min(types, key=lambda type_: not type_.learned).name if types else None


def learned_field(name: str) -> LearnedField:
    """The learned field of this name."""
    if name not in learned_fields():
        raise UserError(f"field {name}: expected one of {', '.join(learned_fields())}")
    return learned_fields()[name]


def field_network(config: FieldConfig, latent: LatentConfig) -> FieldNetwork:
    """A field's network with fresh weights, for a latent model of the given configuration."""
    return learned_field(config.kind).network(config, latent)


def field_config(values: Any) -> FieldConfig:
    """Parse plain values as the configuration of the field that their `kind` names."""
    if isinstance(values, FieldConfig):
        return values
    if not isinstance(values, dict) or "kind" not in values:
        raise UserError("field: missing key kind")
    return from_dict(values, learned_field(values["kind"]).config, "field")


AnyFieldConfig = Annotated[FieldConfig, PlainValidator(field_config), PlainSerializer(to_dict, return_type=dict)]
"""The configuration of any field, in files."""


@cache
def _load_plugins() -> None:
    for entry in entry_points(group=ENTRY_POINTS):
        register_field(entry.load())
