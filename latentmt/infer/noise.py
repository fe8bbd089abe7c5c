"""Standard normal noise that belongs to a seed, and to nothing else.

Sample i has the same noise at place t whatever batch, padding, device or number of samples it is asked for with; so a
seed names the same latents everywhere. What the noise is for is not known here.
"""

from __future__ import annotations

import functools

import torch
from jaxtyping import Float
from torch import Tensor

from latentmt.nn.positions import MAX_POSITIONS


def standard_noise(samples: int, width: int, dim: int, seed: int) -> Float[Tensor, "{samples} {width} {dim}"]:
    """ε ~ N(0, 1) in fp32 on the CPU; fewer samples or a smaller width give the beginning of the same."""
    if width > MAX_POSITIONS:
        raise ValueError(f"noise for {width} places, but there are no more than {MAX_POSITIONS}")
    # A copy, because what is remembered must not change under those who get it next.
    return _drawn(samples, dim, seed)[:, :width].clone()


@functools.lru_cache(maxsize=4)
def _drawn(samples: int, dim: int, seed: int) -> Float[Tensor, "{samples} _ {dim}"]:
    """Noise for as many places as there can be: 16 KB a sample if dim is 8, and 500 samples take 20 ms to draw.

    One sample after another from one generator. A single draw would not do: torch may draw numbers in an order that
    depends on how many are wanted.
    """
    generator = torch.Generator().manual_seed(seed)
    noise = torch.empty(samples, MAX_POSITIONS, dim)
    for sample in noise:
        sample.normal_(generator=generator)
    return noise
