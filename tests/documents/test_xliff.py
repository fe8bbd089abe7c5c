"""XLIFF: targets are written, sources stay, and targets have the elements of their sources."""

from __future__ import annotations

import copy
import re
from collections import Counter
from typing import Any

import pytest
from fake import shout
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from latentmt.documents.formats import read_document
from latentmt.errors import UserError
from latentmt.results import Translation

NAMESPACES = {1: "urn:oasis:names:tc:xliff:document:1.2", 2: "urn:oasis:names:tc:xliff:document:2.0"}
STATE_1 = 'state="translated" state-qualifier="leveraged-mt"'


def old(body: str, languages: str = 'source-language="de"') -> str:
    """A file of version 1."""
    file = f"<file {languages}><body>{body}</body></file>"
    return f'<?xml version="1.0"?>\n<xliff xmlns="{NAMESPACES[1]}" version="1.2">{file}</xliff>\n'


def new(body: str, languages: str = 'srcLang="de"') -> str:
    """A file of version 2."""
    file = f'<file id="f"><unit id="u">{body}</unit></file>'
    return f'<xliff xmlns="{NAMESPACES[2]}" version="2.1" {languages}>{file}</xliff>'


def translated(source: str | bytes, reverse: bool = False) -> str:
    content = source if isinstance(source, bytes) else source.encode()
    document = read_document("a.xlf", content, ("de", "en"))
    return document.render([shout(text, reverse) for text in document.texts]).decode()


def old_unit(body: str, expected: str, attributes: str = "", reverse: bool = False) -> None:
    unit = f'<trans-unit id="1"{attributes}>%s</trans-unit>'
    languages = 'source-language="de"' + ' target-language="en"' * (body != expected)
    assert translated(old(unit % body), reverse) == old(unit % expected, languages)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("ein Haus", "EIN HAUS"),
        ('ein <g id="1">Haus</g>', 'EIN <g id="1">HAUS</g>'),
        ('ein <x id="1" equiv-text="{{x}}"/> da', 'EIN <x id="1" equiv-text="{{x}}"/> DA'),
        ('<bpt id="1">&lt;b&gt;</bpt>ein<ept id="1">&lt;/b&gt;</ept> Haus',
         '<bpt id="1">&lt;b&gt;</bpt>EIN<ept id="1">&lt;/b&gt;</ept> HAUS'),
        ('<bx id="1" rid="7"/>ein<ex id="2" rid="7"/> Haus', '<bx id="1" rid="7"/>EIN<ex id="2" rid="7"/> HAUS'),
        ('ein<x id="1" ctype="lb"/>Haus', 'EIN<x id="1" ctype="lb"/>HAUS'),
        ('ein <mrk mtype="protected">Haus</mrk> da', 'EIN <mrk mtype="protected">Haus</mrk> DA'),
        ("  ein &lt;b&gt;Haus&lt;/b&gt; %s ", "  EIN &lt;b&gt;HAUS&lt;/b&gt; %s "),
        ("eins\nzwei", "EINS ZWEI"),
        ('<x id="1"/>', '<x id="1"/>'),
    ],
)  # fmt: skip
def test_a_target_has_the_elements_of_its_source(source: str, target: str) -> None:
    before = f"<source>{source}</source>"
    old_unit(before, f"{before}<target {STATE_1}>{target}</target>")


@pytest.mark.parametrize(
    ("target", "is_kept"),
    [
        ("<target>x</target>", True),
        ('<target state="translated">x</target>', True),
        ('<target state="needs-review-translation">x</target>', True),
        ("<target/>", False),
        ("<target> <x id='1'/></target>", False),
        ('<target state="new">x</target>', False),
        ('<target state="needs-translation" state-qualifier="id-match">x</target>', False),
    ],
)
def test_targets_are_kept_unless_they_have_no_text_or_are_to_be_translated(target: str, is_kept: bool) -> None:
    before = "<source>ja</source>"
    old_unit(before + target, before + (target if is_kept else f"<target {STATE_1}>JA</target>"))
    approved = f"{before}<target state='new'>x</target>".replace("'", '"')
    old_unit(approved, approved, ' approved="yes"')


@pytest.mark.parametrize("target", ["", "<target/>", "<target> </target>"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_unit_with_a_new_target_is_approved_no_longer(target: str, reverse: bool) -> None:
    unit = '<trans-unit id="1" approved="yes"><source>%s hat %d.</source>' + target + "</trans-unit>"
    result = translated(old(unit), reverse)
    assert '<trans-unit id="1"><source>' in result
    assert "HAT" in result
    kept = '<trans-unit id="2" approved="yes"><source>ja</source><target>yes</target></trans-unit>'
    assert kept in translated(old(unit + kept))
    assert '<trans-unit id="1" approved="no"><source>' in translated(old(unit.replace('"yes"', '"no"')))


def test_choices_are_translated_unless_elements_are_in_them() -> None:
    before = "<source>{n, plural,\n =1 {ein &lt;b&gt;Haus&lt;/b&gt;} other {# Häuser}}</source>"
    target = "{n, plural, =1 {EIN &lt;b&gt;HAUS&lt;/b&gt;} other {# HÄUSER}}"
    old_unit(before, f"{before}<target {STATE_1}>{target}</target>")
    elements = "<source>{n, plural, =1 {ein} other {<x id='1'/> Häuser}}</source>".replace("'", '"')
    old_unit(elements, elements)


def test_what_is_not_to_be_translated_stays() -> None:
    for body in (
        '<trans-unit id="1" translate="no"><source>ja</source></trans-unit>',
        '<group translate="no"><group><trans-unit id="1"><source>ja</source></trans-unit></group></group>',
        '<trans-unit id="1"><source/></trans-unit>',
        "<trans-unit><source>ja</source><target>y</target><alt-trans><source>a</source></alt-trans></trans-unit>",
    ):
        assert translated(old(body)) == old(body)


def test_segments_and_attributes_go_to_the_target() -> None:
    source = '<source xml:lang="de" xml:space="preserve">Ja. Nein.</source>'
    segments = '<seg-source><mrk mtype="seg" mid="1">Ja.</mrk> <mrk mtype="seg" mid="2">Nein.</mrk></seg-source>'
    target = f'<target {STATE_1}><mrk mtype="seg" mid="1">JA.</mrk> <mrk mtype="seg" mid="2">NEIN.</mrk></target>'
    old_unit(source + segments, source + segments + target)
    lines = source.replace(" ", "\n", 4).replace("\n", " ", 2).replace("Ja. Nein", "Ja.\nNein")
    assert 'xml:lang="en" xml:space="preserve"' in (
        result := translated(old(f'<trans-unit id="1">{lines}</trans-unit>'))
    )
    assert "JA.\nNEIN.</target>" in result


def test_line_ends_that_mean_something_stay_beside_elements() -> None:
    unit = '<trans-unit id="1"%s><source>%s</source>%s</trans-unit>'
    for text in (
        'Zeile eins\n  Zeile <g id="1">zwei</g> und\n\nmehr ',
        '<x id="1"/>eins\n<g id="1">zwei\n drei</g>\n',
        '<bx id="1"/>eins\nzwei<ex id="1"/> drei&#13;\nvier<x id="2" ctype="lb"/>\nfünf',
    ):
        result = translated(old(unit % (' xml:space="preserve"', text, "")))
        target = re.sub(
            r"(<[^<>]*>)|&#13;|\w", lambda found: found[0] if found[0][0] in "<&" else found[0].upper(), text
        )
        assert f"<source>{text}</source><target {STATE_1}>{target}</target>" in result
    folded = translated(old(unit % ("", 'eins\n <g id="1">zwei</g>', "")))
    assert f'<target {STATE_1}>EINS <g id="1">ZWEI</g></target>' in folded


@pytest.mark.parametrize("attributes", ["", ' state="initial" subState="a:b"'])
def test_segments_of_version_2(attributes: str) -> None:
    source = (
        '<source>ein <pc id="1">Haus</pc> <sc id="2"/>da<ec startRef="2"/> <mrk id="m" translate="no">so</mrk></source>'
    )
    target = source.replace("source>", "target>")
    for text in ("ein", "Haus", "da<"):
        target = target.replace(text, text.upper())
    ignorable = "<ignorable><source>ja</source></ignorable>"
    kept = "<segment><source>ja</source><target>yes</target></segment>"
    result = translated(new(f"{ignorable}<segment{attributes}>\n {source}\n</segment>{kept}"))
    segment = f'<segment state="translated">\n {source}\n {target}\n</segment>'
    assert result == new(ignorable + segment + kept, 'srcLang="de" trgLang="en"')


def test_what_a_program_would_fail_on_is_to_be_reviewed() -> None:
    before = "<source>%s hat %d.</source>"
    after = f'{before}<target state="needs-review-translation" state-qualifier="leveraged-mt">%d HAT %s.</target>'
    old_unit(before, after, reverse=True)
    assert '<segment state="initial">' in translated(new(f"<segment>{before}</segment>"), reverse=True)


def test_bytes_around_units_stay() -> None:
    head, tail = "<?xml version='1.0' encoding='iso-8859-1' ?>\r\n<!-- ä -->\r\n", "\r\n<!-- ö -->\r\n\r\n"
    body = old('\r\n <trans-unit id="1">\r\n  <source>ä</source>\r\n </trans-unit>').partition("\n")[2].rstrip()
    result = read_document("a.xlf", (head + body + tail).encode("latin-1")).render([Translation("→")]).decode("latin-1")
    target = f"\r\n  <target {STATE_1}>&#8594;</target>\r\n </trans"
    assert result == head + body.replace("\r\n </trans", target) + tail


def test_what_has_no_references_keeps_its_bytes() -> None:
    around = "<!-- &nbsp; <![CDATA[ --><?p &nbsp;?><note><![CDATA[a &euro; <!-- ]]></note>"
    unit = '<trans-unit id="1"><source><![CDATA[Schreibe &nbsp; jetzt]]></source>%s</trans-unit>'
    document = read_document("a.xlf", old(around + unit % "").encode(), ("de", "en"))
    assert document.texts == ["Schreibe &nbsp; jetzt"]
    result = document.render([Translation("Write &nbsp; now")]).decode()
    target = f"<target {STATE_1}>Write &amp;nbsp; now</target>"
    assert result == old(around + unit % target, 'source-language="de" target-language="en"')
    assert "<source>a\u00a0b</source>" in translated(new("<segment><source>a&nbsp;b</source></segment>"))


@pytest.mark.parametrize("part", ["<!--", "<![CDATA[", "<?", "&a", "-->"])
def test_long_files_take_linear_time(part: str) -> None:
    with pytest.raises(UserError, match=r"\Aa\.xlf: the file: no well-formed XML[^\n]*\Z"):
        translated(part * 200_000)


INLINE = {
    1: ("g", ["<x id='3'/>", "<ph id='4'>%s</ph>", "<bx id='5'/>", "<ex id='5'/>", "<bpt id='6'/>", "<ept id='6'/>"]),
    2: ("pc", ["<ph id='3'/>", "<sc id='5'/>", "<ec startRef='5'/>", "<sm id='6'/>", "<em startRef='6'/>"]),
}


def contents(version: int) -> st.SearchStrategy[str]:
    name, empty = INLINE[version]
    texts = ["ein ", "Haus", " ", "\n", "&lt;", "&amp;b ", "{x}", "<!-- c -->", "<?p i?>", "<![CDATA[a &nbsp;]]>"]
    leaves = st.sampled_from([*texts, *empty])
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4).map(lambda many: f"<{name} id='1'>{''.join(many)}</{name}>")
    )


def described(element: Any) -> Counter[str]:
    return Counter(f"{one.tag} {sorted(one.attrib.items())}" for one in element.iterdescendants())


def without_targets(root: Any) -> bytes:
    root = copy.deepcopy(root)
    for target in list(root.iter("{*}target")):
        before = target.getprevious()
        before.tail = target.tail
        target.getparent().remove(target)
    for element in root.iter():
        for name in ("state", "trgLang", "target-language"):
            element.attrib.pop(name, None)
    return etree.tostring(root, method="c14n")


def sources(version: int) -> st.SearchStrategy[tuple[int, list[str]]]:
    return st.tuples(st.just(version), st.lists(st.lists(contents(version), max_size=5).map("".join), max_size=3))


@given(sources(1) | sources(2), st.booleans(), st.booleans())
def test_sources_stay_and_targets_have_what_they_have(
    case: tuple[int, list[str]], reverse: bool, by_lines: bool
) -> None:
    version, texts = case
    unit = "<segment><source>%s</source></segment>"
    if version == 1:
        unit = "<trans-unit id='1'>\n<source>%s</source>\n</trans-unit>"
    if by_lines:
        unit = unit.replace("<source", "<source xml:space='preserve'")
    source = (old if version == 1 else new)("".join(unit % text for text in texts))
    result = translated(source, reverse)
    before, after = (etree.fromstring(text.encode()) for text in (source, result))
    assert without_targets(after) == without_targets(before)
    for element in after.iter("{*}source"):
        target = element.getparent().find("{*}target")
        if target is None:
            assert not len(element)
            assert not element.text
        else:
            assert described(target) == described(element)
            letters = [sorted(re.sub(r"\s", "", "".join(one.itertext())).casefold()) for one in (element, target)]
            assert letters[0] == letters[1]
            ends = ["".join(one.itertext()).count("\n") for one in (element, target)]
            assert not by_lines or ends[0] == ends[1]
    assert "initial" in result or translated(result) == result


def referring(entity: str) -> str:
    return new(f"<segment><source>&{entity};</source></segment>")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no well-formed XML"),
        ("<xliff", "no well-formed XML"),
        ("<html version='1'/>", "no XLIFF 1 or 2"),
        ("<xliff version='3.0'/>", "no XLIFF 1 or 2"),
        (old("", 'source-language="fr"'), "a catalogue from 'fr', but what is translated is from 'de'"),
        (new("", 'srcLang="de-AT" trgLang="pl"'), "a catalogue into 'pl', but what is translated is into 'en'"),
        ('<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>' + referring("b"), "declares entities"),
        ('<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + referring("a"), "declares entities"),
        (new("<segment>" * 300 + "</segment>" * 300), "no well-formed XML"),
        (referring("nope"), "no well-formed XML|unknown entity"),
    ],
)  # fmt: skip
def test_hostile_and_other_files_are_refused_in_one_line(content: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"\Aa\.xlf: [^\n]*(?:{message})[^\n]*\Z"):
        translated(content)


def test_a_document_type_from_elsewhere_is_not_read() -> None:
    content = '<!DOCTYPE xliff SYSTEM "http://127.0.0.1:9/x.dtd">\n' + new("<segment><source>ja</source></segment>")
    assert "<target>JA</target>" in translated(content)
