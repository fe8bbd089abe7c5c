"""Messages of programs: what a program reads stays whole, wherever the words go."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from fake import shout
from hypothesis import given
from hypothesis import strategies as st

from latentmt.documents.messages import Message, keeps_arguments
from latentmt.results import Link, Translation


def translated(source: str) -> str:
    message = Message(source)
    return message.render([shout(text) for text in message.texts])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{n, plural, one {# Haus} other {# Häuser}}", "{n, plural, one {# HAUS} other {# HÄUSER}}"),
        ("Da {n, plural, =0 {ist keines} other {sind #}}.", "DA {n, plural, =0 {IST KEINES} other {SIND #}}."),
        ("{a, select, x {{n, plural, one {ja} other {so {b}}}} other {nein}}",
         "{a, select, x {{n, plural, one {JA} other {SO {b}}}} other {NEIN}}"),
        ("<b>{n, plural,\n  one {ein <i>Haus</i>}\n  other {#}\n}</b> da",
         "<b>{n, plural,\n  one {EIN <i>HAUS</i>}\n  other {#}\n}</b> DA"),
        ("{a, select, x {ja} other {so}} und {a, select, x {ja} other {so}}",
         "{a, select, x {JA} other {SO}} UND {a, select, x {JA} other {SO}}"),
        ("da {n, plural, one {ja", "da {n, plural, one {ja"),
        ("{a, select, b" * 9 + " {ja}" + "}" * 9, "{a, select, b" * 9 + " {ja}" + "}" * 9),
        ("Nr. # ist da", "NR. # IST DA"),
        ("ein\n  Haus \n\nda", "EIN\n  HAUS \n\nDA"),
        ("<p>ein</p> <li>Haus<br/>da", "<P>"),
        ("<b>ein <i>Haus</b> da</i>", "<b>EIN <i>HAUS</b> DA</i>"),
        ("kopiere <quelle> nach <ziel>", "KOPIERE <quelle> NACH <ziel>"),
        ("<code>ein <b>Haus</b></code> da <CODE>ja</CODE>", "<code>ein <b>Haus</b></code> DA <CODE>ja</CODE>"),
        ("<b>" * 40 + "x" + "</b>" * 40, "<b>" * 40 + "X" + "</b>" * 40),
        ("", ""),
    ],
)  # fmt: skip
def test_texts_and_what_is_around_them(source: str, expected: str) -> None:
    wanted = source.replace("ein", "EIN").replace("Haus", "HAUS").replace("da", "DA") if expected == "<P>" else expected
    assert translated(source) == wanted


def test_a_number_sign_is_a_word_unless_it_stands_for_a_number() -> None:
    assert Message("Nr. # ist da").texts == ["Nr. # ist da"]
    message = Message("{n, plural, other {Nr. # ist da}}")
    assert message.texts == ["Nr. ist da"]
    links = [Link((0, 3), (0, 2), 1.0), Link((4, 10), (3, 10), 1.0)]
    assert message.render([Translation("No is here", alignment=links)]) == "{n, plural, other {No # is here}}"


def test_an_end_tag_ends_what_has_its_name() -> None:
    assert Message("<b>ein <i>Haus</b> da").texts == ["ein <i>Haus da"]
    assert Message("<b>ein <i>Haus</b> da</i>").texts == ["ein <i>Haus da</i>"]


def test_an_apostrophe_in_a_choice_begins_no_quotation() -> None:
    message = Message("{n, plural, one {ja} other {nein}}")
    assert message.texts == ["ja", "nein"]
    rendered = message.render([Translation("it's {x}"), Translation("don't")])
    assert rendered == "{n, plural, one {it’s {x}} other {don’t}}"
    assert Message("ja").render([Translation("it's")]) == "it's"


PIECES = ["<b>", "</b>", "<i>", "</i>", "<img/>", "{name}", "%1$s", "$t(a b)", "{n, plural, one {ja} other {so {b}}}",
          "Haus ", " ein", ".", "\n", "www.a.de", "<x>"]  # fmt: skip
KEPT = re.compile(r"<[^<>]*>|\{name\}|%1\$s|\$t\(a b\)|\{n, plural, one \{|\} other \{|\{b\}|www\.a\.de")

TOKENS = re.compile(r"\{n, plural.*?\}\}\}|\{\w+\}|\$t\(a b\)|%1\$s|<[^<>]*>|[^\s<{$%]+")


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.randoms(use_true_random=False))
def test_nothing_gets_into_what_a_program_reads(source: str, random: object) -> None:
    """Whatever the alignment, and wherever placeholders are in a translation."""

    def nonsense(text: str) -> Translation:
        spans = TOKENS.findall(text)
        random.shuffle(spans)  # type: ignore[attr-defined]
        translation = " ".join(spans).upper() if not KEPT.search(text) else " ".join(spans)
        ends = sorted(random.randint(0, len(text)) for _ in range(4))  # type: ignore[attr-defined]
        links = [Link((ends[0], ends[1] + 1), (ends[2], ends[3] + 1), random.random())]  # type: ignore[attr-defined]
        return Translation(translation, alignment=links)

    message = Message(source)
    rendered = message.render([nonsense(text) for text in message.texts])
    assert Counter(KEPT.findall(rendered)) == Counter(KEPT.findall(source))


@given(st.lists(st.sampled_from([*PIECES, "#", " ", "&", "{", "}", "'"]), max_size=14).map("".join))
def test_an_untranslated_message_stays(source: str) -> None:
    message = Message(source)
    assert message.render([Translation(text) for text in message.texts]) == source


@pytest.mark.parametrize(
    ("source", "translation", "kept"),
    [
        ("%s hat %d", "%d has %s", False),
        ("%s hat %s", "%s has %s", True),
        ("%1$s hat %2$d", "%2$d has %1$s", True),
        ("%(a)s hat {b}", "{b} has %(a)s", True),
        ("{} hat {:.2f}", "{:.2f} has {}", False),
        ("{{}} hat %d", "%d has {{}}", True),
        ("%s", "", False),
        ("50% der Leute", "50% of people", True),
        ("100 %% und %ld", "%ld and 100 %%", True),
    ],
)
def test_the_order_of_arguments(source: str, translation: str, kept: bool) -> None:
    assert keeps_arguments(source, translation) == kept
