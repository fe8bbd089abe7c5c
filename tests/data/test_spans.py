from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmt.data.spans import find_spans, is_emoji
from latentmt.data.tokenizer import PLACEHOLDERS

VERBATIM = [
    "https://www.beispiel.de/pfad?x=1&y=2#z",
    "http://a.b/(c)",
    "www.firma.de",
    "firma.de/kontakt",
    "müller.de",
    "WWW.FIRMA.DE",
    "src/main.py",
    "C:/Temp/a.txt",
    "bin/android_debug.apk",
    "192.168.0.1:8080",
    "{count, plural}",
    "{count, plural, one {# Datei} other {# Dateien von {name}}}",
    "{wer, select,\n  er {{n, plural, =1 {sein Haus} other {seine Häuser}}} other {ihr Haus}\n}",
    "$t(gruss)",
    '$t(gruss, {"count": 2})',
    "%{name}",
    "{ name }",
    "{0:.2f}",
    "{name!r:>10}",
    "%ld",
    "%*d",
    "%1",
    "%%",
    "%Y-%m-%d",
    "__init__",
    "help.shopify.com",
    "max.muster+x@mail.firma.de",
    "DE89 3704 0044 0532 0130 00",
    "+49 30 123456",
    "+49 (0) 89 1234567",
    "030 / 123456",
    "`rm -rf x`",
    "/usr/local/bin",
    "~/notizen/a.md",
    "$HOME/x",
    r"C:\Temp\a",
    "bericht.pdf",
    "install-worker.sh",
    "{name}",
    "{{ wert }}",
    "${wert}",
    "%s",
    "%1$s",
    "%(name)s",
    "<x/>",
    "</b>",
    '<a href="x">',
    "ELEMENT_TYPE_I4",
    "print()",
    "v14.23",
    "192.168.0.1",
    "RE-2023-0042",
    "091c98b0-a1c9-4b02-b62c-7753395ccabe",
    "--no-restore",
    "#hashtag",
    "@nutzerin",
    "&nbsp;",
    "😀",
    "👍🏽",
    "👩‍👩‍👧",
    "🇩🇪",
    "1️⃣",
    PLACEHOLDERS[0],
]
PLAIN = [
    "Das ist ein Satz, d. h. nichts Besonderes.",
    "Sogenannte Politikbereiche, d.h. ohne Forschung, z.B. Netze und/oder km/h.",
    "Es kostet 1.500 Euro, 99,99 € oder 1.000.000.000 WEI.",
    "Am 24.12.2023 um 14:30 Uhr (3,5 %) im 19. Jahrhundert.",
    "Der MP3-Player und der G20-Gipfel in den 90er Jahren.",
    "„Wirklich?“ – ja; 50 % davon.",
    "Es sind 50 % mehr, 5%ige Lösungen und 3%, die man braucht.",
    "Die Bürger_innen und jede Nutzer_in sind müde.",
    "Das ist _wirklich_ gut, _sehr wichtig_.",
    "Er kam --wie immer-- zu spät.",
    "EU27 WILL MEHR GELD AUSGEBEN",
    "Das war gut.so ist es, gut.es geht.",
    "Die Tasten { oder } fehlen.",
    "Setze { und } um den Block, { Und } auch.",
    "Put { and } or { or } around it, { to } or { bis }, { bzw. }.",
    "Er sagte: 5 < 6 und 7 > 3 & so weiter.",
]


@pytest.mark.parametrize("span", VERBATIM)
@pytest.mark.parametrize("frame", ["{}", "Siehe {} heute.", "Siehe {}.", "({}), sagte er", "Siehe {}, {} und {}!"])
def test_spans_are_found_completely(span: str, frame: str) -> None:
    text = frame.replace("{}", span)
    assert [text[start:end] for start, end in find_spans(text)] == [span] * frame.count("{}")


@pytest.mark.parametrize("text", PLAIN)
def test_plain_language_has_no_spans(text: str) -> None:
    assert find_spans(text) == []


@given(st.text(alphabet=string.printable + "äöüß–„“😀🇩" + PLACEHOLDERS[:2], max_size=200))
def test_spans_are_sorted_and_disjoint(text: str) -> None:
    places = [place for span in find_spans(text) for place in span]
    assert places == sorted(places)
    assert all(start < end for start, end in find_spans(text))


@pytest.mark.parametrize("row", ["/a/" + "." * 100_000 + "a", "www.a" + "!" * 100_000, "http://a" + ")" * 100_000])
def test_trailing_punctuation_takes_linear_time(row: str) -> None:
    assert len(find_spans(row)) == 1


@pytest.mark.parametrize("part", ["<a ", "a@", "/a", "0 ", "{", "%1", "A-", "a.", "https://", "`", "--a-", "😀\u200d"])
def test_long_texts_take_linear_time(part: str) -> None:
    """Every pattern is bounded: ten thousand repetitions end, which no quadratic pattern would in reasonable time."""
    find_spans(part * 10_000)


@pytest.mark.parametrize("part", ["{a, plural, ", "{a,select,{b}", "{a,plural,{b}c", "$t(", "%d-", "{a:"])
def test_long_messages_take_linear_time(part: str) -> None:
    find_spans(part * 10_000)


def test_adjacent_spans_are_merged() -> None:
    text = "Klick <b><i>hier</i></b> 😀🇩🇪{x}."
    assert [text[start:end] for start, end in find_spans(text)] == ["<b><i>", "</i></b>", "😀🇩🇪{x}"]


def test_is_emoji() -> None:
    assert all(map(is_emoji, ["😀", "😀🎉", "👍🏽", "🇩🇪", "1️⃣", "✔️"]))
    assert not any(map(is_emoji, ["a", "www.a.de", "1", "😀 ", ""]))
