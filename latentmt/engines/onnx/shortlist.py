"""A lexical shortlist: the pieces that the translation of a source is likely to need.

The teacher predicts one token at a time, so a product with the whole vocabulary takes a large part of its time. (It is
a small part of the latent model's, which predicts all tokens at once, so that has no shortlist.) The shortlist of a
sentence has the likeliest translations of each of its pieces, the pieces themselves, and the most frequent pieces of
the target language. It depends on the sentence alone.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

FILE = "shortlist.npz"
"""The file in the bundle of a teacher."""


class Shortlist:
    """`likely`: translations of each piece. `common`: pieces that are in every shortlist."""

    def __init__(self, likely: Int[np.ndarray, "v k"], common: Int[np.ndarray, " c"]) -> None:
        self._likely, self._common = likely, common

    @staticmethod
    def from_bytes(content: bytes) -> Shortlist:
        """The content of a file."""
        with np.load(io.BytesIO(content)) as arrays:
            return Shortlist(arrays["likely"].astype(np.int64), arrays["common"].astype(np.int64))

    def pieces(self, ids: Sequence[int]) -> Int[np.ndarray, " k"]:
        """The shortlist of a source, in ascending order."""
        return np.unique(np.concatenate((self._common, ids, self._likely[ids].ravel())))
