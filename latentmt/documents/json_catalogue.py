"""Catalogues in JSON (.json, .arb): the values that are texts. Keys, order, white space and all other values keep their
bytes.

What Flutter's .arb says about a message, and what a browser's extension says beside its `message`, is no text. A value
whose placeholders without a number would come in another order stays as it is: a program would fail on it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from latentmt.documents.encoding import decode
from latentmt.documents.languages import UNKNOWN, Languages, check_languages
from latentmt.documents.messages import Message, keeps_arguments
from latentmt.errors import UserError
from latentmt.results import Translation

MAX_DEPTH = 100
"""Objects and lists within each other."""

_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\]++|\\.)*+"?)(?P<key>[ \t\r\n]*+:)?|(?P<open>[\[{])|(?P<close>[\]}])', re.DOTALL
)
_ESCAPED = re.compile(r"\\u(?!00[01])")
_LOCALE = "@@locale"


@dataclass(frozen=True)
class _Value:
    """A text among the values."""

    start: int
    end: int
    """Its characters in the file, with its quotes."""
    path: Sequence[str]
    """The keys that lead to it; those of lists have none."""
    text: str


class JsonCatalogue:
    """A file of texts by keys."""

    def __init__(self, content: bytes, languages: Languages = UNKNOWN, arb: bool = False) -> None:
        self._source, self._encoding = decode(content)
        values = list(_values(self._source))
        root = _parsed(self._source)
        self._ascii = self._source.isascii() and _ESCAPED.search(self._source) is not None
        is_extension = all(isinstance(entry, dict) and isinstance(entry.get("message"), str) for entry in root.values())
        self._locale = [value for value in values if arb and list(value.path) == [_LOCALE]]
        for value in self._locale:
            check_languages(value.text, "", languages)
        self._language = languages[1]
        self._messages = [
            (value, Message(value.text))
            for value in values
            if _is_text(value.text)
            and not (arb and value.path[0].startswith("@"))
            and (not is_extension or list(value.path[1:]) == ["message"])
        ]
        self.texts: Sequence[str] = [text for _, message in self._messages for text in message.texts]
        self.inline = any(message.inline for _, message in self._messages)

    def render(self, translations: Sequence[Translation]) -> bytes:
        remaining = iter(translations)
        changed = [(value, self._language) for value in self._locale if self._language]
        for value, message in self._messages:
            text = message.render(list(islice(remaining, len(message.texts))))
            if text != value.text and keeps_arguments(value.text, text):
                changed.append((value, text))
        out, position = [], 0
        for value, text in sorted(changed, key=lambda change: change[0].start):
            out += [self._source[position : value.start], self._written(value, text)]
            position = value.end
        return self._encoding.encode("".join([*out, self._source[position:]]))

    def _written(self, value: _Value, text: str) -> str:
        """A text as the file writes others."""
        written = json.dumps(text, ensure_ascii=self._ascii)
        return written.replace("/", "\\/") if "\\/" in self._source[value.start : value.end] else written


def read_arb(content: bytes, languages: Languages = UNKNOWN) -> JsonCatalogue:
    """The catalogue in an .arb file."""
    return JsonCatalogue(content, languages, arb=True)


def _values(source: str) -> Iterator[_Value]:
    """The strings that are values. Where the source is no JSON, this means nothing, but it ends."""
    path: list[str] = []
    key = ""
    for token in _TOKEN.finditer(source):
        if token["open"]:
            path.append(key)
            if len(path) > MAX_DEPTH:
                raise UserError(f"more than {MAX_DEPTH} objects and lists within each other")
        elif token["close"]:
            key = path.pop() if path else ""
        elif token["key"]:
            key = _string(token["string"])
        else:
            yield _Value(*token.span("string"), (*path[1:], key), _string(token["string"]))


def _string(raw: str) -> str:
    try:
        return str(json.loads(raw, strict=False))
    except ValueError:
        return ""  # the whole is refused later


def _parsed(source: str) -> dict[str, object]:
    """The object that a file is. Numbers are not read, as they may be of any length."""
    try:
        root = json.loads(source, parse_int=len, parse_float=len)
    except json.JSONDecodeError as error:
        raise UserError(f"line {error.lineno}: no JSON: {error.msg}") from None
    if not isinstance(root, dict):
        raise UserError("expected an object of texts")
    return root


def _is_text(text: str) -> bool:
    """Whether a value can be translated: half of a character cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
