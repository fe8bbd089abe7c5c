"""Inline Markdown as events, with the characters of the source that each one is.

markdown-it tells the structure of a line but not where its tokens are, so its loop over inline rules is repeated here
with positions. Characters that belong to no token are text.

HTML within a line is what it is in a page: tags of blocks and `<br>` end a text, and the content of `<code>` stays.
Tags that HTML does not know are part of the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.html_blocks import block_names
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

from latentmt.documents.flow import Event
from latentmt.documents.markup import INLINE_VERBATIM, VERBATIM

Span = tuple[int, int]
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)")
_BOUNDARIES = frozenset(block_names) | {"br"}
"""Tags that end a text."""
LITERAL = re.compile(r"`[^`\n]{1,200}`|<[^<>\n]{1,200}>")
"""What translators copy verbatim, so that it stays in the text, where it helps to understand it."""
_WIDE = re.compile(r"  |\t")
"""Space that a text would not keep."""


class _State(StateInline):
    label_end = 0
    """Where the text of the last link ends."""

    def pushPending(self) -> Token:  # noqa: N802
        token = super().pushPending()
        token.meta["span"] = None  # text is what is left over
        return token


class _Parser(ParserInline):
    """Notes the span of every token but text."""

    def tokenize(self, state: StateInline) -> None:
        assert isinstance(state, _State)
        rules, end = self.ruler.getRules(""), state.posMax
        deepest = state.md.options["maxNesting"]
        while state.pos < end:
            start, count = state.pos, len(state.tokens)
            if state.level < deepest and any(rule(state, False) for rule in rules):
                _note([token for token in state.tokens[count:] if "span" not in token.meta], start, state)
            else:
                state.append_pending(state.src[state.pos])
                state.pos += 1
        if state.pending:
            state.pushPending()
        state.label_end = end

    def parse(self, src: str, md: MarkdownIt, env: Any, tokens: list[Token]) -> list[Token]:
        state = _State(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


def _note(tokens: Sequence[Token], start: int, state: _State) -> None:
    """Note the spans of the tokens that a rule has made of the characters since `start`."""
    if [token.type for token in tokens] == ["link_open", "link_close"]:
        tokens[0].meta["span"] = (start, start + 1)
        tokens[1].meta["span"] = (state.label_end, state.pos)
        return
    for token in tokens:
        if token.type == "text" and len(tokens) > 1:  # delimiters, which may become tags
            token.meta["span"] = (start, start := start + len(token.content))
        else:
            token.meta["span"] = (start, state.pos)


def _markdown(parser: ParserInline | None = None) -> MarkdownIt:
    markdown = MarkdownIt("commonmark")
    if parser:
        markdown.inline = parser
        markdown.configure("commonmark")
    markdown.enable(["table", "strikethrough"]).use(front_matter_plugin).use(footnote_plugin, move_to_end=False)
    if parser:
        markdown.inline.ruler2.disable("fragments_join")
    return markdown


MARKDOWN = _markdown()
_POSITIONS = _markdown(_Parser())


@dataclass(frozen=True)
class Piece:
    """A part of a line: an event, or a hard line break between two texts."""

    event: Event
    token: str = "text"
    alt: Span | None = None
    """The text of an image."""


def pieces(source: str, env: Any) -> list[Piece] | None:
    """The source in pieces, or None if its tokens are not in order."""
    tokens = _POSITIONS.inline.parse(source, _POSITIONS, env, [])
    found, position = [], 0
    for token, (start, end) in _spans(tokens):
        if token.type == "hardbreak":  # the spaces before it are part of it
            start = position + len(source[position:start].rstrip(" "))
        if start < position:
            return None
        if position < start:
            found.append(Piece(Event(source[position:start], "text", source[position:start])))
        found.append(_piece(token, source[start:end], start))
        position = end
    if position < len(source):
        found.append(Piece(Event(source[position:], "text", source[position:])))
    return _paired(_merged(found))


def _spans(tokens: Sequence[Token]) -> Iterator[tuple[Token, Span]]:
    """The tokens that are no text, with all their characters. An autolink is one of them."""
    skip = 0
    for token in tokens:
        span = token.meta["span"]
        if skip or span is None or (token.type == "text" and not token.content):
            skip -= skip > 0
            continue
        if token.markup == "autolink":
            skip = 2
        if token.type == "strong_open":  # two delimiters, of which the other one has become empty
            span = (span[0] - 1, span[1])
        elif token.type == "strong_close":
            span = (span[0], span[1] + 1)
        yield token, span


def _piece(token: Token, raw: str, start: int) -> Piece:
    if token.type in ("text", "text_special"):
        return Piece(Event(raw, "text", token.content))
    if token.type == "softbreak":
        return Piece(Event(raw, "text", " "))
    is_literal = token.type == "code_inline" or token.markup == "autolink"
    if is_literal and LITERAL.fullmatch(raw) and not _WIDE.search(raw):
        return Piece(Event(raw, "text", raw), "literal")
    if token.type == "image":
        return Piece(Event(raw, "atom"), "image", (start + 2, start + 2 + len(token.content)))
    if token.nesting and token.markup != "autolink":
        return Piece(Event(raw, "open" if token.nesting > 0 else "close"), token.type)
    return Piece(Event(raw, "atom"), token.type)


def verbatim(found: Sequence[tuple[str, int]]) -> list[Span]:
    """Where HTML elements are whose content stays, tags included.

    Of each piece of a line are given its tag, or an empty string, and whether it opens (1) or closes (-1) an element of
    Markdown. Both tags have to be within the same one.
    """
    spans: list[Span] = []
    opened: dict[str, tuple[int, int]] = {}
    level = 0
    for number, (raw, nesting) in enumerate(found):
        level += nesting
        if nesting < 0:
            opened = {name: start for name, start in opened.items() if start[1] <= level}
        match = _TAG.match(raw)
        name = match[2].lower() if match else ""
        if match and name in VERBATIM and not match[1]:
            opened.setdefault(name, (number, level))
        elif match and match[1] and opened.get(name, (0, -1))[1] == level:
            first = opened[name][0]
            opened = {name: start for name, start in opened.items() if start[0] < first}
            while spans and spans[-1][0] > first:
                spans.pop()
            spans.append((first, number + 1))
    return spans


def _merged(found: Sequence[Piece]) -> list[Piece]:
    """The same with an HTML element whose content stays as one piece."""
    nesting = {"open": 1, "close": -1}
    spans = verbatim(
        [(piece.event.raw if piece.token == "html_inline" else "", nesting.get(piece.event.kind, 0)) for piece in found]
    )
    result, position = list[Piece](), 0
    for start, end in spans:
        raw = "".join(piece.event.raw for piece in found[start:end])
        match = _TAG.match(raw)
        is_inline = match is not None and match[2].lower() in INLINE_VERBATIM
        result += [*found[position:start], Piece(Event(raw, "atom" if is_inline else "boundary"), "verbatim")]
        position = end
    return [*result, *found[position:]]


def _paired(found: list[Piece]) -> list[Piece]:
    """The same with HTML tags as elements where both tags are within the same element, or as what ends a text."""
    opened: list[tuple[int, str]] = []
    for number, piece in enumerate(found):
        match = _TAG.match(piece.event.raw) if piece.token == "html_inline" else None
        if match and match[2].lower() in _BOUNDARIES:
            found[number] = Piece(Event(piece.event.raw, "boundary"), "html_inline")
        elif match and not match[1]:
            opened.append((number, match[2].lower()))
        elif match and opened and opened[-1][1] == match[2].lower():
            other = opened.pop()[0]
            found[other] = Piece(Event(found[other].event.raw, "open"), "html_inline")
            found[number] = Piece(Event(piece.event.raw, "close"), "html_inline")
        elif piece.event.kind == "open":
            opened.append((number, ""))
        elif piece.event.kind == "close":
            while opened and opened.pop()[1]:
                pass
    return found
