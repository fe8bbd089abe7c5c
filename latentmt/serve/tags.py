"""Where inline elements go in a translation: around the words that come from the words they were around.

What must not be translated goes between the words that come from its neighbours. Elements that were beside each other
stay so, and what was inside of another stays inside. It parses nothing.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latentmt.results import Link

_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


@dataclass(eq=False)
class Node:
    """An inline element; or, with nothing in it and no end tag, something that is left as it is."""

    opening: str
    start: int
    """Where in the text it begins …"""
    end: int
    """… and ends."""
    closing: str = ""
    inside: list[Node] = field(default_factory=list)
    apart: tuple[bool, bool] = (False, False)
    """Whether there is white space before and after it, of what is left as it is."""
    first: int = 0
    """The word of the translation before which it begins …"""
    last: int = 0
    """… and the one before which it ends."""


class _Words:
    """The words of a translation, and what they come from."""

    def __init__(self, aligned: Aligned) -> None:
        self.spans = [match.span() for match in _WORD.finditer(aligned.text)]
        self._links = sorted(aligned.links, key=lambda link: link.source)
        self._starts = [link.source[0] for link in self._links]
        self._ends = [end for _, end in self.spans]
        self._longest = max((link.source[1] - link.source[0] for link in self._links), default=0)

    def shares(self, start: int, end: int) -> dict[int, float]:
        """How much of each word comes from these characters, of those of which anything does."""
        shares: dict[int, float] = {}
        low, high = bisect_left(self._starts, start - self._longest), bisect_left(self._starts, end)
        for link in self._links[low:high]:
            covered = _common(link.source, (start, end)) / (link.source[1] - link.source[0])
            if covered:
                for word, part in self._parts(link):
                    shares[word] = shares.get(word, 0.0) + covered * part * link.weight
        return shares

    def _parts(self, link: Link) -> Iterator[tuple[int, float]]:
        """The words that a link leads to, each with the share of it that the link is about."""
        word = bisect_left(self._ends, link.target[0] + 1)
        while word < len(self.spans) and self.spans[word][0] < link.target[1]:
            span = self.spans[word]
            yield word, _common(span, link.target) / (span[1] - span[0])
            word += 1

    def beside(self, place: int) -> tuple[dict[int, float], dict[int, float]]:
        """The shares of the source's piece before a place, and of the one after it."""
        after = bisect_left(self._starts, place)
        following = self.shares(*self._links[after].source) if after < len(self._links) else {}
        return (self.shares(*self._links[after - 1].source) if after else {}), following


def _common(one: tuple[int, int], other: tuple[int, int]) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))


def tagged(root: Node, aligned: Aligned) -> str:
    """The translation with the elements in it."""
    words = _Words(aligned)
    root.first, root.last = 0, len(words.spans)
    todo = [root]
    while todo:
        node = todo.pop()
        _place(node, words)
        todo += node.inside
    return _joined(root, aligned.text, words.spans)


def _place(parent: Node, words: _Words) -> None:
    """Find places for what is directly inside of an element, beside each other, within the element's own place."""
    free, gaps = [(parent.first, parent.last)], range(parent.first, parent.last + 1)
    taken: set[int] = set()
    for node in parent.inside:
        node.first, node.last = _best_range(words.shares(node.start, node.end), free)
        free = [part for span in free for part in _without(span, (node.first, node.last))]
        taken.update(range(node.first + 1, node.last))
    left = [gap for gap in gaps if gap not in taken]
    for node in parent.inside:
        if node.first == node.last:
            node.first = node.last = _best_gap(node.start, parent, left, words)


def _without(span: tuple[int, int], other: tuple[int, int]) -> list[tuple[int, int]]:
    """What is left of a span of words."""
    if not _common(span, other):
        return [span]
    parts = (span[0], other[0]), (other[1], span[1])
    return [part for part in parts if part[0] < part[1]]


def _best_range(shares: dict[int, float], free: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The range of words that come from an element rather than from elsewhere: the largest sum of share − ½.

    Where no word does, it is the one that does most; where none does at all, there is no range.
    """
    best, found = 0.0, (0, 0)
    for start, end in free:
        total, since = 0.0, start
        for word in range(start, end):
            if total <= 0:
                total, since = 0.0, word
            total += shares.get(word, 0.0) - 0.5
            if total > best:
                best, found = total, (since, word + 1)
    if best == 0.0:
        words = [word for start, end in free for word in range(start, end) if word in shares]
        if words:
            single = max(words, key=lambda word: shares[word])
            return single, single + 1
    return found


def _best_gap(place: int, parent: Node, gaps: Sequence[int], words: _Words) -> int:
    """The gap between words whose neighbours come from the neighbours that something had."""
    if place <= parent.start:
        return gaps[0]
    if place >= parent.end:
        return gaps[-1]
    before, after = words.beside(place)
    return max(gaps, key=lambda gap: before.get(gap - 1, 0.0) + after.get(gap, 0.0))


class _Written:
    """The translation and its elements, as far as they are written."""

    def __init__(self, text: str, spans: Sequence[tuple[int, int]]) -> None:
        self._text, self._spans = text, spans
        self._word = self._place = 0
        self._spaced = True  # so is the beginning
        self._owed = False
        self.out: list[str] = []

    def words(self, upto: int) -> None:
        """Write the words before this one."""
        if self._word < upto:
            self._pay()
            self._upto(self._spans[upto - 1][1])
            self._word, self._spaced = upto, False

    def space(self) -> None:
        """Write the white space before the next word."""
        if self._word < len(self._spans):
            self._pay()
            start = self._spans[self._word][0]
            self._spaced |= self._place < start
            self._upto(start)

    def untouched(self, node: Node) -> None:
        """Write something that is left as it is, with white space where it had some, unless punctuation follows."""
        before, after = node.apart
        if before and not self._spaced:
            self.out.append(" ")
        elif not (before or after):
            self.space()
        if not after and self._word < len(self._spans):
            self._place = self._spans[self._word][0]
        self.out.append(node.opening)
        self._spaced, self._owed = False, after

    def _pay(self) -> None:
        """Write the white space that was promised, if the text has none here, and a word follows."""
        start = self._spans[self._word][0]
        if self._owed and self._place == start and self._text[start].isalnum():
            self.out.append(" ")
            self._spaced = True
        self._owed = False

    def _upto(self, place: int) -> None:
        self.out.append(html.escape(self._text[self._place : place], quote=False))
        self._place = place


def _joined(root: Node, text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The words and the elements in their places."""
    written = _Written(text, spans)
    path = [(root, iter(_ordered(root)))]
    while path:
        parent, others = path[-1]
        node = next(others, None)
        if node is None:
            written.words(parent.last)
            written.out.append(parent.closing)
            path.pop()
            continue
        written.words(node.first)
        if node.closing:
            written.space()
            written.out.append(node.opening)
            path.append((node, iter(_ordered(node))))
        else:
            written.untouched(node)
    return "".join(written.out).strip()


def _ordered(parent: Node) -> list[Node]:
    """What is inside of an element, in the order in which it is written."""
    return sorted(parent.inside, key=lambda node: (node.first, node.last > node.first))
