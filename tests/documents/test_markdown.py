"""Translated Markdown has the blocks, code, targets and bytes of its source around the texts."""

from __future__ import annotations

import runpy
import sysconfig
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake import shout
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

from latentmt.documents.formats import read_document
from latentmt.documents.markdown import Markdown
from latentmt.results import Translation
from latentmt.translator import Translator

DIFFERENCE: Callable[[str, str, bool], str | None] = runpy.run_path(
    str(Path(__file__).parents[2] / "benchmarks" / "markdown_frame.py")
)["difference"]
"""What a translation changed beside texts."""
READER = MarkdownIt("commonmark").enable(["table", "strikethrough"]).use(front_matter_plugin).use(footnote_plugin)


def structure(source: str) -> list[Any]:
    """Blocks in order; for each one with text, its code, its targets and its elements."""
    found: list[Any] = []
    for token in READER.parse(source):
        found.append((token.type, token.tag, token.markup, token.info, str(token.attrs)))
        if token.type != "inline":
            found.append(token.content)
            continue
        inside = Counter[tuple[Any, ...]]()
        for child in token.children or []:
            keep = child.content if child.type in ("code_inline", "html_inline") else ""
            if child.type not in ("text", "softbreak"):
                inside[(child.type, child.attrGet("href"), child.attrGet("src"), keep)] += 1
        found.append(inside)
    return found


def translated(source: str, reverse: bool = False) -> str:
    document = Markdown(source.encode())
    return document.render([shout(text, reverse) for text in document.texts]).decode()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# ein *Haus* #\r\n\r\nja\r\n", "# EIN *HAUS* #\r\n\r\nJA\r\n"),
        ("ein\nHaus\n===\n", "EIN\nHAUS\n===\n"),
        ("ein\n    > 1 Haus\n", "EIN > 1\n    HAUS\n"),
        ("> - a **b**\n>   c  \n> d\\\n> e\n", "> - A **B**\n>   C  \n>   D\\\n>   E\n"),
        ("| a | b \\| c |\n|---|:-:|\n| `x` ja | |\n", "| A | B \\| C |\n|---|:-:|\n| `x` JA | |\n"),
        ("---\na: b\n---\n\nja\n", "---\na: b\n---\n\nJA\n"),
        ("ja\n\n    code\n\n```py\ncode\n```\n", "JA\n\n    code\n\n```py\ncode\n```\n"),
        ("[ein Haus](x 'y') und <http://a.b>.\n", "[EIN HAUS](x 'y') UND <http://a.b>.\n"),
        ("siehe [ref] da\n\n[ref]: http://a\n", "SIEHE [REF][ref] DA\n\n[ref]: http://a\n"),
        ("ein ![das Bild](x.png) hier\n", "EIN ![DAS BILD](x.png) HIER\n"),
        ("- [ ] ein `foo` da\n* 1\\. ja\n", "- [ ] EIN `foo` DA\n* 1\\. JA\n"),
        ("ja[^1]\n\n[^1]: ein\n    Satz\n", "JA[^1]\n\n[^1]: EIN\n    SATZ\n"),
        ("<div>\nja\n</div>\n\nein <b>Haus</b>\n", "<div>\nja\n</div>\n\nEIN <b>HAUS</b>\n"),
        ("| ein<br>Haus | c |\n|---|---|\n", "| EIN<br>HAUS | C |\n|---|---|\n"),
        ("ein <ul><li>rotes Haus</li><li>ja</li></ul>\n", "EIN <ul><li>ROTES HAUS</li><li>JA</li></ul>\n"),
        ("> ein **rotes<br>\n> Haus** da\n", "> EIN **ROTES<br>\n> HAUS** DA\n"),
        ("ein **rotes  \nHaus** da\n", "EIN **ROTES  \nHAUS** DA\n"),
        ("- ein <b>rotes <br />\n  Haus</b> da\n", "- EIN <b>ROTES <br />\n  HAUS</b> DA\n"),
        ("ja <code>ein *x*</code> da <kbd>Strg</kbd>\n", "JA <code>ein *x*</code> DA <kbd>Strg</kbd>\n"),
        ("ja <script>let x = 1</script>ein <name> da\n", "JA <script>let x = 1</script>EIN <name> DA\n"),
        ("ein <kbd> und <code>x y</code> da\n", "EIN <kbd> UND <code>x y</code> DA\n"),
        ("ein `x  =  1` da\n", "EIN `x  =  1` DA\n"),
        ("ja<br>\n# kein Titel\n", "JA<br>\n# KEIN TITEL\n"),
    ],
)
def test_texts_are_replaced_in_the_source(source: str, expected: str) -> None:
    assert translated(source) == expected


def test_elements_follow_the_alignment() -> None:
    assert translated("ein **rotes Haus** mit `x` hier.", True) == "HIER `x` MIT **HAUS ROTES** EIN."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# x", "\\# x"),
        ("1. x", "1\\. x"),
        ("- x", "\\- x"),
        ("a_b 2 * 3 < 4", "a_b 2 * 3 < 4"),
        ("a *b* [c](d)", "a \\*b\\* \\[c\\](d)"),
        ("a <b> &amp; x", "a \\<b> &amp;amp; x"),
    ],
)
def test_translations_are_text(text: str, expected: str) -> None:
    assert Markdown(b"ja\n").render([Translation(text)]) == f"{expected}\n".encode()


words = st.text("abcä *_[]()`<>#-+1.|!~\\&:=\t", min_size=1, max_size=20) | st.lists(
    st.sampled_from(
        ["ab", " ", "<br>", "<code>", "</code>", "<li>", "</li>", "<b>", "</b>", "*", "`", "[", "](x)", "|"]
    )
).map("".join)
lines = st.builds(
    str.__add__,
    st.sampled_from(
        ["", "# ", "> ", "- ", "1. ", "    ", "  ", "| ", "```", "[a]: b", "[^1]: ", "---", "<div>", "> - "]
    ),
    words,
)
sources = st.builds(
    lambda many, ends: "".join(line + end for line, end in zip(many, ends, strict=False)),
    st.lists(lines, max_size=8),
    st.lists(st.sampled_from(["\n", "\n\n", "\r\n", "  \n", "\\\n"]), min_size=8, max_size=8),
)


@given(sources, st.lists(words, min_size=1, max_size=5))
@settings(deadline=None)
def test_any_translation_leaves_the_structure(source: str, texts: list[str]) -> None:
    document = Markdown(source.encode())
    assert document.render([Translation(text) for text in document.texts]) == source.encode()
    many = [Translation(texts[number % len(texts)]) for number in range(len(document.texts))]
    for result in (document.render(many).decode(), translated(source, True)):
        assert structure(result) == structure(source)


@given(sources, st.booleans())
@settings(deadline=None)
def test_all_but_texts_keeps_its_bytes(source: str, reverse: bool) -> None:
    assert DIFFERENCE(source, translated(source, reverse), not reverse) is None


@pytest.mark.parametrize(
    ("source", "result", "what"),
    [
        ("```\nja\n```\nja\n", "```\nJA\n```\nJA\n", "around texts"),
        ("ja\n\n\nein\n", "JA\n\nEIN\n", "around texts"),
        ("ja\r\n", "JA\n", "around texts"),
        ("# ja #\n", "#  JA #\n", "around texts"),
        ("* ja\n", "- JA\n", "around texts"),
        ("| a | b |\n|---|---|\n| c | d |\n", "| A | B |\n|---|---|\n| C  | D |\n", "around texts"),
        ("> ja\n> ein\n", "> JA\nEIN\n", "further lines"),
        ("ja `x`\n", "JA `X`\n", "elements"),
        ("[ja](x)\n", "[JA](y)\n", "elements"),
        ("*ja* `x`\n", "`x` *JA*\n", "elements"),
        ("ein Haus\n", "EINHAUS\n", "words"),
        ("a<br>b\n", "AB<br>\n", "words"),
        ("ja [ja](x 'y')\n", 'JA [JA](x "y")\n', "characters"),
        ("| a |\n|---|\n| b |\n", "| A |\n|---|\n| B |\n| C |\n", "parts"),
    ],
)
def test_what_is_lost_is_found(source: str, result: str, what: str) -> None:
    """The judge of the test above can tell."""
    assert what in str(DIFFERENCE(source, result, True))


def test_real_files_keep_bytes_and_structure() -> None:
    folders = [Path(sysconfig.get_paths()["purelib"]), Path(__file__).parents[2]]
    paths = [path for folder in folders for path in sorted(folder.rglob("*.md")) if path.stat().st_size < 20_000][:40]
    assert paths  # those of the project at least
    for path in paths:
        content = path.read_bytes()
        document = read_document(path.name, content)
        assert document.render([Translation(text) for text in document.texts]) == content, path
        for reverse in (False, True):
            result = document.render([shout(text, reverse) for text in document.texts]).decode()
            assert structure(result) == structure(content.decode()), path
            assert DIFFERENCE(content.decode(), result, not reverse) is None, path


def test_the_shipped_model_translates_markdown() -> None:
    document = Markdown("# Guten Morgen\n\n- Der **Hund** schläft unter dem Tisch.\n".encode())
    result = document.render(Translator.load("deen", "cpu").translations(document.texts, alignment=True)).decode()
    assert result == "# Good morning\n\n- The **dog** is sleeping under the table.\n"
