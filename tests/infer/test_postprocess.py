"""Postprocessing of decoded targets, compared with plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from latentmt.data.tokenizer import BOS, EOS, PAD, SPECIAL, UNK, Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.data.tokens import Layout, Tokens
from latentmt.infer.postprocess import PieceTable, readable
from latentmt.options import REMOVE_REPEATS, RemoveRepeats
from latentmt.results import count_repeats, without_special

VOCABULARY = 9  # few pieces, so that they repeat


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(["ein kleiner Satz von 1100", "a small sentence of 2200"] * 20, TokenizerConfig())


def plainly(ids: list[int], remove: RemoveRepeats, table: PieceTable, source: list[int]) -> list[int]:
    ids = [id_ for id_ in ids if id_ not in SPECIAL]
    if remove == "pieces":
        ids = [one for one, before in zip(ids, [None, *ids], strict=False) if one != before or table.repeatable[one]]
    if remove == "words":
        words, said_twice = (
            words_of(ids, table),
            {id_ for word in source_repeats(words_of(source, table), table) for id_ in word},
        )
        kept = [
            word
            for word, after in itertools.zip_longest(words, words[1:])
            if word != after or any(table.repeatable[id_] for id_ in word) or said_twice.issuperset(word)
        ]
        ids = [id_ for word in kept for id_ in word]
    return [*ids, EOS]


def words_of(ids: list[int], table: PieceTable) -> list[list[int]]:
    words: list[list[int]] = []
    for id_ in ids:
        if not words or table.starts_word[id_] or table.ends_word[words[-1][-1]]:
            words.append([])
        words[-1].append(id_)
    return words


def source_repeats(words: list[list[int]], table: PieceTable) -> list[list[int]]:
    return [a for a, b in itertools.pairwise(words) if a == b and not any(table.repeatable[id_] for id_ in a)]


def rows_of(tokens: Tokens) -> list[list[int]]:
    """Each row's tokens, as its layout has them."""
    return [ids[real].tolist() for ids, real in zip(tokens.ids, tokens.layout.real, strict=True)]


def table(*repeating: int, starts_word: Sequence[int] = (), ends_word: Sequence[int] = ()) -> PieceTable:
    chosen = (repeating, {*SPECIAL, *starts_word}, {*SPECIAL, *ends_word}, SPECIAL)
    return PieceTable(*(torch.tensor([id_ in some for id_ in range(VOCABULARY)]) for some in chosen))


some_pieces = st.lists(st.integers(4, VOCABULARY - 1))
tables = st.builds(lambda a, b, c: table(*a, starts_word=b, ends_word=c), some_pieces, some_pieces, some_pieces)


@st.composite
def batches(draw: st.DrawFn) -> Tokens:
    """Rows with tokens in any places and something else in the others."""
    width, rows = draw(st.integers(1, 10)), draw(st.integers(1, 5))
    row = st.lists(st.integers(0, VOCABULARY - 1), min_size=width, max_size=width)
    ids = torch.tensor([draw(row) for _ in range(rows)])
    if draw(st.booleans()):
        return Tokens(ids, Layout.from_lengths(torch.tensor([draw(st.integers(0, width)) for _ in range(rows)]), width))
    real = torch.tensor([draw(st.lists(st.booleans(), min_size=width, max_size=width)) for _ in range(rows)])
    return Tokens(ids, Layout(real.long(), (real.cumsum(1) - 1).clamp(min=0)))


@given(batches(), st.sampled_from(REMOVE_REPEATS), tables, st.data())
def test_readable_equals_a_plain_python_version(
    tokens: Tokens, remove: RemoveRepeats, pieces: PieceTable, data: st.DataObject
) -> None:
    each = data.draw(st.sampled_from([n for n in (1, 2, 3) if len(tokens.ids) % n == 0]))  # candidates
    ids = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=9)
    sources = [data.draw(ids) for _ in range(len(tokens.ids) // each)]
    found = readable(tokens, remove, pieces, Tokens.padded(sources))
    expected = [plainly(row, remove, pieces, sources[n // each]) for n, row in enumerate(rows_of(tokens))]
    assert rows_of(found) == expected
    # Laid out like any other batch: left-aligned, PAD behind, one column for the EOS.
    width = tokens.ids.shape[1] + 1
    like = Tokens.padded(expected, width)
    assert found.ids.shape == (len(expected), width)
    assert torch.equal(found.ids, like.ids)
    assert torch.equal(found.layout.segment, like.layout.segment)
    assert torch.equal(found.layout.position, like.layout.position)


@pytest.mark.parametrize("remove", REMOVE_REPEATS)
def test_readable_is_idempotent_and_does_not_change_its_input(remove: RemoveRepeats) -> None:
    tokens, pieces = Tokens.padded([[4, 4, 5, 5, 4, 4, 4, EOS], [6], [EOS, EOS]]), table(starts_word=(4, 6))
    before = tokens.ids.clone()
    once = readable(tokens, remove, pieces)
    assert torch.equal(tokens.ids, before)
    assert rows_of(readable(once, remove, pieces)) == rows_of(once)
    expected = {"words": [4, 4, 5, 5, 4], "pieces": [4, 5, 4], "none": [4, 4, 5, 5, 4, 4, 4]}
    assert rows_of(once) == [[*expected[remove], EOS], [6, EOS], [EOS]]


def test_special_pieces_are_always_removed() -> None:
    tokens = Tokens.padded([[4, 4, UNK, 4, BOS, 5, PAD, 5, EOS]])
    assert rows_of(readable(tokens, "none", table())) == [[4, 4, 4, 5, 5, EOS]]


@pytest.mark.parametrize("remove", ["words", "pieces"])
def test_repetitions_are_found_across_special_pieces(remove: RemoveRepeats) -> None:
    tokens = Tokens.padded([[4, EOS, 4, UNK, UNK, 4, 5]])
    assert rows_of(readable(tokens, remove, table(starts_word=(4, 5)))) == [[4, 5, EOS]]
    assert rows_of(readable(tokens, remove, table(4, starts_word=(4, 5)))) == [[4, 4, 4, 5, EOS]]


@pytest.mark.parametrize("remove", ["words", "pieces"])
def test_rows_without_eos_fill_the_width(remove: RemoveRepeats) -> None:
    found = readable(Tokens.padded([[4, 5, 6], [5, 5, 5], [7]]), remove, table(starts_word=(4, 5, 6)))
    assert found.ids.tolist() == [[4, 5, 6, EOS], [5, EOS, PAD, PAD], [7, EOS, PAD, PAD]]
    assert found.layout.real.sum(1).tolist() == [4, 2, 2]


@pytest.mark.parametrize("remove", REMOVE_REPEATS)
def test_an_empty_row_stays_empty(remove: RemoveRepeats) -> None:
    tokens = Tokens(torch.tensor([[4, 5], [PAD, PAD]]), Layout.from_lengths(torch.tensor([0, 0]), 2))
    assert readable(tokens, remove, table()).ids.tolist() == [[EOS, PAD, PAD]] * 2
    assert readable(Tokens.padded([[PAD, UNK, BOS, EOS]]), remove, table()).ids.tolist() == [[EOS, *[PAD] * 4]]


def test_a_row_of_spaces_is_blank() -> None:
    spaces = replace(table(), blank=torch.tensor([id_ in (*SPECIAL, 7) for id_ in range(VOCABULARY)]))
    read = readable(Tokens.padded([[7, 7, EOS], [7, 4, EOS], [EOS], [5]]), "none", spaces)
    assert spaces.is_blank(read).tolist() == [True, False, True, False]


NAMES = [
    "<pad>",
    "<unk>",
    "<s>",
    "</s>",
    "<0x0A>",
    "7",
    "▁7",
    "▁",
    "a",
    "▁a",
    "77",
    "7a",
    ",",
    "▁(",
    "-a",
    "a-",
    "\u0301",
]


def test_the_piece_table_follows_from_the_pieces(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokenizer, "pieces", lambda *_: NAMES)
    found = PieceTable.from_tokenizer(tokenizer)

    def named(which: torch.Tensor) -> list[str]:
        return [name for name, is_ in zip(NAMES, which.tolist(), strict=True) if is_]

    special = NAMES[:4]
    assert named(found.repeatable) == ["<0x0A>", "7", "▁7", "77"]
    assert named(found.starts_word) == [*special, "▁7", "▁", "▁a", ",", "▁(", "-a"]
    assert named(found.ends_word) == [*special, ",", "▁(", "a-"]
    assert named(found.blank) == [*special, "▁"]


def test_digits_and_bytes_may_repeat_and_letters_may_not(tokenizer: Tokenizer) -> None:
    pieces = tokenizer.pieces(range(tokenizer.size))
    repeatable = PieceTable.from_tokenizer(tokenizer).repeatable
    assert repeatable.shape == (tokenizer.size,)
    expected = {*"0123456789", *(f"▁{digit}" for digit in range(10)), *(f"<0x{byte:02X}>" for byte in range(256))}
    assert {piece for piece, may in zip(pieces, repeatable.tolist(), strict=True) if may} == expected & set(pieces)
    assert len(expected & set(pieces)) >= 256 + 10


def read_text(tokenizer: Tokenizer, text: str, remove: RemoveRepeats, source: str = "") -> str:
    """What is left of a text that was decoded like this."""
    target, given_ = (Tokens.padded(tokenizer.encode([one])) for one in (text, source))
    (ids,) = rows_of(readable(target, remove, PieceTable.from_tokenizer(tokenizer), given_))
    return tokenizer.decode([ids])[0]


@pytest.mark.parametrize("remove", ["words", "pieces"])
@pytest.mark.parametrize("text", ["1100 2200 0007", "100 000 000", "\uaaaa", "𠠠𠠠", "\x00\x00"])
def test_numbers_and_letters_spelt_in_bytes_survive(tokenizer: Tokenizer, text: str, remove: RemoveRepeats) -> None:
    (ids,) = tokenizer.encode([text])
    assert count_repeats(ids) > 0  # U+AAAA is EA AA AA
    assert read_text(tokenizer, text, remove) == text


def test_a_repeated_piece_is_removed_with_remove_pieces(tokenizer: Tokenizer) -> None:
    (ids,) = tokenizer.encode(["kleiner"])
    stuttered = [id_ for id_ in ids for _ in range(3)]
    (read,) = rows_of(readable(Tokens.padded([stuttered]), "pieces", PieceTable.from_tokenizer(tokenizer)))
    assert tokenizer.decode([read]) == ["kleiner"]


@pytest.mark.parametrize("text", ["HALLO WELT", "Borussia", "Mississippi", "Kaffee", "singing", "Papa", "the theory"])
def test_letters_inside_a_word_stay(tokenizer: Tokenizer, text: str) -> None:
    assert read_text(tokenizer, text, "words") == text
    spelt = [tokenizer.encode([letter])[0][-2] for letter in text.replace(" ", "")]  # letter by letter
    read = rows_of(readable(Tokens.padded([spelt]), "words", PieceTable.from_tokenizer(tokenizer)))
    assert read == [[*spelt, EOS]]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a small small sentence", "a small sentence"),
        ("a a a small sentence sentence.", "a small sentence."),
        ("never never, a sentence", "never, a sentence"),
        ("a small,, sentence", "a small, sentence"),
        ("don''t", "don't"),
        ("very, very small", "very, very small"),
        ("small-small", "small-small"),
        ("smallsmall", "smallsmall"),
        ("Small small", "Small small"),
        ("small smaller", "small smaller"),
    ],
)
def test_a_word_that_repeats_the_one_before_it_is_removed(tokenizer: Tokenizer, text: str, read: str) -> None:
    assert read_text(tokenizer, text, "words") == read
    assert read_text(tokenizer, text, "none") == text


def test_words_that_the_source_repeats_are_kept(tokenizer: Tokenizer) -> None:
    for text in ("Bora Bora is small", "a small, C++ sentence...", "so so"):
        assert read_text(tokenizer, text, "words", text) == text != read_text(tokenizer, text, "words")
    assert read_text(tokenizer, "Bora Bora is is small", "words", "Bora Bora ist klein") == "Bora Bora is small"
    assert read_text(tokenizer, "Bora Bora", "words", "Bora ist Bora") == "Bora"


def test_repeats_are_counted() -> None:
    assert [count_repeats(ids) for ids in ([], [5], [5, 5], [5, 5, 5], [5, 6, 5], [5, 5, 6, 6])] == [0, 0, 1, 2, 0, 2]
    assert without_special([PAD, 4, UNK, 5, BOS, 5, EOS]) == [4, 5, 5]
