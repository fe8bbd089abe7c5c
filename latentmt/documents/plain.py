"""Plain text: every line is a text. White space around lines, line ends and a byte order mark stay as they are."""

from __future__ import annotations

import re
from collections.abc import Sequence

from latentmt.documents.encoding import decode
from latentmt.results import Translation

_LINE = re.compile(r"(\S(?:[^\r\n]*\S)?)")


class PlainText:
    """A text file."""

    inline = False

    def __init__(self, content: bytes) -> None:
        text, self._encoding = decode(content)
        self._parts = _LINE.split(text)
        self.texts: Sequence[str] = self._parts[1::2]

    def render(self, translations: Sequence[Translation]) -> bytes:
        parts = list(self._parts)
        parts[1::2] = [translation.text for translation in translations]
        return self._encoding.encode("".join(parts))
