"""A message of a program → the texts in it → the same message around their translations.

Every line is a text, without the white space around it. Tags in it are placed by alignment. Placeholders, and a tag
without a partner, are part of the text, and the translator copies them. So it does with a choice, as ICU has it ({n,
plural, one {# file} other {# files}}), whose own texts follow. Where messages are stored is not known here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

from latentmt.data.spans import CHOICE
from latentmt.documents.flow import MAX_INLINE_DEPTH, Event, Text, parts
from latentmt.documents.tags import Placed, place
from latentmt.results import Translation

_TAG = r"<(?P<end>/?)(?P<name>[A-Za-z0-9][\w.:-]{0,40})(?:\s[^<>\r\n]{0,200})?/?>"
_PIECE = re.compile(rf"(?P<choice>{CHOICE})|(?P<tag>{_TAG})|(?P<number>#)|\r\n|\r|\n")
_CHOICE, _BRACE = re.compile(CHOICE), re.compile("[{}]")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BLOCKS = _names("blockquote br dd div dl dt h1 h2 h3 h4 h5 h6 hr li ol p pre section table tbody td th thead tr ul")
"""Tags between sentences."""
_VOID = _names("img input wbr")
_VERBATIM = _names("code kbd samp script style var")
"""Tags around what is not translated."""
_CHOICE_BEGINS = re.compile(r"\{\w{1,40}\s{0,9},\s{0,9}(?:plural|select|selectordinal)\s{0,9},")
"""Where a choice begins; one that is no choice is malformed, or too deep to be read, and its message stays."""
_WHITE = re.compile(r"[ \t\f\v]{2}|[\t\r\n\f\v]")
_UNNUMBERED = re.compile(
    r"%%|%[-+0#']?(?:\d{1,3}|\*)?(?:\.(?:\d{1,2}|\*))?(?:hh|ll|[hlqjzt])?[diouxXeEfFgGaAcsp@](?![^\W\d_])"
    r"|\{\{|\{(?:![rsa])?(?::[^{}\s]{0,40})?\}"
)


class Message:
    """The texts of a message: those of its lines, then those of its choices."""

    def __init__(self, source: str, in_choice: bool = False) -> None:
        """`in_choice`: # stands for a number."""
        self.source = source
        is_readable = _CHOICE_BEGINS.search(_CHOICE.sub("", source)) is None
        self._parts = list(parts(list(_events(source, in_choice)))) if is_readable else [source]
        self._choices = {raw: _Choice(raw) for raw in dict.fromkeys(_CHOICE.findall(source)) if is_readable}
        self._found = [part for part in self._parts if isinstance(part, Text) and _is_translated(part.text)]
        within = self._choices.values()
        self.texts: Sequence[str] = [
            *(part.text for part in self._found),
            *(text for choice in within for text in choice.texts),
        ]
        self.inline: bool = any(part.root.children for part in self._found) or any(one.inline for one in within)

    def render(self, translations: Sequence[Translation]) -> str:
        """The message with these translations of its texts."""
        remaining = iter(translations)
        chosen = dict(zip(map(id, self._found), islice(remaining, len(self._found)), strict=True))
        rendered = "".join(_rendered(part, chosen.get(id(part))) for part in self._parts)
        if not self._choices:
            return rendered
        choices = {
            raw: choice.render(list(islice(remaining, len(choice.texts)))) for raw, choice in self._choices.items()
        }
        return _CHOICE.sub(lambda found: choices.get(found[0], found[0]), rendered)


class _Choice:
    """Texts to choose from. What is between them stays as it is."""

    def __init__(self, raw: str) -> None:
        self._pieces: list[str | Message] = []
        depth = position = 0
        for brace in _BRACE.finditer(raw):
            depth += 1 if brace[0] == "{" else -1
            if depth == 2 and brace[0] == "{":
                self._pieces.append(raw[position : brace.end()])
                position = brace.end()
            elif depth == 1 and brace[0] == "}":
                self._pieces.append(Message(raw[position : brace.start()], in_choice=True))
                position = brace.start()
        self._pieces.append(raw[position:])
        messages = [piece for piece in self._pieces if isinstance(piece, Message)]
        self.texts = [text for message in messages for text in message.texts]
        self.inline = any(message.inline for message in messages)

    def render(self, translations: Sequence[Translation]) -> str:
        """It with these translations of its texts. A straight apostrophe would begin a quotation."""
        remaining = iter(translations)
        out = []
        for piece in self._pieces:
            if isinstance(piece, str):
                out.append(piece)
            else:
                text = piece.render(list(islice(remaining, len(piece.texts))))
                out.append(text if "'" in piece.source else text.replace("'", "’"))
        return "".join(out)


def keeps_arguments(source: str, translation: str) -> bool:
    """Whether placeholders without a number or a name stand for the same arguments: whether their order is the same."""
    return _arguments(source) == _arguments(translation)


def _arguments(text: str) -> list[str]:
    return [found for found in _UNNUMBERED.findall(text) if found not in ("%%", "{{")]


def _is_translated(text: str) -> bool:
    """Whether there is a letter outside of choices."""
    return any(map(str.isalpha, _CHOICE.sub("", text)))


def _rendered(part: str | Text, translation: Translation | None) -> str:
    """A part of a message, with its translation if it has one."""
    if isinstance(part, str):
        return part
    if translation is None or translation.text == part.text:
        return part.raw
    return part.before + "".join(map(_written, place(part.root, translation))).strip() + part.after


def _written(piece: Placed) -> str:
    if piece.node is None:
        return piece.text
    return piece.node.closing if piece.kind == "close" else piece.node.opening


def _events(source: str, in_choice: bool) -> Iterator[Event]:
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
        elif piece["number"]:
            yield Event("#", "atom" if in_choice else "text", "#")
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
