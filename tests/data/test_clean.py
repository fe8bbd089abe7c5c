from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmt.data.clean import CleanConfig, CleanCounts, Cleaner, keep_lengths
from latentmt.data.text import Pair
from latentmt.errors import UserError


def test_each_rule_counts_what_it_drops() -> None:
    counts = CleanCounts()
    pairs = [
        Pair("a", "b"),
        Pair("", "b"),
        Pair("a", ""),
        Pair("a" * 11, "b"),
        Pair("a", "b"),
        Pair("a", "c"),
    ]
    kept = Cleaner(CleanConfig(max_characters=10)).keep_text(pairs, counts)
    assert kept == [Pair("a", "b"), Pair("a", "c")]
    assert {rule: count for rule, count in counts.dropped.items() if count} == {
        "empty": 2,
        "too many characters": 1,
        "duplicate": 1,
    }


@given(st.lists(st.lists(st.integers(0, 60), max_size=40), max_size=12))
def test_duplicates_are_found_over_any_chunks(chunks: list[list[int]]) -> None:
    cleaner, counts, kept = Cleaner(CleanConfig()), CleanCounts(), []
    for chunk in chunks:
        kept += cleaner.keep_text([Pair(str(n), "x") for n in chunk], counts)
    flat = [str(n) for chunk in chunks for n in chunk]
    assert [pair.source for pair in kept] == list(dict.fromkeys(flat))
    assert counts.dropped["duplicate"] == len(flat) - len(set(flat))


def test_duplicates_are_compared_side_by_side() -> None:
    pairs = [Pair("ab", "c"), Pair("a", "bc")]
    assert Cleaner(CleanConfig()).keep_text(pairs, CleanCounts()) == pairs


def test_duplicates_may_be_kept() -> None:
    pairs = [Pair("a", "b")] * 3
    assert Cleaner(CleanConfig(duplicates="keep")).keep_text(pairs, CleanCounts()) == pairs


def test_lengths_and_ratio() -> None:
    counts = CleanCounts()
    source, target = np.array([3, 64, 65, 10, 2]), np.array([9, 64, 3, 64, 7])
    keep = keep_lengths(source, target, CleanConfig(max_length=64, max_ratio=3.0), counts)
    assert keep.tolist() == [True, True, False, False, False]
    assert counts.dropped == Counter({"too many tokens": 1, "length ratio": 2})


def test_language_identification_drops_swapped_sides_but_not_short_ones() -> None:
    german = "Ich habe gestern ein neues Fahrrad gekauft, weil mein altes kaputt war."
    english = "I bought a new bicycle yesterday because my old one was broken."
    pairs = [Pair(german, english), Pair(english, german), Pair("Danke!", "Thanks!"), Pair(german, german)]
    counts = CleanCounts()
    kept = Cleaner(CleanConfig(languages=("de", "en"))).keep_text(pairs, counts)
    assert kept == [pairs[0], pairs[2]]
    assert counts.dropped["wrong language"] == 2


def test_an_unknown_language_is_named() -> None:
    with pytest.raises(UserError, match=r"clean\.languages: py3langid does not know xx"):
        Cleaner(CleanConfig(languages=("de", "xx")))
