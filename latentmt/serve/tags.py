"""Puts inline elements into a translation: around the words aligned with the words they were around.

Verbatim nodes go between the words aligned with their neighbours. Siblings stay siblings, and children stay inside
their parents. Nothing is parsed here.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latentmt.results import Link, Translation

_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


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
        self.spans = [match.span() for match in _WORD.finditer(aligned.text)]
        self._links = sorted(aligned.alignment, key=lambda link: link.source)
        self._starts = [link.source[0] for link in self._links]
        self._ends = [end for _, end in self.spans]
        self._longest = max((link.source[1] - link.source[0] for link in self._links), default=0)

    def shares(self, start: int, end: int) -> dict[int, float]:
        """The share of each word that is aligned with these source characters, where it is not zero."""
        shares: dict[int, float] = {}
        low, high = bisect_left(self._starts, start - self._longest), bisect_left(self._starts, end)
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


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> int:
    return max(0, min(a[1], b[1]) - max(a[0], b[0]))


def insert_tags(root: Node, aligned: Translation) -> str:
    """The translation with the elements in it."""
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
    free, gaps = [(parent.first, parent.last)], range(parent.first, parent.last + 1)
    taken: set[int] = set()
    for node in parent.children:
        node.first, node.last = _best_span(words.shares(node.start, node.end), free)
        free = [part for span in free for part in _subtract(span, (node.first, node.last))]
        taken.update(range(node.first + 1, node.last))
    left = [gap for gap in gaps if gap not in taken]
    for node in parent.children:
        if node.first == node.last:
            node.first = node.last = _best_gap(node.start, parent, left, words)


def _subtract(span: tuple[int, int], other: tuple[int, int]) -> list[tuple[int, int]]:
    """A span of words without another one."""
    if not _overlap(span, other):
        return [span]
    parts = (span[0], other[0]), (other[1], span[1])
    return [part for part in parts if part[0] < part[1]]


def _best_span(shares: dict[int, float], free: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The span with the largest sum of share − ½: the words that come rather from the element than from elsewhere.

    If no sum is positive, it is the word with the largest share. If there is none, the span is empty.
    """
    best, span = 0.0, (0, 0)
    for start, end in free:
        total, start_word = 0.0, start
        for word in range(start, end):
            if total <= 0:
                total, start_word = 0.0, word
            total += shares.get(word, 0.0) - 0.5
            if total > best:
                best, span = total, (start_word, word + 1)
    if best == 0.0:
        words = [word for start, end in free for word in range(start, end) if word in shares]
        if words:
            single = max(words, key=lambda word: shares[word])
            return single, single + 1
    return span


def _best_gap(position: int, parent: Node, gaps: Sequence[int], words: _Words) -> int:
    """The gap between words that is best aligned with the neighbours of a source position."""
    if position <= parent.start:
        return gaps[0]
    if position >= parent.end:
        return gaps[-1]
    before, after = words.neighbours(position)
    return max(gaps, key=lambda gap: before.get(gap - 1, 0.0) + after.get(gap, 0.0))


class _Writer:
    """Writes the words and elements of a translation in order."""

    def __init__(self, text: str, spans: Sequence[tuple[int, int]]) -> None:
        self._text, self._spans = text, spans
        self._word = self._position = 0
        self._spaced = True  # nothing is written yet
        self._pending_space = False
        self.out: list[str] = []

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
            self.out.append(" ")
        elif not (before or after):
            self.space()
        if not after and self._word < len(self._spans):
            self._position = self._spans[self._word][0]
        self.out.append(node.opening)
        self._spaced, self._pending_space = False, after

    def _write_pending_space(self) -> None:
        """Write the white space after a verbatim node, if the text has none here and a word follows."""
        start = self._spans[self._word][0]
        if self._pending_space and self._position == start and self._text[start].isalnum():
            self.out.append(" ")
            self._spaced = True
        self._pending_space = False

    def _write_until(self, position: int) -> None:
        self.out.append(html.escape(self._text[self._position : position], quote=False))
        self._position = position


def _write(root: Node, text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The words with the elements at their positions."""
    writer = _Writer(text, spans)
    path = [(root, iter(_in_order(root)))]
    while path:
        parent, children = path[-1]
        node = next(children, None)
        if node is None:
            writer.words(parent.last)
            writer.out.append(parent.closing)
            path.pop()
            continue
        writer.words(node.first)
        if node.closing:
            writer.space()
            writer.out.append(node.opening)
            path.append((node, iter(_in_order(node))))
        else:
            writer.verbatim(node)
    return "".join(writer.out).strip()


def _in_order(parent: Node) -> list[Node]:
    """The children of an element in the order of the translation."""
    return sorted(parent.children, key=lambda node: (node.first, node.last > node.first))
