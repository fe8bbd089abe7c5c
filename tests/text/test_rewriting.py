from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from latentmt.text.rewriting import Replacement, Rewritten

TEXTS = st.text(alphabet="abcdef", max_size=20)
PLACES = st.sets(st.integers(0, 20), max_size=8)
WORDS = st.lists(st.text(alphabet="XY", max_size=4), min_size=4, max_size=4)


def rewriting(text: str, places: set[int], words: list[str]) -> Rewritten:
    """The text with parts between these places replaced by these words."""
    inside = sorted(place for place in places if place <= len(text))
    pairs = zip(inside[::2], inside[1::2], words, strict=False)
    return Rewritten(text, [Replacement(*one) for one in pairs])


@given(TEXTS, PLACES, WORDS)
def test_what_was_not_replaced_is_found_again(text: str, places: set[int], words: list[str]) -> None:
    rewritten = rewriting(text, places, words)
    replaced = {place for one in rewritten.replacements for place in range(one.start, one.end)}
    for place in set(range(len(rewritten.before))) - replaced:
        start, end = rewritten.after(place, place + 1)
        assert rewritten.text[start:end] == rewritten.before[place]
        assert rewritten.origin(start, end) == (place, place + 1)


@given(TEXTS, PLACES, WORDS)
def test_a_replaced_part_is_the_whole_of_what_replaced_it(text: str, places: set[int], words: list[str]) -> None:
    rewritten = rewriting(text, places, words)
    for one in rewritten.replacements:
        for place in range(one.start, one.end):
            start, end = rewritten.after(place, place + 1)
            assert rewritten.text[start:end] == one.text
        start, end = rewritten.after(one.start, one.end)
        for place in range(start, end):
            assert rewritten.origin(place, place + 1) == (one.start, one.end)


def test_spans_across_replacements() -> None:
    rewritten = Rewritten("ab<c>de", [Replacement(2, 5, "XYZW")])
    assert rewritten.text == "abXYZWde"
    assert rewritten.after(0, 3) == (0, 6)
    assert rewritten.after(4, 7) == (2, 8)
    assert rewritten.origin(1, 3) == (1, 5)
    inserted = Rewritten("abc", [Replacement(1, 1, "XX")])
    assert inserted.text == "aXXbc"
    assert (inserted.after(0, 1), inserted.after(1, 2)) == ((0, 1), (3, 4))
