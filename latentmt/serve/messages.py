"""Messages between processes of a server: a header as JSON and a body of bytes, after the sizes of both.

Nothing is pickled. What a message means is up to `broker` and `worker`, and to `fronts` and `front`.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

_SIZES = struct.Struct("!II")
_MAX_SIZE = 1 << 30
"""Bytes. More means that the two sides have lost each other."""
_CHUNK = 1 << 18
"""Bytes that are read at once, with all messages in them."""


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


class Sender:
    """Sends messages, all those of one turn of the event loop at once: it is writing that takes time."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._unsent: list[bytes] = []

    def send(self, what: Message) -> None:
        """Send a message soon."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self.flush)
        self._unsent.append(bytes(what))

    def flush(self) -> None:
        """Send now what is unsent."""
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            self._write(b"".join(unsent))


class Receiver:
    """The messages of a stream."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self._unread = reader, bytearray()
        self._messages: deque[Message] = deque()

    async def receive(self) -> Message:
        """The next message. `MessageError` if there is none."""
        while not self._messages:
            try:
                data = await self._reader.read(_CHUNK)
            except OSError:
                raise MessageError from None
            if not data:
                raise MessageError
            self._unread += data
            self._cut()
        return self._messages.popleft()

    def _cut(self) -> None:
        """Take all whole messages out of what was read."""
        unread, start = self._unread, 0
        while len(unread) >= start + _SIZES.size:
            header, body = _checked(unread, start)
            middle = start + _SIZES.size + header
            if len(unread) < middle + body:
                break
            self._messages.append(
                _message(bytes(unread[start + _SIZES.size : middle]), bytes(unread[middle : middle + body]))
            )
            start = middle + body
        del unread[:start]


def _read_exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size) if size else b""
    if len(data) < size:
        raise MessageError
    return data


def _checked(data: bytes | bytearray, start: int = 0) -> tuple[int, int]:
    header, body = _SIZES.unpack_from(data, start)
    if max(header, body) > _MAX_SIZE:
        raise MessageError
    return header, body


def _message(header: bytes, body: bytes) -> Message:
    try:
        fields = json.loads(header)
        return Message(fields.pop("kind"), fields, body)
    except (ValueError, LookupError, AttributeError, TypeError):
        raise MessageError from None
