"""Kneser-Ney against a slow reference, distributions that sum to one, and what pruning keeps."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pytest
from grams import Rows, corpus, perplexity, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from latentmt.config import from_dict
from latentmt.data.corpus import Sentences
from latentmt.data.tokenizer import EOS
from latentmt.errors import UserError
from latentmt.ngrams import estimate as module
from latentmt.ngrams.estimate import NgramConfig, estimate
from latentmt.ngrams.model import MAX_COST, NgramModel

Ngram = tuple[int, ...]
VOCABULARY = 9
ROWS = [[4, 5, EOS], [4, 5, 6, EOS], [EOS], [5, 4, 5, EOS]]

rows_of = st.lists(st.lists(st.integers(4, VOCABULARY - 1), max_size=5).map(lambda ids: [*ids, EOS]), min_size=1)


def ngrams(rows: Rows, length: int) -> Iterator[Ngram]:
    """Every occurrence. Each sentence stands alone, behind one EOS."""
    for row in rows:
        tokens = (EOS, *row)
        for end in range(2, len(tokens) + 1):
            if end >= length:
                yield tokens[end - length : end]


class Reference:
    """Interpolated Kneser-Ney with modified discounts (Chen and Goodman, 1999), by its equations."""

    def __init__(self, rows: Rows, order: int, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        occurrences = {length: Counter(ngrams(rows, length)) for length in range(1, order + 1)}
        self.counts = {order: occurrences[order]}
        for length in range(1, order):
            self.counts[length] = Counter(ngram[1:] for ngram in occurrences[length + 1])
            if length > 1:  # nothing stands before the beginning
                begins = {ngram: n for ngram, n in occurrences[length].items() if ngram[0] == EOS}
                self.counts[length] |= Counter(begins)
        self.discounts = {length: self._discounts(counts) for length, counts in self.counts.items()}

    @staticmethod
    def _discounts(counts: Counter[Ngram]) -> list[float]:
        n1, n2, n3, n4 = (sum(count == number for count in counts.values()) for number in (1, 2, 3, 4))
        if 0 in (n1, n2, n3, n4):
            return [0, 0.5, 0.5, 0.5]
        y = n1 / (n1 + 2 * n2)
        found = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
        return [0, *(min(max(value, 0.1), most) for value, most in zip(found, (0.9, 1.9, 2.9), strict=True))]

    def prob(self, context: Ngram, token: int) -> float:
        lower = self.prob(context[1:], token) if context else 1 / self.vocabulary
        length = len(context) + 1
        seen = {ngram: count for ngram, count in self.counts[length].items() if ngram[:-1] == context}
        if not seen:
            return lower
        total, discounts = sum(seen.values()), self.discounts[length]
        count = seen.get((*context, token), 0)
        left = sum(discounts[min(each, 3)] for each in seen.values()) / total
        return (count - discounts[min(count, 3)]) / total + left * lower


def levels_of(
    rows: Rows, order: int, size: int = 10**9, vocabulary: int = VOCABULARY
) -> tuple[list[module._Ngrams], module._Packing]:
    """Those of the model, before they are rounded."""
    packing = module._Packing(vocabulary, order)
    counts = module._count(corpus(rows), packing, order)
    full = module._smoothed(counts, packing, vocabulary)
    return (module._pruned(full, counts, packing, size) if size < 10**9 else full), packing


def packed(packing: module._Packing, rows: Sequence[Ngram]) -> np.ndarray:
    keys = np.zeros(len(rows), np.uint64)
    for column in np.array(rows, np.uint64).reshape(len(rows), -1).T:
        keys = packing.append(keys, column)
    return keys


def unpacked(packing: module._Packing, keys: np.ndarray, length: int) -> set[Ngram]:
    return {
        tuple((int(key) >> packing.bits * (length - 1 - index)) & ((1 << packing.bits) - 1) for index in range(length))
        for key in keys
    }


# Counts.


def test_counts_by_hand() -> None:
    packing = module._Packing(VOCABULARY, 3)
    found = module._count(corpus(ROWS), packing, 3)
    expected: list[dict[Ngram, int]] = [
        {(EOS,): 4, (4,): 3, (5,): 4, (6,): 1},
        {(EOS, 4): 2, (EOS, 5): 1, (EOS, EOS): 1, (4, 5): 3, (5, 4): 1, (5, 6): 1, (5, EOS): 2, (6, EOS): 1},
        {(EOS, 4, 5): 2, (EOS, 5, 4): 1, (4, 5, EOS): 2, (4, 5, 6): 1, (5, 6, EOS): 1, (5, 4, 5): 1},
    ]
    for (keys, counts), wanted in zip(found, expected, strict=True):
        assert keys.tolist() == sorted(keys.tolist())
        assert dict(zip(keys.tolist(), counts.tolist(), strict=True)) == dict(
            zip(packed(packing, list(wanted)).tolist(), wanted.values(), strict=True)
        )


def test_sentences_of_a_part_of_a_corpus_are_counted() -> None:
    """Whose first offset is not zero."""
    sentences, packing = corpus(ROWS), module._Packing(VOCABULARY, 3)
    part = Sentences(sentences.ids[3:], sentences.offsets[1:])
    for one, other in zip(module._count(part, packing, 3), module._count(corpus(ROWS[1:]), packing, 3), strict=True):
        assert np.array_equal(one[0], other[0])
        assert np.array_equal(one[1], other[1])


# Smoothing.


def check_against_reference(rows: Rows, order: int, vocabulary: int, contexts: Sequence[Ngram]) -> None:
    reference = Reference(rows, order, vocabulary)
    levels, packing = levels_of(rows, order, vocabulary=vocabulary)
    model = estimate(corpus(rows), corpus([]), vocabulary, NgramConfig(order=order, ngrams=10**6))
    for context in contexts:
        tokens = range(vocabulary) if vocabulary < 99 else sorted({id_ for row in rows for id_ in row} | {0})
        expected = [reference.prob(context, token) for token in tokens]
        keys = packed(packing, [(*context, token) for token in tokens])
        np.testing.assert_allclose(module._prob(levels[: len(context) + 1], packing, keys), expected, rtol=1e-9)
        state: tuple[int, ...] = ()
        for token in context:
            _, state = model.step(state, token)
        roundings = len(context) + 1  # a probability's, and at most one of each backoff
        costs = [model.step(state, token)[0] for token in tokens]
        assert np.abs(np.array(costs) + 16 * np.log(expected)).max() <= 0.5 * roundings + 1e-9


def all_contexts(order: int) -> list[Ngram]:
    """Also those that no text has."""
    return [context for length in range(order) for context in itertools.product(range(2, 8), repeat=length)]


@given(rows_of, st.integers(2, 4))
@settings(deadline=None, max_examples=30)
def test_probabilities_are_those_of_the_reference(rows: Rows, order: int) -> None:
    check_against_reference(rows, order, VOCABULARY, [(), *(row[: order - 1] for row in map(tuple, rows))])


@pytest.mark.parametrize("order", [2, 3])
def test_every_context_has_the_probabilities_of_the_reference(order: int) -> None:
    check_against_reference(ROWS, order, VOCABULARY, all_contexts(order))
    rows = random_rows(3, 120, VOCABULARY)
    discounts = Reference(rows, order, VOCABULARY).discounts
    assert len({tuple(each) for each in discounts.values()}) == order  # and these are no halves
    check_against_reference(rows, order, VOCABULARY, all_contexts(order)[::2])


def test_ngrams_of_all_64_bits_are_told_apart() -> None:
    high = [[65535, 65534, 65535, 65533, EOS], [65533, 65535, 65534, 65535, 65533, EOS], [65535, EOS]]
    contexts = [(), (65535,), (65535, 65534), (65535, 65534, 65535), (EOS, 65535), (EOS, EOS, 65533)]
    check_against_reference(high, 4, 1 << 16, contexts)


@pytest.mark.parametrize("size", [10**9, 40, 12, 3, 1])
@pytest.mark.parametrize("seed", range(3))
def test_every_distribution_sums_to_one(seed: int, size: int) -> None:
    """Those of all contexts of three tokens, also of contexts that were never seen."""
    levels, packing = levels_of(random_rows(seed, 40, VOCABULARY), 4, size)
    contexts = list(itertools.product(range(2, VOCABULARY), repeat=3))
    for length in range(sum(len(level.keys) > 0 for level in levels)):
        suffixes = sorted({context[3 - length :] for context in contexts})
        keys = packed(packing, [(*context, token) for context in suffixes for token in range(VOCABULARY)])
        prob = module._prob(levels[: length + 1], packing, keys).reshape(-1, VOCABULARY)
        assert (prob > 0).all()
        np.testing.assert_allclose(prob.sum(1), 1, atol=1e-6)


# Pruning.


def gains(rows: Rows, order: int) -> dict[Ngram, float]:
    """What each n-gram adds to the log-likelihood of the text, compared with backing off from it."""
    reference, found = Reference(rows, order, VOCABULARY), {}
    for length in range(2, order + 1):
        for ngram, count in Counter(ngrams(rows, length)).items():
            context, token = ngram[:-1], ngram[-1]
            seen = {other: n for other, n in reference.counts[length].items() if other[:-1] == context}
            left = sum(reference.discounts[length][min(n, 3)] for n in seen.values()) / sum(seen.values())
            ratio = reference.prob(context, token) / (left * reference.prob(context[1:], token))
            found[ngram] = count * math.log(ratio)
    return found


@pytest.mark.parametrize("size", [1, 4, 15, 40, 90])
def test_what_gains_most_is_kept_with_its_prefixes_and_suffixes(size: int) -> None:
    rows = random_rows(1, 60, VOCABULARY)
    gain = gains(rows, 4)
    assert len(gain) > 90
    chosen = set(sorted(gain, key=lambda ngram: -gain[ngram])[:size])
    least = min(gain[ngram] for ngram in chosen)
    chosen |= {ngram for ngram, value in gain.items() if value > least - 1e-9}  # what gains just as much
    assert len(chosen) < size + 9
    expected = set(chosen)
    for length in (4, 3):
        for ngram in [each for each in expected if len(each) == length]:
            expected |= {ngram[:-1], ngram[1:]}
    levels, packing = levels_of(rows, 4, size)
    assert len(levels[0].keys) == VOCABULARY
    found = [unpacked(packing, levels[length - 1].keys, length) for length in (2, 3, 4)]
    assert set().union(*found) == expected
    full, _ = levels_of(rows, 4)
    for level, whole in zip(levels, full, strict=True):  # and has the probability that it had
        assert np.array_equal(level.prob, whole.prob[np.searchsorted(whole.keys, level.keys)])


def test_no_more_is_pruned_than_is_asked_for() -> None:
    rows = random_rows(1, 60, VOCABULARY)
    total = sum(len(level.keys) for level in levels_of(rows, 3)[0][1:])
    for size in (total, total + 1, 10**6):
        levels, _ = levels_of(rows, 3, size)
        assert sum(len(level.keys) for level in levels[1:]) == total
    assert sum(len(level.keys) for level in levels_of(rows, 3, total // 2)[0][1:]) < total


def test_a_larger_model_fits_its_text_better() -> None:
    rows = random_rows(2, 80, VOCABULARY)
    models = [
        estimate(corpus(rows), corpus(rows), VOCABULARY, NgramConfig(order=4, ngrams=size))
        for size in (1, 10, 30, 100, 1000)
    ]
    found = [perplexity(model, rows) for model in models]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.7 * found[0]
    assert [sum(model.sizes) for model in models] == sorted({sum(model.sizes) for model in models})


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_pruned_model_can_be_stored(size: int) -> None:
    """Also one that has no n-grams of some length any more."""
    rows = random_rows(5, 50, VOCABULARY)
    model = estimate(corpus(rows), corpus(rows), VOCABULARY, NgramConfig(order=5, ngrams=size))
    assert (0 in model.sizes) == (size < 1000)
    again = NgramModel.from_bytes(model.to_bytes(), 5, VOCABULARY)
    assert [again.log_prob(row) for row in rows] == [model.log_prob(row) for row in rows]


@pytest.mark.parametrize("rows", [[[EOS]], [[4, EOS]], [[EOS]] * 9], ids=str)
def test_text_that_is_too_short_for_some_ngrams_is_enough(rows: Rows) -> None:
    model = estimate(corpus(rows), corpus(rows), VOCABULARY, NgramConfig(order=5))
    assert model.log_prob(rows[0]) > model.log_prob([5, EOS])
    assert NgramModel.from_bytes(model.to_bytes(), 5, VOCABULARY).sizes == model.sizes


def test_what_was_never_seen_is_possible() -> None:
    model = estimate(corpus([[4, EOS]] * 1000), corpus([]), 40_000, NgramConfig(order=2))
    cost, _ = model.step(model.start, 39_999)
    assert 0 < cost <= 2 * MAX_COST


# The average.


def test_the_surprisal_is_what_a_token_of_held_out_text_costs() -> None:
    rows, held_out = random_rows(1, 60, VOCABULARY), random_rows(4, 25, VOCABULARY)
    model = estimate(corpus(rows), corpus(held_out), VOCABULARY, NgramConfig(order=3, ngrams=50))
    costs = []
    for row in held_out:
        state = model.start
        for token in row:
            cost, state = model.step(state, token)
            costs.append(cost)
    assert model.surprisal == round(float(np.mean(costs)))
    assert model.surprisal > estimate(corpus(rows), corpus(rows), VOCABULARY, NgramConfig(order=3)).surprisal


def test_nothing_held_out_costs_nothing() -> None:
    assert estimate(corpus(ROWS), corpus([]), VOCABULARY, NgramConfig(order=2)).surprisal == 0


def test_the_type_of_ids_makes_no_difference() -> None:
    make = partial(estimate, held_out=corpus(ROWS), vocab_size=VOCABULARY, config=NgramConfig(order=3))
    assert make(corpus(ROWS, np.uint32)).to_bytes() == make(corpus(ROWS, np.uint8)).to_bytes()


@pytest.mark.parametrize(
    ("order", "vocabulary", "allowed"), [(5, 4097, 4), (4, 65537, 3), (5, 1 << 16, 4), (3, (1 << 21) + 1, 2)]
)
def test_a_vocabulary_that_is_too_large_for_an_order_is_refused(order: int, vocabulary: int, allowed: int) -> None:
    with pytest.raises(UserError) as refused:
        estimate(corpus(ROWS), corpus(ROWS), vocabulary, NgramConfig(order=order))
    assert str(refused.value) == f"language_model.order {order}: {vocabulary:,} pieces allow {allowed}"
    estimate(corpus(ROWS), corpus(ROWS), vocabulary - 1 if allowed == order - 1 else 4096, NgramConfig(order=allowed))


@pytest.mark.parametrize("given", [{"order": 1}, {"order": 6}, {"ngrams": 0}])
def test_other_sizes_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(UserError, match=next(iter(given))):
        from_dict(given, NgramConfig, "recipe.yaml")
