"""A document as a sequence of events → the texts in it, with their inline elements.

The content between two boundaries is one text, inline elements included. White space in it is written as one space.
What has no text is verbatim. An inline element with a boundary in it ends the text. What events stand for, a format
knows.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from latentmt.documents.tags import Node

MAX_INLINE_DEPTH = 16
"""Inline elements within each other. Deeper ones count as blocks, so that placing tags takes a bounded time."""

_SPACE = re.compile(r"[ \t\r\n\f]+")


@dataclass(frozen=True)
class Event:
    """A piece of a document."""

    raw: str
    """As it is written, or a key of it: strings that are joined and not read here."""
    kind: Literal["text", "open", "close", "atom", "boundary"]
    """Text, an inline tag, something verbatim within a sentence, or what ends a text."""
    text: str = ""
    """What a text says."""


def parts(events: Sequence[Event]) -> Iterator[str | Text]:
    """Texts, and the markup between them."""
    for is_boundary, run in itertools.groupby(events, lambda event: event.kind == "boundary"):
        if is_boundary:
            yield "".join(event.raw for event in run)
            continue
        inside = list(run)
        unpaired = _unpaired(inside)
        for start, end in itertools.pairwise([-1, *unpaired, len(inside)]):
            yield _build_text(inside[start + 1 : end]) or "".join(event.raw for event in inside[start + 1 : end])
            yield inside[end].raw if end < len(inside) else ""


def _unpaired(events: Sequence[Event]) -> list[int]:
    """The indices of tags whose partner is not here. No pair is around one of them."""
    opened: list[int] = []
    closed: list[int] = []
    for number, event in enumerate(events):
        if event.kind == "open":
            opened.append(number)
        elif event.kind == "close" and opened:
            opened.pop()
        elif event.kind == "close":
            closed.append(number)
    return closed + opened


@dataclass(frozen=True)
class Text:
    """A text with its inline elements."""

    raw: str
    """All of it, untranslated."""
    text: str
    root: Node
    before: str
    after: str
    """The white space around it."""


class _TextBuilder:
    """Builds a text from a run of events: the text so far, and the open elements."""

    def __init__(self) -> None:
        self.root = Node("", 0, 0)
        self.words: list[str] = []
        self.length = 0
        self._open = [self.root]
        self._starts = [0]
        """The index of the first event within each open element."""
        self._last_word = 0
        """Where the last word ends."""
        self._spaced = False
        self._last: Node | None = None
        """The last verbatim node, until it is known whether white space follows it."""

    def add(self, number: int, events: Sequence[Event]) -> None:
        event = events[number]
        match event.kind:
            case "text":
                self._text(event.text)
            case "open":
                node = Node(event.raw, self.length, 0, spaces=(self._spaced, False))
                self._open[-1].children.append(node)
                self._open.append(node)
                self._starts.append(number)
            case "close":
                self._close(events[self._starts.pop() : number + 1])
            case _:
                self._open[-1].children.append(Node(event.raw, self.length, self.length))
                self._add_verbatim(self._open[-1].children[-1], self._spaced)

    def _text(self, text: str) -> None:
        words = _SPACE.sub(" ", text)
        if words.startswith(" "):
            if self._last:
                self._last.spaces = (self._last.spaces[0], True)
            if not self.words or self.words[-1].endswith(" "):
                words = words[1:]
            self._spaced = True
        if not words:
            return
        self.words.append(words)
        self.length += len(words)
        if words.strip(" "):
            self._last, self._spaced = None, words.endswith(" ")
            self._last_word = self.length - self._spaced

    def _close(self, element: Sequence[Event]) -> None:
        node = self._open.pop()
        node.end, node.closing = self.length, element[-1].raw
        if self._last_word <= node.start:  # nothing to translate: the whole element is verbatim
            raw = "".join(event.raw for event in element)
            node.opening, node.closing, node.children, node.end = raw, "", [], node.start
            self._add_verbatim(node, node.spaces[0])

    def _add_verbatim(self, node: Node, spaced: bool) -> None:
        node.spaces = (spaced, False)
        self._last, self._spaced = node, False


def _build_text(events: Sequence[Event]) -> Text | None:
    """The text of a run in which every tag has its partner, or None if it is blank."""
    builder = _TextBuilder()
    for number in range(len(events)):
        builder.add(number, events)
    text = "".join(builder.words)
    builder.root.end = len(text)
    if not text.strip():
        return None
    before, after = (event.text if event.kind == "text" else "" for event in (events[0], events[-1]))
    raw = "".join(event.raw for event in events)
    return Text(raw, text.rstrip(" "), builder.root, _outer_space(before)[0], _outer_space(after)[1])


def _outer_space(text: str) -> tuple[str, str]:
    """The white space at both ends."""
    spaces = " \t\r\n\f"
    return text[: len(text) - len(text.lstrip(spaces))], text[len(text.rstrip(spaces)) :]
