"""The weights of a bundle as the graphs name them.

    encoder.norm.weight             a tensor of the network, in fp32, or in int8 if the bundle stores it so
    encoder.….out.weight.T          transposed, as a product with it needs it
    encoder.….out.weight.scale      the scales of an int8 tensor, one for each row
    positions.256                   the position encodings of that width

Nothing here needs torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

from latentmt.bundle import Bundle
from latentmt.data.positions import sinusoids
from latentmt.errors import UserError

Array = npt.NDArray[Any]
TRANSPOSED, SCALE, POSITIONS = ".T", ".scale", "positions."
_POSITIONS = re.compile(re.escape(POSITIONS) + r"([1-9]\d{0,3})")


class Weights:
    """The weights of a bundle by name. `seven_bits`: int8 tensors are rounded to 7 bits (see `cpu.saturates`)."""

    def __init__(self, bundle: Bundle, seven_bits: bool) -> None:
        self._tensors, self._seven_bits, self._where = _tensors(bundle), seven_bits, bundle.folder

    def __getitem__(self, name: str) -> Array:
        if width := _POSITIONS.fullmatch(name):
            return sinusoids(int(width[1]))
        if (of := name.removesuffix(TRANSPOSED)) not in self._tensors:
            raise UserError(f"{self._where}: has no weight {name[:80]}, which a graph needs")
        tensor = self._tensors[of]
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
        before, tensor = parts.setdefault(part.name, []), part.tensor
        if part.number != len(before) or (before and (tensor.ndim == 0 or tensor.shape[1:] != before[0].shape[1:])):
            raise UserError(f"{part.file}: {part.name[:80]} is not in order")
        if not (tensor.dtype == np.int8 or (tensor.dtype.kind == "f" and _is_finite(tensor))):
            raise UserError(f"{part.file}: {part.name[:80]} is not a tensor of finite numbers")
        before.append(tensor)
    return {name: np.concatenate(arrays) if len(arrays) > 1 else arrays[0] for name, arrays in parts.items()}


def _is_finite(tensor: Array) -> bool:
    """Whether all numbers are finite. The sum says so in less time, unless it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(tensor.sum(dtype=np.float32))) or bool(np.isfinite(tensor).all())
