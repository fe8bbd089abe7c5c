"""What of a Markdown file is not text, and whether a translation has kept it byte for byte.

markdown-it says which lines have text. All other lines have to stay as they are: code, HTML blocks, front matter,
definitions, rules, blank lines, the lines below headings and tables. So has, of lines with text, all around it: number
signs, markers of lists and quotes, indents, pipes and the spaces at them, line ends. A paragraph may be wrapped
elsewhere, at lines that begin as its own did. Its elements, code and targets are compared as they are read.

It knows nothing of how documents are translated.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import unescape

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

Element = tuple[str, str, str, str]
_READER = MarkdownIt("commonmark").enable(["table", "strikethrough"]).use(front_matter_plugin)
_READER.use(footnote_plugin, move_to_end=False)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|$)")
_PIPE = re.compile(r"(?<!\\)\|")
_WORD = re.compile(r"\w+|[^\w\s]")
_BREAK = re.compile(r"<br[\s/>]", re.IGNORECASE)


@dataclass
class Part:
    """Lines without text, or a paragraph, a heading or the row of a table."""

    frame: tuple[str, ...]
    """What has to stay, in order."""
    further: frozenset[str] = frozenset()
    """What its further lines begin with."""
    said: str = ""
    """Its text with all markup."""
    elements: tuple[Element, ...] = ()
    text: str = ""
    """What is read of it."""

    @property
    def characters(self) -> Counter[str]:
        """Those of text and markup in capitals, but for spaces and escapes."""
        return Counter(re.sub(r"[\s\\]", "", unescape(self.said)).upper())


def parts(source: str) -> Iterator[Part]:
    """A file in parts, in order."""
    lines = _LINE.findall(source)
    tokens = _READER.parse(source)
    position = 0
    for number, token in enumerate(tokens):
        if token.type != "inline" or not token.map or not token.content.strip():
            continue
        first, last = token.map[0], min(token.map[1], token.map[0] + token.content.count("\n") + 1)
        if first < position:  # a further cell of a row
            continue
        yield Part(("".join(lines[position:first]),))
        if tokens[number - 1].type in ("th_open", "td_open"):
            cells = [t for t in tokens[number:] if t.type == "inline" and t.map and t.map[0] == first]
            yield _row(lines[first], cells)
        else:
            yield _block(lines[first:last], token)
        position = last
    yield Part(("".join(lines[position:]),))


def _row(line: str, cells: Sequence[Token]) -> Part:
    """The row of a table: its pipes with the spaces at them."""
    found = _PIPE.split(line)
    around = [(cell[: len(cell) - len(cell.lstrip())], cell[len(cell.rstrip()) :]) for cell in found if cell.strip()]
    frame = [*(space for pair in around for space in pair), *("" if cell.strip() else cell for cell in found)]
    return Part(tuple(frame), frozenset(), line, *_inline(cells))


def _block(lines: Sequence[str], token: Token) -> Part:
    """A paragraph or a heading: what is before and after the text, and what further lines begin with."""
    starts, texts, end = [], [], ""
    for line, text in zip(lines, token.content.split("\n"), strict=True):
        start = line.rfind(text.strip())
        if start < 0:  # tabs within, say: nothing of it may change
            return Part(("".join(lines),))
        starts.append(line[:start])
        texts.append(text)
        end = line[start + len(text.strip()) :]
    return Part((starts[0], end), frozenset(starts[1:]), "\n".join(texts), *_inline([token]))


def _inline(tokens: Sequence[Token]) -> tuple[tuple[Element, ...], str]:
    """Inline elements with their targets, code and tags; and the text, in which line breaks are spaces."""
    elements, said = [], []
    for token in tokens:
        for child in token.children or []:
            content = "" if child.type == "image" else child.content
            if child.type not in ("text", "text_special", "softbreak"):
                elements.append((child.type, child.markup, str({**child.attrs, "alt": ""}), content))
            is_break = child.type in ("softbreak", "hardbreak") or _BREAK.match(child.content)
            said.append(" " if is_break else content if child.type in ("text", "text_special") else "")
        said.append(" ")
    return tuple(elements), "".join(said).strip()


def difference(source: str, result: str, in_order: bool) -> str | None:
    """What a translation in capitals changed beside texts; with `in_order`, one whose words stay where they are."""
    before, after = list(parts(source)), list(parts(result))
    for old, new in zip(before, after, strict=False):
        order = list if in_order else sorted
        if old.frame != new.frame:
            return f"around texts: {old.frame!r} → {new.frame!r}"
        if not new.further <= old.further:
            return f"further lines: {set(old.further)} → {set(new.further)}"
        if order(old.elements) != order(new.elements):
            return f"elements: {old.elements} → {new.elements}"
        words = [_WORD.findall(part.text.upper()) for part in (old, new)]
        if in_order and words[0] != words[1]:
            return f"words: {words[0]} → {words[1]}"
        if not old.characters <= new.characters:  # a link by its text gets a label
            return f"characters: {old.said!r} → {new.said!r}"
    return None if len(before) == len(after) else f"{len(before)} parts → {len(after)}"


def untranslated(source: str, result: str) -> Iterator[Part]:
    """What has text and stayed as it was."""
    for old, new in zip(parts(source), parts(result), strict=False):
        if old.text and old.said == new.said:
            yield old
