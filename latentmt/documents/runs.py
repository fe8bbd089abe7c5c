"""Paragraphs whose text is in runs, each with its formatting, as in the three formats of Microsoft Office.

Programs split runs at random. Those next to each other that look the same are read as one. How most of a paragraph
looks is how its text looks; other formatting is an inline element.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from lxml import etree

from latentmt.documents.flow import MAX_INLINE_DEPTH
from latentmt.documents.paragraphs import Item, Place
from latentmt.documents.tree import Element

_LAYOUT = re.compile(r"([\r\n]+|\t+| {3,})")
"""White space that lays text out."""
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_INVISIBLE = frozenset(("lang", "altLang", "noProof", "dirty", "err", "smtClean", "bmk", "charset", "family"))
"""Properties and attributes of runs that look like nothing."""


@dataclass(frozen=True)
class Field:
    """A field is a sequence of elements: its beginning, an instruction, a separator, its result, its end."""

    part: Callable[[Element], str]
    """Which of `begin`, `separate` and `end` an element is, or nothing."""
    instruction: str
    """The tag of the text that says what it shows."""
    translated: re.Pattern[str]
    """Instructions of fields whose result is text."""


@dataclass(frozen=True)
class Runs:
    """A dialect, by its tags."""

    run: str
    text: str
    properties: str
    inline: Mapping[str, str] = field(default_factory=dict)
    """Elements that have runs; and the tag of the child that has them, if it is not the element itself."""
    breaks: frozenset[str] = frozenset()
    """What is between two texts."""
    read_as: Mapping[str, str] = field(default_factory=dict)
    """Elements that are characters."""
    dropped: frozenset[str] = frozenset()
    fields: Field | None = None
    mark: Callable[[Element], tuple[str, bool] | None] = lambda element: None
    """The range that an element begins (True) or ends."""
    is_inline: Callable[[Element], bool] = lambda element: True
    """Of elements that have runs: whether they are translated."""

    def read(self, container: Element) -> tuple[list[Item], Element | None]:
        return self._items(container, 0)

    def _items(self, parent: Element, depth: int) -> tuple[list[Item], Element | None]:
        """The items of an element that has runs, and the run that looks like most of its text."""
        pieces = list(self._pieces(parent, depth))
        base = _most_common([piece for piece in pieces if isinstance(piece, _Words)])
        items: list[Item] = []
        for piece in pieces:
            if isinstance(piece, Item):
                items.append(piece)
                continue
            texts = [
                Item("text", text=text, boundary=bool(number % 2))
                for number, text in enumerate(_LAYOUT.split(piece.text))
                if text
            ]
            if base is None or piece.format == base.format:
                items += texts
            else:
                items += [Item("open", content=piece.run), *texts, Item("close")]
        return items, base and base.run

    def _pieces(self, parent: Element, depth: int) -> Iterator[Item | _Words]:
        """Words in one formatting, and items between them."""
        last: _Words | None = None
        for piece in self._units(parent, depth):
            if not isinstance(piece, _Words):
                if last:
                    yield last
                last = None
                yield piece
            elif last and (last.format == piece.format or piece.is_space):
                last.texts += piece.texts
            elif last and last.is_space:
                last = _Words([*last.texts, *piece.texts], piece.run, piece.format)
            else:
                if last:
                    yield last
                last = piece
        if last:
            yield last

    def _units(self, parent: Element, depth: int) -> Iterator[Item | _Words]:
        """The content of an element that has runs, one by one."""
        units = [unit for child in parent for unit in (child if child.tag == self.run else (child,))]
        units = [unit for unit in units if unit.tag != self.properties and unit.tag not in self.dropped]
        fields = self._complete_fields(units)
        ends: list[int] = []
        skip = -1
        for number, unit in enumerate(units):
            if number <= skip:
                continue
            if number in fields:
                end, separator = fields[number]
                translated = separator >= 0
                skip = separator if translated else end
                yield Item("open" if translated else "put", units[number : skip + 1])
                if translated:
                    ends.append(end)
            elif ends and number == ends[-1]:
                yield Item("close", (unit,))
                ends.pop()
            else:
                yield from self._unit(unit, depth)

    def _unit(self, unit: Element, depth: int) -> Iterator[Item | _Words]:
        if unit.tag == self.text or unit.tag in self.read_as:
            text = self.read_as.get(unit.tag, unit.text) or ""
            if text:
                yield _Words([text], unit.getparent(), self._format(unit.getparent()))
        elif unit.tag in self.inline and self.is_inline(unit):
            content = unit.find(self.inline[unit.tag]) if self.inline[unit.tag] else unit
            if content is None:
                yield Item("put", (unit,))
                return
            boundary = depth >= MAX_INLINE_DEPTH
            items, base = self._items(content, depth + 1)
            yield Item("open", (unit,), boundary=boundary, content=content, style=base)
            yield from items
            yield Item("close", boundary=boundary)
        else:
            fixed = unit.tag in self.breaks or bool(self.fields and self.fields.part(unit))
            yield Item("put", (unit,), boundary=fixed, mark=self.mark(unit))

    def _complete_fields(self, units: Sequence[Element]) -> dict[int, tuple[int, int]]:
        """Where fields begin, and where they end; with the separator if their result is translated, else −1."""
        if not self.fields:
            return {}
        found: dict[int, tuple[int, int]] = {}
        opened: list[tuple[int, int, list[str]]] = []
        for number, unit in enumerate(units):
            part = self.fields.part(unit)
            if unit.tag == self.fields.instruction and opened:
                opened[-1][2].append(unit.text or "")
            elif part == "begin":
                opened.append((number, -1, []))
            elif part == "separate" and opened:
                opened[-1] = (opened[-1][0], number, opened[-1][2])
            elif part == "end" and opened:
                start, separator, instruction = opened.pop()
                translated = self.fields.translated.match("".join(instruction))
                found[start] = number, separator if translated else -1
        return found

    def _format(self, run: Element) -> str:
        """What a run looks like."""
        properties = run.find(self.properties) if run.tag == self.run else None
        if properties is None:
            return ""
        children = (child for child in properties if isinstance(child.tag, str) and _name(child) not in _INVISIBLE)
        attributes = sorted(item for item in properties.items() if item[0] not in _INVISIBLE)
        looks = [etree.tostring(child, method="c14n", with_tail=False).decode() for child in children]
        return repr((attributes, sorted(looks))) if attributes or looks else ""

    def empty(self, element: Element) -> None:
        """The properties of the element stay: they come before its content."""
        for child in list(element):
            element.remove(child)

    def put(self, place: Place, element: Element) -> None:
        parent = element.getparent()
        element.tail = None
        if parent is not None and parent.tag == self.run:
            self._copy(place.content, parent).append(element)
        else:
            place.content.append(element)

    def open(self, place: Place, item: Item) -> Element:
        if not item.elements:
            return self._copy(place.content, item.content)
        for element in item.elements:
            self.put(place, element)
        self.empty(item.content)
        return item.content

    def write(self, place: Place, text: str) -> None:
        content, style = place.content, place.style
        if content.tag != self.run and (style is None or style.tag == self.run):
            content = etree.SubElement(content, self.run) if style is None else self._copy(content, style)
        written = etree.SubElement(content, self.text)
        written.text = text
        if _name(written) == "t" and (text != text.strip() or "  " in text) and not self._is_drawing:
            written.set(_SPACE, "preserve")

    @property
    def _is_drawing(self) -> bool:
        """White space is always kept there, and there is no attribute that says it."""
        return "drawingml" in self.run

    def _copy(self, parent: Element, run: Element) -> Element:
        """A run without content that looks like another one."""
        copy = etree.SubElement(parent, run.tag, dict(run.attrib))
        properties = run.find(self.properties)
        if properties is not None:
            copy.append(deepcopy(properties))
            copy[0].tail = None
        return copy


@dataclass
class _Words:
    """Text in one formatting."""

    texts: list[str]
    """Of runs that follow each other."""
    run: Element
    """A run that looks like this, or the paragraph if the text is in none."""
    format: str

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def is_space(self) -> bool:
        """Whether nobody sees its formatting."""
        return self.texts in ([" "], ["  "])


def _most_common(pieces: Sequence[_Words]) -> _Words | None:
    """One of those that look like most of the text."""
    counts = Counter[str]()
    for piece in pieces:
        counts[piece.format] += len(piece.text)
    if not counts:
        return None
    format_ = counts.most_common(1)[0][0]
    return next(piece for piece in pieces if piece.format == format_)


def _name(element: Element) -> str:
    """A tag without its namespace."""
    return str(etree.QName(element).localname)
