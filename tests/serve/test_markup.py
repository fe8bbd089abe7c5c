"""Translated HTML has every tag once, nested as before, around the words aligned with those it was around."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from latentmt.results import Link, Translation
from latentmt.serve.markup import INLINE, VOID, Document, _events
from latentmt.translator import Translator


def shout(text: str, reverse: bool = False) -> Translation:
    """A fake translation: the words in capitals, or in reverse order with the last one staying last."""
    words = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    if reverse:
        words = [*reversed(words[:-1]), *words[-1:]]
    out, links = "", []
    for start, end in words:
        out += (
            " " if out and (start == 0 or text[start - 1].isspace() or (reverse and text[start:end].isalnum())) else ""
        )
        links.append(Link((start, end), (len(out), len(out) + end - start), 1.0))
        shouted = text[start:end].upper()
        out += shouted if len(shouted) == end - start else text[start:end]
    return Translation(out, alignment=links)


def translated(source: str, reverse: bool = False) -> str:
    document = Document(source)
    return document.render([shout(text, reverse) for text in document.texts])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<p>ein <b>rotes Haus</b> hier.</p>", "<p>HIER <b>HAUS ROTES</b> EIN.</p>"),
        ("<p><i>ein <b>rotes</b></i> Haus.</p>", "<p>HAUS <i><b>ROTES</b> EIN</i>.</p>"),
        ("<b>a</b> <i>b</i> <u>c</u>.", "<u>C</u> <i>B</i> <b>A</b>."),
        ("<b>alles fett.</b>", "<b>FETT ALLES.</b>"),
        ("a <b>b.</b> <b>c d</b> e.", "E <b>D C</b><b>. B</b> A."),
    ],
)
def test_tags_follow_the_alignment(source: str, expected: str) -> None:
    assert translated(source, reverse=True) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("ein Haus.", "EIN HAUS."),
        ("<p>ein Haus.</p><p>ja</p>", "<p>EIN HAUS.</p><p>JA</p>"),
        ("  <p>\n  ein\n  Haus.\n</p>\n", "  <p>\n  EIN HAUS.\n</p>\n"),
        ("a &lt; b &amp; c&nbsp;d.", "A &lt; B &amp; C D."),
        ("die Zahl <code>a &lt; Haus</code> hier.", "DIE ZAHL <code>a &lt; Haus</code> HIER."),
        ("ein <code>x</code>.", "EIN <code>x</code>."),
        ("<code>x</code> ist gut.", "<code>x</code> IST GUT."),
        ("ein <span translate=no>Haus <b>Y</b></span> da.", "EIN <span translate=no>Haus <b>Y</b></span> DA."),
        ("ein <i translate=NO>Haus</i> da.", "EIN <i translate=NO>Haus</i> DA."),
        ("<iframe>ein Haus</iframe><xmp>ein Haus</xmp>", None),
        ("ein <i class='x notranslate'>Haus</i> da.", "EIN <i class='x notranslate'>Haus</i> DA."),
        ("ein<br>Haus<hr/>da", "EIN<br>HAUS<hr/>DA"),
        ("ein <a name=x></a>Haus <!-- nein -->da.", "EIN <a name=x></a>HAUS <!-- nein -->DA."),
        ("<b>ein <code>x</code> Haus</b> (<i>da</i>).", "<b>EIN <code>x</code> HAUS</b> (<i>DA</i>)."),
        ("ein <img src=1><img src=2> Haus", "EIN <img src=1><img src=2> HAUS"),
        ("<script>Haus</script><style>Haus</style><pre>ein Haus</pre>", None),
        ("<!DOCTYPE html><?php x ?><p></p> \n <b> </b>", None),
        ("<b>ein <p>Haus</b> da</p> ja", "<b>EIN <p>HAUS</b> DA</p> JA"),
        ("<b>ein <i>Haus</b> da</i>.", "<b>EIN <i>HAUS</b> DA</i>."),
        ("a < b <3 c.", "A &lt; B &lt;3 C."),
        ("<p>x <b>y", "<p>X <b>Y"),
        ("<img alt='Haus'> ein", "<img alt='Haus'> EIN"),
        ("<title>ein Haus</title>", "<title>EIN HAUS</title>"),
    ],
)
def test_markup_and_verbatim_content_are_kept(source: str, expected: str | None) -> None:
    assert translated(source) == (source if expected is None else expected)


class Tags(HTMLParser):
    """The tags of a document, and whether they are balanced."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.parents: Counter[tuple[str, ...]] = Counter()
        self.balanced, self._open = True, list[str]()
        self.text = ""
        self.feed(source)
        self.close()
        self.balanced &= not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.parents[(*self._open, f"{tag}{attrs}")] += 1
        if tag not in VOID:
            self._open.append(f"{tag}{attrs}")

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            self.balanced &= bool(self._open) and self._open.pop().startswith(f"{tag}[")

    def handle_data(self, data: str) -> None:
        self.text += data


words = st.text("abcäß .,!&<3'-", max_size=12).map(lambda text: html.escape(text, quote=False))
names = st.sampled_from([*sorted(INLINE)[::4], "p", "div", "li", "h1", "code", "pre", "table"])
attributes = st.sampled_from(["", " class='x'", ' title="a > b"', " translate=no", " hidden"])


@st.composite
def element(draw: st.DrawFn, inside: st.SearchStrategy[str]) -> str:
    name = draw(names)
    return f"<{name}{draw(attributes)}>{draw(inside)}</{name}>"


well_formed = st.recursive(
    words | st.sampled_from(["<br>", "<img src=x>", "<!-- c -->", "<wbr>", "<input/>"]),
    lambda inner: element(inner) | st.lists(inner, max_size=4).map("".join),
    max_leaves=25,
)


@given(well_formed, st.booleans())
@settings(max_examples=settings().max_examples * 3, deadline=None)
def test_balanced_tags_stay_balanced_and_nested(source: str, reverse: bool) -> None:
    before, after = Tags(source), Tags(translated(source, reverse))
    assert before.balanced
    assert after.balanced
    assert after.parents == before.parents
    assert Counter(re.sub(r"\s", "", after.text.casefold())) == Counter(re.sub(r"\s", "", before.text.casefold()))


SCRAPS = """
<b> </b> <p> </p> <i </ <!-- --> <![CDATA[ ]]> <? & &amp &#x110000; <script> </script> <code> </code> > " <a <!d <B/>
</br> &lt;b
"""
scraps = st.lists(
    st.sampled_from([*SCRAPS.split(), "a b.", "\r\n", "\0", "<a href='"]) | st.text(max_size=3), max_size=25
)


@example(["&", "A"])
@example(["</>", "A"])
@example(["<b>", "&", "A"])
@given(scraps)
@settings(max_examples=settings().max_examples * 5, deadline=None)
def test_any_input_keeps_its_source_and_its_tags(some: list[str]) -> None:
    source = "".join(some)
    assert "".join(event.raw for event in _events(source)) == source
    found = translated(source)

    def tags(text: str) -> Counter[str]:
        return Counter(event.raw for event in _events(text) if event.kind in ("open", "close"))

    assert tags(found) == tags(source)


@given(well_formed, st.randoms(use_true_random=False))
@settings(max_examples=settings().max_examples * 3 // 2, deadline=None)
def test_tags_stay_balanced_with_any_alignment(source: str, random: object) -> None:
    """Whatever an alignment says, even nonsense, tags come back balanced."""
    document = Document(source)

    def nonsense(texts: Sequence[str]) -> list[Translation]:
        many = []
        for text in texts:
            translation = "x y, z." * random.randint(0, 3)  # type: ignore[attr-defined]
            places = sorted(random.randint(0, 20) for _ in range(4))  # type: ignore[attr-defined]
            links = [Link((places[0], places[1] + 1), (places[2], places[3] + 1), random.random())]  # type: ignore[attr-defined]
            many.append(Translation(translation, alignment=links if len(text) % 3 else []))
        return many

    found = Tags(document.render(nonsense(document.texts)))
    assert found.balanced
    assert found.parents == Tags(source).parents


def test_long_and_deep_documents_are_translated(translator: Translator) -> None:
    for source in ("<b>" * 900 + "x" + "</b>" * 900, "<b>x</b> " * 900, "<b>" * 2000, "&" * 5000):
        assert translated(source).count("<b>") == source.count("<b>")
    assert "<a <a" in html.unescape(translated("<a <a " * 1000)).lower()
    deep = "<b>" * 900 + "ein Satz" + "</b>" * 900
    document = Document(deep)
    assert document.render(translator.translations(document.texts, details=True)).count("</b>") == 900
