"""Files of arrays: what is written is read, and whatever a file holds, the error is one that is expected."""

from __future__ import annotations

import io
import random
import zipfile

import numpy as np
import pytest

from latentmt.data import arrays
from latentmt.data.arrays import read_arrays, write_arrays

GOOD = {"a": np.arange(7, dtype=np.uint16).reshape(1, 7), "b": np.array([], dtype=np.uint8)}


def with_member(content: bytes, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A file whose array a is this, with a right checksum."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("a.npy", content)
    return file.getvalue()


def member(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def header(text: str, data: bytes = b"") -> bytes:
    written = text.encode("latin1") + b"\n"
    return with_member(b"\x93NUMPY\x01\x00" + len(written).to_bytes(2, "little") + written + data)


def test_what_is_written_is_read() -> None:
    found = read_arrays(write_arrays(GOOD), ["b", "a"])
    for array, name in zip(found, ("b", "a"), strict=True):
        assert array.dtype == GOOD[name].dtype
        assert np.array_equal(array, GOOD[name])


def test_the_other_order_of_bytes_is_read() -> None:
    """As numbers that may be looked up one by one."""
    (found,) = read_arrays(with_member(member(np.array([1, 500], dtype=">u2"))), ["a"])
    assert found.data.tolist() == [1, 500]
    assert found.data[1] == 500


@pytest.mark.parametrize(
    "content",
    [
        header("{'descr': '<u2', 'fortran_order': False, 'shape': (3,)}", b"\0" * 5),
        header("{'descr': '<u2', 'fortran_order': False, 'shape': (3,)}", b"\0" * 7),
        header("{'descr': '<u2', 'fortran_order': False, 'shape': (-1, -3)}", b"\0" * 6),
        header(f"{{'descr': '<u2', 'fortran_order': False, 'shape': (0, {10**30})}}"),
        header(f"{{'descr': '<u2', 'fortran_order': False, 'shape': ({10**30},)}}"),
        header("{'descr': '<u0', 'fortran_order': False, 'shape': (3,)}"),
        header("{'descr': '|V8', 'fortran_order': False, 'shape': (1,)}", b"\0" * 8),
        header("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"\0" * 8),
        header("{'descr': [('x', '<u2')], 'fortran_order': False, 'shape': (1,)}", b"\0" * 2),
        header("{'descr': '<u2', 'fortran_order': False, 'shape': (3"),
        header("{'descr': '<u2', 'shape': '''"),
        header("(" * 9000),
        header(""),
        with_member(b""),
        with_member(b"\x93NUMPY\x02\x00" + b"\0" * 20),
        write_arrays({"other": GOOD["a"]}),
        b"",
        b"PK",
    ],
    ids=str,
)
def test_other_content_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        read_arrays(content, ["a"])


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damage_of_any_compression_is_refused(compression: int) -> None:
    """But for a byte that says nothing."""
    refused, content = 0, with_member(member(np.arange(99, dtype=np.uint8)), compression)
    start = content.index(b"a.npy") + 5
    for position in range(start, start + 60):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        try:
            assert read_arrays(bytes(damaged), ["a"])[0].tolist() == [*range(99)]
        except ValueError:
            refused += 1
    assert refused > 50


def test_an_array_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    content = with_member(member(np.zeros(9, dtype=np.uint16)))
    monkeypatch.setattr(arrays, "MAX_BYTES", 18)
    assert len(read_arrays(content, ["a"])[0]) == 9
    monkeypatch.setattr(arrays, "MAX_BYTES", 17)
    with pytest.raises(ValueError, match="not a file of arrays"):
        read_arrays(content, ["a"])


def test_every_flipped_bit_of_a_header_is_read_or_refused() -> None:
    content, rng = member(np.arange(5, dtype=np.uint16)), random.Random(1)
    for bit in range(8 * 128):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        if rng.random() < 0.3:  # two bits
            flipped[rng.randrange(128)] ^= 1 << rng.randrange(8)
        try:
            read_arrays(with_member(bytes(flipped)), ["a"])
        except ValueError:
            continue
