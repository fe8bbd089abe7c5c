"""A paragraph of an XML document → its texts → the same paragraph around their translations.

A dialect says what the content of a paragraph is, as items: text, inline elements, what is verbatim, what ends a text.
It also writes text. Every element of the source is in the result once. A text that was not changed stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from lxml import etree

from latentmt.documents.flow import Event, Text, parts
from latentmt.documents.tags import place
from latentmt.documents.tree import Element, allowed
from latentmt.results import Translation

_WHITE = re.compile(r"[ \t\r\n\f\v]+")


@dataclass
class Item:
    """A piece of a paragraph."""

    effect: Literal["text", "open", "close", "put"]
    """What it does when the paragraph is written. Inside an element that is opened is what follows until its close."""
    elements: Sequence[Element] = ()
    """What it puts into the paragraph."""
    text: str = ""
    """What it says, or how it is read where an element is read as text."""
    boundary: bool = False
    """Whether it ends a text."""
    content: Element | None = None
    """Where what is inside of an opened element goes; None if beside its own elements."""
    style: Element | None = None
    """What text inside of it looks like, or this text; for the dialect."""
    mark: tuple[str, bool] | None = None
    """A range that begins (True) or ends here, by its name."""
    key: str = ""
    """Elements of the same key that follow each other are one."""

    @property
    def kind(self) -> Literal["text", "open", "close", "atom", "boundary"]:
        """Its event's."""
        if self.boundary:
            return "boundary"
        if self.effect == "put":
            return "text" if self.text else "atom"
        return self.effect


@dataclass
class Place:
    """Where something is written."""

    content: Element
    style: Element | None
    """What text looks like here."""


@runtime_checkable
class Dialect(Protocol):
    """How the paragraphs of a format are built."""

    def read(self, container: Element) -> tuple[list[Item], Element | None]:
        """The items of a paragraph, and what text looks like where no item says it."""
        ...

    def empty(self, element: Element) -> None:
        """Take out what the items of an element have."""
        ...

    def put(self, place: Place, element: Element) -> None:
        """Write an element of the source."""
        ...

    def open(self, place: Place, item: Item) -> Element:
        """Write an inline element without its content, and say where that goes."""
        ...

    def write(self, place: Place, text: str) -> None:
        """Write text."""
        ...


class Paragraph:
    """The texts of an element."""

    def __init__(self, container: Element, dialect: Dialect, untranslated: frozenset[str]) -> None:
        self._container, self._dialect = container, dialect
        items, self._style = dialect.read(container)
        self._items = _joined(_paired(items))
        events = [Event(f"{number} ", item.kind, item.text) for number, item in enumerate(self._items)]
        self._parts = list(parts(events))
        found = [part for part in self._parts if isinstance(part, Text) and _has_letter(part.text)]
        self._found = [part for part in found if part.text not in untranslated]
        self.texts = [part.text for part in self._found]
        self.inline = any(part.root.children for part in self._found)

    def translate(self, translations: Sequence[Translation]) -> bool:
        """Write these translations in place of the texts, and say whether that changed anything."""
        if all(new.text == text for text, new in zip(self.texts, translations, strict=True)):
            return False
        chosen = dict(zip(map(id, self._found), translations, strict=True))
        self._dialect.empty(self._container)
        writer = _Writer(self._dialect, Place(self._container, self._style))
        for part in self._parts:
            translation = chosen.get(id(part))
            if isinstance(part, str):
                self._raw(writer, part)
            elif translation is None or translation.text == part.text:
                self._raw(writer, part.raw)
            else:
                writer.text(part.before)
                for piece in place(part.root, translation):
                    if piece.node is None:
                        writer.text(_WHITE.sub(" ", piece.text))
                    else:
                        self._raw(writer, piece.node.closing if piece.kind == "close" else piece.node.opening)
                writer.text(part.after)
        writer.flush()
        return True

    def _raw(self, writer: _Writer, raw: str) -> None:
        for number in raw.split():
            writer.item(self._items[int(number)])


def _has_letter(text: str) -> bool:
    return any(map(str.isalpha, text))


class _Writer:
    """Writes items and text in order."""

    def __init__(self, dialect: Dialect, place: Place) -> None:
        self._dialect, self._path = dialect, [place]
        self._pending: list[str] = []

    def text(self, text: str) -> None:
        if text:
            self._pending.append(text)

    def flush(self) -> None:
        """Write the text so far as one piece."""
        text = allowed("".join(self._pending))
        self._pending.clear()
        if text:
            self._dialect.write(self._path[-1], text)

    def item(self, item: Item) -> None:
        if item.effect == "text":
            self.text(item.text)
            return
        self.flush()
        here = self._path[-1]
        if item.effect == "open":
            if item.content is not None:
                self._path.append(Place(self._dialect.open(here, item), item.style))
                return
            self._path.append(here)
        if item.effect == "close":
            self._path.pop()
            here = self._path[-1]
        for element in item.elements:
            self._dialect.put(here, element)


def _paired(items: list[Item]) -> list[Item]:
    """The items, with the two ends of a range (a bookmark) as an element, so that none comes before the other.

    Where ranges overlap without one being in the other, or an element has only one end, ends are boundaries.
    """
    opened: list[int] = []
    starts: dict[str, int] = {}
    dead: set[int] = set()
    """Starts whose range is no element."""
    for number, item in enumerate(items):
        if item.effect == "open":
            opened.append(number)
        elif item.effect == "close":
            while items[opened.pop()].effect != "open":  # the end of this range is outside
                pass
        elif item.mark and item.mark[1]:
            starts[item.mark[0]] = number
            opened.append(number)
        elif item.mark and item.mark[0] in starts:
            start = starts.pop(item.mark[0])
            while opened and opened[-1] in dead:
                opened.pop()
            if opened and opened[-1] == start:
                opened.pop()
                items[start].effect, item.effect = "open", "close"
            else:
                dead.add(start)
                items[start].boundary = item.boundary = True
    return items


def _joined(items: list[Item]) -> list[Item]:
    """The items without ends of elements that are followed by the beginning of an equal one."""
    out: list[Item] = []
    for item in items:
        if item.effect == "open" and item.key and out and out[-1].effect == "close" and out[-1].key == item.key:
            out.pop()
        else:
            out.append(item)
    return out


class Value:
    """An attribute that is read by people."""

    inline = False

    def __init__(self, element: Element, name: str) -> None:
        self._element, self._name = element, name
        text = _WHITE.sub(" ", element.get(name)).strip()
        self.texts = [text] if _has_letter(text) else []

    def translate(self, translations: Sequence[Translation]) -> bool:
        """Write the translation, and say whether that changed anything."""
        if not translations or translations[0].text == self.texts[0]:
            return False
        self._element.set(self._name, allowed(translations[0].text))
        return True


@dataclass(frozen=True)
class Vocabulary:
    """What is read of a member."""

    paragraphs: Mapping[str, Dialect]
    """By tag."""
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names of attributes, by tag."""
    skipped: frozenset[str] = frozenset()
    """Tags of elements with paragraphs that are not read."""
    untranslated: frozenset[str] = frozenset()
    """Texts that stay as they are."""

    def read(self, root: Element) -> Iterator[Paragraph | Value]:
        """The paragraphs of a tree, in its order. It must not be changed before all of them are read."""
        skipped = {inner for tag in self.skipped for outer in root.iter(tag) for inner in outer.iter()}
        for element in root.iter(etree.Element):
            if element.tag in self.paragraphs and element not in skipped:
                yield Paragraph(element, self.paragraphs[element.tag], self.untranslated)
            for name in self.values.get(element.tag, ()):
                if name in element.attrib:
                    yield Value(element, name)
