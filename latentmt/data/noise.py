"""Standard normal noise that depends on a seed only.

Sample i has the same noise at position t for any batch, padding, device, engine or number of samples. So a seed gives
the same latents everywhere.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from latentmt.options import MAX_POSITIONS


def standard_noise(samples: int, width: int, dim: int, seed: int) -> Float[np.ndarray, "{samples} {width} {dim}"]:
    """ε ~ N(0, 1) in fp32. Fewer samples or a smaller width give a part of the same noise. It must not be changed."""
    if width > MAX_POSITIONS:
        raise ValueError(f"noise for {width} positions, but the maximum is {MAX_POSITIONS}")
    return _drawn(samples, dim, seed)[:, :width]


@lru_cache(maxsize=4)
def _drawn(samples: int, dim: int, seed: int) -> Float[np.ndarray, "{samples} _ {dim}"]:
    """Noise for the maximum number of positions: 16 KB a sample if dim is 8.

    By Box and Muller from the bits of Philox. Those are the same in every version of numpy, its normal samples are not.
    """
    shape = samples, 2, MAX_POSITIONS * dim
    bits = np.random.Philox(seed).random_raw(math.prod(shape)).reshape(shape)
    uniform = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    radius = np.sqrt(-2 * np.log1p(-uniform[:, 0]))
    noise = (radius * np.cos(2 * np.pi * uniform[:, 1])).astype(np.float32).reshape(samples, MAX_POSITIONS, dim)
    noise.setflags(write=False)
    return noise
