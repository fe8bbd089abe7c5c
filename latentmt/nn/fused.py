"""Fused operations: a linear layer with its norm, activation and residual, and attention, in one kernel launch each.

The kernels are used on a large GPU for few tokens and without gradients, where a launch takes longer than the work.
Otherwise torch's own operations are used.
"""

from __future__ import annotations

import importlib.util
import shutil
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

MAX_TOKENS = 2048
"""The kernels are used up to this number of tokens, where launches dominate."""
HAS_TRITON = (
    not torch.version.hip
    and importlib.util.find_spec("triton") is not None
    and any(map(shutil.which, ("cc", "gcc", "clang")))
)
"""Whether kernels can be compiled, if there is a GPU: triton needs a C compiler."""
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_MIN_SHARED_MEMORY = 200_000
"""Bytes of shared memory that a block needs. The kernels are tuned for an H200, which has 232,448."""
_CAPABLE: dict[tuple[str, int | None], bool] = {}
"""Whether a device is suitable, by type and index (which torch.compile can trace)."""
_MIN_INPUTS, _MAX_NORM_BYTES = 16, 4096
"""Limits of the kernels: inputs of a linear layer, and bytes of a row with a norm."""


def enable_fused(device: torch.device) -> None:
    """Use the kernels on this device from now on, if it is a suitable GPU and triton and a C compiler are installed."""
    key = device.type, device.index
    if key not in _CAPABLE:
        properties = torch.cuda.get_device_properties(device) if HAS_TRITON and device.type == "cuda" else None
        _CAPABLE[key] = getattr(properties, "shared_memory_per_block_optin", 0) >= _MIN_SHARED_MEMORY


def linear(
    layer: nn.Linear,
    x: Float[Tensor, "r t d"],
    *,
    norm: nn.LayerNorm | None = None,
    relu: bool = False,
    dropout: nn.Dropout | None = None,
    residual: Float[Tensor, "r t e"] | None = None,
) -> Float[Tensor, "r t e"]:
    """residual + dropout(relu(layer(norm(x)))). Everything but the layer is optional."""
    if _is_worthwhile(x) and _fits(x, layer.weight, norm) and not (dropout and dropout.training):
        scale, shift, eps = (norm.weight, norm.bias, norm.eps) if norm else (None, None, 0.0)
        return _launch(x, layer.weight, layer.bias, scale, shift, eps, relu, residual, False)
    out: Tensor = layer(norm(x) if norm else x)
    out = F.relu(out) if relu else out
    out = dropout(out) if dropout else out
    return out if residual is None else residual + out


def readout(
    x: Float[Tensor, "*b d"], weight: Float[Tensor, "o d"], bias: Float[Tensor, " o"] | None
) -> Float[Tensor, "*b o"]:
    """A linear layer in fp32 (or better), regardless of autocast."""
    if bias is not None and x.dim() > 2 and _is_worthwhile(x) and _fits(x, weight):
        return _launch(x, weight, bias, None, None, 0.0, False, None, True)  # products of bf16 are exact in fp32
    dtype = torch.promote_types(x.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        return F.linear(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))


def attend(
    query: Float[Tensor, "r h t e"],
    key: Float[Tensor, "r h s e"],
    value: Float[Tensor, "r h s e"],
    bias: Float[Tensor, "#r 1 #t s"],
) -> Float[Tensor, "r t h*e"]:
    """Softmax attention of every head, with heads concatenated."""
    if _is_worthwhile(query) and query.shape[3] in (16, 32, 64, 128):
        from latentmt.nn import kernels

        run = kernels.attend_op if torch.compiler.is_compiling() else kernels.attend
        out: Tensor = run(query, key, value, bias)
        return out
    return F.scaled_dot_product_attention(query, key, value, bias).transpose(1, 2).flatten(2)


def _launch(x: Tensor, *arguments: Any) -> Tensor:
    """Call the kernel, as a custom op under torch.compile and directly otherwise, which is faster."""
    from latentmt.nn import kernels

    run = kernels.linear_op if torch.compiler.is_compiling() else kernels.linear
    out: Tensor = run(x, *arguments)
    return out


def _is_worthwhile(x: Tensor) -> bool:
    if (
        not _CAPABLE.get((x.device.type, x.device.index))
        or torch.is_grad_enabled()
        or torch.is_autocast_enabled(x.device.type)
    ):
        return False
    return x.dtype in _DTYPES and x.shape[0] * x.shape[-2] <= MAX_TOKENS


def _fits(x: Tensor, weight: Tensor, norm: nn.LayerNorm | None = None) -> bool:
    inputs = weight.shape[1]
    if weight.dtype != x.dtype or inputs < _MIN_INPUTS:
        return False
    return norm is None or (norm.weight.dtype == x.dtype and inputs * x.element_size() <= _MAX_NORM_BYTES)
