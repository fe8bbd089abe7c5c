"""Arrays of unsigned integers in a file, as numpy's `savez_compressed` writes them. A file may come from anybody."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import UInt
from numpy.lib import format as npy

MAX_BYTES = 1 << 26
"""The most bytes of an array. Those that ship have 1.6 MB."""


def write_arrays(arrays: Mapping[str, UInt[np.ndarray, "..."]]) -> bytes:
    """The content of a file with these arrays."""
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def read_arrays(content: bytes, names: Sequence[str]) -> list[UInt[np.ndarray, "..."]]:
    """The arrays of these names; a `ValueError` if one is not there. Sizes are known before anything is read."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return [_array(archive, name) for name in names]
    except Exception as error:  # zipfile, its decompressors and the parser of headers raise a dozen kinds
        raise ValueError("not a file of arrays") from error


def _array(archive: zipfile.ZipFile, name: str) -> UInt[np.ndarray, "..."]:
    with archive.open(f"{name}.npy") as file:
        if npy.read_magic(file) != (1, 0):
            raise ValueError("another version")
        shape, by_columns, dtype = npy.read_array_header_1_0(file)
        size = math.prod(shape) * dtype.itemsize
        if dtype.kind != "u" or dtype.itemsize > 4 or by_columns or not 0 <= size <= MAX_BYTES:
            raise ValueError("not an array of unsigned integers")
        content = file.read(size)
        if file.read(1):  # at the end of a file its checksum is compared
            raise ValueError("longer than it says")
        return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)
