"""A lexical shortlist: the pieces that the translation of a source is likely to need.

The teacher predicts one token at a time, so a product with the whole vocabulary takes a large part of its time. (It is
a small part of the latent model's, which predicts all tokens at once, so that has no shortlist.) The shortlist of a
sentence has the likeliest translations of each of its pieces, the pieces themselves, and the most frequent pieces of
the target language. It depends on the sentence alone.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int
from numpy.lib import format as npy

from latentmt.errors import UserError

FILE = "shortlist.npz"
"""The file in the bundle of a teacher."""
MAX_BYTES = 1 << 26
"""The most bytes of an array in it. Those that ship have 1.6 MB."""


class Shortlist:
    """`likely`: translations of each piece. `common`: pieces that are in every shortlist."""

    def __init__(self, likely: Int[np.ndarray, "v k"], common: Int[np.ndarray, " c"]) -> None:
        self._likely, self._common = likely, common

    @staticmethod
    def from_bytes(content: bytes, vocab_size: int) -> Shortlist:
        """The content of a file for a vocabulary of that size. The error says what is wrong with it."""
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                likely, common = _array(archive, "likely"), _array(archive, "common")
        except (KeyError, EOFError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error):
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


def _array(archive: zipfile.ZipFile, name: str) -> Int[np.ndarray, "..."]:
    """An array of a file by numpy's `savez`. Its size is known before it is read, and nothing is unpickled."""
    with archive.open(f"{name}.npy") as file:
        if npy.read_magic(file) != (1, 0):
            raise ValueError("another version")
        shape, by_columns, dtype = npy.read_array_header_1_0(file)
        size = math.prod(shape) * dtype.itemsize
        if dtype.kind != "u" or dtype.itemsize > 4 or by_columns or not 0 <= size <= MAX_BYTES:
            raise ValueError("not an array of ids")
        content = file.read(size)
        if file.read(1):  # at the end of a file its checksum is compared
            raise ValueError("longer than it says")
        return np.frombuffer(content, dtype).reshape(shape).astype(np.int64)
