"""What is read off what was decoded, against the same in plain Python."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from latentmt.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.data.tokens import Layout, Tokens
from latentmt.infer.postprocess import count_repeats, readable, repeatable_pieces, without_special

VOCABULARY = 9  # few pieces, so that they repeat


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(["ein kleiner Satz von 1100", "a small sentence of 2200"] * 20, TokenizerConfig())


def plainly(ids: list[int], repeatable: list[bool] | None) -> list[int]:
    kept: list[int] = []
    for id_ in ids:
        if id_ in (PAD, UNK, BOS, EOS):
            continue
        if repeatable is not None and kept and kept[-1] == id_ and not repeatable[id_]:
            continue
        kept.append(id_)
    return [*kept, EOS]


def rows_of(tokens: Tokens) -> list[list[int]]:
    """Each row's tokens, as its layout has them."""
    return [ids[real].tolist() for ids, real in zip(tokens.ids, tokens.layout.real, strict=True)]


def table(*repeating: int) -> torch.Tensor:
    return torch.tensor([id_ in repeating for id_ in range(VOCABULARY)])


@st.composite
def batches(draw: st.DrawFn) -> Tokens:
    """Rows with tokens in any places and something else in the others."""
    width, rows = draw(st.integers(1, 10)), draw(st.integers(1, 5))
    row = st.lists(st.integers(0, VOCABULARY - 1), min_size=width, max_size=width)
    ids = torch.tensor([draw(row) for _ in range(rows)])
    if draw(st.booleans()):
        return Tokens(ids, Layout.of_lengths(torch.tensor([draw(st.integers(0, width)) for _ in range(rows)]), width))
    real = torch.tensor([draw(st.lists(st.booleans(), min_size=width, max_size=width)) for _ in range(rows)])
    return Tokens(ids, Layout(real.long(), (real.cumsum(1) - 1).clamp(min=0)))


@given(batches(), st.lists(st.booleans(), min_size=VOCABULARY, max_size=VOCABULARY) | st.none())
@example(Tokens.padded([[4, 4, EOS, 4, 5]]), [False] * VOCABULARY)
@example(Tokens.padded([[4, 4, 4, 5, 5, 4]]), [id_ == 5 for id_ in range(VOCABULARY)])
def test_it_is_what_plain_python_makes_of_each_row(tokens: Tokens, repeatable: list[bool] | None) -> None:
    found = readable(tokens, None if repeatable is None else torch.tensor(repeatable))
    expected = [plainly(row, repeatable) for row in rows_of(tokens)]
    assert rows_of(found) == expected
    # Laid out like any other batch: left-aligned, PAD behind, one column for the EOS.
    width = tokens.ids.shape[1] + 1
    like = Tokens.padded(expected, width)
    assert found.ids.shape == (len(expected), width)
    assert torch.equal(found.ids, like.ids)
    assert torch.equal(found.layout.segment, like.layout.segment)
    assert torch.equal(found.layout.position, like.layout.position)


def test_reading_twice_changes_nothing_and_what_is_given_stays() -> None:
    tokens = Tokens.padded([[4, 4, 5, EOS], [6], [EOS, EOS]])
    before = tokens.ids.clone()
    once = readable(tokens, table())
    assert torch.equal(tokens.ids, before)
    assert rows_of(readable(once, table())) == rows_of(once) == [[4, 5, EOS], [6, EOS], [EOS]]


def test_repetitions_stay_without_a_table_and_special_pieces_go_all_the_same() -> None:
    tokens = Tokens.padded([[4, 4, UNK, 4, BOS, 5, PAD, 5, EOS]])
    assert rows_of(readable(tokens, None)) == [[4, 4, 4, 5, 5, EOS]]


def test_a_special_piece_does_not_part_a_repetition() -> None:
    assert rows_of(readable(Tokens.padded([[4, EOS, 4, UNK, UNK, 4, 5]]), table())) == [[4, 5, EOS]]
    assert rows_of(readable(Tokens.padded([[4, EOS, 4, UNK, UNK, 4, 5]]), table(4))) == [[4, 4, 4, 5, EOS]]


def test_rows_without_an_end_are_full_to_the_last_column() -> None:
    found = readable(Tokens.padded([[4, 5, 6], [5, 5, 5], [7]]), table())
    assert found.ids.tolist() == [[4, 5, 6, EOS], [5, EOS, PAD, PAD], [7, EOS, PAD, PAD]]
    assert found.layout.real.sum(1).tolist() == [4, 2, 2]


def test_an_empty_row_is_read_as_nothing() -> None:
    tokens = Tokens(torch.tensor([[4, 5], [PAD, PAD]]), Layout.of_lengths(torch.tensor([0, 0]), 2))
    assert readable(tokens, table()).ids.tolist() == [[EOS, PAD, PAD]] * 2
    assert readable(Tokens.padded([[PAD, UNK, BOS, EOS]]), None).ids.tolist() == [[EOS, *[PAD] * 4]]


def test_digits_and_bytes_may_repeat_and_letters_may_not(tokenizer: Tokenizer) -> None:
    pieces = tokenizer.pieces(range(tokenizer.size))
    repeatable = repeatable_pieces(tokenizer)
    assert repeatable.shape == (tokenizer.size,)
    expected = {*"0123456789", *(f"▁{digit}" for digit in range(10)), *(f"<0x{byte:02X}>" for byte in range(256))}
    assert {piece for piece, may in zip(pieces, repeatable.tolist(), strict=True) if may} == expected & set(pieces)
    assert len(expected & set(pieces)) >= 256 + 10


def test_a_digit_with_a_space_before_it_is_a_digit(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["<pad>", "<unk>", "<s>", "</s>", "<0x0A>", "7", "▁7", "▁", "a", "▁a", "77", "7a"]
    monkeypatch.setattr(Tokenizer, "pieces", lambda *_: names)
    repeatable = repeatable_pieces(tokenizer).tolist()
    assert [name for name, may in zip(names, repeatable, strict=True) if may] == ["<0x0A>", "7", "▁7", "77"]


@pytest.mark.parametrize("text", ["1100 2200 0007", "100 000 000", "\uaaaa", "𠠠𠠠", "\x00\x00"])
def test_numbers_and_letters_spelt_in_bytes_survive(tokenizer: Tokenizer, text: str) -> None:
    (ids,) = tokenizer.encode([text])
    assert count_repeats(ids) > 0  # U+AAAA is EA AA AA
    (read,) = rows_of(readable(Tokens.padded([ids]), repeatable_pieces(tokenizer)))
    assert read == ids
    assert tokenizer.decode([read]) == [text]


def test_a_repeated_word_is_read_once(tokenizer: Tokenizer) -> None:
    (ids,) = tokenizer.encode(["kleiner"])
    stuttered = [id_ for id_ in ids for _ in range(3)]
    (read,) = rows_of(readable(Tokens.padded([stuttered]), repeatable_pieces(tokenizer)))
    assert tokenizer.decode([read]) == ["kleiner"]


def test_repeats_are_counted_one_by_one() -> None:
    assert [count_repeats(ids) for ids in ([], [5], [5, 5], [5, 5, 5], [5, 6, 5], [5, 5, 6, 6])] == [0, 0, 1, 2, 0, 2]
    assert without_special([PAD, 4, UNK, 5, BOS, 5, EOS]) == [4, 5, 5]
