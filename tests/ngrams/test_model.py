"""An n-gram model as a trie: backing off by hand and against a dictionary, and files that are no model."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
from grams import random_model, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from latentmt.data.arrays import read_arrays
from latentmt.data.tokenizer import EOS
from latentmt.errors import UserError
from latentmt.ngrams import model as model_module
from latentmt.ngrams.model import MAX_COST, STEP, ZERO_BACKOFF, Level, NgramModel

Arrays = dict[str, np.ndarray]
NAMES = [f"{name}_{level}" for level in (1, 2) for name in ("tokens", "costs", "backoffs", "children")]
NAMES += ["tokens_3", "costs_3", "surprisal"]


def bytes_of(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.uint8)


@pytest.fixture
def tiny() -> NgramModel:
    """Six ids. Bigrams EOS 4, EOS 5, 4 5 and 5 EOS; trigrams EOS 4 5 and 4 5 EOS."""
    none = bytes_of(0, 0)
    return NgramModel(
        [
            Level(
                bytes_of(0, 1, 2, 3, 4, 5),
                bytes_of(255, 255, 255, 20, 10, 30),
                bytes_of(128, 128, 128, 124, 120, 130),
                bytes_of(0, 0, 0, 2, 1, 1),
            ),
            Level(bytes_of(4, 5, 5, 3), bytes_of(3, 6, 2, 9), bytes_of(123, 125, 121, 128), bytes_of(1, 0, 1, 0)),
            Level(bytes_of(5, 3), bytes_of(1, 4), none, none),
        ],
        surprisal=17,
    )


def test_a_sentence_begins_behind_eos(tiny: NgramModel) -> None:
    assert tiny.start == (EOS,)
    assert tiny.sizes == [6, 4, 2]


@pytest.mark.parametrize(
    ("state", "token", "cost", "after"),
    [
        ((3,), 4, 3, (4, 0)),
        ((4, 0), 5, 1, (5, 2)),
        ((5, 2), 3, 4, (3, 3)),
        ((3,), 5, 6, (5, 1)),
        ((5, 1), 3, 9 + 3, (3, 3)),  # EOS 5 EOS is not there: the weight of EOS 5
        ((5, 2), 4, 10 + 7 - 2, (4,)),  # nor is 5 4: that of 4 5, and that of 5, which is more than 1
        ((4, 0), 4, 10 + 5 + 8, (4,)),
        ((4,), 5, 2, (5, 2)),  # a context of one token has no trigrams
        ((4,), 0, 255 + 8, (0,)),
        ((0,), 5, 30, (5,)),
    ],
)
def test_steps_by_hand(tiny: NgramModel, state: tuple[int, ...], token: int, cost: int, after: tuple[int, ...]) -> None:
    assert tiny.step(state, token) == (cost, after)


def test_a_sentence_costs_what_its_steps_do(tiny: NgramModel) -> None:
    assert tiny.log_prob([4, 5, EOS]) == -(3 + 1 + 4) / 16
    assert tiny.log_prob([5, 4, EOS]) == -(6 + (10 + 3 - 2) + (20 + 8)) / 16
    assert tiny.log_prob([]) == 0


def as_dictionary(model: NgramModel) -> dict[tuple[int, ...], tuple[int, int]]:
    """The cost and the backoff of each n-gram."""
    found, ngrams = {}, [()]
    for level in model.levels:
        counts = model.levels[len(ngrams[0]) - 1].children if ngrams[0] else [len(level.tokens)]
        parents = [ngram for ngram, count in zip(ngrams, counts, strict=True) for _ in range(count)]
        if not parents:
            break
        ngrams = [(*parent, token) for parent, token in zip(parents, level.tokens.tolist(), strict=True)]
        values = zip(ngrams, level.costs.tolist(), level.backoffs.tolist(), strict=True)
        found |= {ngram: (cost, ZERO_BACKOFF - backoff) for ngram, cost, backoff in values}
    return found


def cost_of(ngrams: dict[tuple[int, ...], tuple[int, int]], context: tuple[int, ...], token: int) -> int:
    """By the definition of backing off (Katz, 1987)."""
    if (*context, token) in ngrams:
        return ngrams[*context, token][0]
    return (ngrams[context][1] if context in ngrams else 0) + cost_of(ngrams, context[1:], token)


@given(st.integers(0, 5), st.integers(2, 5), st.lists(st.integers(0, 8), max_size=12))
@settings(deadline=None)
def test_any_sentence_costs_what_the_definition_says(seed: int, order: int, sentence: list[int]) -> None:
    """However it is asked: the state behind a prefix is the longest of its suffixes that the trie has."""
    model = random_model(seed, 9, order)
    ngrams, tokens, state, total = as_dictionary(model), [EOS], model.start, 0
    for token in sentence:
        cost, state = model.step(state, token)
        context = tuple(tokens[len(tokens) - order + 1 :] if len(tokens) >= order else tokens)
        assert cost == cost_of(ngrams, context, token)
        tokens.append(token)
        total += cost
        longest = max(n for n in range(1, min(order, len(tokens) + 1)) if tuple(tokens[-n:]) in ngrams)
        assert len(state) == longest
        again: tuple[int, ...] = ()
        for recent in tokens[-longest:]:
            _, again = model.step(again, recent)
        assert again == state
    assert model.log_prob(sentence) == -STEP * total


# Files.


@pytest.mark.parametrize("order", [2, 3, 4, 5])
def test_a_model_is_the_same_when_it_is_read(order: int) -> None:
    model = random_model(0, 9, order)
    again = NgramModel.from_bytes(model.to_bytes(), order, 9)
    assert (again.order, again.sizes, again.surprisal) == (order, model.sizes, model.surprisal)
    for one, other in zip(again.levels, model.levels, strict=True):
        for name in ("tokens", "costs"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
    for row in random_rows(7, 50, 9):
        assert again.log_prob(row) == model.log_prob(row)
    assert again.to_bytes() == model.to_bytes()


def test_a_large_vocabulary_is_read() -> None:
    """Ids of 32 bits."""
    count = 70_000
    level = Level(
        np.arange(count, dtype=np.uint32),
        np.full(count, 7, np.uint8),
        np.full(count, ZERO_BACKOFF, np.uint8),
        np.where(np.arange(count) == EOS, 2, 0).astype(np.uint8),
    )
    last = Level(np.array([9, count - 1], np.uint32), bytes_of(1, 2), bytes_of(0, 0), bytes_of(0, 0))
    model = NgramModel.from_bytes(NgramModel([level, last], 7).to_bytes(), 2, count)
    assert model.step(model.start, count - 1) == (2, (count - 1,))


def test_levels_without_ngrams_are_read(tiny: NgramModel) -> None:
    empty = Level(*[bytes_of()] * 4)
    first = Level(tiny.levels[0].tokens, tiny.levels[0].costs, tiny.levels[0].backoffs, np.zeros(6, np.uint8))
    model = NgramModel.from_bytes(NgramModel([first, empty, empty, empty], 7).to_bytes(), 4, 6)
    assert model.sizes == [6, 0, 0, 0]
    assert model.step(model.start, 4) == (10 + 4, (4,))


def put(name: str, *numbers: int, dtype: type[np.number] = np.uint8) -> Callable[[Arrays], Arrays]:
    return lambda arrays: arrays | {name: np.array(numbers, dtype=dtype)}


def without(name: str) -> Callable[[Arrays], Arrays]:
    return lambda arrays: {key: array for key, array in arrays.items() if key != name}


DAMAGE = {
    "children of one parent are not in order": put("tokens_2", 5, 4, 5, 3),
    "a child twice": put("tokens_2", 4, 4, 5, 3),
    "ids are not those of the vocabulary": put("tokens_1", 0, 1, 2, 4, 3, 5),
    "too few children": put("children_1", 0, 0, 0, 2, 1, 0),
    "too many children": put("children_2", 1, 1, 1, 0),
    "too many children at the first level": put("children_1", 0, 0, 0, 2, 1, 2),
    "a token beyond the vocabulary": put("tokens_3", 6, 3),
    "a token beyond the vocabulary in the middle": put("tokens_2", 4, 6, 5, 3),
    "a cost too few": put("costs_2", 3, 6, 2),
    "a backoff too many": put("backoffs_2", 1, 2, 3, 4, 5),
    "a number of children too many": put("children_2", 1, 0, 1, 0, 0),
    "a cost that is too large": put("costs_3", 1, MAX_COST + 1, dtype=np.uint16),
    "a backoff that is too large": put("backoffs_1", 1, 2, 3, 4, 5, MAX_COST + 1, dtype=np.uint16),
    "signed numbers": put("costs_3", 1, 4, dtype=np.int8),
    "fractions": put("costs_3", 1, 4, dtype=np.float32),
    "64 bits": put("tokens_3", 5, 3, dtype=np.uint64),
    "truth values": put("costs_3", 1, 0, dtype=np.bool_),
    "one number for an array": lambda arrays: arrays | {"tokens_3": np.uint8(5)},
    "rows and columns": lambda arrays: arrays | {"costs_2": arrays["costs_2"].reshape(2, 2)},
    "all arrays of a level in rows": lambda arrays: (
        arrays | {name: arrays[name].reshape(2, 1) for name in ("tokens_3", "costs_3")}
    ),
    "columns first": lambda arrays: arrays | {"costs_2": np.asfortranarray(np.ones((2, 2), np.uint8))},
    "no average": without("surprisal"),
    "two averages": put("surprisal", 17, 17),
    "no average in an array": put("surprisal"),
    **{f"no {name}": without(name) for name in NAMES[:-1]},
}


def arrays_of(model: NgramModel) -> Arrays:
    return dict(zip(NAMES, read_arrays(model.to_bytes(), NAMES), strict=True))


def written(arrays: Arrays) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_no_model_is_refused(tiny: NgramModel, damage: str) -> None:
    arrays = arrays_of(tiny)
    NgramModel.from_bytes(written(arrays), 3, 6)
    with pytest.raises(UserError, match=r"^not an n-gram model of order 3 for 6 pieces$"):
        NgramModel.from_bytes(written(DAMAGE[damage](arrays)), 3, 6)


def test_equal_children_of_two_parents_are_no_damage(tiny: NgramModel) -> None:
    """The 5 of EOS and that of 4 are neighbours; at the border any order is right."""
    arrays = arrays_of(tiny) | {"tokens_2": bytes_of(4, 5, 3, 3)}
    assert NgramModel.from_bytes(written(arrays), 3, 6).step((4,), 3)[0] == 2


@pytest.mark.parametrize(("order", "vocabulary"), [(4, 6), (3, 5), (3, 7)])
def test_a_model_of_other_size_is_refused(tiny: NgramModel, order: int, vocabulary: int) -> None:
    with pytest.raises(UserError, match=f"^not an n-gram model of order {order} for {vocabulary} pieces$"):
        NgramModel.from_bytes(tiny.to_bytes(), order, vocabulary)


def test_too_many_ngrams_are_refused(tiny: NgramModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_module, "MAX_NGRAMS", sum(tiny.sizes))
    assert NgramModel.from_bytes(tiny.to_bytes(), 3, 6).sizes == tiny.sizes
    monkeypatch.setattr(model_module, "MAX_NGRAMS", sum(tiny.sizes) - 1)
    with pytest.raises(UserError, match="not an n-gram model of order 3 for 6 pieces"):
        NgramModel.from_bytes(tiny.to_bytes(), 3, 6)


def test_every_part_of_a_file_is_refused(tiny: NgramModel) -> None:
    content = tiny.to_bytes()
    for end in range(0, len(content), 7):
        with pytest.raises(UserError, match="not an n-gram model"):
            NgramModel.from_bytes(content[:end], 3, 6)
