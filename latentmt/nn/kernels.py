"""Triton kernels for small inputs: a linear layer fused with its norm, activation and residual, and short attention.

A sentence is a few dozen tokens. For those no matrix product of a small model takes longer than its launch, so the
number of launches counts. Every consumer of a layer norm computes it again. Bias, ReLU and residual are applied to the
product in registers. Sums are in fp32. torch installs triton with its NVIDIA builds. `fused` decides when to use them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _wait_for_previous():
    """Wait for the output of the previous kernel, then let the next kernel start (programmatic dependent launch)."""
    tl.extra.cuda.gdc_wait()
    tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def _linear(
    x, weight, bias, norm_weight, norm_bias, residual, out,
    rows, inputs, outputs, eps,
    NORM: tl.constexpr, RELU: tl.constexpr, RESIDUAL: tl.constexpr, OVERLAP: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, SINGLE_BLOCK: tl.constexpr,
):  # fmt: skip
    """A tile of rows × outputs. SINGLE_BLOCK: INPUTS covers all inputs, as a norm needs. Otherwise it is a block size.

    OVERLAP: start before the previous kernel has ended, and load the weights of a single block meanwhile.
    """
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    row_mask, output_mask = row[:, None] < rows, output[None, :] < outputs
    shift = tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)
    if SINGLE_BLOCK:
        column = tl.arange(0, INPUTS)
        exists = column < inputs
        w = tl.load(weight + output[None, :] * inputs + column[:, None], mask=output_mask & exists[:, None], other=0.0)
        if NORM:
            norm_scale = tl.load(norm_weight + column, mask=exists, other=0.0).to(tl.float32)
            norm_shift = tl.load(norm_bias + column, mask=exists, other=0.0).to(tl.float32)
        if OVERLAP:
            _wait_for_previous()
        a = tl.load(x + row[:, None] * inputs + column[None, :], mask=row_mask & exists[None, :], other=0.0)
        if NORM:
            values = a.to(tl.float32)
            centred = tl.where(exists[None, :], values - (tl.sum(values, 1) / inputs)[:, None], 0.0)
            scale = tl.rsqrt(tl.sum(centred * centred, 1) / inputs + eps)
            a = (centred * scale[:, None] * norm_scale[None, :] + norm_shift[None, :]).to(x.dtype.element_ty)
        total = tl.dot(a, w, input_precision="ieee")
    else:
        if OVERLAP:
            _wait_for_previous()
        total = tl.zeros((ROWS, OUTPUTS), dtype=tl.float32)
        for first in range(0, inputs, INPUTS):
            column = first + tl.arange(0, INPUTS)
            exists = column < inputs
            w = tl.load(
                weight + output[None, :] * inputs + column[:, None], mask=output_mask & exists[:, None], other=0.0
            )
            a = tl.load(x + row[:, None] * inputs + column[None, :], mask=row_mask & exists[None, :], other=0.0)
            total = tl.dot(a, w, total, input_precision="ieee")
    total += shift[None, :]
    index = row[:, None] * outputs + output[None, :]
    if RELU:
        total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if RESIDUAL:
        # Rounded first, as a separate addition would be.
        total = total.to(out.dtype.element_ty).to(tl.float32)
        total += tl.load(residual + index, mask=row_mask & output_mask, other=0.0).to(tl.float32)
    tl.store(out + index, total.to(out.dtype.element_ty), mask=row_mask & output_mask)


@triton.jit
def _attention(
    query, key, value, bias, out,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token, b_row, b_token,
    heads, queries, keys, scale,
    WIDTH: tl.constexpr, OVERLAP: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """A block of queries of one head of one row, over all keys (online softmax)."""
    row, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    index, entry = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    query_mask = index[:, None] < queries
    if OVERLAP:
        _wait_for_previous()
    q = tl.load(
        query + row * q_row + head * q_head + index[:, None] * q_token + entry[None, :], mask=query_mask, other=0.0
    )
    running_max = tl.full((QUERIES,), -float("inf"), dtype=tl.float32)
    weights = tl.zeros((QUERIES,), dtype=tl.float32)
    accumulator = tl.zeros((QUERIES, WIDTH), dtype=tl.float32)
    for first in range(0, keys, KEYS):
        token = first + tl.arange(0, KEYS)
        exists = token < keys
        k = tl.load(
            key + row * k_row + head * k_head + token[None, :] * k_token + entry[:, None],
            mask=exists[None, :], other=0.0,
        )  # fmt: skip
        v = tl.load(
            value + row * v_row + head * v_head + token[:, None] * v_token + entry[None, :],
            mask=exists[:, None], other=0.0,
        )  # fmt: skip
        b = tl.load(
            bias + row * b_row + index[:, None] * b_token + token[None, :], mask=query_mask & exists[None, :], other=0.0
        )
        score = tl.dot(q, k, input_precision="ieee") * scale + b.to(tl.float32)
        score = tl.where(exists[None, :], score, -float("inf"))
        new_max = tl.maximum(running_max, tl.max(score, 1))
        rescale, weight = tl.exp(running_max - new_max), tl.exp(score - new_max[:, None])
        weights = weights * rescale + tl.sum(weight, 1)
        accumulator = tl.dot(
            weight.to(value.dtype.element_ty), v, accumulator * rescale[:, None], input_precision="ieee"
        )
        running_max = new_max
    accumulator = accumulator / weights[:, None]
    target = out + ((row * queries + index[:, None]) * heads + head) * WIDTH + entry[None, :]
    tl.store(target, accumulator.to(out.dtype.element_ty), mask=query_mask)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    eps: float,
    relu: bool,
    residual: Tensor | None,
    fp32_out: bool,
) -> Tensor:
    """residual + relu(linear(norm(x))). Norm, ReLU and residual are optional.

    `fp32_out`: return the fp32 sum without rounding.
    """
    outputs, inputs = weight.shape
    rows, norm = x.numel() // inputs, norm_weight is not None
    out = torch.empty((*x.shape[:-1], outputs), dtype=torch.float32 if fp32_out else x.dtype, device=x.device)
    residual = None if residual is None else residual.contiguous()
    tile = _tile(rows, inputs, outputs, norm, x.element_size())
    grid = triton.cdiv(outputs, tile.outputs), triton.cdiv(rows, tile.rows)
    with on_device(x.device):
        _linear[grid](
            x.contiguous(), weight, bias, norm_weight, norm_bias, residual, out,
            rows, inputs, outputs, eps,
            NORM=norm, RELU=relu, RESIDUAL=residual is not None,
            ROWS=tile.rows, OUTPUTS=tile.outputs, INPUTS=tile.inputs, SINGLE_BLOCK=tile.inputs >= inputs,
            num_warps=tile.warps, num_stages=tile.stages, **_launch(x.device),
        )  # fmt: skip
    return out


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    """Softmax attention of every head, with heads concatenated."""
    rows, heads, queries, width = query.shape
    bias = bias.expand(rows, 1, queries, key.shape[2])
    assert all(tensor.stride(-1) == 1 for tensor in (query, key, value, bias)), "the last dimension is contiguous"
    out = torch.empty((rows, queries, heads * width), dtype=query.dtype, device=query.device)
    with on_device(query.device):
        _attention[(triton.cdiv(queries, 16), rows * heads)](
            query, key, value, bias, out,
            *query.stride()[:3], *key.stride()[:3], *value.stride()[:3], bias.stride(0), bias.stride(2),
            heads, queries, key.shape[2], width**-0.5,
            WIDTH=width, QUERIES=16, KEYS=64,
            num_warps=4, **_launch(query.device),
        )  # fmt: skip
    return out


class _Tile(NamedTuple):
    """The tile size and launch parameters of a matrix product."""

    rows: int
    outputs: int
    inputs: int
    """Per iteration."""
    warps: int
    stages: int
    """Stages of the software pipeline."""


def _tile(rows: int, inputs: int, outputs: int, norm: bool, size: int) -> _Tile:
    """Tuned on an H200: small tiles while there are more processors than tiles, limited by shared memory."""
    padded = triton.next_power_of_2(inputs)
    if rows <= 128 and size * padded <= 4096:
        return _Tile(16, 64, padded, 8, 1) if outputs >= 512 and size * padded <= 2048 else _Tile(16, 32, padded, 4, 1)
    if size * padded <= 1024:
        return _Tile(32 if rows <= 512 else 64, 128, padded, 8, 1) if norm else _Tile(32, 64, padded, 4, 1)
    return _Tile(16, 32, padded, 4, 1) if norm else _Tile(64, 64, 128, 4, 3)


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Make the device current: triton launches on the current GPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@lru_cache
def _launch(device: torch.device) -> dict[str, bool]:
    """Launch options. Programmatic dependent launch needs Hopper or newer."""
    if device.type != "cuda":
        return {"OVERLAP": False}
    overlap = torch.cuda.get_device_capability(device) >= (9, 0)
    return {"OVERLAP": overlap, "enable_fp_fusion": True} | ({"launch_pdl": True} if overlap else {})


# Custom ops for torch.compile, which needs the shape of their output.
linear_op = torch.library.custom_op(
    "latentmt::linear",
    linear,
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor bias, Tensor? norm_weight, Tensor? norm_bias, float eps, bool relu, "
    "Tensor? residual, bool fp32_out) -> Tensor",
)
attend_op = torch.library.custom_op(
    "latentmt::attend",
    attend,
    mutates_args=(),
    schema="(Tensor query, Tensor key, Tensor value, Tensor bias) -> Tensor",
)


@linear_op.register_fake
def _(x: Tensor, weight: Tensor, *arguments: Any) -> Tensor:
    *_, fp32_out = arguments
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=torch.float32 if fp32_out else x.dtype)


@attend_op.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    rows, heads, queries, width = query.shape
    return query.new_empty((rows, queries, heads * width))
