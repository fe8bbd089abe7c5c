"""Sinusoidal position encodings."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from jaxtyping import Float

from latentmt.options import MAX_POSITIONS


@cache
def sinusoids(width: int) -> Float[np.ndarray, "positions {width}"]:
    """The encoding of every position: sines, then cosines, of falling frequency."""
    frequency = np.exp(np.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angle = np.arange(MAX_POSITIONS)[:, None] * frequency
    table = np.concatenate((np.sin(angle), np.cos(angle)), axis=1).astype(np.float32)
    table.setflags(write=False)
    return table
