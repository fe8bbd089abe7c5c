"""Markdown: texts are replaced in the source, so that everything else keeps its bytes.

markdown-it finds the blocks and their inline elements. A paragraph is one text; its lines are joined, and wrapped again
at the width that they had. Hard line breaks separate texts, and so do HTML's. Alternative texts of images are texts of
their own. Code spans and addresses in angle brackets stay in the text, because translators copy them and need them to
understand it. Titles of links, HTML blocks, definitions, inline footnotes and front matter are not translated.

What a translation says must stay text. It is written as it is if it is read as the same text with the same elements,
else with escapes. Where that does not help, or where the blocks of the document would change, the source stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from markdown_it.token import Token

from latentmt.documents.encoding import decode
from latentmt.documents.flow import MAX_INLINE_DEPTH, Event, parts
from latentmt.documents.inline_markdown import MARKDOWN, Piece, Span, pieces
from latentmt.documents.markdown_block import MARKER, SLOT, Block, continued, elements
from latentmt.errors import UserError
from latentmt.results import Translation

_LINE_END = re.compile(r"(\r\n|\n|\r)")
_MARKUP = re.compile(r"[\\`*_<>&\[\]!~\n]")
"""What a text of an image may not have to be translated."""
_MAX_CHECKS = 64
"""How often a document is read again to find the blocks that cannot be replaced."""


class Markdown:
    """A Markdown file."""

    inline = True

    def __init__(self, content: bytes) -> None:
        self._source, self._encoding = decode(content)
        self._lines = _LINE_END.split(self._source)
        try:
            tokens, self._env = _parsed(self._source)
            self._structure = _structure(tokens, self._env)
            self._blocks = [block for block in self._located(tokens) if self._divide(block)]
        except RecursionError:
            raise UserError("Markdown that is nested too deeply") from None
        self.texts: Sequence[str] = [text for block in self._blocks for text in block.texts]

    def render(self, translations: Sequence[Translation]) -> bytes:
        remaining = iter(translations)
        rendered = [self._rendered(block, [next(remaining) for _ in block.texts]) for block in self._blocks]
        return self._encoding.encode(self._settled(rendered))

    def _rendered(self, block: Block, translations: Sequence[Translation]) -> str:
        changed = [translation.text for translation in translations] != block.texts
        written = block.written(translations, self._env) if changed else None
        return self._source[block.start : block.end] if written is None else written

    def _settled(self, rendered: Sequence[str]) -> str:
        """The document with all blocks that leave its structure as it was; half of them is tried again if not."""
        accepted = [self._source[block.start : block.end] for block in self._blocks]
        todo, checks = [(0, len(accepted))], 0
        while todo and checks < _MAX_CHECKS:
            first, last = todo.pop()
            tried = [*accepted[:first], *rendered[first:last], *accepted[last:]]
            if tried == accepted:
                continue
            checks += 1
            if _structure(*_parsed(self._spliced(tried))) == self._structure:
                accepted = tried
            elif last - first > 1:
                middle = (first + last) // 2
                todo += [(middle, last), (first, middle)]
        return self._spliced(accepted)

    def _spliced(self, rendered: Sequence[str]) -> str:
        parts, position = [], 0
        for block, text in zip(self._blocks, rendered, strict=True):
            parts += [self._source[position : block.start], text]
            position = block.end
        return "".join(parts) + self._source[position:]

    def _located(self, tokens: Sequence[Token]) -> Iterator[Block]:
        """The blocks with text, where they are found in the file."""
        offsets = [0]
        for number in range(0, len(self._lines) - 1, 2):
            offsets.append(offsets[-1] + len(self._lines[number]) + len(self._lines[number + 1]))
        lines, cells = self._lines[::2], iter(list[Span]())
        for before, token in pairwise(tokens):
            if before.type == "tr_open" and before.map:
                cells = iter(_cells(lines[before.map[0]]))
            is_cell = before.type in ("th_open", "td_open")
            span = next(cells, None) if is_cell else None
            if token.type != "inline" or not token.map or not token.content.strip():
                continue
            first = token.map[0]
            if is_cell:
                if span and lines[first][slice(*span)].replace("\\|", "|") == token.content:
                    yield Block(offsets[first] + span[0], offsets[first] + span[1], cell=True)
            elif before.markup.startswith("#"):
                if span := _heading(token.content, lines[first]):
                    yield Block(offsets[first] + span[0], offsets[first] + span[1])
            elif found := _columns(token.content, lines[first : token.map[1]]):
                last = first + len(found) - 1
                lines_here = lines[first : last + 1]
                prefix = self._lines[2 * first + 1] + lines_here[1][: found[1][0]] if len(found) > 1 else ""
                width = max(end - start for start, end in found) if len(found) > 1 else 0
                start, end = found[-1]
                texts = [line[column:] for line, (column, _) in zip(lines_here[:-1], found, strict=False)]
                source = "\n".join([*texts, lines_here[-1][start:end]])
                yield Block(offsets[first] + found[0][0], offsets[last] + end, prefix, width, source=source)

    def _divide(self, block: Block) -> bool:
        """Divide a block into texts and what is between them. Whether it has a text."""
        block.source = block.source or self._source[block.start : block.end]
        found = pieces(block.source, self._env)
        if found is None or SLOT.search(block.source) or sum(1 for piece in found if piece.event.kind == "open") > 500:
            return False
        marker = MARKER.match(block.source)
        if marker and found[0].token != "link_open":
            found = _without_start(found, marker.end())
            block.parts.append(marker[0])
        block.literals.update(piece.event.raw for piece in found if piece.token == "literal")
        block.parts += parts([self._event(piece, level, block) for piece, level in _levels(_full_links(found))])
        return any(any(map(str.isalpha, text)) for text in block.texts)

    def _event(self, piece: Piece, level: int, block: Block) -> Event:
        """The event of a piece with so many elements around it; the text of an image becomes a slot."""
        if piece.token == "hardbreak":
            return Event(continued(piece.event.raw), "boundary")
        if piece.event.kind in ("open", "close") and level >= MAX_INLINE_DEPTH:
            return replace(piece.event, kind="boundary")
        if not piece.alt:
            return piece.event
        alt, raw = block.source[slice(*piece.alt)], piece.event.raw
        end = 2 + len(alt)
        if _MARKUP.search(alt) or not any(map(str.isalpha, alt)):
            return piece.event
        closing = f"][{alt}]" if raw[end:] in ("]", "][]") else raw[end:]
        block.alts.append(alt.strip())
        return replace(piece.event, raw=f"![\ue100{len(block.alts) - 1}\ue101{closing}")


def _parsed(source: str) -> tuple[list[Token], dict[str, Any]]:
    env: dict[str, Any] = {}
    return MARKDOWN.parse(source, env), env


def _structure(tokens: Sequence[Token], env: dict[str, Any]) -> list[Any]:
    """Everything but text: blocks in order, and what inline elements each has."""
    blocks = [
        elements(token.children or [])
        if token.type == "inline"
        else (token.type, token.tag, token.markup, token.info, token.hidden, str(token.attrs), token.content)
        for token in tokens
    ]
    links = {label: (link["href"], link["title"]) for label, link in env.get("references", {}).items()}
    return [*blocks, links, sorted(env.get("footnotes", {}).get("refs", {}))]


def _levels(found: Sequence[Piece]) -> Iterator[tuple[Piece, int]]:
    """Each piece with the number of elements around it."""
    level = 0
    for piece in found:
        level -= piece.event.kind == "close"
        yield piece, level
        level += piece.event.kind == "open"


def _without_start(found: Sequence[Piece], length: int) -> list[Piece]:
    """The pieces without so many characters at the start, which are text."""
    rest = list(found)
    while length and rest:
        raw = rest.pop(0).event.raw
        if len(raw) > length:
            rest.insert(0, Piece(Event(raw[length:], "text", raw[length:])))
        length -= min(length, len(raw))
    return rest


def _full_links(found: Sequence[Piece]) -> list[Piece]:
    """Links whose text is their label get the label after it, since the text changes."""
    result, opened, raw = list(found), list[int](), ""
    starts = []
    for number, piece in enumerate(found):
        starts.append(len(raw))
        raw += piece.event.raw
        if piece.token == "link_open":
            opened.append(number)
        elif piece.token == "link_close" and opened:
            start = opened.pop()
            if piece.event.raw in ("]", "][]"):
                label = raw[starts[start] + 1 : starts[number]].replace("\n", " ")
                result[number] = replace(piece, event=replace(piece.event, raw=f"][{label}]"))
    return result


def _heading(content: str, line: str) -> Span | None:
    """Where the text of a heading with number signs is in its line."""
    end = len(line.rstrip(" \t"))
    bare = line[:end].rstrip("#")
    end = len((bare if bare.endswith((" ", "\t")) else line[:end]).rstrip())
    start = end - len(content)
    return (start, end) if start > 0 and line[start:end] == content else None


def _cells(line: str) -> list[Span]:
    """The cells of a row of a table, as markdown-it divides it, without the white space around them."""
    marks = [match.start() for match in re.finditer(r"(?<!\\)\|", line)]
    spans = []
    for start, end in zip([-1, *marks], [*marks, len(line)], strict=True):
        cell = line[start + 1 : end]
        left = start + 1 + len(cell) - len(cell.lstrip(" \t"))
        spans.append((left, max(left, start + 1 + len(cell.rstrip(" \t")))))
    if spans and not line[: marks[0] if marks else 0].strip(" \t>-+*0123456789.)"):
        spans.pop(0)
    return spans


def _columns(content: str, lines: Sequence[str]) -> list[Span] | None:
    """Where each line of a paragraph is in its line of the file."""
    spans = []
    for part, line in zip(content.split("\n"), lines, strict=False):
        end = len(line.rstrip())
        start = end - len(part.strip())
        if line[start:end] != part.strip():
            return None
        spans.append((start, end))
    return spans if spans and len(spans) == content.count("\n") + 1 else None
