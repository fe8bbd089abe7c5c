"""Subtitles (.srt, .vtt): the text of cues. Times, numbers, settings, notes and styles stay as they are.

The lines of a cue are one text; in a dialogue each speaker's is. A sentence that goes on in the next cue is translated
with it and divided in proportion. Lines are broken anew, so that they are short and about equally long. Tags are placed
by alignment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import unescape
from itertools import islice

from latentmt.documents.encoding import decode
from latentmt.documents.flow import MAX_INLINE_DEPTH, Event, Text, parts
from latentmt.documents.lines import Word, broken, divided
from latentmt.documents.tags import place
from latentmt.errors import UserError
from latentmt.results import Translation

MAX_CUES = 4
"""The most cues over which a sentence goes."""

_MAX_TAG = 202
_LINE = re.compile(r"[^\r\n]*+(?:\r\n|\r|\n)|[^\r\n]++")
_CLOCK = r"(?:\d{1,4}:)?\d{1,2}:\d{2}[,.]\d{1,3}"
_TIME = re.compile(rf"[ \t]*+{_CLOCK}[ \t]*+-->[ \t]*+{_CLOCK}(?![^ \t\r\n])")
_SPEAKER = re.compile(r"((?:[ \t]|<[^<>\n]{1,200}>|\{\\[^{}\n]{1,200}\})*+)([-–—‐•♪#][ \t]*+)(?=\S)")
_PIECE = re.compile(r"(?P<tag><(?P<end>/?)(?P<name>[A-Za-z]++)?[^<>\r\n]{0,200}>|\{\\[^{}\r\n]{1,200}\})|\r\n|\r|\n")
_OUTER = re.compile(r"(?:<[^<>\r\n]{1,200}>|\{\\[^{}\r\n]{1,200}\}|[ \t])*+")
_OPEN_END = re.compile(r"(?:^|[ \t\n])[^\W\d_A-ZÄÖÜ][^\W\d_]*+[,;]?\Z|[,;]\Z")
_VTT_BLOCK = re.compile(r"(?:NOTE|STYLE|REGION)(?=[ \t\r\n]|\Z)")


class Subtitles:
    """A file of cues."""

    inline = True

    def __init__(self, content: bytes, vtt: bool) -> None:
        text, self._encoding = decode(content)
        self._vtt = vtt
        lines = _LINE.findall(text)
        self._newline = next((line[len(line.rstrip("\r\n")) :] for line in lines), "") or "\n"
        self._pieces: list[str | _Cue] = list(_read(lines, vtt))
        cues = [piece for piece in self._pieces if isinstance(piece, _Cue)]
        self._groups = list(_groups(cues))
        self.texts: Sequence[str] = [text for group in self._groups for text in group.texts]

    def render(self, translations: Sequence[Translation]) -> bytes:
        remaining = iter(translations)
        written: dict[int, str] = {}
        for group in self._groups:
            texts = group.render(list(islice(remaining, len(group.texts))), self._newline)
            written |= zip(map(id, group.cues), texts, strict=True)
        pieces = (piece if isinstance(piece, str) else written[id(piece)] for piece in self._pieces)
        return self._encoding.encode("".join(pieces))


def read_srt(content: bytes) -> Subtitles:
    """The subtitles in an .srt file."""
    return Subtitles(content, vtt=False)


def read_vtt(content: bytes) -> Subtitles:
    """The subtitles in a .vtt file."""
    return Subtitles(content, vtt=True)


def _read(lines: Sequence[str], vtt: bool) -> Iterator[str | _Cue]:
    """The cues' texts, and what is between them."""
    number = 0
    if vtt:
        if not lines or not re.match(r"WEBVTT(?=[ \t\r\n]|\Z)", lines[0]):
            raise UserError("line 1: expected WEBVTT")
        while number < len(lines) and lines[number].strip():
            if "-->" in lines[number]:
                raise UserError(f"line {number + 1}: expected a blank line before the first cue")
            yield lines[number]
            number += 1
    while number < len(lines):
        if not lines[number].strip():
            yield lines[number]
            number += 1
        elif vtt and _VTT_BLOCK.match(lines[number]) and not _is_time(lines, number + 1):
            while number < len(lines) and lines[number].strip():
                yield lines[number]
                number += 1
        else:
            start = number + (0 if _is_time(lines, number) else 1)
            if not _is_time(lines, start):
                where = number + 1 if "-->" in lines[number] or start >= len(lines) else start + 1
                example = "00:00:01.000 --> 00:00:02.000" if vtt else "00:00:01,000 --> 00:00:02,000"
                raise UserError(f"line {where}: expected a time, such as {example}")
            yield from lines[number : start + 1]
            number = start + 1
            while number < len(lines) and lines[number].strip() and not _begins_cue(lines, number):
                if "-->" in lines[number]:
                    raise UserError(f"line {number + 1}: expected the text of a cue")
                number += 1
            raw = "".join(lines[start + 1 : number])
            body = raw.rstrip("\r\n")
            if body:
                yield _Cue(body, vtt)
            yield raw[len(body) :]


def _is_time(lines: Sequence[str], number: int) -> bool:
    return number < len(lines) and _TIME.match(lines[number]) is not None


def _begins_cue(lines: Sequence[str], number: int) -> bool:
    """Whether a cue begins here, although no blank line is before it."""
    return _is_time(lines, number) or (lines[number].strip().isdigit() and _is_time(lines, number + 1))


class _Cue:
    """The text of a cue."""

    def __init__(self, raw: str, vtt: bool) -> None:
        self.raw, self._vtt = raw, vtt
        self.parts = list(parts(list(self._events())))
        self.texts = [part.text for part in self.parts if isinstance(part, Text)]

    @property
    def is_plain(self) -> bool:
        """Whether it has one text, without tags in it."""
        return len(self.texts) == 1 and not any(part.root.children for part in self.parts if isinstance(part, Text))

    def _events(self) -> Iterator[Event]:
        """Lines, tags and texts. Tags around all of the cue, and a speaker's dash, are none of its texts."""
        head, tail = self._outer()
        if head:
            yield Event(self.raw[:head], "boundary")
        position, depth = head, 0
        for match in _PIECE.finditer(self.raw, head, tail):
            yield from self._text(position, match.start())
            position = match.end()
            if not match["tag"]:
                dash = _SPEAKER.match(self.raw, position, tail)
                position = dash.end() if dash else position
                raw = self.raw[match.start() : position]
                yield Event(raw, "boundary") if dash else Event(raw, "text", " ")
            elif not match["name"]:
                yield Event(match[0], "atom")
            elif match["end"]:
                yield Event(match[0], "close" if depth <= MAX_INLINE_DEPTH else "boundary")
                depth -= 1
            else:
                depth += 1
                yield Event(match[0], "open" if depth <= MAX_INLINE_DEPTH else "boundary")
        yield from self._text(position, tail)
        if tail < len(self.raw):
            yield Event(self.raw[tail:], "boundary")

    def _outer(self) -> tuple[int, int]:
        """Where the text begins and ends, without tags around it and a dash before it."""
        opening = _OUTER.match(self.raw)
        head = opening.end() if opening else 0
        tail = len(self.raw)
        while tail > head and self.raw[tail - 1] in " \t>}":
            near = max(head, tail - 1 - _MAX_TAG)
            last = max(self.raw.rfind("<", near, tail), self.raw.rfind("{", near, tail))
            if self.raw[tail - 1] in " \t":
                tail -= 1
            elif last >= 0 and _OUTER.fullmatch(self.raw[last:tail]):
                tail = last
            else:
                break
        names = [re.findall(r"<(/?)([A-Za-z]+)", text) for text in (self.raw[:head], self.raw[tail:])]
        if [name for end, name in names[0] if not end] != [name for end, name in names[1] if end][::-1]:
            head, tail = 0, len(self.raw)  # not around all of it
            marks = re.match(r"(?:\{\\[^{}\r\n]{1,200}\}|[ \t])*+", self.raw)
            head = marks.end() if marks else 0
        dash = _SPEAKER.match(self.raw, head, tail)
        return (dash.end() if dash else head), tail

    def _text(self, start: int, end: int) -> Iterator[Event]:
        raw = self.raw[start:end]
        if raw:
            yield Event(raw, "text", unescape(raw) if self._vtt and "&" in raw else raw)

    def render(self, translations: Sequence[Translation], newline: str) -> str:
        """The cue with these translations of its texts."""
        remaining = iter(translations)
        out = []
        for part in self.parts:
            if isinstance(part, str):
                out.append(part)
            elif (translation := next(remaining)).text == part.text:
                out.append(part.raw)
            else:
                out.append(newline.join(broken(self._words(part, translation))))
        return "".join(out)

    def _words(self, part: Text, translation: Translation) -> list[Word]:
        """The words of a translation, with their tags."""
        words = [Word("", 0)]
        for piece in place(part.root, translation):
            if piece.node is not None:
                words[-1] += Word(piece.node.closing if piece.kind == "close" else piece.node.opening, 0)
                continue
            for number, text in enumerate(re.split(r"[ \t\r\n\f\v]", piece.text)):
                if number:
                    words.append(Word("", 0))
                words[-1] += Word(self._escaped(text), len(text))
        return [word for word in words if word.raw]

    def _escaped(self, text: str) -> str:
        """A text that has no meaning for players: no tags, no arrows."""
        if self._vtt:
            return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return text.replace("-->", "→")


@dataclass(frozen=True)
class _Group:
    """Cues that are translated together: one, or those of a sentence."""

    cues: Sequence[_Cue]

    @property
    def texts(self) -> list[str]:
        if len(self.cues) == 1:
            return self.cues[0].texts
        return [" ".join(cue.texts[0] for cue in self.cues)]

    def render(self, translations: Sequence[Translation], newline: str) -> list[str]:
        """The text of each cue."""
        if len(self.cues) == 1:
            return [self.cues[0].render(translations, newline)]
        if translations[0].text == self.texts[0]:
            return [cue.raw for cue in self.cues]
        shares = divided(translations[0].text, [len(cue.texts[0]) for cue in self.cues])
        return [cue.render([Translation(share)], newline) for cue, share in zip(self.cues, shares, strict=True)]


def _groups(cues: Sequence[_Cue]) -> Iterator[_Group]:
    group: list[_Cue] = []
    for cue in cues:
        if group and not (len(group) < MAX_CUES and _goes_on(group[-1], cue)):
            yield _Group(group)
            group = []
        group.append(cue)
    if group:
        yield _Group(group)


def _goes_on(first: _Cue, second: _Cue) -> bool:
    """Whether a sentence goes on in the next cue: it ends in a small word or a comma, or that begins with one."""
    if not (first.is_plain and second.is_plain):
        return False
    before, after = first.texts[0], second.texts[0]
    if not after[0].isalpha() or _SPEAKER.match(second.raw):
        return False
    return _OPEN_END.search(before) is not None or (after[0].islower() and before[-1].isalnum())
