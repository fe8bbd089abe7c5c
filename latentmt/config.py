"""Strict YAML → frozen dataclasses: the loader. It knows nothing of what the keys mean.

A configuration is a tree of frozen dataclasses that inherit `Section`; each lives beside what it configures.
`load` reads a YAML file into such a tree once; afterwards nothing is checked again. An unknown key, a wrong type or a
value out of range is one line naming the key and the file.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast, get_args, get_type_hints

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from latentmt.errors import UserError


class Section:
    """Base of every configuration dataclass: keys that are not fields are refused."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


S = TypeVar("S")
Upgrade = Callable[[dict[str, Any], str], dict[str, Any]]
"""From the plain values of a file, and its name, to those that are validated."""


def load(path: Path, kind: type[S], overrides: Sequence[str] = (), upgrade: Upgrade | None = None) -> S:
    """Read `path` as a `kind`; each override is `section.key=value`, its value written as in YAML.

    `upgrade` may change the plain values before they are validated.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    tree = _parse(text, str(path))
    if not isinstance(tree, dict):
        raise UserError(f"{path}: expected keys and values, found {_named(tree)}")
    for override in overrides:
        _override(tree, override)
    tree = upgrade(tree, str(path)) if upgrade else tree
    return from_tree(tree, kind, str(path))


def from_tree(tree: Mapping[str, Any], kind: type[S], where: str) -> S:
    """Validate a tree of plain values as a `kind`; `where` names its origin in errors."""
    try:
        # JSON is the strict common ground: lists become tuples and strings paths, but "3" is no number.
        return TypeAdapter(kind).validate_json(json.dumps(tree), strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UserError(f"{where}: {_describe(problems[0], kind)}{more}") from None
    except UserError as error:  # of a section that also checks itself where no file is read
        raise UserError(f"{where}: {error}") from None
    except (TypeError, ValueError) as error:  # a date, a mapping as key, an alias of itself: YAML, but no JSON
        raise UserError(f"{where}: {' '.join(str(error).split())}") from None


def load_versioned(path: Path, kind: type[S], version: int, what: str) -> S:
    """Read a JSON file that says its `format`; another one is refused before the other keys are looked at."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path.parent}: not a {what} (it has no {path.name})") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    found = tree.get("format") if isinstance(tree, dict) else None
    if found != version:
        raise UserError(f"{path}: {what} format {found}, this version reads {version}; it has to be made again")
    return from_tree(tree, kind, str(path))


def to_tree(section: Any) -> dict[str, Any]:
    """The plain values of a configuration, ready for JSON or YAML; `from_tree` reads them back."""
    return cast(dict[str, Any], TypeAdapter(type(section)).dump_python(section, mode="json"))


def to_yaml(section: Any) -> str:
    """The configuration as a YAML document that `load` reads back to an equal object."""
    return yaml.dump(to_tree(section), Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True)


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses a key given twice and reads 1e-4 as the number it is."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"key {key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _parse(text: str, where: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{where}{line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise UserError(f"{where}: not YAML ({' '.join(str(error).split())})") from None


def _override(tree: dict[str, Any], override: str) -> None:
    keys, equals, value = override.partition("=")
    path = keys.split(".")
    if not equals or not all(path):
        raise UserError(f"--set {override}: expected section.key=value")
    for depth, key in enumerate(path[:-1]):
        below = tree.get(key, {})
        if not isinstance(below, dict):
            raise UserError(f"--set {override}: {'.'.join(path[: depth + 1])} is a value, not a section")
        tree[key] = dict(below)  # a copy: an alias elsewhere in the file keeps what it had
        tree = tree[key]
    tree[path[-1]] = _parse(value, f"--set {override}")


def _describe(problem: ErrorDetails, kind: type) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    match problem["type"]:
        case "unexpected_keyword_argument" | "dataclass_unexpected_keyword_argument":
            close = difflib.get_close_matches(str(problem["loc"][-1]), _keys_beside(kind, problem["loc"]), n=1)
            return f"unknown key {where}" + (f" (did you mean {close[0]}?)" if close else "")
        case "missing":
            return f"missing key {where}"
        case "value_error":  # raised by a section whose keys do not fit together
            return f"{where}: {problem['ctx']['error']}" if where else str(problem["ctx"]["error"])
        case _:
            return f"{where}: {problem['msg'][0].lower()}{problem['msg'][1:]}, got {_named(problem['input'])}"


def _keys_beside(kind: Any, loc: tuple[int | str, ...]) -> list[str]:
    """The keys that could have stood where the last part of `loc` stands."""
    for part in loc[:-1]:
        if isinstance(part, str):  # a number is a place in a tuple, seen through below
            kind = get_type_hints(kind).get(part, object) if dataclasses.is_dataclass(kind) else object
        while not dataclasses.is_dataclass(kind) and get_args(kind):  # tuple[X, ...], X | None
            kind = next((argument for argument in get_args(kind) if dataclasses.is_dataclass(argument)), object)
    return [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


def _named(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False, default=str)
