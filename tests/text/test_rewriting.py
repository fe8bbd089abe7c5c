from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from latentmt.text.rewriting import Replacement, Rewritten

TEXTS = st.text(alphabet="abcdef", max_size=20)
POSITIONS = st.sets(st.integers(0, 20), max_size=8)
WORDS = st.lists(st.text(alphabet="XY", max_size=4), min_size=4, max_size=4)


def rewriting(text: str, positions: set[int], words: list[str]) -> Rewritten:
    """The text with parts between these places replaced by these words."""
    inside = sorted(position for position in positions if position <= len(text))
    pairs = zip(inside[::2], inside[1::2], words, strict=False)
    return Rewritten(text, [Replacement(*one) for one in pairs])


@given(TEXTS, POSITIONS, WORDS)
def test_unreplaced_characters_map_to_themselves_and_back(text: str, positions: set[int], words: list[str]) -> None:
    rewritten = rewriting(text, positions, words)
    replaced = {position for one in rewritten.replacements for position in range(one.start, one.end)}
    for position in set(range(len(rewritten.original))) - replaced:
        start, end = rewritten.to_rewritten(position, position + 1)
        assert rewritten.text[start:end] == rewritten.original[position]
        assert rewritten.to_original(start, end) == (position, position + 1)


@given(TEXTS, POSITIONS, WORDS)
def test_a_part_of_a_replaced_span_maps_to_all_of_its_replacement(
    text: str, positions: set[int], words: list[str]
) -> None:
    rewritten = rewriting(text, positions, words)
    for one in rewritten.replacements:
        for position in range(one.start, one.end):
            start, end = rewritten.to_rewritten(position, position + 1)
            assert rewritten.text[start:end] == one.text
        start, end = rewritten.to_rewritten(one.start, one.end)
        for position in range(start, end):
            assert rewritten.to_original(position, position + 1) == (one.start, one.end)


def test_spans_across_replacements_are_mapped() -> None:
    rewritten = Rewritten("ab<c>de", [Replacement(2, 5, "XYZW")])
    assert rewritten.text == "abXYZWde"
    assert rewritten.to_rewritten(0, 3) == (0, 6)
    assert rewritten.to_rewritten(4, 7) == (2, 8)
    assert rewritten.to_original(1, 3) == (1, 5)
    inserted = Rewritten("abc", [Replacement(1, 1, "XX")])
    assert inserted.text == "aXXbc"
    assert (inserted.to_rewritten(0, 1), inserted.to_rewritten(1, 2)) == ((0, 1), (3, 4))
