"""The same content as HTML and as Markdown: escaped, well-formed and self-contained."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from latentmt.report.document import (
    Block,
    Code,
    DefinitionList,
    Figure,
    Heading,
    Paragraph,
    Span,
    Table,
    as_ratio,
    signed,
    write_html,
    write_markdown,
)

SVG = '<?xml version="1.0"?>\n<!DOCTYPE svg>\n<svg width="1"><metadata>\n<x/></metadata><path d="M0"/></svg>\n'
VOID = {"meta"}


class Nesting(HTMLParser):
    """Fails where a tag is closed that is not the last one opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def blocks(tmp_path: Path) -> list[Block]:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "one.svg").write_text(SVG)
    return [
        Heading("A < B", 1),
        Paragraph("Some `code<x>` and **bold** & more."),
        Code("latentmt <x>\n  --y"),
        Table(
            ("", "a", "b", "c"),
            [["x", "1", "2", "`p|q`"], ["y", "3", "4", "<5>"]],
            (("", 1), ("here", 2), ("p", 1)),
            [1],
        ),
        Figure(tmp_path / "figures" / "one.svg", "Figure 1", "What it shows."),
        DefinitionList(
            [("sampled", [Span("a*b <i>"), Span("old", "removed"), Span("far", "moved 1"), Span("off", "moved 6")])]
        ),
    ]


def test_html_is_well_formed_escaped_and_self_contained(blocks: list[Block]) -> None:
    page = write_html("A & B", blocks)
    nesting = Nesting()
    nesting.feed(page)
    assert nesting.open == []
    assert "<title>A &amp; B</title>" in page
    assert "<h1>A &lt; B</h1>" in page
    assert "<p>Some <code>code&lt;x&gt;</code> and <strong>bold</strong> &amp; more.</p>" in page
    assert "<pre><code>latentmt &lt;x&gt;\n  --y</code></pre>" in page
    assert '<th class="group edge" colspan="2">here</th><th class="group edge" colspan="1">p</th>' in page
    assert '<tr class="break"><td>y</td><td class=edge>3</td><td>4</td><td class=edge>&lt;5&gt;</td></tr>' in page
    assert '<svg width="1"><path d="M0"/></svg>' in page
    assert "?xml" not in page
    assert 'a*b &lt;i&gt; <span class="removed">old</span> <span class="moved moved-1">far</span>' in page
    assert '<span class="moved moved-2">off</span>' in page  # colours come round again
    assert not re.search(r"(src|href)=|url\(|@import", page)


def test_markdown_of_every_block(blocks: list[Block], tmp_path: Path) -> None:
    assert write_markdown(blocks, tmp_path) == (
        "# A < B\n\n"
        "Some `code<x>` and **bold** & more.\n\n"
        "    latentmt <x>\n      --y\n\n"
        "|  | here: a | here: b | p: c |\n| --- | ---: | ---: | ---: |\n"
        "| x | 1 | 2 | `p\\|q` |\n| y | 3 | 4 | <5> |\n\n"
        "![Figure 1](figures/one.svg)\n\n**Figure 1.** What it shows.\n\n"
        "- sampled: a\\*b \\<i\\> ~~old~~ _far_ (1) _off_ (6)\n"
    )


def test_formatting_of_differences_and_ratios() -> None:
    assert [signed(-0.004), signed(-1.25, 1), signed(0.1)] == ["+0.00", "−1.2", "+0.10"]
    assert [as_ratio(0.84), as_ratio(9.94), as_ratio(9.96), as_ratio(14.8)] == ["0.8×", "9.9×", "10×", "15×"]
