"""A message of a program → the texts in it → the same message around their translations.

Every line is a text, without the white space around it. Tags in it are placed by alignment. Placeholders, and a tag
without a partner, are part of the text, and the translator copies them. Where messages are stored is not known here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from latentmt.data.spans import CHOICE
from latentmt.documents.flow import MAX_INLINE_DEPTH, Event, Text, parts
from latentmt.documents.tags import Placed, place
from latentmt.results import Translation

_TAG = r"<(?P<end>/?)(?P<name>[A-Za-z0-9][\w.:-]{0,40})(?:\s[^<>\r\n]{0,200})?/?>"
_PIECE = re.compile(rf"(?P<choice>{CHOICE})|(?P<tag>{_TAG})|\r\n|\r|\n")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BLOCKS = _names("blockquote br dd div dl dt h1 h2 h3 h4 h5 h6 hr li ol p pre section table tbody td th thead tr ul")
"""Tags between sentences."""
_VOID = _names("img input wbr")
_VERBATIM = _names("code kbd samp script style var")
"""Tags around what is not translated."""
_WHITE = re.compile(r"[ \t\f\v]{2}|[\t\r\n\f\v]")
_UNNUMBERED = re.compile(
    r"%%|%[-+0#']?(?:\d{1,3}|\*)?(?:\.(?:\d{1,2}|\*))?(?:hh|ll|[hlqjzt])?[diouxXeEfFgGaAcsp@](?![^\W\d_])"
    r"|\{\{|\{(?:![rsa])?(?::[^{}\s]{0,40})?\}"
)


class Message:
    """The texts of a message."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._parts = list(parts(list(_events(source))))
        found = [part for part in self._parts if isinstance(part, Text)]
        self.texts: Sequence[str] = [part.text for part in found if _is_translated(part)]
        self.inline = any(part.root.children for part in found)

    def render(self, translations: Sequence[Translation]) -> str:
        """The message with these translations of its texts."""
        remaining = iter(translations)
        out = []
        for part in self._parts:
            if isinstance(part, str):
                out.append(part)
            elif not _is_translated(part) or (translation := next(remaining)).text == part.text:
                out.append(part.raw)
            else:
                out += [part.before, "".join(map(_written, place(part.root, translation))).strip(), part.after]
        return "".join(out)


def keeps_arguments(source: str, translation: str) -> bool:
    """Whether placeholders without a number or a name stand for the same arguments: whether their order is the same."""
    return _arguments(source) == _arguments(translation)


def _arguments(text: str) -> list[str]:
    return [found for found in _UNNUMBERED.findall(text) if found not in ("%%", "{{")]


def _is_translated(part: Text) -> bool:
    return any(map(str.isalpha, part.text))


def _written(piece: Placed) -> str:
    if piece.node is None:
        return piece.text
    return piece.node.closing if piece.kind == "close" else piece.node.opening


def _events(source: str) -> Iterator[Event]:
    """The message as events. What is within `code` is one event with its tags."""
    pieces = [*_PIECE.finditer(source)]
    partners = _partners(pieces)
    position = depth = number = 0
    while number < len(pieces):
        piece = pieces[number]
        if position < piece.start():
            yield _text(source[position : piece.start()])
        last = number
        if piece["choice"]:
            yield Event(piece[0], "atom" if _WHITE.search(piece[0]) else "text", piece[0])
        elif not piece["tag"] or (name := piece["name"].lower()) in _BLOCKS:
            yield Event(piece[0], "boundary")
        elif number in partners and name in _VERBATIM:
            last = partners[number]
            yield Event(source[piece.start() : pieces[last].end()], "atom")
        elif number in partners:
            depth += not piece["end"]
            is_deep = depth > MAX_INLINE_DEPTH
            yield Event(piece[0], "boundary" if is_deep else "close" if piece["end"] else "open")
            depth -= bool(piece["end"])
        else:
            yield Event(piece[0], "atom" if _is_empty(piece) else "text", piece[0])
        position, number = pieces[last].end(), last + 1
    if position < len(source):
        yield _text(source[position:])


def _text(raw: str) -> Event:
    return Event(raw, "text", raw)


def _is_empty(piece: re.Match[str]) -> bool:
    """Whether a tag is all of its element."""
    return piece["name"].lower() in _VOID or piece[0].endswith("/>")


def _partners(pieces: Sequence[re.Match[str]]) -> dict[int, int]:
    """The end tag of each start tag, and the reverse, by their numbers. Elements are in each other or side by side."""
    partners: dict[int, int] = {}
    opened: list[int] = []
    waiting = Counter[str]()
    for number, piece in enumerate(pieces):
        name = piece["name"]
        if not name or name.lower() in _BLOCKS or _is_empty(piece):
            continue
        if not piece["end"]:
            opened.append(number)
            waiting[name] += 1
        elif waiting[name]:
            while pieces[last := opened.pop()]["name"] != name:
                waiting[pieces[last]["name"]] -= 1
            waiting[name] -= 1
            partners |= {last: number, number: last}
    return partners
