from __future__ import annotations

import io

import numpy as np
import pytest

from latentmt.data.arrays import write_arrays
from latentmt.data.text import Pair
from latentmt.errors import UserError
from latentmt.export.names import learn_names
from latentmt.text.names import BUCKETS, LIKELY, POSSIBLE, Names, Word, WordSet, features, find_words

FIRST = ["Anna", "Bertil", "Carla", "Dmitri", "Edvard", "Fiona", "Goran", "Hanna"]
LAST = ["Lindström", "Bergström", "Nyström", "Åström", "Hedström", "Sandström", "Ekström", "Malmström"]
HEADS = {"dichtung": "seal", "zeitung": "paper", "leitung": "pipe", "rechnung": "bill"}
FRONTS = {"Wasser": "water", "Abend": "evening", "Wochen": "weekly", "Haus": "house", "Gas": "gas", "Strom": "power"}


def pairs() -> list[Pair]:
    """Names are copied, compounds are translated, and one name has another form."""
    found = [
        pair
        for first in FIRST
        for last in LAST
        for pair in (
            Pair(f"Gestern kam Frau {last}.", f"Mrs {last} came yesterday."),
            Pair(f"Das Buch ist von {first} {last}.", f"The book is by {first} {last}."),
        )
    ]
    compounds = [
        Pair(f"Die {front}{head} ist alt.", f"The {english} {what} is old.")
        for front, english in FRONTS.items()
        for head, what in HEADS.items()
        for _ in range(5)
    ]
    return found + compounds + [Pair("Gestern kam Frau Alström.", "Mrs Ahlstroem came yesterday.")] * 3


@pytest.fixture(scope="module")
def names() -> Names:
    return learn_names(pairs())


def word(text: str, sentence: str) -> Word:
    return next(one for one in find_words(sentence) if one.text == text)


def missing(names: Names, source: str, translation: str) -> list[str]:
    return [source[start:end] for start, end in names.missing(source, translation)]


def test_words_have_a_capital_and_their_neighbours() -> None:
    words = find_words("„Anna-Lena kennt (Jürgen), A7 und Li nicht.")
    assert [(one.text, one.before, one.mark, one.after) for one in words] == [
        ("Anna-Lena", "", "^", "kennt"),
        ("Jürgen", "kennt", "(", "A7"),
    ]
    assert [one.span for one in words] == [(1, 10), (18, 24)]
    assert find_words("FRANKREICH GEWINNT") == []


def test_an_unseen_name_is_told_from_an_unseen_compound(names: Names) -> None:
    sentence = "Gestern kam Frau Wennerström."
    assert names.probability(word("Wennerström", sentence)) >= LIKELY
    assert names.probability(word("Gaszeitung", "Die Gaszeitung ist alt.")) < POSSIBLE
    assert missing(names, sentence, "Mrs Dererstrom came yesterday.") == ["Wennerström"]
    assert missing(names, "Die Hausdichtung ist alt.", "The house is old.") == []


@pytest.mark.parametrize(
    "translation",
    [
        "Mrs Wennerström came yesterday.",
        "Mrs Wennerstrom came yesterday.",
        "Mrs Wennerstroem came yesterday.",
        "MRS WENNERSTRÖM CAME YESTERDAY.",
        "Wennerström's came yesterday.",
        "The Wennerströms came yesterday.",
    ],
)
def test_a_name_may_be_spelt_and_inflected_otherwise(names: Names, translation: str) -> None:
    assert missing(names, "Gestern kam Frau Wennerström.", translation) == []


def test_a_genitive_may_lack_its_ending(names: Names) -> None:
    source = "Das ist Frau Wennerströms Buch."
    assert missing(names, source, "This is Wennerström’s book.") == []
    assert missing(names, source, "This is Wenner’s book.") == ["Wennerströms"]


def test_a_part_of_a_word_is_not_the_name(names: Names) -> None:
    assert missing(names, "Gestern kam Frau Wennerström.", "Mrs Wennerströmmer came.") == ["Wennerström"]


def test_a_word_that_was_seen_and_not_copied_is_no_name(names: Names) -> None:
    sentence = "Gestern kam Frau Alström."
    assert names.probability(word("Alström", sentence)) >= LIKELY
    assert missing(names, sentence, "Mrs Ahlstroem came yesterday.") == []


def test_what_may_be_a_name_counts_where_the_translation_spoils_it() -> None:
    weights = np.full(BUCKETS, 128, dtype=np.uint8)
    (kvist,) = find_words("Kvist schläft.")
    weights[min(features(kvist))] -= 16  # e^-1, a probability of 27%
    names = Names(weights, WordSet.of(()), WordSet.of(["sleeps", "twist", "he"]))
    assert POSSIBLE < names.probability(kvist) < LIKELY
    assert missing(names, "Kvist schläft.", "Kwirst sleeps.") == ["Kvist"]
    assert missing(names, "Kvist schläft.", "Twist sleeps.") == []  # a word
    assert missing(names, "Kvist schläft.", "He sleeps.") == []  # nothing like it
    assert missing(names, "Kvist kwirst.", "Kwirst sleeps.") == []  # a word of the source


def test_names_are_the_same_when_they_are_read_again(names: Names) -> None:
    again = Names.from_bytes(names.to_bytes())
    assert again.to_bytes() == names.to_bytes()
    for source in ("Gestern kam Frau Wennerström.", "Gestern kam Frau Alström."):
        assert again.missing(source, "") == names.missing(source, "")
    assert learn_names(pairs()).to_bytes() == names.to_bytes()


@pytest.mark.parametrize("wrong", ["empty", "short", "wide", "missing"])
def test_a_file_of_something_else_is_refused(names: Names, wrong: str) -> None:
    with np.load(io.BytesIO(names.to_bytes())) as file:
        arrays = dict(file)
    if wrong == "short":
        arrays["known"] = arrays["known"][:-1]
    elif wrong == "wide":
        arrays["weights"] = arrays["weights"].astype(np.uint16)
    elif wrong == "missing":
        del arrays["translated"]
    with pytest.raises(UserError, match="not a file of names"):
        Names.from_bytes(b"" if wrong == "empty" else write_arrays(arrays))


def test_without_a_copied_word_nothing_is_learnt() -> None:
    for text in ([], [Pair("Das ist gut.", "This is good.")], [Pair("Tom!", "Tom!")]):
        with pytest.raises(UserError, match="nothing is learnt"):
            learn_names(text)


def test_a_set_has_its_words() -> None:
    some = WordSet.of(["one", "two"])
    assert "one" in some
    assert "two" in some
    assert "three" not in some
