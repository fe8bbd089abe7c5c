import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmt.data.pack import MAX_PAIRS, pack

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=300)


@given(lengths=LENGTHS, seed=st.integers(0, 3))
def test_every_pair_that_fits_is_in_one_row_and_no_row_overflows(lengths: list[tuple[int, int]], seed: int) -> None:
    source, target = np.array(lengths, dtype=np.int64).reshape(-1, 2).T
    packing = pack(source, target, width=32, seed=seed)
    fitting = [i for i, pair in enumerate(lengths) if max(pair) <= 32]
    assert sorted(packing.pairs.tolist()) == fitting
    assert packing.starts[0] == 0
    assert packing.starts[-1] == len(fitting)
    for start, end in zip(packing.starts[:-1], packing.starts[1:], strict=True):
        row = packing.pairs[start:end]
        assert 1 <= len(row) <= MAX_PAIRS
        assert source[row].sum() <= 32
        assert target[row].sum() <= 32


def test_a_row_holds_at_most_max_pairs() -> None:
    ones = np.ones(100, dtype=np.int64)
    assert np.diff(pack(ones, ones, width=64, seed=0).starts).tolist() == [MAX_PAIRS] * 6 + [4]


def test_the_seed_only_determines_which_pairs_share_a_row() -> None:
    rng = np.random.default_rng(0)
    source = rng.integers(2, 20, 2000)
    target = np.maximum(1, source + rng.integers(-2, 3, 2000))
    first, again, other = (pack(source, target, 64, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.pairs, again.pairs)
    assert not np.array_equal(first.pairs, other.pairs)
    assert np.array_equal(first.starts, other.starts)


@pytest.mark.parametrize("mean", [8, 12, 25])
def test_sentence_like_lengths_are_packed_tightly(mean: int) -> None:
    rng = np.random.default_rng(0)
    source = np.clip(rng.gamma(4, mean / 4, 20_000).astype(int), 2, 64)
    target = np.clip(source + rng.normal(0, 1 + source / 8).astype(int), 2, 64)
    packing = pack(source, target, 64, seed=0)
    assert (source.sum() + target.sum()) / (128 * len(packing)) > 0.95
