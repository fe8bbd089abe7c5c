"""The encoding of a text file: UTF-8, or UTF-16 with a byte order mark. It is written as it was read."""

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

    def encode(self, text: str) -> bytes:
        """A text as a file of this encoding."""
        return self.mark + text.encode(self.name)


def decode(content: bytes) -> tuple[str, Encoding]:
    """The text of a file, and its encoding."""
    mark, name = next((pair for pair in _MARKS if content.startswith(pair[0])), (b"", "utf-8"))
    try:
        return content[len(mark) :].decode(name), Encoding(name, mark)
    except UnicodeDecodeError as error:
        line = content[: error.start + len(mark)].count(b"\n") + 1
        raise UserError(f"line {line}: not {name.upper()}") from None
