"""The noise of `data.noise` as tensors."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from latentmt.data import noise


def standard_noise(samples: int, width: int, dim: int, seed: int) -> Float[Tensor, "{samples} {width} {dim}"]:
    """ε ~ N(0, 1) in fp32 on the CPU. Fewer samples or a smaller width give a part of the same noise."""
    return torch.tensor(noise.standard_noise(samples, width, dim, seed))  # a copy: the cached noise must not change
