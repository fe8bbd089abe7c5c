"""Checks an ONNX graph before onnxruntime reads it.

A graph is a program, and a model may come from anybody. onnxruntime would run loops, look for weights in files that a
graph names, and read parts of the format that this package never writes. So a graph may hold only the fields below:
operators without graphs of their own, small constants, and weights by name, which are those of the bundle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from latentmt.errors import UserError

MAX_BYTES = 1 << 20
"""The most bytes of a graph. Those that ship have 19 KB."""
MAX_CONSTANT = 1 << 12
"""The most bytes of a constant."""
LOCATION = b"bundle"
"""Where a weight is said to be stored. It is no file: the engine provides the weight."""
MICROSOFT = "com.microsoft"
"""onnxruntime's own operators: attention, and products with dynamic quantisation. Others of them read files."""
OPERATORS = frozenset({"DynamicQuantizeMatMul", "FusedMatMul", "MultiHeadAttention"})
"""Those of them that are used. All standard operators may be used."""

_VARINT, _BYTES, _FIXED32 = 0, 2, 5

# The fields that a message may have, by the numbers of onnx.proto: a name, and what it is: another message, text (or
# bytes), a number, or several numbers.
_FIELDS: dict[str, dict[int, tuple[str, str]]] = {
    "model": {
        1: ("ir_version", "number"),
        2: ("producer_name", "text"),
        7: ("graph", "graph"),
        8: ("opset_import", "opset"),
    },
    "opset": {1: ("domain", "text"), 2: ("version", "number")},
    "graph": {
        1: ("node", "node"),
        2: ("name", "text"),
        5: ("initializer", "tensor"),
        11: ("input", "value"),
        12: ("output", "value"),
    },
    "node": {
        1: ("input", "text"),
        2: ("output", "text"),
        3: ("name", "text"),
        4: ("op_type", "text"),
        5: ("attribute", "attribute"),
        7: ("domain", "text"),
    },
    "attribute": {
        1: ("name", "text"),
        2: ("f", "number"),
        3: ("i", "number"),
        4: ("s", "text"),
        7: ("floats", "numbers"),
        8: ("ints", "numbers"),
        20: ("type", "number"),
    },
    "tensor": {
        1: ("dims", "numbers"),
        2: ("data_type", "number"),
        8: ("name", "text"),
        9: ("raw_data", "text"),
        13: ("external_data", "entry"),
        14: ("data_location", "number"),
    },
    "entry": {1: ("key", "text"), 2: ("value", "text")},
    "value": {1: ("name", "text"), 2: ("type", "type")},
    "type": {1: ("tensor_type", "tensor_type")},
    "tensor_type": {1: ("elem_type", "number"), 2: ("shape", "shape")},
    "shape": {1: ("dim", "dim")},
    "dim": {1: ("dim_value", "number"), 2: ("dim_param", "text")},
}


class _InvalidError(Exception):
    """What is wrong with a graph."""


@dataclass(frozen=True)
class _Field:
    """A field of a message. `content`: of text, or of a message."""

    name: str
    kind: str
    content: bytes


def check_graph(content: bytes, weights: Collection[str], where: str) -> None:
    """Refuse a graph that holds more than operators, small constants and these weights. `where` names it in errors."""
    try:
        if len(content) > MAX_BYTES:
            raise _InvalidError(f"larger than {MAX_BYTES:,} bytes")
        for field in _fields(content, "model"):
            if field.kind == "graph":
                for part in _fields(field.content, "graph"):
                    _check_part(part, weights)
            elif field.kind != "text":
                _walk(field)
    except _InvalidError as error:
        raise UserError(f"{where}: not a graph that can be run ({error})") from None


def _check_part(part: _Field, weights: Collection[str]) -> None:
    if part.kind == "node":
        fields = _walk(part)
        domains, operators = _texts(fields, "domain"), _texts(fields, "op_type")
        ours = not set(domains) - {""} or (set(domains) == {MICROSOFT} and set(operators) <= OPERATORS)
        if not ours or len(operators) != 1:
            raise _InvalidError(f"operator {' '.join([*domains, *operators])[:80]} is not allowed")
    elif part.kind == "tensor":
        fields = _walk(part)
        outside = [field for field in fields if field.name in ("external_data", "data_location")]
        names = _texts(fields, "name")
        if len(names) != 1:
            raise _InvalidError("a tensor without one name")
        if outside and names[0] not in weights:
            raise _InvalidError(f"{names[0][:80]} is not a weight of the model")
        for entry in (field for field in outside if field.name == "external_data"):
            if [field.content for field in _walk(entry)] != [b"location", LOCATION]:
                raise _InvalidError(f"{names[0][:80]} is stored in another file")
        if any(len(field.content) > MAX_CONSTANT for field in fields if field.name == "raw_data"):
            raise _InvalidError(f"constant {names[0][:80]} has more than {MAX_CONSTANT:,} bytes")
    elif part.kind != "text":
        _walk(part)


def _walk(field: _Field) -> list[_Field]:
    """The fields of a message, after checking those of all messages in it. Messages are at most five deep."""
    fields = list(_fields(field.content, field.kind))
    for inner in fields:
        if inner.kind in _FIELDS:
            _walk(inner)
    return fields


def _texts(fields: list[_Field], name: str) -> list[str]:
    return [field.content.decode(errors="replace") for field in fields if field.name == name]


def _fields(content: bytes, message: str) -> Iterator[_Field]:
    """The fields of a message in the wire format of protocol buffers. Any that a graph may not have is refused."""
    position, end = 0, len(content)
    while position < end:
        tag, position = _varint(content, position)
        name, kind = _FIELDS[message].get(tag >> 3, ("", ""))
        wire = tag & 7
        if not name or wire not in _wires(kind):
            raise _InvalidError(f"{message} has a field {tag >> 3}, which is not allowed")
        if wire == _VARINT:
            _, after = _varint(content, position)
        elif wire == _BYTES:
            length, position = _varint(content, position)
            after = position + length
        else:
            after = position + 4
        if after > end:
            raise _InvalidError("truncated")
        yield _Field(name, kind, content[position:after] if wire == _BYTES else b"")
        position = after


def _wires(kind: str) -> tuple[int, ...]:
    """How a field may be encoded. Several numbers may be in one field, or in one each."""
    if kind == "numbers":
        return _VARINT, _FIXED32, _BYTES
    return (_VARINT, _FIXED32) if kind == "number" else (_BYTES,)


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(content):
            raise _InvalidError("truncated")
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise _InvalidError("a number of more than ten bytes")
