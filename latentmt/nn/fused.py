"""A linear map with the norm before it and what comes after it, and attention: in one launch each, where that pays.

It pays on a GPU for few tokens, when nothing is to be differentiated: a launch then takes longer than the work.
Elsewhere the same is done by torch's own operations. It knows nothing of layers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

FEW = 2048
"""Tokens up to which launches are what takes time."""
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


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
    if _pays(x) and not (dropout and dropout.training):
        from latentmt.nn import kernels

        run = kernels.linear_op if torch.compiler.is_compiling() else kernels.linear
        scale, shift = (norm.weight, norm.bias) if norm else (None, None)
        out: Tensor = run(x, layer.weight, layer.bias, scale, shift, norm.eps if norm else 0.0, relu, added, False)
        return out
    out = layer(norm(x) if norm else x)
    out = F.relu(out) if relu else out
    out = dropout(out) if dropout else out
    return out if added is None else added + out


def readout(
    x: Float[Tensor, "*b d"], weight: Float[Tensor, "o d"], bias: Float[Tensor, " o"] | None
) -> Float[Tensor, "*b o"]:
    """A linear map computed in fp32 (or better), whatever surrounds it."""
    if bias is not None and x.dim() > 2 and _pays(x):
        from latentmt.nn import kernels

        run = kernels.linear_op if torch.compiler.is_compiling() else kernels.linear
        out: Tensor = run(x, weight, bias, None, None, 0.0, False, None, True)  # products of bf16 are exact in fp32
        return out
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

        out: Tensor = (kernels.attend_op if torch.compiler.is_compiling() else kernels.attend)(query, key, value, bias)
        return out
    return F.scaled_dot_product_attention(query, key, value, bias).transpose(1, 2).flatten(2)


def _pays(x: Tensor) -> bool:
    if not x.is_cuda or torch.is_grad_enabled() or torch.is_autocast_enabled("cuda"):
        return False
    return x.dtype in _DTYPES and x.shape[0] * x.shape[-2] <= FEW
