"""Inline Markdown as events, with the characters of the source that each one is.

markdown-it tells the structure of a line but not where its tokens are, so its loop over inline rules is repeated here
with positions. Characters that belong to no token are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

from latentmt.documents.flow import Event

Span = tuple[int, int]
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)")
LITERAL = re.compile(r"`[^`\n]{1,200}`|<[^<>\n]{1,200}>")
"""What translators copy verbatim, so that it stays in the text, where it helps to understand it."""


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
    return _paired(found)


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
    if (token.type == "code_inline" or token.markup == "autolink") and LITERAL.fullmatch(raw):
        return Piece(Event(raw, "text", raw), "literal")
    if token.type == "image":
        return Piece(Event(raw, "atom"), "image", (start + 2, start + 2 + len(token.content)))
    if token.nesting and token.markup != "autolink":
        return Piece(Event(raw, "open" if token.nesting > 0 else "close"), token.type)
    return Piece(Event(raw, "atom"), token.type)


def _paired(found: list[Piece]) -> list[Piece]:
    """The same with HTML tags as elements where both tags are within the same element."""
    opened: list[tuple[int, str]] = []
    for number, piece in enumerate(found):
        match = _TAG.match(piece.event.raw) if piece.token == "html_inline" else None
        if match and not match[1]:
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
