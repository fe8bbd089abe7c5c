"""The weights of a bundle as the graphs name them.

    encoder.norm.weight             a tensor of the network, in fp32, or in int8 if the bundle stores it so
    encoder.….out.weight.T          transposed, as a product with it needs it
    encoder.….out.weight.scale      the scales of an int8 tensor, one for each row
    positions.256                   the position encodings of that width

Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

from latentmt.bundle import Bundle
from latentmt.data.positions import sinusoids

Array = npt.NDArray[Any]
TRANSPOSED, SCALE, POSITIONS = ".T", ".scale", "positions."


class Weights:
    """The weights of a bundle by name. `seven_bits`: int8 tensors are rounded to 7 bits (see `cpu.saturates`)."""

    def __init__(self, bundle: Bundle, seven_bits: bool) -> None:
        self._tensors, self._seven_bits = _tensors(bundle), seven_bits

    def __getitem__(self, name: str) -> Array:
        if name.startswith(POSITIONS):
            return sinusoids(int(name.removeprefix(POSITIONS)))
        tensor = self._tensors[name.removesuffix(TRANSPOSED)]
        if tensor.dtype != np.int8:
            tensor = tensor.astype(np.float32, copy=False)
            tensor = 2 * tensor if self._seven_bits and name.endswith(SCALE) else tensor
        elif self._seven_bits:
            tensor = np.rint(tensor / np.float32(2)).astype(np.int8)
        return np.ascontiguousarray(tensor.T) if name.endswith(TRANSPOSED) else tensor


def _tensors(bundle: Bundle) -> Mapping[str, Array]:
    """The tensors of a bundle, by name."""
    parts: dict[str, list[Array]] = {}
    for part in bundle.tensors(load):
        parts.setdefault(part.name, []).append(part.tensor)
    return {name: np.concatenate(arrays) if len(arrays) > 1 else arrays[0] for name, arrays in parts.items()}
