"""What this machine's processor can do: its instructions for products of 8-bit integers."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

_X86 = ("x86_64", "amd64", "i386", "i686")
_WIDE_SUMS = ("avx512_vnni", "avx_vnni", "avx_vnni_int8")
"""Instructions that sum products of 8-bit integers in 32 bits."""


@cache
def saturates() -> bool:
    """Whether sums of products of 8-bit integers may overflow: on x86 without VNNI, or where that is not known.

    Two products of 8-bit numbers are summed in 16 bits there. Weights of 7 bits are safe.
    """
    if platform.machine().lower() not in _X86:
        return False
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        flags = next(line for line in lines if line.startswith("flags"))
    except (OSError, StopIteration):
        return True
    return not any(flag in flags.split() for flag in _WIDE_SUMS)
