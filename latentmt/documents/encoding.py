"""The encoding of a text file: a byte order mark tells, else it is UTF-8 or what the file says. It is written as it was
read."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from latentmt.errors import UserError

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


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
