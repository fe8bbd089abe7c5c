"""Translated HTML has every tag once, nested as before, around the words aligned with those it was around."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import Element, describe, walk

from latentmt.documents.markup import INLINE, Document
from latentmt.errors import UserError
from latentmt.results import Link, Translation
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
        ('ein <span translate="no">Haus <b>Y</b></span> da.', 'EIN <span translate="no">Haus <b>Y</b></span> DA.'),
        ('ein <i translate="NO">Haus</i> da.', 'EIN <i translate="NO">Haus</i> DA.'),
        ("<iframe>ein Haus</iframe><xmp>ein Haus</xmp>", None),
        ('ein <i class="x notranslate">Haus</i> da.', 'EIN <i class="x notranslate">Haus</i> DA.'),
        ("ein<br>Haus<hr>da", "EIN<br>HAUS<hr>DA"),
        ('ein <a name="x"></a>Haus <!-- nein -->da.', 'EIN <a name="x"></a>HAUS <!-- nein -->DA.'),
        ("<b>ein <code>x</code> Haus</b> (<i>da</i>).", "<b>EIN <code>x</code> HAUS</b> (<i>DA</i>)."),
        ('ein <img src="1"><img src="2"> Haus', 'EIN <img src="1"><img src="2"> HAUS'),
        ("<script>a < 'Haus'</script><style>Haus</style><pre>\n\nein Haus</pre>", None),
        ("<textarea>ein Haus</textarea><template><p>ein Haus</p></template>", None),
        ("<svg><title>ein Haus</title></svg><math><mtext>ein Haus</mtext></math>", None),
        ("<noscript>ein <b>Haus</b></noscript><noframes>ein Haus</noframes><noembed>ein Haus</noembed>", None),
        ("<!DOCTYPE html><html><head></head><body><?php x ?><p></p> \n <b> </b></body></html>", None),
        ("<a>ein <p>Haus</p> da</a> ja", "<a>EIN <p>HAUS</p> DA</a> JA"),
        ("a < b <3 c.", "A &lt; B &lt;3 C."),
        ('<img alt="Haus"> ein', '<img alt="Haus"> EIN'),
        ("<title>ein Haus &amp; Hof</title>", "<title>EIN HAUS &amp; HOF</title>"),
        ("ein <x-y>Haus</x-y> da", "EIN <x-y>HAUS</x-y> DA"),
    ],
)
def test_markup_and_verbatim_content_are_kept(source: str, expected: str | None) -> None:
    assert translated(source) == (source if expected is None else expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<P ID=x CLASS='y z'>ein<BR/>Haus", '<p id="x" class="y z">EIN<br>HAUS</p>'),
        ("<p>x <b>y", "<p>X <b>Y</b></p>"),
        ("<b>ein <p>Haus</b> da</p> ja", "<b>EIN</b><p><b>HAUS</b> DA</p> JA"),
        ("<b>ein <i>Haus</b> da</i>.", "<b>EIN <i>HAUS</i></b> <i>DA</i>."),
        ("<![CDATA[Haus]]> ein <!x> da", "<!--[CDATA[Haus]]--> EIN <!--x--> DA"),
        ("<td>ein<td>Haus", "<td>EIN</td><td>HAUS</td>"),
        ("<!-- x --> <tr><td>ein</table>", "<!-- x --> <tr><td>EIN</td></tr>"),
        ("<option value=1>ein<option>Haus", '<option value="1">EIN</option><option>HAUS</option>'),
        (
            '<!DOCTYPE html PUBLIC "-//W3C//DTD HTML 4//EN"><body class=x>ein Haus',
            '<!DOCTYPE html PUBLIC "-//W3C//DTD HTML 4//EN"><html><head></head><body class="x">EIN HAUS</body></html>',
        ),
        ('<p title="a > b &quot;">ein &#228;</p>', '<p title="a &gt; b &quot;">EIN Ä</p>'),
        ("ein Haus <a title='x> da", "EIN HAUS "),
        ("</p>ein Haus</th>", "<p></p>EIN HAUS"),
    ],
)
def test_html_is_written_as_a_browser_reads_it(source: str, expected: str) -> None:
    assert translated(source) == expected


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


def nested(source: str) -> Counter[tuple[Element, ...]]:
    """Every element with those around it."""
    return Counter((*path, describe(node)) for node, path in walk(source, "div", False))


def characters(source: str) -> Counter[str]:
    """The letters of all texts, of whatever case."""
    texts = (child.data for node, _ in walk(f"<div>{source}</div>", "div", False) for child in node.children)
    return Counter(re.sub(r"\s", "", "".join(filter(None, texts)).casefold()))


@given(well_formed, st.booleans())
@settings(max_examples=settings().max_examples * 3, deadline=None)
def test_elements_stay_nested_as_they_were(source: str, reverse: bool) -> None:
    result = translated(source, reverse)
    assert nested(result) == nested(source)
    assert characters(result) == characters(source)


@given(well_formed, st.randoms(use_true_random=False))
@settings(max_examples=settings().max_examples * 3 // 2, deadline=None)
def test_elements_stay_nested_with_any_alignment(source: str, random: object) -> None:
    document = Document(source)

    def nonsense(texts: Sequence[str]) -> list[Translation]:
        many = []
        for text in texts:
            translation = "x y, z." * random.randint(0, 3)  # type: ignore[attr-defined]
            places = sorted(random.randint(0, 20) for _ in range(4))  # type: ignore[attr-defined]
            links = [Link((places[0], places[1] + 1), (places[2], places[3] + 1), random.random())]  # type: ignore[attr-defined]
            many.append(Translation(translation, alignment=links if len(text) % 3 else []))
        return many

    assert nested(document.render(nonsense(document.texts))) == nested(source)


def test_long_and_deep_documents_are_translated(translator: Translator) -> None:
    for source in ("<b>" * 900 + "x" + "</b>" * 900, "<b>x</b> " * 900, "<b>" * 2000, "&amp;" * 2000):
        assert translated(source).count("<b>") == source.count("<b>")
    deep = "<b>" * 900 + "ein Satz" + "</b>" * 900
    document = Document(deep)
    assert document.render(translator.translations(document.texts, details=True)).count("</b>") == 900


def test_elements_that_multiply_are_refused() -> None:
    source = "<p>" + "".join(f"<b id={number}>" for number in range(300)) + "<p>x" * 300  # each <p> repeats them all
    with pytest.raises(UserError, match="far more elements"):
        Document(source)
