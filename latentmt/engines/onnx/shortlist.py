"""A lexical shortlist: the pieces that the translation of a source is likely to need.

A product with the whole vocabulary takes a large part of the teacher's time, which predicts one token at a time, and an
eighth of the latent model's first guess. The shortlist of a sentence has the likeliest translations of each of its
pieces, the pieces themselves, and pieces that are in every shortlist. It depends on the sentence alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from latentmt.data.arrays import read_arrays
from latentmt.errors import UserError

FILE = "shortlist.npz"
"""The file in the bundle of a teacher or a latent model."""


class Shortlist:
    """`likely`: translations of each piece. `common`: pieces that are in every shortlist."""

    def __init__(self, likely: Int[np.ndarray, "v k"], common: Int[np.ndarray, " c"]) -> None:
        self._likely, self._common = likely, common

    @staticmethod
    def from_bytes(content: bytes, vocab_size: int) -> Shortlist:
        """The content of a file for a vocabulary of that size. The error says what is wrong with it."""
        try:
            likely, common = (array.astype(np.int64) for array in read_arrays(content, ("likely", "common")))
        except ValueError:
            raise UserError("not a shortlist") from None
        if likely.ndim != 2 or len(likely) != vocab_size or common.ndim != 1:
            raise UserError(f"a shortlist with other pieces than the {vocab_size:,} of the model")
        if max(int(array.max(initial=0)) for array in (likely, common)) >= vocab_size:
            raise UserError(f"a shortlist with pieces beyond the {vocab_size:,} of the model")
        return Shortlist(likely, common)

    def pieces(self, ids: Sequence[int], needed: Int[np.ndarray, "*b"] | None = None) -> Int[np.ndarray, " k"]:
        """The shortlist of a source, with the ids that are needed, in ascending order."""
        chosen = np.zeros(len(self._likely), dtype=bool)  # faster than sorting
        chosen[self._common] = chosen[ids] = chosen[self._likely[ids]] = True
        if needed is not None:
            chosen[needed] = True
        return np.flatnonzero(chosen)
