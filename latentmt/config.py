"""Strict YAML → frozen dataclasses: the loader. It does not know what the keys mean.

A configuration is made of nested frozen dataclasses that inherit `Section`. Each is defined beside what it configures.
`load` reads and validates a YAML file once. An unknown key, a wrong type or a value out of range is an error of one
line that names the key and the file.

A section may declare `aliases`: the names its keys had in an earlier version. Files with old names still load, at any
depth. Identity hashes are computed over the old names, so renaming a key does not change them. Nor does adding one: a
key that is `added` is written only if it differs from its default.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast, get_args, get_origin, get_type_hints

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from latentmt.errors import UserError
from latentmt.files import TEXT_LIMIT, read_plain

ALIASES_END = "0.3"
"""The version that no longer reads old names."""

YAML_LIMIT = 1 << 18
"""The most bytes of a YAML file."""
YAML_DEPTH = 32
"""The most sections inside each other."""


class Section:
    """Base of every configuration dataclass: keys that are not fields are refused."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    aliases: ClassVar[Mapping[str, str]] = {}
    """Old names of keys, each with the present name."""


def added(default: Any) -> Any:
    """Marks a key that earlier versions did not have, in its annotation. Its default is not written."""
    return Field(exclude_if=lambda value: bool(value == default))


S = TypeVar("S")
Warn = Callable[[str], object]
Upgrade = Callable[[dict[str, Any], str, Warn], dict[str, Any]]
"""From plain values, the name of their file and `warn` to the values that are validated."""


def load(
    path: Path,
    kind: type[S],
    overrides: Sequence[str] = (),
    warn: Warn = lambda line: None,
    upgrade: Upgrade = lambda values, where, warn: values,
) -> S:
    """Read `path` as a `kind`. Each override is `section.key=value`, with the value written as in YAML.

    `warn` is called with one line if the file uses old names, and one for each override that does. `upgrade` may move
    keys of an earlier version before the values are validated.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    values = _sections(content, str(path), _AliasLoader)
    values = current_names(upgrade(values, str(path), warn), kind, str(path), warn)
    for override in overrides:
        _override(values, override, kind, warn)
    return from_dict(upgrade(values, "--set" if overrides else str(path), warn), kind, str(path))


def from_yaml(content: bytes, kind: type[S], where: str) -> S:
    """Read the content of a YAML file as a `kind`. `where` names the file in errors.

    It may be anybody's file, so aliases, which make a small file large, are refused.
    """
    return from_dict(_sections(content, where, _Loader), kind, where)


def from_dict(values: Mapping[str, Any], kind: type[S], where: str) -> S:
    """Validate plain values as a `kind`, old names included. `where` names their origin in errors."""
    values = current_names(values, kind, where)
    try:
        # Strict JSON: lists become tuples and strings become paths, but "3" is not a number.
        return TypeAdapter(kind).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UserError(f"{where}: {_describe(problems[0], kind)}{more}") from None
    except UserError as error:  # raised by a section's own validation
        raise UserError(f"{where}: {error}") from None
    except (TypeError, ValueError) as error:  # YAML but not JSON: a date, a mapping as key
        raise UserError(f"{where}: {' '.join(str(error).split())}") from None


def load_versioned(path: Path, kind: type[S], version: int, what: str, limit: int = TEXT_LIMIT) -> S:
    """Read a JSON file with a `format` number. Another format is refused before the other keys are checked.

    A file with a checksum is compared with it. Files of version 0.1 have none. `limit`: its most bytes.
    """
    try:
        content = read_plain(path, limit)
        values = json.loads(content, object_pairs_hook=_without_repeats)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path.parent}: not a {what} (it has no {path.name})") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    found = values.get("format") if isinstance(values, dict) else None
    if found != version:
        raise UserError(f"{path}: {what} format {found}, this version reads {version}; it has to be made again")
    check_json(content, values, str(path))
    return from_dict(values, kind, str(path))


def check_json(content: bytes, values: Mapping[str, Any], where: str) -> None:
    """Compare JSON that `to_json` wrote with the checksum among its values. Version 0.1 wrote none."""
    stored = str(values.get("checksum") or "")
    before, _, after = content.rpartition(stored.encode()) if stored else (b"", b"", content)
    if stored and hashlib.sha256(before + after).hexdigest() != stored:
        raise UserError(f"{where}: altered since it was written")


def to_json(section: Any) -> str:
    """A section as indented JSON. Its `checksum`, which is its last key, is the SHA-256 of the text without it."""
    text = json.dumps(to_dict(section) | {"checksum": ""}, indent=2) + "\n"
    before, empty, after = text.rpartition('""')
    assert empty
    return f'{before}"{hashlib.sha256(text.encode()).hexdigest()}"{after}'


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key is given twice")
    return values


def to_dict(section: Any) -> dict[str, Any]:
    """The plain values of a configuration, ready for JSON or YAML; `from_dict` reads them back."""
    return cast(dict[str, Any], TypeAdapter(type(section)).dump_python(section, mode="json"))


def original_names(values: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Plain values of a `kind` under the oldest names of their keys, for identity hashes."""
    renamed = _rename(values, kind, lambda _, aliases, __: {new: old for old, new in aliases.items()})
    return cast(dict[str, Any], renamed)


def current_names(
    values: Mapping[str, Any], kind: type, where: str, warn: Callable[[str], object] = lambda line: None
) -> dict[str, Any]:
    """Plain values of a `kind` with old names replaced by present ones. An old and a new name together are refused."""
    renamed: dict[str, None] = {}

    def rename(values: Mapping[str, Any], aliases: Mapping[str, str], section: str) -> Mapping[str, str]:
        for old, new in aliases.items():
            if old in values and new in values:
                raise UserError(f"{where}: {section}{old} is the old name of {section}{new}, and both are given")
            if old in values:
                renamed[f"{section}{old} is now {section}{new}"] = None
        return aliases

    try:
        values = _rename(values, kind, rename)
    except RecursionError:
        raise UserError(f"{where}: too many sections inside each other") from None
    if renamed:
        names = "the old name goes" if len(renamed) == 1 else "the old names go"
        warn(f"{where}: {', '.join(renamed)}; {names} with {ALIASES_END}")
    return cast(dict[str, Any], values)


def to_yaml(section: Any) -> str:
    """The configuration as a YAML document that `load` reads back to an equal object."""
    return yaml.dump(to_dict(section), Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True)


class _Loader(yaml.SafeLoader):
    """Safe YAML that reads 1e-4 as the number it is and refuses a key given twice, aliases and deep sections."""

    aliases = False
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        mark = cast(yaml.Mark, event.start_mark)
        if isinstance(event, yaml.AliasEvent) and not self.aliases:
            raise yaml.MarkedYAMLError(problem=f"*{event.anchor}: aliases are refused", problem_mark=mark)
        if self.depth > YAML_DEPTH:
            raise yaml.MarkedYAMLError(problem="too many sections inside each other", problem_mark=mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

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


class _AliasLoader(_Loader):
    """The same for a user's own files, with aliases."""

    aliases = True


def _sections(content: bytes, where: str, loader: type[_Loader]) -> dict[str, Any]:
    """The keys and values of a YAML file."""
    if len(content) > YAML_LIMIT:
        raise UserError(f"{where}: larger than {YAML_LIMIT:,} bytes")
    try:
        values = _parse(content.decode(), where, loader)
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: cannot be read ({error})") from None
    if not isinstance(values, dict):
        raise UserError(f"{where}: expected keys and values, found {_show(values)}")
    return values


def _parse(text: str, where: str, loader: type[_Loader] = _Loader) -> Any:
    try:
        return yaml.load(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{where}{line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise UserError(f"{where}: not YAML ({' '.join(str(error).split())})") from None


@functools.cache
def _field_types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _rename(
    value: Any,
    kind: Any,
    names: Callable[[Mapping[str, Any], Mapping[str, str], str], Mapping[str, str]],
    section: str = "",
) -> Any:
    """Rename the keys of every section inside `value`, which has the type `kind`.

    `names` is called with a section's values, its aliases and its name followed by a dot.
    """
    if isinstance(value, Mapping) and isinstance(kind, type) and dataclasses.is_dataclass(kind):
        types, new = _field_types(kind), names(value, getattr(kind, "aliases", {}), section)
        return {
            new.get(key, key): _rename(below, types.get(new.get(key, key), types.get(key)), names, f"{key}.")
            for key, below in value.items()
        }
    if isinstance(value, Mapping) and get_origin(kind) is dict:
        return {key: _rename(below, get_args(kind)[1], names, f"{key}.") for key, below in value.items()}
    if isinstance(value, list):
        return [_rename(element, kind, names, section) for element in value]
    for argument in get_args(kind):  # tuple[X, ...], X | None
        value = _rename(value, argument, names, section)
    return value


def _override(values: dict[str, Any], override: str, kind: type, warn: Callable[[str], object]) -> None:
    keys, equals, value = override.partition("=")
    path = keys.split(".")
    if not equals or not all(path):
        raise UserError(f"--set {override}: expected section.key=value")
    change = _parse(value, f"--set {override}")
    for key in reversed(path):
        change = {key: change}
    change = current_names(change, kind, f"--set {override}", warn)
    for depth in range(1, len(path)):
        ((key, change),) = change.items()
        below = values.get(key, {})
        if not isinstance(below, dict):
            raise UserError(f"--set {override}: {'.'.join(path[:depth])} is a value, not a section")
        values[key] = dict(below)  # a copy: a YAML anchor may share the section
        values = values[key]
    values.update(change)


def _describe(problem: ErrorDetails, kind: type) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    match problem["type"]:
        case "unexpected_keyword_argument" | "dataclass_unexpected_keyword_argument":
            close = difflib.get_close_matches(str(problem["loc"][-1]), _keys_beside(kind, problem["loc"]), n=1)
            return f"unknown key {where}" + (f" (did you mean {close[0]}?)" if close else "")
        case "missing":
            return f"missing key {where}"
        case "value_error":  # raised by a section's own validation
            return f"{where}: {problem['ctx']['error']}" if where else str(problem["ctx"]["error"])
        case _:
            return f"{where}: {problem['msg'][0].lower()}{problem['msg'][1:]}, got {_show(problem['input'])}"


def _keys_beside(kind: Any, loc: tuple[int | str, ...]) -> list[str]:
    """The keys that are valid beside the last element of `loc`."""
    for part in loc[:-1]:
        if get_origin(kind) is dict:  # the part is a key of it
            kind = get_args(kind)[1]
        elif isinstance(part, str):  # a number is an index into a tuple
            kind = get_type_hints(kind).get(part, object) if dataclasses.is_dataclass(kind) else object
        while get_origin(kind) is not dict and not dataclasses.is_dataclass(kind) and get_args(kind):  # tuple[X, ...]
            kind = next((argument for argument in get_args(kind) if dataclasses.is_dataclass(argument)), object)
    return [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


def _show(value: Any) -> str:
    shown = "nothing" if value is None else json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= 100 else f"{shown[:99]}…"
