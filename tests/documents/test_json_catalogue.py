"""Catalogues in JSON: values are translated, and every other byte stays."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from fake import shout
from hypothesis import given
from hypothesis import strategies as st

from latentmt.documents.formats import read_document
from latentmt.documents.json_catalogue import MAX_DEPTH
from latentmt.errors import UserError
from latentmt.results import Translation


def translated(source: str | bytes, name: str = "a.json", reverse: bool = False) -> str:
    content = source if isinstance(source, bytes) else source.encode()
    document = read_document(name, content, ("de", "en"))
    return document.render([shout(text, reverse) for text in document.texts]).decode()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('{"a": "ein Haus"}', '{"a": "EIN HAUS"}'),
        ('{\r\n\t"a" : {"b":["x" ,1.50, "y"]} ,"c":-0e1}\n', '{\r\n\t"a" : {"b":["X" ,1.50, "Y"]} ,"c":-0e1}\n'),
        (r'{"a": "sch\u00f6n \"x\""}', r'{"a": "SCH\u00d6N \"X\""}'),
        (r'{"a": "schön \u00e4"}', '{"a": "SCHÖN Ä"}'),
        (r'{"a": "ein<br\/>Haus"}', r'{"a": "EIN<br\/>HAUS"}'),
        (r'{"a": "eins\n zwei"}', r'{"a": "EINS\n ZWEI"}'),
        ('{"a": "{{name}}, $t(b) und {c, plural, one {ein} other {#}} %{d} ${e} {f}"}',
         '{"a": "{{name}}, $t(b) UND {c, plural, one {EIN} other {#}} %{d} ${e} {f}"}'),
        ('{"a": "ein <1>Haus</1> und <Link to=\'x\'>da</Link> <ziel>"}',
         '{"a": "EIN <1>HAUS</1> UND <Link to=\'x\'>DA</Link> <ziel>"}'),
        ('{"a": "<p>ein</p><code>Haus</code>", "b": ""}', '{"a": "<p>EIN</p><code>Haus</code>", "b": ""}'),
        ('{"a": "{n, plural,\\n  one {ein <b>x</b>}\\n  other {#}} da"}',
         '{"a": "{n, plural,\\n  one {EIN <b>X</b>}\\n  other {#}} DA"}'),
        ('{"a": "12 : %"}', None),
        (r'{"a": "\ud83d ja", "b": "\ud83d\ude00 ja"}', r'{"a": "\ud83d ja", "b": "\ud83d\ude00 JA"}'),
        ("{}", None),
        ('{"ja": 99999999999999999999999999e9999}', None),
        ('\ufeff{"ja": "ja"}', '\ufeff{"ja": "JA"}'),
        ('{"a": {"message": "ja", "description": "so"}}', '{"a": {"message": "JA", "description": "so"}}'),
        ('{"a": {"message": "ja"}, "b": "so"}', '{"a": {"message": "JA"}, "b": "SO"}'),
    ],
)  # fmt: skip
def test_values_are_translated(source: str, expected: str | None) -> None:
    assert translated(source) == (source if expected is None else expected)


def test_numbers_of_any_length_stay() -> None:
    source = '{"n": ' + "9" * 10_000 + "}"
    assert translated(source) == source


def test_what_arb_says_of_messages_stays_and_the_locale_does_not() -> None:
    source = '{"@@locale": "de", "a": "ein {x}", "@a": {"description": "so", "placeholders": {"x": {"type": "int"}}}}'
    assert translated(source, "a.arb") == source.replace('"de"', '"en"').replace("ein", "EIN")


def test_arb_in_another_language_is_refused() -> None:
    with pytest.raises(UserError, match=r"\Aa\.arb: a catalogue from 'fr', but what is translated is from 'de'\Z"):
        translated('{"a": "Bonjour", "@@locale": "fr"}', "a.arb")
    for locale in ("de_AT", ""):
        source = f'{{"@@locale": "{locale}", "a": "ja", "b": {{"@@locale": "ja"}}}}'
        assert translated(source, "a.arb") == source.replace(f'"{locale}"', '"en"', 1).replace("ja", "JA")
    assert translated('{"@@locale": "fr"}') == '{"@@locale": "FR"}'  # in other files it is a text
    assert read_document("a.arb", b'{"@@locale": "fr"}').render([]) == b'{"@@locale": "fr"}'


TEXTS = st.text(st.sampled_from('ab "\\\n\t/{}%s<b>ä\u2028😀\x7f')) | st.sampled_from(["{n} x", "<b>x</b> y", "</b>"])
TREES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


def shape(tree: Any) -> Any:
    """A tree without the words in its texts."""
    if isinstance(tree, dict):
        return [(key, shape(value)) for key, value in tree.items()]
    if isinstance(tree, list):
        return [shape(value) for value in tree]
    return sorted(re.sub(r"\s", "", tree).casefold()) if isinstance(tree, str) else tree


@given(st.dictionaries(TEXTS, TREES, max_size=4), st.sampled_from([None, 2, "\t"]), st.booleans())
def test_everything_else_keeps_its_bytes(tree: dict[str, Any], indent: Any, is_ascii: bool) -> None:
    source = json.dumps(tree, indent=indent, ensure_ascii=is_ascii)
    document = read_document("a.json", source.encode())
    assert document.render([Translation(text) for text in document.texts]) == source.encode()
    result = translated(source)
    assert shape(json.loads(result)) == shape(tree)
    strings = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')
    outside = [strings.sub(lambda found: found[0] if found[1] else "", text) for text in (source, result)]
    assert outside[0] == outside[1]
    assert result.isascii() or not source.isascii()


def test_a_value_that_a_program_would_fail_on_stays() -> None:
    assert translated('{"a": "%s hat %d da"}', reverse=True) == '{"a": "%s hat %d da"}'
    assert translated('{"a": "{x} hat {y} da"}', reverse=True) != '{"a": "{x} hat {y} da"}'


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "line 1: no JSON"),
        ('{"a": "b",\n}', "line 2: no JSON"),
        ('{"a": "b\n"}', "line 1: no JSON"),
        ('{"a": "b', "line 1: no JSON"),
        ('["a"]', "expected an object of texts"),
        ('"a"', "expected an object of texts"),
        ('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1), f"more than {MAX_DEPTH} objects"),
        ("[" * 1_000_000, f"more than {MAX_DEPTH} objects"),
        ("]" * 1_000_000, "line 1: no JSON"),
        ('\\"' * 500_000, "line 1: no JSON"),
    ],
)
def test_what_is_no_catalogue_is_refused_in_one_line(source: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"\Aa\.json: {message}[^\n]*\Z"):
        read_document("a.json", source.encode())
    deepest = '{"a":' * MAX_DEPTH + '"ja"' + "}" * MAX_DEPTH
    assert read_document("a.json", deepest.encode()).texts == ["ja"]
