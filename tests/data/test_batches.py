import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from latentmt.data.batches import Cursor, PackedBatches, padded_batches
from latentmt.data.corpus import Sentences, Split
from latentmt.data.pack import pack
from latentmt.data.tokens import Pairs, Tokens

WIDTH = 16


def make_split(pairs: list[tuple[list[int], list[int]]]) -> Split:
    def sentences(side: list[list[int]]) -> Sentences:
        flat = np.array([id_ for ids in side for id_ in ids], dtype=np.uint16)
        return Sentences(flat, np.cumsum([0] + [len(ids) for ids in side]))

    return Split(sentences([pair[0] for pair in pairs]), sentences([pair[1] for pair in pairs]))


def sentences_of(tokens: Tokens) -> list[list[list[int]]]:
    """For each row its sentences, read off segments and checked against positions."""
    rows = []
    for ids, segment, position in zip(tokens.ids, tokens.layout.segment, tokens.layout.position, strict=True):
        row = []
        for number in range(1, int(segment.max()) + 1):
            here = segment == number
            assert position[here].tolist() == list(range(int(here.sum())))
            row.append(ids[here].tolist())
        assert (ids[segment == 0] == 0).all()
        rows.append(row)
    return rows


def pairs_of(batch: Pairs) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    found = []
    for source, target in zip(sentences_of(batch.source), sentences_of(batch.target), strict=True):
        found += [(tuple(s), tuple(t)) for s, t in zip(source, target, strict=True)]
    return found


def taken(batches: PackedBatches, count: int) -> list[Pairs]:
    return list(itertools.islice(batches, count))


FEW = settings(deadline=None, max_examples=settings().max_examples // 4)
"""Every batch is made in a thread and checked: these take long."""
IDS = st.lists(st.integers(4, 60_000), min_size=1, max_size=WIDTH)
SPLITS = st.lists(st.tuples(IDS, IDS), min_size=1, max_size=60)


def batches_of(pairs, rows=2, seed=0, rank=0, world_size=1, start=None) -> PackedBatches:
    split = make_split(pairs)
    packing = pack(split.source.lengths, split.target.lengths, WIDTH, seed)
    return PackedBatches(split, packing, rows, seed, rank, world_size, start)


def epoch_length(pairs, rows: int, world_size: int) -> int:
    split = make_split(pairs)
    return -(-len(pack(split.source.lengths, split.target.lengths, WIDTH, 0)) // (rows * world_size))


@FEW
@given(pairs=SPLITS, rows=st.integers(1, 4), world_size=st.integers(1, 4))
def test_each_epoch_has_every_pair_once_over_all_ranks(pairs, rows: int, world_size: int) -> None:
    count = epoch_length(pairs, rows, world_size)
    expected = Counter((tuple(source), tuple(target)) for source, target in pairs)
    by_rank = [
        taken(batches_of(pairs, rows, rank=rank, world_size=world_size), 2 * count) for rank in range(world_size)
    ]
    for epoch in (slice(0, count), slice(count, 2 * count)):
        found = Counter(pair for batches in by_rank for batch in batches[epoch] for pair in pairs_of(batch))
        assert found == expected
    for batch in itertools.chain.from_iterable(by_rank):
        assert batch.source.ids.shape == batch.target.ids.shape == (rows, WIDTH)


@FEW
@given(pairs=SPLITS, rows=st.integers(1, 3), world_size=st.integers(1, 3))
def test_all_ranks_together_see_the_batch_of_a_single_rank(pairs, rows: int, world_size: int) -> None:
    count = epoch_length(pairs, rows, world_size)
    alone = taken(batches_of(pairs, rows * world_size), count)
    by_rank = [taken(batches_of(pairs, rows, rank=rank, world_size=world_size), count) for rank in range(world_size)]
    for together, parts in zip(alone, zip(*by_rank, strict=True), strict=True):
        assert torch.equal(together.source.ids, torch.cat([part.source.ids for part in parts]))
        assert torch.equal(together.target.layout.segment, torch.cat([part.target.layout.segment for part in parts]))


@FEW
@given(pairs=SPLITS, rows=st.integers(1, 3), consumed=st.integers(0, 12))
def test_resumed_is_uninterrupted(pairs, rows: int, consumed: int) -> None:
    whole = taken(batches_of(pairs, rows), consumed + 5)
    first = batches_of(pairs, rows)
    taken(first, consumed)
    rest = taken(batches_of(pairs, rows, start=first.cursor), 5)
    for expected, got in zip(whole[consumed:], rest, strict=True):
        assert torch.equal(expected.source.ids, got.source.ids)
        assert torch.equal(expected.target.ids, got.target.ids)


@FEW
@given(pairs=SPLITS, consumed=st.integers(0, 10), before=st.integers(1, 4), after=st.integers(1, 4))
def test_an_epoch_may_be_finished_by_another_number_of_ranks(pairs, consumed: int, before: int, after: int) -> None:
    count = epoch_length(pairs, 2, before)
    consumed = min(consumed, count - 1)
    found: Counter = Counter()
    cursor = Cursor()
    for rank in range(before):
        batches = batches_of(pairs, rank=rank, world_size=before)
        found.update(pair for batch in taken(batches, consumed) for pair in pairs_of(batch))
        cursor = batches.cursor
    for rank in range(after):
        batches = batches_of(pairs, rank=rank, world_size=after, start=cursor)
        for batch in batches:
            found.update(pairs_of(batch))
            if batches.cursor.epoch == 1:
                break
    assert found == Counter((tuple(source), tuple(target)) for source, target in pairs)


def test_epochs_differ_and_seeds_differ() -> None:
    pairs = [([n], [n]) for n in range(4, 400)]
    count = epoch_length(pairs, 2, 1)
    run = taken(batches_of(pairs), 2 * count)
    first, second = ([b.source.ids.tolist() for b in run[part]] for part in (slice(count), slice(count, None)))
    assert first != second
    assert first != [batch.source.ids.tolist() for batch in taken(batches_of(pairs, seed=1), count)]


def test_prefetched_batches_are_not_consumed() -> None:
    batches = batches_of([([n], [n]) for n in range(4, 400)])
    assert batches.cursor == Cursor()
    taken(batches, 1)
    assert batches.cursor == Cursor(0, 2)


def test_an_error_while_making_batches_reaches_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Pairs:
        raise OSError("the disk has gone")

    monkeypatch.setattr("latentmt.data.batches.rows_to_batch", fail)
    with pytest.raises(OSError, match="the disk has gone"):
        next(iter(batches_of([([4], [4])])))


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=100), budget=st.integers(1, 400))
def test_padded_batches_hold_every_sentence_once_within_max_tokens(lengths: list[int], budget: int) -> None:
    array = np.array(lengths)
    groups = list(padded_batches(array, budget))
    assert sorted(np.concatenate(groups).tolist()) == list(range(len(lengths)))
    for group in groups:
        assert len(group) * array[group].max() <= budget or len(group) == 1


def test_padded_tokens() -> None:
    tokens = Tokens.padded([[5, 6, 3], [7, 3]], width=4)
    assert tokens.ids.tolist() == [[5, 6, 3, 0], [7, 3, 0, 0]]
    assert tokens.layout.segment.tolist() == [[1, 1, 1, 0], [1, 1, 0, 0]]
    assert tokens.layout.position[0].tolist() == [0, 1, 2, 3]
