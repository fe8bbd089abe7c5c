"""A document of text, tables, figures and marked phrases, written as one self-contained HTML page and as Markdown.

It knows how blocks are formatted, not what they contain. In running text and in cells, `backticks` are code and
**stars** bold.
"""

from __future__ import annotations

import html
import itertools
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Code:
    """A command line."""

    text: str


@dataclass(frozen=True)
class Table:
    """A table: the first column is text, the others are numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    groups: Sequence[tuple[str, int]] = ()
    """Headings above several columns: text and number of columns, from the left."""
    breaks: Sequence[int] = ()
    """Indices of rows that begin a new block."""
    words: bool = False
    """Whether all columns are text."""


@dataclass(frozen=True)
class Figure:
    svg: Path
    title: str
    caption: str


@dataclass(frozen=True)
class Span:
    """A phrase. Style: empty, `removed`, `added`, or `moved` and a number from 1."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class DefinitionList:
    """Lines of text, each with a label."""

    lines: Sequence[tuple[str, Sequence[Span]]]


Block = Heading | Paragraph | Code | Table | Figure | DefinitionList

GENERATOR = '<meta name="generator" content="latentmt">'
"""In every page. A page without it is not replaced."""

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1c1c1c; background: #fff; max-width: 76rem; margin: 2.5rem auto;
  padding: 0 1.25rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; padding-top: 1rem; border-top: 1px solid #ddd; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }
p { max-width: 46rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .84rem; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .55rem; text-align: right; white-space: nowrap; }
th { font-weight: 600; border-bottom: 1.5px solid #444; vertical-align: bottom; }
th.group { text-align: center; border-bottom: 1px solid #999; }
th:first-child, td:first-child, .words th, .words td { text-align: left; }
.words td { white-space: normal; overflow-wrap: anywhere; vertical-align: top; min-width: 5.5rem; }
.words td:first-child { white-space: nowrap; }
tr.break td { border-top: 1px solid #bbb; }
tbody tr:hover { background: #f5f7fa; }
.edge { border-left: 1px solid #bbb; }
figure { margin: 1.8rem 0; }
figure svg { max-width: 100%; height: auto; }
figcaption { font-size: .88rem; color: #444; max-width: 46rem; margin-top: .3rem; }
pre { background: #f5f5f3; padding: .8rem 1rem; white-space: pre-wrap; font-size: .82rem; line-height: 1.45;
  border-radius: 4px; }
code { font-size: .92em; background: #f5f5f3; padding: .05em .25em; border-radius: 3px; }
pre code { padding: 0; }
dl { display: grid; grid-template-columns: 6.5rem 1fr; gap: .1rem .8rem; margin: 1.1rem 0; padding-left: .9rem;
  border-left: 3px solid #ddd; }
dt { color: #666; font-size: .85rem; padding-top: .1rem; }
dd { margin: 0; }
.removed { color: #B04A00; text-decoration: line-through; }
.added { color: #00694E; text-decoration: underline; text-underline-offset: 2px; }
.moved { border-radius: 3px; padding: 0 .2em; font-weight: 600; }
.moved-1 { background: #d5e8f6; color: #004f7c; } .moved-2 { background: #f8e0ee; color: #8a2d62; }
.moved-3 { background: #fdf0c4; color: #6d5600; } .moved-4 { background: #dcefe6; color: #00573f; }
"""
MOVED_COLORS = 4


def write_html(title: str, blocks: Sequence[Block], language: str = "en") -> str:
    """A self-contained page: styles and figures are inside."""
    body = "\n".join(_html(block) for block in blocks)
    return (
        f'<!doctype html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n{GENERATOR}\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def write_markdown(blocks: Sequence[Block], folder: Path) -> str:
    """Markdown for a file in `folder`; figures are linked."""
    return "\n\n".join(_markdown(block, folder) for block in blocks) + "\n"


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{_inline(text)}</h{level}>"
        case Paragraph(text):
            return f"<p>{_inline(text)}</p>"
        case Code(text):
            return f"<pre><code>{html.escape(text)}</code></pre>"
        case Table():
            return _html_table(block)
        case Figure(path, title, caption):
            return (
                f'<figure role="group" aria-label="{html.escape(title)}">{_svg(path)}'
                f"<figcaption><strong>{_inline(title)}.</strong> {_inline(caption)}</figcaption></figure>"
            )
        case DefinitionList(lines):
            return (
                "<dl>" + "".join(f"<dt>{_inline(name)}</dt><dd>{_spans(spans)}</dd>" for name, spans in lines) + "</dl>"
            )


def _html_table(table: Table) -> str:
    edges = _edges(table)
    head = ""
    if table.groups:
        cells, column = [], 0
        for name, width in table.groups:
            edge = " edge" if column in edges else ""
            cells.append(f'<th class="group{edge}" colspan="{width}">{_inline(name)}</th>')
            column += width
        head = f"<tr>{''.join(cells)}</tr>"
    head += _row(table.columns, "th", edges)
    rows = "".join(
        _row(row, "td", edges, ' class="break"' if number in table.breaks else "")
        for number, row in enumerate(table.rows)
    )
    words = ' class="words"' if table.words else ""
    return f'<div class="scroll"><table{words}><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def _row(cells: Sequence[str], tag: str, edges: set[int], attributes: str = "") -> str:
    written = (
        f"<{tag}{' class=edge' if column in edges else ''}>{_inline(cell)}</{tag}>" for column, cell in enumerate(cells)
    )
    return f"<tr{attributes}>{''.join(written)}</tr>"


def _edges(table: Table) -> set[int]:
    """The columns in which a group begins, except for the first."""
    starts = itertools.accumulate(width for _, width in table.groups[:-1])
    return set(starts)


def _svg(path: Path) -> str:
    """The `svg` element of a file, without its metadata."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r"<metadata>.*?</metadata>\s*", "", text[text.index("<svg") :], flags=re.DOTALL)


def _spans(spans: Sequence[Span]) -> str:
    return " ".join(_span(span) for span in spans)


def _span(span: Span) -> str:
    text, (kind, _, number) = html.escape(span.text), span.style.partition(" ")
    if not kind:
        return text
    color = f" moved-{(int(number) - 1) % MOVED_COLORS + 1}" if kind == "moved" else ""
    return f'<span class="{kind}{color}">{text}</span>'


def _inline(text: str) -> str:
    escaped = html.escape(text, quote=False)
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", escaped)


def _markdown(block: Block, folder: Path) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Paragraph(text):
            return _wrapped(text)
        case Code(text):
            return "\n".join(f"    {line}" for line in text.splitlines())
        case Table():
            return _markdown_table(block)
        case Figure(path, title, caption):
            return f"![{title}]({path.relative_to(folder).as_posix()})\n\n{_wrapped(f'**{title}.** {caption}')}"
        case DefinitionList(lines):
            return "\n".join(f"- {name}: {' '.join(map(_markdown_span, spans))}" for name, spans in lines)


def _markdown_table(table: Table) -> str:
    """Groups become part of the columns' names."""
    above = [name for name, width in table.groups for _ in range(width)] or [""] * len(table.columns)
    names = [f"{group}: {name}" if group and name else name for group, name in zip(above, table.columns, strict=True)]
    lines = [names, ["---", *(["---" if table.words else "---:"] * (len(names) - 1))], *table.rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_MARKDOWN_SPANS: dict[str, Callable[[str], str]] = {
    "": lambda text: text,
    "removed": lambda text: f"~~{text}~~",
    "added": lambda text: f"**{text}**",
}


def _markdown_span(span: Span) -> str:
    text, (kind, _, number) = re.sub(r"([\\`*_~\[\]<>])", r"\\\1", span.text), span.style.partition(" ")
    return f"_{text}_ ({number})" if kind == "moved" else _MARKDOWN_SPANS[kind](text)


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, and a real minus; what rounds to zero is +0."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def as_ratio(ratio: float) -> str:
    """A speed-up with two significant digits."""
    return f"{ratio:.0f}×" if ratio >= 9.95 else f"{ratio:.1f}×"
