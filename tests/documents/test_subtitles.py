"""Subtitles keep everything but their words: times, numbers, notes, tags, line ends."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmt.documents.formats import read_document
from latentmt.documents.lines import MAX_LINE, Word, broken, divided
from latentmt.errors import UserError
from latentmt.results import Translation

TIME = "00:00:01,000 --> 00:00:02,000"
LINES = st.lists(
    st.sampled_from(
        ["Ein Haus", "und du,", "- Ja.", "– Nein.", "<i>so</i>", "{\\an8}oben", "<b>halb", "a < b > c", "♪ la la", "…",
         "<00:01.000>jetzt", "<v Ada Lovelace>Hallo", "&amp; mehr", "  weit  weg ", "<i><b>tief</b></i> da",
         "{offen", ">", "12"]
    ),
    max_size=4,
)  # fmt: skip


def srt(cues: list[list[str]], newline: str = "\n") -> str:
    return newline.join(line for number, cue in enumerate(cues) for line in [str(number + 1), TIME, *cue, ""])


def vtt(cues: list[list[str]], newline: str = "\n") -> str:
    return f"WEBVTT{newline * 2}NOTE nicht{newline * 2}" + srt(cues, newline).replace(",000", ".000")


def translated(name: str, text: str, translate: dict[str, str]) -> str:
    document = read_document(name, text.encode())
    return document.render([Translation(translate[text]) for text in document.texts]).decode()


@given(st.lists(LINES, max_size=4), st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["", "\ufeff"]))
def test_an_untranslated_file_keeps_every_byte(cues: list[list[str]], newline: str, mark: str) -> None:
    for name, text in (("a.srt", srt(cues, newline)), ("a.vtt", vtt(cues, newline))):
        content = (mark + text).encode()
        document = read_document(name, content)
        assert document.render([Translation(text) for text in document.texts]) == content


@given(st.lists(LINES, max_size=4))
def test_translated_words_leave_tags_and_times(cues: list[list[str]]) -> None:
    kept = re.compile(r"<[^<>\n ][^<>\n]*>|\{\\[^{}\n]*\}|^.*-->.*$|^NOTE.*$|^WEBVTT$", re.MULTILINE)
    for name, text in (("a.srt", srt(cues)), ("a.vtt", vtt(cues))):
        document = read_document(name, text.encode())
        words = [Translation(f"{text.upper()} MEHR") for text in document.texts]
        assert Counter(kept.findall(document.render(words).decode())) == Counter(kept.findall(text))


def test_the_lines_of_a_cue_are_one_text_and_broken_anew() -> None:
    source = srt([["Guten Morgen,", "meine Damen."]])
    long = "Good morning to all of you, ladies and gentlemen of the jury"
    result = translated("a.srt", source, {"Guten Morgen, meine Damen.": long})
    assert result == srt([["Good morning to all of you,", "ladies and gentlemen of the jury"]])


def test_speakers_have_texts_of_their_own() -> None:
    source = srt([["- Ja, gut.", "- Nein."]])
    assert translated("a.srt", source, {"Ja, gut.": "Yes.", "Nein.": "No."}) == srt([["- Yes.", "- No."]])


def test_a_sentence_is_divided_over_its_cues() -> None:
    source = srt([["<i>Sie sagte, dass sie</i>"], ["<i>nach Hause fährt.</i>"], ["Gut."]])
    result = translated(
        "a.srt", source, {"Sie sagte, dass sie nach Hause fährt.": "She said she is driving home.", "Gut.": "OK."}
    )
    assert result == srt([["<i>She said she is</i>"], ["<i>driving home.</i>"], ["OK."]])


@pytest.mark.parametrize("first", ["Das war es.", "BERLIN 1989", "Der Anfang"])
def test_other_cues_are_texts_of_their_own(first: str) -> None:
    assert read_document("a.srt", srt([[first], ["Sie geht."]]).encode()).texts == [first, "Sie geht."]


def test_what_players_read_as_markup_is_escaped() -> None:
    assert translated("a.vtt", vtt([["eins"]]), {"eins": "a --> b & <i>"}) == vtt([["a --&gt; b &amp; &lt;i&gt;"]])
    assert "-->" not in translated("a.srt", srt([["eins"]]), {"eins": "a --> b"}).partition(TIME)[2]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.srt", "Text\n", r"line 1: expected a time"),
        ("a.srt", f"1\n{TIME}\nText\n\n2\nText\n", r"line 6: expected a time"),
        ("a.srt", "1\n00:00:01 --> 00:00:02\nText\n", r"line 2: expected a time"),
        ("a.srt", f"1\n{TIME}\nText\nx --> y\n", r"line 4: expected the text of a cue"),
        ("a.vtt", f"1\n{TIME}\nText\n", r"line 1: expected WEBVTT"),
        ("a.vtt", f"WEBVTT\n{TIME}\nText\n", r"line 2: expected a blank line"),
    ],
)
def test_what_is_malformed_is_refused_with_its_line(name: str, text: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"^{re.escape(name)}: {message}"):
        read_document(name, text.encode())


@given(st.lists(st.text("abc", min_size=1, max_size=60), min_size=1, max_size=40))
def test_lines_are_short_and_have_all_words(words: list[str]) -> None:
    lines = broken([Word(word, len(word)) for word in words])
    assert " ".join(lines).split() == words
    assert all(len(line) <= MAX_LINE or " " not in line for line in lines)


@given(st.text("ab ,.", min_size=1).filter(str.strip), st.lists(st.integers(1, 80), min_size=1, max_size=4))
def test_a_divided_text_has_all_its_words_and_no_empty_part(text: str, weights: list[int]) -> None:
    pieces = divided(text, weights)
    words = text.split()
    assert len(pieces) == len(weights)
    assert all(pieces)
    assert " ".join(pieces).split()[: len(words)] == words
