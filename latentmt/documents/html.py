"""HTML files: text, and what attributes say to readers. Written in the encoding of the source, with its line ends.

What the encoding has no character for is written as a character reference. `lang` stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from latentmt.documents.encoding import decode, encoding_named
from latentmt.documents.markup import Document
from latentmt.results import Translation

_CHARSET = re.compile(rb"<meta\b[^>]{0,200}?\bcharset\s{0,9}=\s{0,9}[\"']?\s{0,9}([\w.:-]{1,40})", re.IGNORECASE)
_HEAD = 1024
"""Bytes in which the standard looks for the encoding."""
_XML = re.compile(r"\s*+<\?xml[^>]{0,200}\?>\s*+")


class HtmlFile:
    """An HTML file."""

    inline = True

    def __init__(self, content: bytes) -> None:
        source, self._encoding = decode(content, _declared(content))
        start = match.end() if (match := _XML.match(source)) else 0
        self._prolog, self._document = source[:start], Document(source[start:], attributes=True)
        self._crlf = 0 < source.count("\n") == source.count("\r\n")
        self._source = content
        self.texts: Sequence[str] = self._document.texts

    def render(self, translations: Sequence[Translation]) -> bytes:
        if [translation.text for translation in translations] == list(self.texts):
            return self._source
        rendered = self._document.render(translations)
        if self._crlf:
            rendered = re.sub(r"\r?\n", "\r\n", rendered)
        return self._encoding.encode(self._prolog + rendered, "xmlcharrefreplace")


def _declared(content: bytes) -> str:
    """The encoding that a page says it has; UTF-8 if it says nothing."""
    match = _CHARSET.search(content[:_HEAD])
    if not match:
        return "utf-8"
    name = encoding_named(match[1].decode("ascii", "replace").lower())
    if name.startswith("utf-16"):  # the standard: a page whose declaration could be read is not UTF-16
        return "utf-8"
    return "cp1252" if name in ("iso8859-1", "ascii") else name
