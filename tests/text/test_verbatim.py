from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmt.data.tokenizer import PLACEHOLDERS
from latentmt.results import Link
from latentmt.text.verbatim import Sentence, Verbatim, put_back, restore

DE_EN = ("de", "en")
RESERVED, LETTERS = Verbatim(PLACEHOLDERS[:4], DE_EN), Verbatim("", DE_EN)
A, B, C, D = PLACEHOLDERS[:4]


def cut(verbatim: Verbatim, text: str, longest: int = 10_000) -> list[Sentence]:
    return verbatim.cut(text, lambda part: len(part) <= longest)[1]


@pytest.mark.parametrize("verbatim", [RESERVED, LETTERS])
def test_a_model_that_copies_gives_all_of_it_back(verbatim: Verbatim) -> None:
    text = "Siehe www.a.de/x, <b>heute</b> oder `c d`! Um 14:30 Uhr: 3,5 % von {n} und {n}."
    for sentence in cut(verbatim, text):
        rewritten, lost = restore(sentence, sentence.shown.text)
        assert (sentence.lead + rewritten.text + sentence.tail).replace("3.5", "3,5") == sentence.text
        assert lost == []
        assert not any(span in sentence.shown.text for span in ("www", "<b>", "`", "{n}"))


def test_stand_ins() -> None:
    (sentence,) = cut(RESERVED, "Siehe www.a.de und {x} und www.a.de.")
    assert sentence.shown.text == f"Siehe {A} und {B} und {A}."
    (sentence,) = cut(LETTERS, "X sah www.a.de.")
    assert sentence.shown.text == "X sah Y."
    (sentence,) = cut(RESERVED, "Klick <b>hier</b>.")
    assert sentence.shown.text == f"Klick {A} hier {B}."
    assert restore(sentence, f"Click {A} here {B}.")[0].text == "Click <b>here</b>."


def test_a_letter_without_its_space_is_found() -> None:
    (sentence,) = cut(LETTERS, "Wir sehen www.a.de heute.")
    assert restore(sentence, "WeX see today.")[0].text == "We www.a.de see today."


def test_models_in_lower_case_get_letters_in_lower_case() -> None:
    (sentence,) = cut(Verbatim("", DE_EN, lowercase=True), "Siehe www.a.de heute.")
    assert sentence.shown.text == "Siehe x heute."
    assert restore(sentence, "see x today.")[0].text == "see www.a.de today."


def test_replacements_do_not_overlap() -> None:
    (sentence,) = cut(RESERVED, "Klick <b>a</b>.")
    rewritten, _ = restore(sentence, f"Click {A} {B} on it.")
    assert rewritten.text == "Click <b></b> on it."
    assert rewritten.text[slice(*rewritten.after(10, 12))] == "on"


def test_what_is_put_back_keeps_its_order() -> None:
    (sentence,) = cut(RESERVED, "Nimm {z} und {a}.")
    rewritten, lost = restore(sentence, "Take.")
    assert put_back(rewritten, lost, []).text == "Take {z} {a}."


def test_order_and_extra_stand_ins() -> None:
    (sentence,) = cut(RESERVED, "Erst {x}, dann {y}.")
    assert restore(sentence, f"{B} after {A} {A} {C}.")[0].text == "{y} after {x}."


def test_what_is_lost_is_put_behind_the_word_it_belongs_to() -> None:
    (sentence,) = cut(RESERVED, "Siehe {x} heute.")
    rewritten, lost = restore(sentence, "Look today.")
    assert [one.text for one in lost] == ["{x}"]
    links = [Link((0, 5), (0, 4), 0.9), Link((6, 7), (0, 3), 0.6), Link((8, 13), (5, 10), 0.9)]
    assert put_back(rewritten, lost, links).text == "Look {x} today."
    doubtful = Link((6, 7), (5, 10), 0.2)
    assert put_back(rewritten, lost, [doubtful, *links]).text == "Look {x} today."
    assert put_back(rewritten, lost, links[:1]).text == "Look {x} today."  # from just before it
    assert put_back(rewritten, lost, []).text == "Look today {x}."


def test_lost_numbers_are_shown_again_as_stand_ins() -> None:
    (sentence,) = cut(RESERVED, "Es kostet 1.500 Euro bei {x}, 20 mehr.")
    again = RESERVED.without_numbers(sentence)
    assert again.shown.text == f"Es kostet {B} Euro bei {A}, {C} mehr."
    assert restore(again, f"At {A}, it costs {B} euros, {C} more.")[0].text == "At {x}, it costs 1,500 euros, 20 more."


def test_emoji_around_a_sentence_stay_outside() -> None:
    (sentence,) = cut(RESERVED, "😀 🎉 Guten Morgen 👍🏽")
    assert (sentence.lead, sentence.shown.text, sentence.tail) == ("😀 🎉 ", "Guten Morgen", " 👍🏽")
    (alone,) = cut(RESERVED, "😀😀")
    assert not alone.speaks


@pytest.mark.parametrize("text", ["12:30", "www.a.de", "3 + 4 = 7", "…", "{x}, {y}", "+49 30 123456"])
def test_what_has_no_letter_needs_no_translation(text: str) -> None:
    assert not any(sentence.speaks for sentence in cut(RESERVED, text))


def test_a_sentence_with_more_than_there_are_stand_ins_is_cut() -> None:
    text = "Nimm {a}, {b}, {c}, dann {d}, {e}, {f} und {g}."
    parts = cut(RESERVED, text)
    assert len(parts) > 1
    assert all(len(part.stand_ins) <= 4 for part in parts)
    assert not any("{" in part.shown.text for part in parts)


def test_long_spans_count_as_what_stands_for_them() -> None:
    address = "https://a.de/" + "x" * 500
    (sentence,) = cut(RESERVED, f"Siehe {address} heute.", longest=40)
    assert sentence.text == f"Siehe {address} heute."


@given(st.text(alphabet="ab C.1😀{}@/:\n" + PLACEHOLDERS[:2] + "ꝎꞠ", max_size=60), st.integers(3, 30))
def test_sentences_and_white_space_are_the_text(text: str, longest: int) -> None:
    line, sentences = RESERVED.cut(text, lambda part: len(part) <= longest)
    assert line.joined([sentence.text for sentence in sentences]) == text
    for sentence in sentences:
        assert sentence.lead + sentence.shown.before + sentence.tail == sentence.text
