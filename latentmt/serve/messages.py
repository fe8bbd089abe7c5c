"""Messages between the broker and its workers: a header as JSON and a body of bytes, after the sizes of both.

Nothing is pickled. What a message means is up to `broker` and `worker`.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

_SIZES = struct.Struct("!II")
_MAX_SIZE = 1 << 30
"""Bytes. More means that the two sides have lost each other."""


class MessageError(Exception):
    """The other side is gone, or says something else than messages."""


@dataclass(frozen=True)
class Message:
    """What one side tells the other."""

    kind: str
    header: Mapping[str, Any]
    body: bytes = b""

    def __bytes__(self) -> bytes:
        header = json.dumps({"kind": self.kind, **self.header}, separators=(",", ":")).encode()
        return _SIZES.pack(len(header), len(self.body)) + header + self.body


def message(kind: str, body: bytes = b"", **header: Any) -> Message:
    """A message of a kind."""
    return Message(kind, header, body)


def read(file: BinaryIO) -> Message:
    """The next message of a file, which is not at its end."""
    sizes = _checked(_read_exactly(file, _SIZES.size))
    return _message(_read_exactly(file, sizes[0]), _read_exactly(file, sizes[1]))


async def receive(reader: asyncio.StreamReader) -> Message:
    """The next message of a stream, which is not at its end."""
    try:
        sizes = _checked(await reader.readexactly(_SIZES.size))
        return _message(await reader.readexactly(sizes[0]), await reader.readexactly(sizes[1]))
    except (asyncio.IncompleteReadError, OSError):
        raise MessageError from None


def _read_exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size) if size else b""
    if len(data) < size:
        raise MessageError
    return data


def _checked(sizes: bytes) -> tuple[int, int]:
    header, body = _SIZES.unpack(sizes)
    if max(header, body) > _MAX_SIZE:
        raise MessageError
    return header, body


def _message(header: bytes, body: bytes) -> Message:
    try:
        fields = json.loads(header)
        return Message(fields.pop("kind"), fields, body)
    except (ValueError, LookupError, AttributeError, TypeError):
        raise MessageError from None
