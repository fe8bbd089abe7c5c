"""A PO file as lines, and the entries that they have. Which of them are translated is not known here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latentmt.errors import UserError

_LINE = re.compile(r"[^\n]*+\n|[^\n]++")
_STRING = r'"(?:[^"\\\r\n]++|\\[^\r\n])*+"'
_WRITTEN = re.compile(
    r"[ \t]*+(?:(?P<keyword>msgctxt|msgid_plural|msgid|msgstr)[ \t]*+(?:\[[ \t]*+(?P<index>\d)[ \t]*+\])?[ \t]*+)?"
    rf"(?P<strings>(?:{_STRING}[ \t]*+)++)[\r\n]*+\Z"
)
_BYTE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2}))")
_BETWEEN = r"\"[ \t]*+\""
"""The end of a string, and the beginning of the next."""
_ESCAPE = re.compile(
    rf"(?P<bytes>(?:\\(?:[0-7]{{1,3}}|x[0-9A-Fa-f]{{1,2}})(?:{_BETWEEN})*+)++)|\\(?P<character>.)|{_BETWEEN}", re.DOTALL
)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"'} | {value: f"\\{name}" for name, value in _CONTROLS.items()})
_WIDTH = 78
"""The longest line of a wrapped text, its quotes included, as GNU gettext writes it."""


@dataclass
class Entry:
    """A message, and where it is written."""

    context: str | None = None
    id: str = ""
    plural: str | None = None
    strings: list[str] = field(default_factory=list)
    """Its translations: one, or one for each plural form."""
    line: int = 0
    """Where the message begins: the first line that is no comment."""
    start: int = 0
    end: int = 0
    """The lines of its translations: `start` up to, but not including, `end`."""
    flags: dict[str, int] = field(default_factory=dict)
    """Each with its line."""
    previous: list[int] = field(default_factory=list)
    """Lines that say what an older message was."""


class _Reader:
    """Reads entries line by line."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._entry = Entry()
        self._fields: list[tuple[str, list[str]]] = []
        """Those of the entry so far, with the pieces of their texts."""

    def read(self, number: int, line: str) -> Entry | None:
        """Read a line, and return the entry that it ends."""
        content = line.strip()
        if content.startswith("#"):
            return self._comment(number, content)
        if not content:
            return None
        match = _WRITTEN.match(line)
        if match is None:
            raise UserError(f"line {number + 1}: expected a comment, msgid, msgstr, or a text in quotes")
        return self._written(number, match)

    def finish(self, number: int) -> Entry | None:
        """End the entry that was read so far, if there is one."""
        if not self._fields:
            return None
        if self._fields[-1][0] != "msgstr":
            raise UserError(f"line {number + 1}: expected msgstr")
        entry = self._entry
        try:
            read = [(name, unescaped("".join(pieces), self._encoding)) for name, pieces in self._fields]
        except ValueError:
            raise UserError(
                f"line {entry.line + 1}: a message with escapes that are not {self._encoding.upper()}"
            ) from None
        texts = dict(read)
        entry.context, entry.id, entry.plural = texts.get("msgctxt"), texts["msgid"], texts.get("msgid_plural")
        entry.strings = [text for name, text in read if name == "msgstr"]
        self._entry, self._fields = Entry(), []
        return entry

    def _comment(self, number: int, content: str) -> Entry | None:
        ended = self.finish(number)
        if content.startswith("#,"):
            self._entry.flags |= {flag.strip(): number for flag in content[2:].split(",") if flag.strip()}
        elif content.startswith("#|"):
            self._entry.previous.append(number)
        elif content.startswith("#~"):
            self._entry = Entry()  # what is obsolete has the comments before it
        return ended

    def _written(self, number: int, match: re.Match[str]) -> Entry | None:
        ended = None
        keyword, index, strings = match["keyword"], match["index"], match["strings"]
        last = self._fields[-1][0] if self._fields else ""
        if keyword is None:
            if not self._fields:
                raise UserError(f"line {number + 1}: expected msgid")
            self._fields[-1][1].append(strings)
        else:
            if last == "msgstr" and keyword != "msgstr":
                ended = self.finish(number)
                last = ""
            self._check(number, keyword, index, last)
            self._fields.append((keyword, [strings]))
            if len(self._fields) == 1:
                self._entry.line = number
            if keyword == "msgstr" and last != "msgstr":
                self._entry.start = number
        self._entry.end = number + 1
        return ended

    def _check(self, number: int, keyword: str, index: str | None, last: str) -> None:
        """Refuse a field that cannot be where it is."""
        before = {"msgctxt": ("",), "msgid": ("", "msgctxt"), "msgid_plural": ("msgid",)}
        has_plural = any(name == "msgid_plural" for name, _ in self._fields)
        written = sum(name == "msgstr" for name, _ in self._fields)
        allowed = before.get(keyword) or (("msgid_plural", "msgstr") if has_plural else ("msgid",))
        expected = str(written) if keyword == "msgstr" and has_plural else None
        if last not in allowed or index != expected:
            found = keyword if index is None else f"{keyword}[{index}]"
            raise UserError(f"line {number + 1}: {found} is not expected here")


def lines_of(text: str) -> list[str]:
    """The lines of a PO file, each with its end."""
    return _LINE.findall(text)


def entries_in(lines: Sequence[str], encoding: str) -> Iterator[Entry]:
    """The entries in the lines of a PO file, each as soon as it ends. Obsolete ones are comments.

    `encoding`: of the bytes that are written as numbers.
    """
    reader = _Reader(encoding)
    for number, line in enumerate(lines):
        if entry := reader.read(number, line):
            yield entry
    if entry := reader.finish(len(lines)):
        yield entry


def unescaped(strings: str, encoding: str = "utf-8") -> str:
    """What strings in quotes say, one after the other. Numbers are bytes; a ValueError says that they are no text."""
    return _ESCAPE.sub(lambda match: _said(match, encoding), strings.strip()[1:-1])


def _said(match: re.Match[str], encoding: str) -> str:
    if match["bytes"]:
        numbers = _BYTE.findall(match["bytes"])
        return bytes(int(octal, 8) if octal else int(hexadecimal, 16) for octal, hexadecimal in numbers).decode(
            encoding
        )
    character = match["character"]
    if not character:
        return ""  # between two strings
    return character if character in '"\\' else _CONTROLS.get(character, match[0])


def written(keyword: str, text: str, newline: str, wrapped: bool = True) -> str:
    """A field of an entry, as GNU gettext writes it: a line for each line of the text, wrapped if they are long."""
    lines = [line.translate(_ESCAPED) for line in re.findall(r"[^\n]*+\n|[^\n]++", text)]
    if len(lines) < 2 and not (wrapped and len(keyword) + 3 + sum(map(len, lines)) > _WIDTH + 1):
        return f'{keyword} "{"".join(lines)}"{newline}'
    pieces = [piece for line in lines for piece in (_filled(line) if wrapped else [line])]
    return "".join([f'{keyword} ""{newline}', *(f'"{piece}"{newline}' for piece in pieces)])


def _filled(line: str) -> list[str]:
    """A line in pieces that are not too long, broken behind spaces."""
    pieces: list[list[str]] = [[]]
    length = 2
    for word in re.findall(r"[^ ]*+ ++|[^ ]++", line):
        if pieces[-1] and length + len(word.rstrip(" ")) > _WIDTH:
            pieces.append([])
            length = 2
        pieces[-1].append(word)
        length += len(word)
    return ["".join(piece) for piece in pieces]


def is_wrapped(lines: Sequence[str]) -> bool:
    """Whether the texts of a file are wrapped."""
    return all(len(line) <= _WIDTH + 4 or line.count(" ") < 2 for line in lines if not line.startswith("#"))
