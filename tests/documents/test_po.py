"""Catalogues of gettext: what lacks a translation gets one, and every other byte stays. polib judges the result."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import polib
import pytest
from fake import shout
from hypothesis import given
from hypothesis import strategies as st

from latentmt.documents.formats import read_document
from latentmt.documents.po_entries import unescaped, written
from latentmt.errors import UserError
from latentmt.results import Translation

HEADER = 'msgid ""\nmsgstr ""\n"Language: en\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
HEADER += '"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'


def translated(source: str | bytes, reverse: bool = False) -> bytes:
    content = source.encode() if isinstance(source, str) else source
    document = read_document("a.po", content, ("de", "en"))
    return document.render([shout(text, reverse) for text in document.texts])


def entry(body: str, header: str = HEADER) -> str:
    """What becomes of an entry."""
    return translated(header + body).decode().removeprefix(header)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('msgid "ein Haus"\nmsgstr ""\n', 'msgid "ein Haus"\nmsgstr "EIN HAUS"\n'),
        ('msgid "ja"\nmsgstr "yes"', None),
        ('#~ msgid "alt"\n#~ msgstr ""\n', None),
        ('#, fuzzy\n#~ msgid "a"\n#~ msgstr "b"\nmsgid "ja"\nmsgstr "yes"\n', None),
        ('#, c-format\nmsgctxt "a"\nmsgid "%s"\nmsgstr ""', '#, c-format\nmsgctxt "a"\nmsgid "%s"\nmsgstr "%s"'),
        ('#, fuzzy\n#| msgid "x"\nmsgid "ja"\nmsgstr "no"\n', 'msgid "ja"\nmsgstr "JA"\n'),
        ('#, fuzzy, c-format\nmsgid "ja"\nmsgstr "no"\n', '#, c-format\nmsgid "ja"\nmsgstr "JA"\n'),
        ('msgid ""\n"a\\n"\n" b\\n"\nmsgstr ""\n', 'msgid ""\n"a\\n"\n" b\\n"\nmsgstr ""\n"A\\n"\n" B\\n"\n'),
        (r'msgid "\"a\"\t\\ b"' + '\nmsgstr ""\n', r'msgid "\"a\"\t\\ b"' + '\n' + r'msgstr "\"A\" \\ B"' + '\n'),
        ('msgid "ein <b>c</b>"\nmsgstr ""\n', 'msgid "ein <b>c</b>"\nmsgstr "EIN <b>C</b>"\n'),
        (
            'msgid "%d Haus"\nmsgid_plural "%d Häuser"\nmsgstr[0] "%d house"\nmsgstr[1] ""\n# Ende',
            'msgid "%d Haus"\nmsgid_plural "%d Häuser"\nmsgstr[0] "%d house"\nmsgstr[1] "%d HÄUSER"\n# Ende',
        ),
        ('  msgid "a" "b"\n\nmsgstr ""\r\n', '  msgid "a" "b"\n\nmsgstr "AB"\n'),
    ],
)  # fmt: skip
def test_what_has_no_translation_is_translated(source: str, expected: str | None) -> None:
    assert entry(source) == (source if expected is None else expected)


WORDS = st.lists(
    st.sampled_from(
        ["Haus", "ein ", "%s", "{name}", "%(n)d", '"', "\\", "\n", "\t", " ", "<b>", "</b>", "ä", "$t(a)", "<br>", "&",
         "<0>x</0>", "{n, plural, one {#} other {# <b>x</b>}}", "%%", "\r\n", "ein langes Wort und noch eins, "]
    ),
    min_size=1,
    max_size=12,
).map("".join)  # fmt: skip


@st.composite
def catalogues(draw: st.DrawFn) -> polib.POFile:
    po = polib.POFile(wrapwidth=draw(st.sampled_from([0, 78])))
    po.metadata = {"Language": "en", "Content-Type": "text/plain; charset=UTF-8"}
    po.metadata |= {"Plural-Forms": "nplurals=2; plural=(n != 1);"}
    for number, text in enumerate(draw(st.lists(WORDS, max_size=5))):
        has = draw(st.booleans())
        one = polib.POEntry(msgid=text, msgctxt=str(number), comment=draw(st.sampled_from(["", "so\nund so"])))
        if draw(st.booleans()):
            one.msgid_plural, one.msgstr_plural = draw(WORDS), {0: "so" * has, 1: ""}
        else:
            one.msgstr = "so" * has
        one.flags = draw(st.sampled_from([[], ["fuzzy"], ["c-format"], ["fuzzy", "c-format"]]))
        one.obsolete = draw(st.integers(0, 5)) == 0 and not one.msgid_plural
        po.append(one)
    return po


@given(catalogues(), st.sampled_from(["\n", "\r\n"]))
def test_a_catalogue_keeps_all_but_its_missing_translations(po: polib.POFile, newline: str) -> None:
    source = str(po).replace("\n", newline)
    po = polib.pofile(str(po))
    result = translated(source).decode()
    outside = re.compile(r'^(?:#(?!,).*|msgid.*|msgctxt.*)(?:\r?\n"(?!Language).*)*$', re.MULTILINE)
    assert outside.findall(source) == outside.findall(result)
    assert result.count("\r\n") in (0 if newline == "\n" else result.count("\n"),)
    again = polib.pofile(result.replace("\r\n", "\n"))
    assert len(again) == len(po)
    for old, new in zip(po, again, strict=True):
        assert (new.msgid, new.msgctxt, new.obsolete) == (old.msgid, old.msgctxt, old.obsolete)
        sources = [old.msgid, old.msgid_plural] if old.msgid_plural else [old.msgid]
        before, after = ([*one.msgstr_plural.values()] if old.msgid_plural else [one.msgstr] for one in (old, new))
        for text, kept, result_text in zip(sources, before, after, strict=True):
            if old.obsolete or (kept and "fuzzy" not in old.flags):
                assert result_text == kept
            else:
                assert content(result_text) == content(text)
    assert translated(result).decode() == result  # nothing is left to do


def content(text: str) -> tuple[list[str], list[str]]:
    """What a text has, wherever: its tags, and its letters of whatever case."""
    return sorted(re.findall("<.*?>", text)), sorted(re.sub(r"\s|<.*?>", "", text).casefold())


def test_escapes_are_those_of_c_and_others_stay() -> None:
    assert unescaped(r'"\"\\\n\t\101\x41\q"') == '"\\\n\tAA\\q'


@pytest.mark.parametrize(
    ("encoding", "strings"),
    [
        ("UTF-8", r'"F\303\274r dich"'),
        ("UTF-8", r'"F\xc3\xBCr dich"'),
        ("UTF-8", '"F\\303"\n"\\274r dich"'),
        ("UTF-8", '"F\\xC3" "" "\\274"\n"r dich"'),
        ("ISO-8859-1", r'"F\374r dich"'),
        ("UTF-16", r'"F\303\274r dich"'),
    ],
)
def test_numbers_in_escapes_are_bytes(encoding: str, strings: str) -> None:
    source = f"{HEADER.replace('UTF-8', encoding)}msgid {strings}\nmsgstr "
    result = translated(f'{source}""\n'.encode(encoding)).decode(encoding)
    assert result == f'{source}"FÜR DICH"\n'


@pytest.mark.parametrize("written", [r"\374", r"\777", r"\303 \274", r"\xfc"])
def test_numbers_in_escapes_that_are_no_text_are_refused(written: str) -> None:
    with pytest.raises(UserError, match=r"\Aa\.po: line 2: a message with escapes that are not UTF-8\Z"):
        translated(f'# a\nmsgid "F{written}r"\nmsgstr ""\n')


@pytest.mark.parametrize("part", [r"\101", '""', r'\101""', '"', '"\t'])
def test_long_strings_take_linear_time(part: str) -> None:
    unescaped('"' + part * 100_000)


@given(st.text(st.sampled_from('ab \\"\n\t\r\a\x7fxn0ä')), st.booleans())
def test_strings_are_read_as_they_were_written(text: str, wrapped: bool) -> None:
    field = written("msgstr", text, "\n", wrapped)
    assert "".join(unescaped(line) for line in re.findall('".*"', field)) == text
    assert not wrapped or all(len(line) < 80 or line.count(" ") < 3 for line in field.splitlines())


def test_the_header_gets_language_and_plural_forms() -> None:
    template = '#, fuzzy\nmsgid ""\nmsgstr ""\n"X: y\\n"\n"Language: \\n"\n"Content-Type: x; charset=CHARSET\\n"\n'
    template += '"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"\n'
    header = 'msgid ""\nmsgstr ""\n"X: y\\n"\n"Language: en\\n"\n"Content-Type: x; charset=UTF-8\\n"\n'
    header += '"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n'
    assert translated(template).decode() == header
    assert translated(header).decode() == header
    british = header.replace("en", "en_GB")
    assert translated(british).decode() == british


def test_plural_forms_are_as_many_as_the_language_has() -> None:
    body = 'msgid "Haus"\nmsgid_plural "Häuser"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    one, three = (HEADER.replace("nplurals=2", f"nplurals={number}") for number in (1, 3))
    assert entry(body, one).splitlines()[2:] == ['msgstr[0] "HÄUSER"']
    assert entry(body, three).splitlines()[2:] == ['msgstr[0] "HAUS"', 'msgstr[1] "HÄUSER"', 'msgstr[2] "HÄUSER"']


def test_what_a_program_would_fail_on_stays_fuzzy() -> None:
    source = HEADER + '#. Wer\nmsgid "%s hat %d."\nmsgstr ""\n'
    result = translated(source, reverse=True).decode()
    assert result == HEADER + '#. Wer\n#, fuzzy\nmsgid "%s hat %d."\nmsgstr "%d HAT %s."\n'
    assert translated(result).decode() == HEADER + '#. Wer\nmsgid "%s hat %d."\nmsgstr "%s HAT %d."\n'
    named = HEADER + 'msgid "%(a)s hat {b}."\nmsgstr ""\n'
    assert "fuzzy" not in translated(named, reverse=True).decode()


def test_a_translation_is_kept_where_the_form_beside_it_would_be_fuzzy() -> None:
    """A fuzzy entry is translated anew the next time, with all of its forms."""
    plural = HEADER + 'msgid "%s hat %d."\nmsgid_plural "%s haben %d."\nmsgstr[0] "%s has %d."\nmsgstr[1] ""\n'
    assert translated(plural, reverse=True).decode() == plural
    assert translated(plural).decode() == plural.replace('msgstr[1] ""', 'msgstr[1] "%s HABEN %d."')


def test_the_encoding_stays_if_it_has_all_characters() -> None:
    latin = (HEADER + 'msgid "schön"\nmsgstr ""\n').replace("UTF-8", "ISO-8859-1").encode("latin-1")
    assert translated(latin) == latin.replace(b'msgstr ""\n', b"", 0)[:-3] + '"SCHÖN"\n'.encode("latin-1")
    document = read_document("a.po", latin)
    result = document.render([Translation("→ nice")]).decode()
    assert "charset=UTF-8" in result
    assert 'msgid "schön"\nmsgstr "→ nice"' in result


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "before", ["# Converted from charset=ISO-8859-1 by hand.\n", '#~ msgid "charset=ISO-8859-1"\n#~ msgstr ""\n']
)
def test_only_the_header_says_the_encoding(before: str, newline: str) -> None:
    kept = '# Jürgen\nmsgid "grün"\nmsgstr "naïve"\n\nmsgctxt "a"\nmsgid ""\nmsgstr "charset=ISO-8859-1"\n\n'
    source = (before + HEADER + kept + 'msgid "Preis charset=ISO-8859-1"\nmsgstr ""\n').replace("\n", newline)
    document = read_document("a.po", source.encode(), ("de", "en"))
    result = document.render([Translation("price – net")]).decode()
    assert result == source.removesuffix(f'""{newline}') + f'"price – net"{newline}'
    header = HEADER.replace("UTF-8", "ISO-8859-1")
    for first in ("", 'msgid "a"\nmsgstr "b"\n'):
        latin = (before.replace("ISO-8859-1", "UTF-8") + first + header + kept).replace("\n", newline).encode("latin-1")
        assert translated(latin) == latin


def test_without_a_header_a_catalogue_is_utf_8() -> None:
    source = 'msgid "Ä charset=ISO-8859-1"\nmsgstr ""\n'
    result = read_document("a.po", source.encode()).render([Translation("Ä–")]).decode()
    assert result == source.replace('msgstr ""', 'msgstr "Ä–"')
    with pytest.raises(UserError, match=r"\Aa\.po: line 1: not UTF-8\Z"):
        translated(source.encode("latin-1"))


def test_translations_into_another_language_are_not_mixed() -> None:
    french = HEADER.replace("Language: en", "Language: fr")
    with pytest.raises(UserError, match=r"^a\.po: a catalogue into 'fr', but what is translated is into 'en'$"):
        translated(french + 'msgid "ja"\nmsgstr "oui"\n')
    assert b"Language: en" in translated(french + 'msgid "ja"\nmsgstr ""\n')


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("Text\n", "line 1: expected a comment, msgid"),
        ('msgid "a\nmsgstr ""\n', "line 1: expected a comment, msgid"),
        ('msgid "a"\n', "line 2: expected msgstr"),
        ('msgid "a"\n# b\nmsgstr ""', "line 2: expected msgstr"),
        ('"a"\n', "line 1: expected msgid"),
        ('msgstr "a"\n', "line 1: msgstr is not expected here"),
        ('msgid "a"\nmsgid "b"\n', "line 2: msgid is not expected here"),
        ('msgid "a"\nmsgstr[0] "b"\n', r"line 2: msgstr\[0\] is not expected here"),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr[1] "c"\n', r"line 3: msgstr\[1\] is not expected here"),
        ('msgid ""\nmsgstr "charset=punycode"\n', "the encoding 'punycode' is not known"),
        ('msgid ""\nmsgstr "charset=zip"\n', "the encoding 'zip' is not known"),
        ("/etc/passwd", "line 1: expected a comment"),
    ],
)
def test_what_is_malformed_is_refused_with_its_line(source: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"\Aa\.po: {message}[^\n]*\Z"):
        translated(source)


@pytest.mark.skipif(not shutil.which("msgfmt"), reason="gettext is not installed")
def test_gettext_compiles_the_result(tmp_path: Path) -> None:
    source = HEADER + '#, c-format\nmsgid "%d Haus\\n"\nmsgid_plural "%d Häuser\\n"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    (tmp_path / "a.po").write_bytes(translated(source))
    command = ["msgfmt", "--check-format", "--check-domain", "-o", tmp_path / "a.mo", tmp_path / "a.po"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert polib.mofile(str(tmp_path / "a.mo"))[0].msgstr_plural == {0: "%d HAUS\n", 1: "%d HÄUSER\n"}
