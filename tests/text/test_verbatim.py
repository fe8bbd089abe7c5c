from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmt.data.tokenizer import PLACEHOLDERS
from latentmt.results import Link
from latentmt.text.verbatim import Sentence, Verbatim, insert_missing, restore

DE_EN = ("de", "en")
RESERVED, LETTERS = Verbatim(PLACEHOLDERS[:4], DE_EN), Verbatim("", DE_EN)
A, B, C, D = PLACEHOLDERS[:4]


def split(verbatim: Verbatim, text: str, longest: int = 10_000) -> list[Sentence]:
    return verbatim.split(text, lambda part: len(part) <= longest)[1]


@pytest.mark.parametrize("verbatim", [RESERVED, LETTERS])
def test_masking_then_restoring_a_copy_is_the_identity(verbatim: Verbatim) -> None:
    text = "Siehe www.a.de/x, <b>heute</b> oder `c d`! Um 14:30 Uhr: 3,5 % von {n} und {n}."
    for sentence in split(verbatim, text):
        rewritten, missing = restore(sentence, sentence.masked.text)
        assert (sentence.prefix + rewritten.text + sentence.suffix).replace("3.5", "3,5") == sentence.text
        assert missing == []
        assert not any(span in sentence.masked.text for span in ("www", "<b>", "`", "{n}"))


def test_equal_spans_share_a_placeholder_that_the_sentence_does_not_contain() -> None:
    (sentence,) = split(RESERVED, "Siehe www.a.de und {x} und www.a.de.")
    assert sentence.masked.text == f"Siehe {A} und {B} und {A}."
    (sentence,) = split(LETTERS, "X sah www.a.de.")
    assert sentence.masked.text == "X sah Y."
    (sentence,) = split(RESERVED, "Klick <b>hier</b>.")
    assert sentence.masked.text == f"Klick {A} hier {B}."
    assert restore(sentence, f"Click {A} here {B}.")[0].text == "Click <b>here</b>."


def test_a_letter_placeholder_is_found_without_a_space_before_it() -> None:
    (sentence,) = split(LETTERS, "Wir sehen www.a.de heute.")
    assert restore(sentence, "WeX see today.")[0].text == "We www.a.de see today."


def test_lowercase_models_get_lowercase_letter_placeholders() -> None:
    (sentence,) = split(Verbatim("", DE_EN, lowercase=True), "Siehe www.a.de heute.")
    assert sentence.masked.text == "Siehe x heute."
    assert restore(sentence, "see x today.")[0].text == "see www.a.de today."


def test_replacements_do_not_overlap() -> None:
    (sentence,) = split(RESERVED, "Klick <b>a</b>.")
    rewritten, _ = restore(sentence, f"Click {A} {B} on it.")
    assert rewritten.text == "Click <b></b> on it."
    assert rewritten.text[slice(*rewritten.to_rewritten(10, 12))] == "on"


def test_missing_spans_are_inserted_in_source_order() -> None:
    (sentence,) = split(RESERVED, "Nimm {z} und {a}.")
    rewritten, missing = restore(sentence, "Take.")
    assert insert_missing(rewritten, missing, []).text == "Take {z} {a}."


def test_placeholders_may_be_reordered_and_extra_ones_are_removed() -> None:
    (sentence,) = split(RESERVED, "Erst {x}, dann {y}.")
    assert restore(sentence, f"{B} after {A} {A} {C}.")[0].text == "{y} after {x}."


def test_a_missing_span_is_inserted_behind_its_aligned_word() -> None:
    (sentence,) = split(RESERVED, "Siehe {x} heute.")
    rewritten, missing = restore(sentence, "Look today.")
    assert [one.text for one in missing] == ["{x}"]
    links = [Link((0, 5), (0, 4), 0.9), Link((6, 7), (0, 3), 0.6), Link((8, 13), (5, 10), 0.9)]
    assert insert_missing(rewritten, missing, links).text == "Look {x} today."
    doubtful = Link((6, 7), (5, 10), 0.2)
    assert insert_missing(rewritten, missing, [doubtful, *links]).text == "Look {x} today."
    assert insert_missing(rewritten, missing, links[:1]).text == "Look {x} today."  # from just before it
    assert insert_missing(rewritten, missing, []).text == "Look today {x}."


def test_numbers_can_be_masked_too() -> None:
    (sentence,) = split(RESERVED, "Es kostet 1.500 Euro bei {x}, 20 mehr.")
    again = RESERVED.mask_numbers(sentence)
    assert again.masked.text == f"Es kostet {B} Euro bei {A}, {C} mehr."
    assert restore(again, f"At {A}, it costs {B} euros, {C} more.")[0].text == "At {x}, it costs 1,500 euros, 20 more."


def test_emoji_around_a_sentence_become_prefix_and_suffix() -> None:
    (sentence,) = split(RESERVED, "😀 🎉 Guten Morgen 👍🏽")
    assert (sentence.prefix, sentence.masked.text, sentence.suffix) == ("😀 🎉 ", "Guten Morgen", " 👍🏽")
    (alone,) = split(RESERVED, "😀😀")
    assert not alone.is_translatable


@pytest.mark.parametrize("text", ["12:30", "www.a.de", "3 + 4 = 7", "…", "{x}, {y}", "+49 30 123456"])
def test_a_text_without_letters_is_not_translatable(text: str) -> None:
    assert not any(sentence.is_translatable for sentence in split(RESERVED, text))


def test_a_sentence_with_more_spans_than_placeholders_is_split() -> None:
    text = "Nimm {a}, {b}, {c}, dann {d}, {e}, {f} und {g}."
    parts = split(RESERVED, text)
    assert len(parts) > 1
    assert all(len(part.placeholders) <= 4 for part in parts)
    assert not any("{" in part.masked.text for part in parts)


def test_a_long_span_counts_as_its_placeholder_when_splitting() -> None:
    address = "https://a.de/" + "x" * 500
    (sentence,) = split(RESERVED, f"Siehe {address} heute.", longest=40)
    assert sentence.text == f"Siehe {address} heute."


@given(st.text(alphabet="ab C.1😀{}@/:\n" + PLACEHOLDERS[:2] + "ꝎꞠ", max_size=60), st.integers(3, 30))
def test_sentences_and_white_space_joined_are_the_text(text: str, longest: int) -> None:
    line, sentences = RESERVED.split(text, lambda part: len(part) <= longest)
    assert line.joined([sentence.text for sentence in sentences]) == text
    for sentence in sentences:
        assert sentence.prefix + sentence.masked.original + sentence.suffix == sentence.text
