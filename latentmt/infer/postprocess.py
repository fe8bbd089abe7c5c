"""Pieces as they were decoded → pieces as they are read: special pieces and repetitions removed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from latentmt.data.tokenizer import SPECIAL


def without_special(ids: Sequence[int]) -> list[int]:
    """The ids that have text."""
    return [id_ for id_ in ids if id_ not in SPECIAL]


def without_repeats(ids: Sequence[int]) -> list[int]:
    """The ids without those that repeat the one before them (Lee et al., 2018)."""
    return [id_ for index, id_ in enumerate(ids) if index == 0 or id_ != ids[index - 1]]


def count_repeats(ids: Sequence[int]) -> int:
    """How many ids repeat the one before them."""
    return sum(first == second for first, second in itertools.pairwise(ids))
