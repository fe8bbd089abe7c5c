"""The encoding of a text file: a byte order mark tells, else it is UTF-8 or what the file says. It is written as it was
read."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from latentmt.errors import UserError

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_NOT_FOR_FILES = frozenset(("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"))
"""Codecs of Python that no file is written in. Reading two of them takes more than linear time."""


@dataclass(frozen=True)
class Encoding:
    """How a file is encoded."""

    name: str
    mark: bytes = b""
    """Its byte order mark."""

    def encode(self, text: str, errors: str = "strict") -> bytes:
        """A text as a file of this encoding."""
        return self.mark + text.encode(self.name, errors)


def decode(content: bytes, declared: str = "utf-8") -> tuple[str, Encoding]:
    """The text of a file, and its encoding: the declared one if it has no byte order mark."""
    mark, name = next((pair for pair in _MARKS if content.startswith(pair[0])), (b"", declared))
    try:
        return content[len(mark) :].decode(name), Encoding(name, mark)
    except UnicodeDecodeError as error:
        line = content[: error.start + len(mark)].count(b"\n") + 1
        raise UserError(f"line {line}: not {name.upper()}") from None


def encoding_named(label: str) -> str:
    """The name of the encoding that a file says it has."""
    try:
        name = codecs.lookup(label).name
        "".encode(name)
        if name in _NOT_FOR_FILES:
            raise LookupError
    except (LookupError, ValueError):
        raise UserError(f"the encoding {label!r} is not known") from None
    return name
