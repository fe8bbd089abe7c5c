"""Paragraphs with text and elements side by side, as in XHTML and OpenDocument."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from latentmt.documents.flow import MAX_INLINE_DEPTH
from latentmt.documents.paragraphs import Item, Place
from latentmt.documents.tree import Element

_LINE = re.compile(r"[^\r\n]++|[\r\n]++")

Kind = Literal["inline", "block", "break", "verbatim", "space"]
"""Part of a sentence; around sentences; between two; untouched in one; read as a space."""


@dataclass(frozen=True)
class Mixed:
    """A dialect, by what its elements are."""

    kind: Callable[[Element], Kind]
    mark: Callable[[Element], tuple[str, bool] | None] = lambda element: None
    """The range that an element begins (True) or ends."""
    key: Callable[[Element], str] = lambda element: ""
    """Inline elements with the same one look the same; where it is empty, none does."""
    by_lines: bool = False
    """Whether line ends are between sentences."""

    def read(self, container: Element) -> tuple[list[Item], None]:
        return list(self._items(container, 0)), None

    def _items(self, parent: Element, depth: int) -> Iterator[Item]:
        yield from self._text(parent.text)
        for child in parent:
            kind: Kind = self.kind(child) if isinstance(child.tag, str) else "verbatim"
            match kind:
                case "inline" | "block":
                    inside = depth + (kind == "inline")
                    boundary = kind == "block" or inside > MAX_INLINE_DEPTH
                    key = "" if boundary else self.key(child)
                    yield Item("open", (child,), boundary=boundary, content=child, key=key)
                    yield from self._items(child, inside)
                    yield Item("close", boundary=boundary, key=key)
                case "space":
                    yield Item("put", (child,), " ")
                case _:
                    mark = self.mark(child) if kind == "verbatim" else None
                    yield Item("put", (child,), boundary=kind == "break", mark=mark)
            yield from self._text(child.tail)

    def _text(self, text: str | None) -> Iterator[Item]:
        for piece in _LINE.findall(text or "") if self.by_lines else filter(None, [text]):
            yield Item("text", text=piece, boundary=self.by_lines and piece[0] in "\r\n")

    def empty(self, element: Element) -> None:
        element.text = None
        for child in list(element):
            element.remove(child)

    def put(self, place: Place, element: Element) -> None:
        element.tail = None
        place.content.append(element)

    def open(self, place: Place, item: Item) -> Element:
        element = item.content
        self.put(place, element)
        self.empty(element)
        return element

    def write(self, place: Place, text: str) -> None:
        parent = place.content
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + text
        else:
            parent.text = (parent.text or "") + text


PLAIN = Mixed(lambda element: "verbatim")
"""Elements with text only."""
