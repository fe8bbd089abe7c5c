"""HTML → the texts in it → the same HTML around their translations.

The content between two block tags is one text, inline tags included. Line breaks in it have no meaning. `tags` puts
inline tags back, and what must not be translated: code, scripts, comments, images, `translate="no"`. Every tag comes
back once, and nested tags stay nested. A tag whose partner is not in the same block stays where it is and ends the
text. Attributes are not translated.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Literal

from latentmt.results import Translation
from latentmt.serve.tags import Node, insert_tags


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


INLINE = _names(
    """
    a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark q s small span strike strong sub sup time
    tt u
    """
)
"""Elements that are part of a sentence."""
INLINE_VERBATIM = _names("code kbd samp var")
VERBATIM = INLINE_VERBATIM | _names("iframe math noscript pre script style svg template textarea xmp")
"""Elements whose content is not translated."""
INLINE_VOID = _names("img wbr")
VOID = INLINE_VOID | _names("area base br col embed hr input link meta param source track")
"""Elements without an end tag."""

_SPACE = re.compile(r"[ \t\r\n\f]+")


class Document:
    """Parsed HTML: its texts, and the markup around them."""

    def __init__(self, source: str) -> None:
        self._parts: list[str | _Text] = list(_parts(_events(source)))
        self.texts = [part.text for part in self._parts if isinstance(part, _Text)]

    def render(self, translations: Sequence[Translation]) -> str:
        """The HTML with these translations in place of its texts."""
        remaining = iter(translations)
        return "".join(
            part if isinstance(part, str) else part.before + insert_tags(part.root, next(remaining)) + part.after
            for part in self._parts
        )


@dataclass(frozen=True)
class _Event:
    """A piece of the source."""

    raw: str
    kind: Literal["text", "open", "close", "atom", "boundary"]
    """Text, an inline tag, something verbatim within a sentence, or what ends a text."""
    name: str = ""


class _Reader(HTMLParser):
    """Records where each token begins. It ends where the next one begins, so nothing of the source is lost."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=False)
        self.tokens: list[tuple[int, str, str, bool]] = []
        """Position, kind, the tag's name, and whether it is verbatim."""
        self._source = source
        self._lines = [0, *itertools.accumulate(len(line) + 1 for line in source.split("\n"))]
        self.feed(source)
        self.close()

    def _add(self, kind: str, name: str = "", verbatim: bool = False) -> None:
        line, offset = self.getpos()
        position = self._lines[line - 1] + offset
        last = self.tokens[-1][0] if self.tokens else -1
        if kind == "text" and last < position - 1 and self._source.endswith("&", 0, position):
            position -= 1  # some versions of the parser skip the "&" of what may be a name, at the end of the source
        self.tokens.append((position, kind, name, verbatim))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        classes = (attributes.get("class") or "").split()
        excluded = (attributes.get("translate") or "").lower() == "no" or "notranslate" in classes
        self._add("open", tag, excluded or tag in VERBATIM)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("closed", tag)

    def handle_endtag(self, tag: str) -> None:
        self._add("close", tag)

    def handle_data(self, data: str) -> None:
        self._add("text")

    def handle_entityref(self, name: str) -> None:
        self._add("text")

    def handle_charref(self, name: str) -> None:
        self._add("text")

    def handle_comment(self, data: str) -> None:
        self._add("comment")

    def handle_decl(self, decl: str) -> None:
        self._add("declaration")

    def handle_pi(self, data: str) -> None:
        self._add("declaration")

    def unknown_decl(self, data: str) -> None:
        self._add("declaration")


def _events(source: str) -> Iterator[_Event]:
    """The source as events. An element that is verbatim is one event. Joined, the events are the source."""
    tokens = _Reader(source).tokens
    starts = [position for position, *_ in tokens] + [len(source)]
    if starts[0]:
        yield _Event(source[: starts[0]], "boundary")  # what no browser shows, like </>
    number = 0
    while number < len(tokens):
        position, kind, name, verbatim = tokens[number]
        number += 1
        if kind == "open" and verbatim and name not in VOID:
            depth = 1
            while number < len(tokens) and depth:
                depth += (tokens[number][2] == name) * {"open": 1, "close": -1}.get(tokens[number][1], 0)
                number += 1
            inline = name in INLINE or name in INLINE_VERBATIM
            yield _Event(source[position : starts[number]], "atom" if inline else "boundary")
            continue
        raw = source[position : starts[number]]
        if kind == "text":
            yield _Event(raw, "text")
        elif kind == "comment" or name in INLINE_VOID or (kind == "closed" and name in INLINE):
            yield _Event(raw, "atom")
        elif name in INLINE and kind in ("open", "close"):
            yield _Event(raw, "open" if kind == "open" else "close", name)
        else:
            yield _Event(raw, "boundary")


def _parts(events: Iterator[_Event]) -> Iterator[str | _Text]:
    """Texts, and the markup between them."""
    for is_boundary, run in itertools.groupby(events, lambda event: event.kind == "boundary"):
        if is_boundary:
            yield "".join(event.raw for event in run)
            continue
        for part in _balanced_runs(list(run)):
            if isinstance(part, _Event):
                yield part.raw
            else:
                yield _build_text(part) or "".join(event.raw for event in part)


def _balanced_runs(events: list[_Event]) -> Iterator[list[_Event] | _Event]:
    """Runs of events in which every tag has its partner, and the tags without a partner between them."""
    stack: list[list[_Event] | _Event] = [events]
    while stack:
        run = stack.pop()
        if isinstance(run, _Event):
            yield run
            continue
        unpaired = _unpaired(run)
        if not unpaired:
            yield run
            continue
        for start, end in reversed(list(itertools.pairwise([-1, *unpaired, len(run)]))):
            stack += [run[end]] if end < len(run) else []
            stack += [run[start + 1 : end]] if start + 1 < end else []


def _unpaired(events: Sequence[_Event]) -> list[int]:
    """The indices of tags without a partner. Of tags that overlap, the outer one has its partner."""
    opened: list[int] = []
    unpaired = []
    names: dict[str, int] = {}
    for number, event in enumerate(events):
        if event.kind == "open":
            opened.append(number)
            names[event.name] = names.get(event.name, 0) + 1
        elif event.kind == "close":
            if not names.get(event.name):
                unpaired.append(number)
                continue
            while events[(last := opened.pop())].name != event.name:
                unpaired.append(last)
                names[events[last].name] -= 1
            names[event.name] -= 1
    return sorted(unpaired + opened)


@dataclass(frozen=True)
class _Text:
    """A text with its inline elements."""

    text: str
    root: Node
    before: str
    after: str
    """The white space around it."""


class _TextBuilder:
    """Builds a text from a run of events: the text so far, and the open elements."""

    def __init__(self) -> None:
        self.text = ""
        self.root = Node("", 0, 0)
        self._open = [self.root]
        self._raw = [""]
        """The source within each open element."""
        self._spaced = False
        self._last: Node | None = None
        """The last verbatim node, until it is known whether white space follows it."""

    def add(self, event: _Event) -> None:
        match event.kind:
            case "text":
                self._words(event.raw)
            case "open":
                node = Node(event.raw, len(self.text), 0, spaces=(self._spaced, False))
                self._open[-1].children.append(node)
                self._open.append(node)
                self._raw.append("")
            case "close":
                self._close(event.raw)
            case _:
                self._open[-1].children.append(Node(event.raw, len(self.text), len(self.text)))
                self._raw[-1] += event.raw
                self._add_verbatim(self._open[-1].children[-1], self._spaced)

    def _words(self, raw: str) -> None:
        self._raw[-1] += raw
        words = _SPACE.sub(" ", html.unescape(raw))
        if words.startswith(" "):
            if self._last:
                self._last.spaces = (self._last.spaces[0], True)
            if self.text[-1:] in ("", " "):
                words = words[1:]
            self._spaced = True
        self.text += words
        if words.strip(" "):
            self._last, self._spaced = None, words.endswith(" ")

    def _close(self, raw: str) -> None:
        node, within = self._open.pop(), self._raw.pop()
        self._raw[-1] += node.opening + within + raw
        node.end, node.closing = len(self.text), raw
        if not self.text[node.start :].strip(" "):  # nothing to translate: the whole element is verbatim
            node.opening, node.closing, node.children, node.end = node.opening + within + raw, "", [], node.start
            self._add_verbatim(node, node.spaces[0])

    def _add_verbatim(self, node: Node, spaced: bool) -> None:
        node.spaces = (spaced, False)
        self._last, self._spaced = node, False


def _build_text(events: Sequence[_Event]) -> _Text | None:
    """The text of a run in which every tag has its partner, or None if it is blank."""
    builder = _TextBuilder()
    for event in events:
        builder.add(event)
    builder.root.end = len(builder.text)
    if not builder.text.strip():
        return None
    before, after = (event.raw if event.kind == "text" else "" for event in (events[0], events[-1]))
    return _Text(builder.text.rstrip(" "), builder.root, _outer_space(before)[0], _outer_space(after)[1])


def _outer_space(raw: str) -> tuple[str, str]:
    """The white space at both ends."""
    spaces = " \t\r\n\f"
    return raw[: len(raw) - len(raw.lstrip(spaces))], raw[len(raw.rstrip(spaces)) :]
