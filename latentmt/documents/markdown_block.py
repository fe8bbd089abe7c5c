"""A block of Markdown, written with its translations so that they are read as text again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from markdown_it.token import Token

from latentmt.documents.flow import Text
from latentmt.documents.inline_markdown import LITERAL, MARKDOWN, verbatim
from latentmt.documents.tags import Placed, place
from latentmt.results import Translation

MARKER = re.compile(r"\[(?:[ xX]|![A-Za-z]{1,20})\](?=\s|$)\s*")
"""The box of a task, or the kind of an alert."""
SLOT = re.compile("\ue100(\\d{1,9})\ue101")
"""Where the text of an image goes."""

_SPACE = re.compile(r"[ \t\n\r\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")
_ESCAPED = (re.compile(r"(?!)"), re.compile(r"[\\`*_\[\]<~&|]"), re.compile(r"[!-/:-@\[-`{-~]"))
"""What is escaped at first, and what is escaped where that is not enough."""
_BLOCK_START = re.compile(
    r"\d{1,9}(?=[.)](?:\s|$))"
    r"|(?=#{1,6}(?:\s|$)|[-+*](?:\s|$)|[-:|][-:|]|\*\s*\*|_\s*_|[=>|<]|~~~|```|\[[^\]]{0,99}\]:|\[[ xX]\]|\[!)"
)
"""What begins a block at the beginning of a line; the escape goes to its end."""
_UNSAFE = re.compile(r"[#>+*=_~`|:<\[\-]|\d{1,9}[.)]")
"""What lines are not wrapped before."""


@dataclass
class Block:
    """Lines of text: a paragraph, a heading or a cell of a table."""

    start: int
    end: int
    """Its characters in the file."""
    prefix: str = ""
    """What a further line begins with, line end included."""
    width: int = 0
    """Of its longest line; 0 if it has only one."""
    cell: bool = False
    source: str = ""
    """Its Markdown, without what its lines begin with."""
    parts: list[str | Text] = field(default_factory=list)
    alts: list[str] = field(default_factory=list)
    """The texts of its images."""
    literals: Counter[str] = field(default_factory=Counter)
    """Code and addresses that are part of its texts."""

    @property
    def texts(self) -> list[str]:
        return [part.text for part in self.parts if isinstance(part, Text)] + self.alts

    def written(self, translations: Sequence[Translation], env: Any) -> str | None:
        """The block with these translations, or None if nothing is read as such."""
        source = self._read(self.source, env)
        count = len(self.texts) - len(self.alts)
        markers = [part for part in self.parts if isinstance(part, str) and MARKER.match(part)]
        texts, alts = translations[:count], Counter(_squeezed(alt.text) for alt in translations[count:])
        said = self._without_literals(" ".join([*markers, *(text.text for text in texts)]))
        for escaped in _ESCAPED:
            written = _Writer(self, escaped, translations[count:]).block(texts)
            read = self._read(written, env)
            read_alts = Counter(_said(token.children or []) for token in read if token.type == "image")
            if elements(read) == elements(source) and _said(read) == said and alts <= read_alts:
                return written.replace("\n", self.prefix or " ")
        return None

    def _read(self, source: str, env: Any) -> Sequence[Token]:
        source = source.replace("\\|", "|") if self.cell else source
        return MARKDOWN.parseInline(source, env)[0].children or []

    def _without_literals(self, text: str) -> str:
        left = self.literals.copy()
        words = []
        for part, is_literal in self.divided(text):
            if not is_literal or not left[part]:
                words.append(part)
            left[part] -= is_literal
        return _squeezed("".join(words))

    def divided(self, text: str) -> Iterator[tuple[str, bool]]:
        """A text in parts, and whether each is one of the literals."""
        start = position = 0
        while match := LITERAL.search(text, position):
            position = match.start() + 1
            if match[0] in self.literals:
                yield text[start : match.start()], False
                yield match[0], True
                start = position = match.end()
        yield text[start:], False


class _Writer:
    """Writes a block, its lines divided by line feeds."""

    def __init__(self, block: Block, escaped: re.Pattern[str], alts: Sequence[Translation]) -> None:
        self._block, self._escaped = block, escaped
        self._alts = [self._escape(_SPACE.sub(" ", alt.text)) for alt in alts]

    def block(self, translations: Sequence[Translation]) -> str:
        remaining, out = iter(translations), list[str]()
        for part in self._block.parts:
            if isinstance(part, str):
                out += filter(None, [self._markup(part)])
                continue
            translation = next(remaining)
            before, after = _outer_space(part.raw)
            starts_line = not out or out[-1].endswith("\n") or before == "\n"
            placed = place(part.root, replace(translation, text=_SPACE.sub(" ", translation.text)))
            text = _filled(self._words(placed), self._block.width)
            is_text = bool(placed) and placed[0].node is None and next(self._block.divided(placed[0].text))[0] != ""
            if is_text and starts_line and (start := _BLOCK_START.match(text)):
                text = f"{text[: start.end()]}\\{text[start.end() :]}"
            out += filter(None, [before if out and not out[-1].endswith("\n") else "", text, after])
        return "".join(out)

    def _words(self, placed: Sequence[Placed]) -> list[str]:
        """What is divided by spaces. Markup is part of a word."""
        words = [[""]]
        for piece in placed:
            if piece.node is not None:
                words[-1].append(self._markup(piece.node.closing if piece.kind == "close" else piece.node.opening))
                continue
            parts = self._block.divided(piece.text)
            first, *others = "".join(part if literal else self._escape(part) for part, literal in parts).split(" ")
            words[-1].append(first)
            words += [[other] for other in others]
        return [word for word in map("".join, words) if word]

    def _markup(self, raw: str) -> str:
        return SLOT.sub(lambda match: self._alts[int(match[1])], continued(raw))

    def _escape(self, text: str) -> str:
        text = self._escaped.sub(lambda match: "&amp;" if match[0] == "&" else f"\\{match[0]}", text)
        return re.sub(r"(?<!\\)\|", r"\\|", text) if self._block.cell else text


def elements(children: Sequence[Token]) -> Counter[tuple[str, ...]]:
    """The inline elements of a block, without texts and line breaks within lines."""
    return Counter(
        (token.type, token.markup, str({**token.attrs, "alt": ""}), "" if token.type == "image" else token.content)
        for token in children
        if token.type not in ("text", "text_special", "softbreak")
    )


def continued(raw: str) -> str:
    """Markup that goes on in the next line, without the white space there."""
    return re.sub(r"\n[ \t]+", "\n", raw)


def _outer_space(raw: str) -> tuple[str, str]:
    """The white space at both ends of a text; a line feed where there is one."""
    edges = raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :] if raw.strip() else ""
    before, after = ("\n" if "\n" in edge else edge for edge in edges)
    return before, after


def _said(children: Sequence[Token]) -> str:
    """The text of inline tokens without white space, code, addresses and HTML elements whose content stays."""
    said, address = [], False
    spans = verbatim([(token.content if token.type == "html_inline" else "", token.nesting) for token in children])
    inside = {number for start, end in spans for number in range(start, end)}
    for number, token in enumerate(children):
        address = token.type == "link_open" if token.markup == "autolink" else address
        if token.type == "text" and not address and number not in inside:
            said.append(token.content)
    return _squeezed("".join(said))


def _squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def _filled(words: Sequence[str], width: int) -> str:
    """Words as lines of a width; on one line if it is 0."""
    out, column = [""], 0
    for word in words:
        fits = not width or column + 1 + len(word) <= width
        if not column or fits or _UNSAFE.match(word) or out[-1].endswith("\\"):
            out += [" ", word] if column else [word]
            column += bool(column) + len(word)
        else:
            out += ["\n", word]
            column = len(word)
    return "".join(out)
