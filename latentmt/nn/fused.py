"""A linear map with the norm before it and what comes after it, and attention: in one launch each, where that pays.

It pays on a large GPU for few tokens, when nothing is to be differentiated: a launch then takes longer than the work.
Elsewhere the same is done by torch's own operations. It knows nothing of layers.
"""

from __future__ import annotations

import importlib.util
import shutil
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

FEW = 2048
"""Tokens up to which launches are what takes time."""
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_SHARED_MEMORY = 200_000
"""Bytes that a processor of the GPU must have for itself: the kernels were made for an H200, which has 232,448."""
_ABLE: dict[tuple[str, int | None], bool] = {}
"""What is known of devices, by type and number (which a compiler understands)."""
_LEAST_INPUTS, _MOST_NORM_BYTES = 16, 4096
"""Of a linear map, and of a row that is normalised: what the kernels can hold."""


def enable_fused(device: torch.device) -> None:
    """Fuse on this device from now on, if it is a GPU that is large enough, and triton and its compiler are there."""
    key = device.type, device.index
    if key not in _ABLE:
        found = device.type == "cuda" and not torch.version.hip and importlib.util.find_spec("triton")
        properties = torch.cuda.get_device_properties(device) if found else None
        large = getattr(properties, "shared_memory_per_block_optin", 0) >= _SHARED_MEMORY
        _ABLE[key] = large and any(map(shutil.which, ("cc", "gcc", "clang")))


def linear(
    layer: nn.Linear,
    x: Float[Tensor, "r t d"],
    *,
    norm: nn.LayerNorm | None = None,
    relu: bool = False,
    dropout: nn.Dropout | None = None,
    added: Float[Tensor, "r t e"] | None = None,
) -> Float[Tensor, "r t e"]:
    """The map of x, normalised before if there is a norm; then ReLU, dropout and a sum, each if it is asked for."""
    if _pays(x) and _fits(x, layer.weight, norm) and not (dropout and dropout.training):
        scale, shift, eps = (norm.weight, norm.bias, norm.eps) if norm else (None, None, 0.0)
        return _launched(x, layer.weight, layer.bias, scale, shift, eps, relu, added, False)
    out: Tensor = layer(norm(x) if norm else x)
    out = F.relu(out) if relu else out
    out = dropout(out) if dropout else out
    return out if added is None else added + out


def readout(
    x: Float[Tensor, "*b d"], weight: Float[Tensor, "o d"], bias: Float[Tensor, " o"] | None
) -> Float[Tensor, "*b o"]:
    """A linear map computed in fp32 (or better), whatever surrounds it."""
    if bias is not None and x.dim() > 2 and _pays(x) and _fits(x, weight):
        return _launched(x, weight, bias, None, None, 0.0, False, None, True)  # products of bf16 are exact in fp32
    dtype = torch.promote_types(x.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        return F.linear(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))


def attend(
    query: Float[Tensor, "r h t e"],
    key: Float[Tensor, "r h s e"],
    value: Float[Tensor, "r h s e"],
    bias: Float[Tensor, "#r 1 #t s"],
) -> Float[Tensor, "r t h*e"]:
    """Softmax attention of every head, heads joined again."""
    if _pays(query) and query.shape[3] in (16, 32, 64, 128):
        from latentmt.nn import kernels

        run = kernels.attend_op if torch.compiler.is_compiling() else kernels.attend
        out: Tensor = run(query, key, value, bias)
        return out
    return F.scaled_dot_product_attention(query, key, value, bias).transpose(1, 2).flatten(2)


def _launched(x: Tensor, *others: Any) -> Tensor:
    """To a compiler a kernel is an operation that it does not look into; elsewhere that would only cost time."""
    from latentmt.nn import kernels

    run = kernels.linear_op if torch.compiler.is_compiling() else kernels.linear
    out: Tensor = run(x, *others)
    return out


def _pays(x: Tensor) -> bool:
    if (
        not _ABLE.get((x.device.type, x.device.index))
        or torch.is_grad_enabled()
        or torch.is_autocast_enabled(x.device.type)
    ):
        return False
    return x.dtype in _DTYPES and x.shape[0] * x.shape[-2] <= FEW


def _fits(x: Tensor, weight: Tensor, norm: nn.LayerNorm | None = None) -> bool:
    inputs = weight.shape[1]
    if weight.dtype != x.dtype or inputs < _LEAST_INPUTS:
        return False
    return norm is None or (norm.weight.dtype == x.dtype and inputs * x.element_size() <= _MOST_NORM_BYTES)
