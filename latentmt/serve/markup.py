"""HTML → the texts in it → the same HTML around their translations.

What stands between two block tags is one text, whole, however many inline tags are in it; line breaks within it mean
nothing. Inline tags come back where `tags` puts them; so does what must not be translated: code, scripts, comments,
pictures, `translate="no"`. Every tag comes back once, and tags that were nested stay nested. A tag whose partner is not
in the same block stays where it is, and ends the text. Attributes are not translated.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Literal

from latentmt.serve.tags import Node, tagged


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


INLINE = _names(
    """
    a abbr acronym b bdi bdo big cite data del dfn em font i ins label mark q s small span strike strong sub sup time
    tt u
    """
)
"""Elements that are part of a sentence."""
INLINE_UNTOUCHED = _names("code kbd samp var")
UNTOUCHED = INLINE_UNTOUCHED | _names("iframe math noscript pre script style svg template textarea xmp")
"""Elements whose text is not for translation."""
INLINE_VOID = _names("img wbr")
VOID = INLINE_VOID | _names("area base br col embed hr input link meta param source track")
"""Elements without an end tag."""

_SPACE = re.compile(r"[ \t\r\n\f]+")


class Document:
    """HTML, taken apart."""

    def __init__(self, source: str) -> None:
        self._parts: list[str | _Text] = list(_parts(_events(source)))
        self.texts = [part.text for part in self._parts if isinstance(part, _Text)]

    def written(self, translations: Sequence[Aligned]) -> str:
        """The HTML with these translations of its texts instead."""
        each = iter(translations)
        return "".join(
            part if isinstance(part, str) else part.before + tagged(part.root, next(each)) + part.after
            for part in self._parts
        )


@dataclass(frozen=True)
class _Event:
    """A piece of the source."""

    raw: str
    kind: Literal["text", "open", "close", "atom", "wall"]
    """Text, an inline tag, something untouched within a sentence, or what ends a text."""
    name: str = ""


class _Reader(HTMLParser):
    """Notes where everything begins; it ends where the next thing begins, so nothing of the source is lost."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=False)
        self.found: list[tuple[int, str, str, bool]] = []
        """Where, what, the tag's name, and whether it must be left untouched."""
        self._source = source
        self._lines = [0, *itertools.accumulate(len(line) + 1 for line in source.split("\n"))]
        self.feed(source)
        self.close()

    def _note(self, what: str, name: str = "", untouched: bool = False) -> None:
        line, offset = self.getpos()
        place = self._lines[line - 1] + offset
        last = self.found[-1][0] if self.found else -1
        if what == "text" and last < place - 1 and self._source.endswith("&", 0, place):
            place -= 1  # some versions of the parser skip the "&" of what may be a name, at the end of the source
        self.found.append((place, what, name, untouched))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        kept = (given.get("translate") or "").lower() == "no" or "notranslate" in (given.get("class") or "").split()
        self._note("open", tag, kept or tag in UNTOUCHED)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note("closed", tag)

    def handle_endtag(self, tag: str) -> None:
        self._note("close", tag)

    def handle_data(self, data: str) -> None:
        self._note("text")

    def handle_entityref(self, name: str) -> None:
        self._note("text")

    def handle_charref(self, name: str) -> None:
        self._note("text")

    def handle_comment(self, data: str) -> None:
        self._note("comment")

    def handle_decl(self, decl: str) -> None:
        self._note("declaration")

    def handle_pi(self, data: str) -> None:
        self._note("declaration")

    def unknown_decl(self, data: str) -> None:
        self._note("declaration")


def _events(source: str) -> Iterator[_Event]:
    """The source in pieces, what must be left untouched in one piece; joined they are the source."""
    found = _Reader(source).found
    starts = [place for place, *_ in found] + [len(source)]
    if starts[0]:
        yield _Event(source[: starts[0]], "wall")  # what no browser shows, like </>
    number = 0
    while number < len(found):
        place, what, name, untouched = found[number]
        number += 1
        if what == "open" and untouched and name not in VOID:
            depth = 1
            while number < len(found) and depth:
                depth += (found[number][2] == name) * {"open": 1, "close": -1}.get(found[number][1], 0)
                number += 1
            inline = name in INLINE or name in INLINE_UNTOUCHED
            yield _Event(source[place : starts[number]], "atom" if inline else "wall")
            continue
        raw = source[place : starts[number]]
        if what == "text":
            yield _Event(raw, "text")
        elif what == "comment" or name in INLINE_VOID or (what == "closed" and name in INLINE):
            yield _Event(raw, "atom")
        elif name in INLINE and what in ("open", "close"):
            yield _Event(raw, "open" if what == "open" else "close", name)
        else:
            yield _Event(raw, "wall")


def _parts(events: Iterator[_Event]) -> Iterator[str | _Text]:
    """Texts, and what stands between them."""
    for wall, some in itertools.groupby(events, lambda event: event.kind == "wall"):
        if wall:
            yield "".join(event.raw for event in some)
            continue
        for event in _with_walls(list(some)):
            if isinstance(event, _Event):
                yield event.raw
            else:
                yield _read(event) or "".join(one.raw for one in event)


def _with_walls(events: list[_Event]) -> Iterator[list[_Event] | _Event]:
    """Runs of events in which every tag has its partner, and tags that have none."""
    todo: list[list[_Event] | _Event] = [events]
    while todo:
        some = todo.pop()
        if isinstance(some, _Event):
            yield some
            continue
        alone = _alone(some)
        if not alone:
            yield some
            continue
        for start, end in reversed(list(itertools.pairwise([-1, *alone, len(some)]))):
            todo += [some[end]] if end < len(some) else []
            todo += [some[start + 1 : end]] if start + 1 < end else []


def _alone(events: Sequence[_Event]) -> list[int]:
    """Which tags have no partner; of tags that overlap, the outer one has."""
    opened: list[int] = []
    alone = []
    names: dict[str, int] = {}
    for number, event in enumerate(events):
        if event.kind == "open":
            opened.append(number)
            names[event.name] = names.get(event.name, 0) + 1
        elif event.kind == "close":
            if not names.get(event.name):
                alone.append(number)
                continue
            while events[(last := opened.pop())].name != event.name:
                alone.append(last)
                names[events[last].name] -= 1
            names[event.name] -= 1
    return sorted(alone + opened)


@dataclass(frozen=True)
class _Text:
    """A text with its inline elements."""

    text: str
    root: Node
    before: str
    after: str
    """The white space around it."""


class _Path:
    """A run of events being read: the text so far, and the elements that are open."""

    def __init__(self) -> None:
        self.text = ""
        self.root = Node("", 0, 0)
        self._open = [self.root]
        self._raw = [""]
        """The source within each of them."""
        self._spaced = False
        self._last: Node | None = None
        """What was left as it is, and wants to know whether white space follows."""

    def add(self, event: _Event) -> None:
        match event.kind:
            case "text":
                self._words(event.raw)
            case "open":
                node = Node(event.raw, len(self.text), 0, apart=(self._spaced, False))
                self._open[-1].inside.append(node)
                self._open.append(node)
                self._raw.append("")
            case "close":
                self._close(event.raw)
            case _:
                self._open[-1].inside.append(Node(event.raw, len(self.text), len(self.text)))
                self._raw[-1] += event.raw
                self._untouched(self._open[-1].inside[-1], self._spaced)

    def _words(self, raw: str) -> None:
        self._raw[-1] += raw
        words = _SPACE.sub(" ", html.unescape(raw))
        if words.startswith(" "):
            if self._last:
                self._last.apart = (self._last.apart[0], True)
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
        if not self.text[node.start :].strip(" "):  # nothing to translate: it is left as it is, with all it holds
            node.opening, node.closing, node.inside, node.end = node.opening + within + raw, "", [], node.start
            self._untouched(node, node.apart[0])

    def _untouched(self, node: Node, spaced: bool) -> None:
        node.apart = (spaced, False)
        self._last, self._spaced = node, False


def _read(events: Sequence[_Event]) -> _Text | None:
    """The text in a run in which every tag has its partner, if there is any."""
    path = _Path()
    for event in events:
        path.add(event)
    path.root.end = len(path.text)
    if not path.text.strip():
        return None
    before, after = (event.raw if event.kind == "text" else "" for event in (events[0], events[-1]))
    return _Text(path.text.rstrip(" "), path.root, _around(before)[0], _around(after)[1])


def _around(raw: str) -> tuple[str, str]:
    """The white space at both ends."""
    spaces = " \t\r\n\f"
    return raw[: len(raw) - len(raw.lstrip(spaces))], raw[len(raw.rstrip(spaces)) :]
