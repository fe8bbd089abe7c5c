"""Puts inline elements into a translation: around the words aligned with the words they were around.

Verbatim nodes go between the words aligned with their neighbours. Siblings stay siblings, and children stay inside
their parents. Nothing is parsed here. What an element is, a format knows: `place` gives the translation in order, and
`insert_tags` writes it as HTML.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from latentmt.data.spans import find_spans
from latentmt.results import Link, Translation

_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\u00a0": "&nbsp;"}
_TEXT, _VALUE = str.maketrans(_ESCAPES), str.maketrans(_ESCAPES | {'"': "&quot;"})


def escape(text: str, quotes: bool = False) -> str:
    """A text as HTML; with quotes, as the value of an attribute. As the standard has it."""
    return text.translate(_VALUE if quotes else _TEXT)


@dataclass(eq=False)
class Node:
    """An inline element. Without children and an end tag, it is verbatim: `opening` is all of it."""

    opening: str
    start: int
    end: int
    """Its characters in the source text: `start` to `end`."""
    closing: str = ""
    children: list[Node] = field(default_factory=list)
    spaces: tuple[bool, bool] = (False, False)
    """Whether there is white space before and after it, if it is verbatim."""
    first: int = 0
    last: int = 0
    """Its words in the translation: `first` up to, but not including, `last`."""


class _Words:
    """The words of a translation, and their alignment to the source."""

    def __init__(self, aligned: Translation) -> None:
        self.spans = list(_words(aligned.text))
        self._links = sorted(aligned.alignment, key=lambda link: link.source)
        self._starts = [link.source[0] for link in self._links]
        self._reach = list(accumulate((link.source[1] for link in self._links), max))
        """Where the links so far end."""
        self._ends = [end for _, end in self.spans]

    def shares(self, start: int, end: int) -> dict[int, float]:
        """The share of each word that is aligned with these source characters, where it is not zero."""
        shares: dict[int, float] = {}
        low, high = bisect_right(self._reach, start), bisect_left(self._starts, end)
        for link in self._links[low:high]:
            covered = _overlap(link.source, (start, end)) / (link.source[1] - link.source[0])
            if covered:
                for word, part in self._targets(link):
                    shares[word] = shares.get(word, 0.0) + covered * part * link.weight
        return shares

    def _targets(self, link: Link) -> Iterator[tuple[int, float]]:
        """The words of a link's target, each with the share of it that the link covers."""
        word = bisect_left(self._ends, link.target[0] + 1)
        while word < len(self.spans) and self.spans[word][0] < link.target[1]:
            span = self.spans[word]
            yield word, _overlap(span, link.target) / (span[1] - span[0])
            word += 1

    def neighbours(self, position: int) -> tuple[dict[int, float], dict[int, float]]:
        """The shares of the source piece before a position, and of the one after it."""
        after = bisect_left(self._starts, position)
        following = self.shares(*self._links[after].source) if after < len(self._links) else {}
        return (self.shares(*self._links[after - 1].source) if after else {}), following


def _words(text: str) -> Iterator[tuple[int, int]]:
    """The words of a text. What is copied verbatim is one, so that no element gets into it."""
    position = 0
    for start, end in find_spans(text):
        yield from (match.span() for match in _WORD.finditer(text, position, start))
        yield start, end
        position = end
    yield from (match.span() for match in _WORD.finditer(text, position))


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> int:
    return max(0, min(a[1], b[1]) - max(a[0], b[0]))


@dataclass(frozen=True)
class Placed:
    """A piece of a translation: text, the beginning or the end of an element, or a verbatim node."""

    kind: Literal["text", "open", "close", "verbatim"]
    text: str = ""
    """Of the translation, if it is text."""
    node: Node | None = None
    """The element, if it is one."""


def insert_tags(root: Node, aligned: Translation) -> str:
    """The translation as HTML, with the elements in it."""
    return "".join(_as_html(piece) for piece in place(root, aligned)).strip()


def _as_html(piece: Placed) -> str:
    if piece.node is None:
        return escape(piece.text)
    return piece.node.closing if piece.kind == "close" else piece.node.opening


def place(root: Node, aligned: Translation) -> list[Placed]:
    """The translation in order, with the elements at their places. The root is none of them."""
    words = _Words(aligned)
    root.first, root.last = 0, len(words.spans)
    stack = [root]
    while stack:
        node = stack.pop()
        _place_children(node, words)
        stack += node.children
    return _write(root, aligned.text, words.spans)


def _place_children(parent: Node, words: _Words) -> None:
    """Assign words to the children of an element: disjoint spans within its own, or gaps between words."""
    taken: list[tuple[int, int]] = []
    for node in parent.children:
        if node.closing and (node.start, node.end) == (parent.start, parent.end):  # around all of the source's words
            node.first, node.last = parent.first, parent.last
        else:
            node.first, node.last = _best_span(words.shares(node.start, node.end), _Free(parent, taken))
        if node.first < node.last:
            insort(taken, (node.first, node.last))
    free = _Free(parent, taken)
    for node in parent.children:
        if node.first == node.last:
            node.first = node.last = _best_gap(node.start, parent, free, words)


@dataclass(frozen=True)
class _Free:
    """The words of an element that none of its children has."""

    parent: Node
    taken: Sequence[tuple[int, int]]
    """The spans that they have, in order."""

    def span(self, word: int) -> tuple[int, int] | None:
        """The words that are free around a word; None if it is not free itself."""
        number = bisect_right(self.taken, word, key=lambda span: span[0])
        start = self.taken[number - 1][1] if number else self.parent.first
        end = self.taken[number][0] if number < len(self.taken) else self.parent.last
        return (start, end) if start <= word < end else None

    def has_gap(self, gap: int) -> bool:
        """Whether a gap before a word, or at the end, is in none of the spans."""
        number = bisect_left(self.taken, gap, key=lambda span: span[0])
        inside = number > 0 and gap < self.taken[number - 1][1]
        return self.parent.first <= gap <= self.parent.last and not inside


def _best_span(shares: dict[int, float], free: _Free) -> tuple[int, int]:
    """The span with the largest sum of share − ½: the words that come rather from the element than from elsewhere.

    If no sum is positive, it is the word with the largest share. If there is none, the span is empty.
    """
    best, span, total = 0.0, (0, 0), 0.0
    start_word = last_word = room_end = -1
    words = [(word, room) for word in sorted(shares) if (room := free.span(word))]
    for word, room in words:
        total -= 0.5 * (word - last_word - 1)  # words without a share
        if total <= 0 or room[1] != room_end:
            total, start_word, room_end = 0.0, word, room[1]
        total += shares[word] - 0.5
        last_word = word
        if total > best:
            best, span = total, (start_word, word + 1)
    if best == 0.0 and words:
        single = max((word for word, _ in words), key=lambda word: shares[word])
        return single, single + 1
    return span


def _best_gap(position: int, parent: Node, free: _Free, words: _Words) -> int:
    """The gap between words that is best aligned with the neighbours of a source position."""
    if position <= parent.start:
        return parent.first
    if position >= parent.end:
        return parent.last
    before, after = words.neighbours(position)
    gaps = sorted({parent.first, *(word + 1 for word in before), *after})
    return max(filter(free.has_gap, gaps), key=lambda gap: before.get(gap - 1, 0.0) + after.get(gap, 0.0))


_SPACE = Placed("text", " ")


class _Writer:
    """Writes the words and elements of a translation in order."""

    def __init__(self, text: str, spans: Sequence[tuple[int, int]]) -> None:
        self._text, self._spans = text, spans
        self._word = self._position = 0
        self._spaced = True  # nothing is written yet
        self._pending_space = False
        self.out: list[Placed] = []

    def words(self, end: int) -> None:
        """Write the words before the one with this index."""
        if self._word < end:
            self._write_pending_space()
            self._write_until(self._spans[end - 1][1])
            self._word, self._spaced = end, False

    def space(self) -> None:
        """Write the white space before the next word."""
        if self._word < len(self._spans):
            self._write_pending_space()
            start = self._spans[self._word][0]
            self._spaced |= self._position < start
            self._write_until(start)

    def verbatim(self, node: Node) -> None:
        """Write a verbatim node, with white space where it had some, unless punctuation follows."""
        before, after = node.spaces
        if before and not self._spaced:
            self.out.append(_SPACE)
        elif not (before or after):
            self.space()
        if not after and self._word < len(self._spans):
            self._position = self._spans[self._word][0]
        self.out.append(Placed("verbatim", node=node))
        self._spaced, self._pending_space = False, after

    def _write_pending_space(self) -> None:
        """Write the white space after a verbatim node, if the text has none here and a word follows."""
        start = self._spans[self._word][0]
        if self._pending_space and self._position == start and self._text[start].isalnum():
            self.out.append(_SPACE)
            self._spaced = True
        self._pending_space = False

    def _write_until(self, position: int) -> None:
        if self._position < position:
            self.out.append(Placed("text", self._text[self._position : position]))
        self._position = position


def _write(root: Node, text: str, spans: Sequence[tuple[int, int]]) -> list[Placed]:
    """The words with the elements at their positions."""
    writer = _Writer(text, spans)
    path = [(root, iter(_in_order(root)))]
    while path:
        parent, children = path[-1]
        node = next(children, None)
        if node is None:
            writer.words(parent.last)
            path.pop()
            if path:
                writer.out.append(Placed("close", node=parent))
            continue
        writer.words(node.first)
        if node.closing:
            writer.space()
            writer.out.append(Placed("open", node=node))
            path.append((node, iter(_in_order(node))))
        else:
            writer.verbatim(node)
    return writer.out


def _in_order(parent: Node) -> list[Node]:
    """The children of an element in the order of the translation."""
    return sorted(parent.children, key=lambda node: (node.first, node.last > node.first))
