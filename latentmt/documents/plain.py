"""Plain text. Lines that belong to one paragraph are one text, and are wrapped again; other lines are texts themselves.

A file is wrapped if most lines with a line after them are full and end within a sentence. Then a full line goes on in
the next one, unless that is an item of a list or indented differently. Indentation, marks of lists and quotes, blank
lines, line ends and a byte order mark stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from latentmt.documents.encoding import decode
from latentmt.results import Translation

_LINE_END = re.compile(r"(\r\n|\n|\r)")
_LEAD = re.compile(r"([\s>]*+)((?:[-*+•–]|\d{1,3}[.)]|[a-z]\))\s++(?=\S))?")
_SENTENCE_END = re.compile(r"[.!?:;…][\"'”“’»)\]]*+\Z")
_HYPHEN = re.compile(r"[^\W\d_]-\Z")
_CONJUNCTION = re.compile(r"(?:und|oder|bzw|and|or)\b")
_NARROW, _WIDE = 40, 120
"""Files whose lines are shorter or longer than this are not wrapped."""


@dataclass(frozen=True)
class _Line:
    lead: str
    """Indentation, and the mark of an item."""
    marked: bool
    text: str
    rest: str
    """White space and the line end after the text."""

    @property
    def width(self) -> int:
        return len(self.lead) + len(self.text)


@dataclass(frozen=True)
class _Paragraph:
    lines: Sequence[_Line]
    text: str

    def render(self, text: str, width: int) -> str:
        """The paragraph with another text, in lines of this width if it had several."""
        first, last = self.lines[0], self.lines[-1]
        if text == self.text or not text.strip():
            return "".join(line.lead + line.text + line.rest for line in self.lines)
        if len(self.lines) == 1:
            return first.lead + text + first.rest
        lead, end = self.lines[1].lead, first.rest.lstrip(" \t")
        out, column = [first.lead], len(first.lead)
        for number, word in enumerate(text.split()):
            if number and column + 1 + len(word) > width:
                out += [end, lead, word]
                column = len(lead) + len(word)
            else:
                out += [" ", word] if number else [word]
                column += len(word) + bool(number)
        return "".join(out) + last.rest


class PlainText:
    """A text file."""

    inline = False

    def __init__(self, content: bytes) -> None:
        source, self._encoding = decode(content)
        lines = list(_lines(source))
        self._width = _wrapped_at(lines)
        self._paragraphs = list(_paragraphs(lines, self._width))
        self.texts: Sequence[str] = [paragraph.text for paragraph in self._paragraphs if paragraph.text]

    def render(self, translations: Sequence[Translation]) -> bytes:
        remaining = iter(translations)
        return self._encoding.encode(
            "".join(
                paragraph.render(next(remaining).text if paragraph.text else "", self._width)
                for paragraph in self._paragraphs
            )
        )


def _lines(source: str) -> Iterator[_Line]:
    pieces = [*_LINE_END.split(source), ""]
    for content, end in zip(pieces[::2], pieces[1::2], strict=True):
        text = content.rstrip()
        lead = _LEAD.match(text)
        start = lead.end() if lead else 0
        yield _Line(text[:start], bool(lead and lead[2]), text[start:], content[len(text) :] + end)


def _wrapped_at(lines: Sequence[_Line]) -> int:
    """The width at which the lines of a file are wrapped; 0 if they are not."""
    widths = sorted(line.width for line in lines if line.text)
    width = widths[len(widths) * 98 // 100] if widths else 0
    if not _NARROW <= width <= _WIDE:
        return 0
    pairs = [(line, after) for line, after in pairwise(lines) if line.text and after.text and not after.marked]
    within = [not _SENTENCE_END.search(line.text) and _is_full(line, after, width) for line, after in pairs]
    return width if 2 * sum(within) > len(within) else 0


def _is_full(line: _Line, after: _Line, width: int) -> bool:
    """Whether the first word of the next line had hardly any room in this one."""
    return line.width + 1 + len(after.text.split(maxsplit=1)[0]) > 0.9 * width


def _paragraphs(lines: Sequence[_Line], width: int) -> Iterator[_Paragraph]:
    """The lines by paragraphs. A blank line is one without a text."""
    current: list[_Line] = []
    for line in lines:
        if current and not (width and _goes_on(current, line, width)):
            yield _paragraph(current)
            current = []
        current.append(line)
    if current:
        yield _paragraph(current)


def _goes_on(current: Sequence[_Line], line: _Line, width: int) -> bool:
    last = current[-1]
    if not last.text or not line.text or line.marked or not _is_full(last, line, width):
        return False
    if len(current) > 1:
        return line.lead == last.lead
    return len(line.lead) == len(last.lead) if last.marked else line.lead.strip() == last.lead.strip()


def _paragraph(lines: Sequence[_Line]) -> _Paragraph:
    words = [lines[0].text]
    for before, line in pairwise(lines):
        divided = _HYPHEN.search(before.text) and line.text[0].islower() and not _CONJUNCTION.match(line.text)
        if divided:
            words[-1] = words[-1][:-1]
        words += [line.text] if divided else [" ", line.text]
    return _Paragraph(list(lines), "".join(words))
