"""Kernels for a GPU that has little to do: a linear map in one launch with what surrounds it, and short attention.

A sentence is a few dozen tokens, and no matrix product of a small model takes longer for those than its launch; so what
counts is how many launches there are. A layer normalisation is computed by everyone who reads its result; a bias, a
ReLU and a sum where the product is at hand. Sums are taken in fp32. Needs triton, which torch brings along for NVIDIA
GPUs; `fused` decides who comes here.
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
def _in_turn():
    """Wait until what the kernel in front writes is there; from then on the next one may begin."""
    tl.extra.cuda.gdc_wait()
    tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def _linear(
    x, weight, bias, norm_weight, norm_bias, added, out,
    rows, inputs, outputs, eps,
    NORM: tl.constexpr, RELU: tl.constexpr, ADD: tl.constexpr, EARLY: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """A tile of rows × outputs. AT_ONCE: INPUTS covers all inputs, which a norm needs; else it is a part of them.

    What is EARLY begins before the kernel in front of it has ended, and loads what that one has no part in: weights, as
    far as they are needed AT_ONCE.
    """
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    here, there = row[:, None] < rows, output[None, :] < outputs
    shift = tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)
    if AT_ONCE:
        column = tl.arange(0, INPUTS)
        exists = column < inputs
        w = tl.load(weight + output[None, :] * inputs + column[:, None], mask=there & exists[:, None], other=0.0)
        if NORM:
            norm_scale = tl.load(norm_weight + column, mask=exists, other=0.0).to(tl.float32)
            norm_shift = tl.load(norm_bias + column, mask=exists, other=0.0).to(tl.float32)
        if EARLY:
            _in_turn()
        a = tl.load(x + row[:, None] * inputs + column[None, :], mask=here & exists[None, :], other=0.0)
        if NORM:
            values = a.to(tl.float32)
            centred = tl.where(exists[None, :], values - (tl.sum(values, 1) / inputs)[:, None], 0.0)
            scale = tl.rsqrt(tl.sum(centred * centred, 1) / inputs + eps)
            a = (centred * scale[:, None] * norm_scale[None, :] + norm_shift[None, :]).to(x.dtype.element_ty)
        total = tl.dot(a, w, input_precision="ieee")
    else:
        if EARLY:
            _in_turn()
        total = tl.zeros((ROWS, OUTPUTS), dtype=tl.float32)
        for first in range(0, inputs, INPUTS):
            column = first + tl.arange(0, INPUTS)
            exists = column < inputs
            w = tl.load(weight + output[None, :] * inputs + column[:, None], mask=there & exists[:, None], other=0.0)
            a = tl.load(x + row[:, None] * inputs + column[None, :], mask=here & exists[None, :], other=0.0)
            total = tl.dot(a, w, total, input_precision="ieee")
    total += shift[None, :]
    place = row[:, None] * outputs + output[None, :]
    if RELU:
        total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)
    if ADD:
        # Rounded first, as it would be if it were added by somebody else.
        total = total.to(out.dtype.element_ty).to(tl.float32)
        total += tl.load(added + place, mask=here & there, other=0.0).to(tl.float32)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=here & there)


@triton.jit
def _attention(
    query, key, value, bias, out,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token, b_row, b_token,
    heads, queries, keys, scale,
    WIDTH: tl.constexpr, EARLY: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Some queries of one head of one row, over all keys."""
    row, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    place, entry = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    asked = place[:, None] < queries
    if EARLY:
        _in_turn()
    q = tl.load(query + row * q_row + head * q_head + place[:, None] * q_token + entry[None, :], mask=asked, other=0.0)
    highest = tl.full((QUERIES,), -float("inf"), dtype=tl.float32)
    weights = tl.zeros((QUERIES,), dtype=tl.float32)
    mixed = tl.zeros((QUERIES, WIDTH), dtype=tl.float32)
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
            bias + row * b_row + place[:, None] * b_token + token[None, :], mask=asked & exists[None, :], other=0.0
        )
        score = tl.dot(q, k, input_precision="ieee") * scale + b.to(tl.float32)
        score = tl.where(exists[None, :], score, -float("inf"))
        top = tl.maximum(highest, tl.max(score, 1))
        fading, weight = tl.exp(highest - top), tl.exp(score - top[:, None])
        weights = weights * fading + tl.sum(weight, 1)
        mixed = tl.dot(weight.to(value.dtype.element_ty), v, mixed * fading[:, None], input_precision="ieee")
        highest = top
    mixed = mixed / weights[:, None]
    target = out + ((row * queries + place[:, None]) * heads + head) * WIDTH + entry[None, :]
    tl.store(target, mixed.to(out.dtype.element_ty), mask=asked)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm_weight: Tensor | None,
    norm_bias: Tensor | None,
    eps: float,
    relu: bool,
    added: Tensor | None,
    wide: bool,
) -> Tensor:
    """linear(norm(x)), ReLU or not, plus what is added; without a norm if there is no weight for it.

    `wide`: the result is fp32, as it was summed up.
    """
    outputs, inputs = weight.shape
    rows, norm = x.numel() // inputs, norm_weight is not None
    out = torch.empty((*x.shape[:-1], outputs), dtype=torch.float32 if wide else x.dtype, device=x.device)
    tile = _tile(rows, inputs, outputs, norm, x.element_size())
    grid = triton.cdiv(outputs, tile.outputs), triton.cdiv(rows, tile.rows)
    with _on(x.device):
        _linear[grid](
            x.contiguous(), weight, bias, norm_weight, norm_bias, None if added is None else added.contiguous(), out,
            rows, inputs, outputs, eps,
            NORM=norm, RELU=relu, ADD=added is not None,
            ROWS=tile.rows, OUTPUTS=tile.outputs, INPUTS=tile.inputs, AT_ONCE=tile.inputs >= inputs,
            num_warps=tile.warps, num_stages=tile.stages, **_launch(x.device),
        )  # fmt: skip
    return out


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    """Softmax attention of every head, heads joined again."""
    rows, heads, queries, width = query.shape
    bias = bias.expand(rows, 1, queries, key.shape[2])
    assert all(tensor.stride(-1) == 1 for tensor in (query, key, value, bias)), "entries lie beside each other"
    out = torch.empty((rows, queries, heads * width), dtype=query.dtype, device=query.device)
    with _on(query.device):
        _attention[(triton.cdiv(queries, 16), rows * heads)](
            query, key, value, bias, out,
            *query.stride()[:3], *key.stride()[:3], *value.stride()[:3], bias.stride(0), bias.stride(2),
            heads, queries, key.shape[2], width**-0.5,
            WIDTH=width, QUERIES=16, KEYS=64,
            num_warps=4, **_launch(query.device),
        )  # fmt: skip
    return out


class _Tile(NamedTuple):
    """The part of a matrix product that a processor does, and how."""

    rows: int
    outputs: int
    inputs: int
    """At a time."""
    warps: int
    stages: int
    """How many parts are on their way from memory at once."""


def _tile(rows: int, inputs: int, outputs: int, norm: bool, size: int) -> _Tile:
    """As measured on an H200: small tiles while there are more processors than tiles, and what fits into one."""
    every = triton.next_power_of_2(inputs)
    if rows <= 128 and size * every <= 4096:
        return _Tile(16, 64, every, 8, 1) if outputs >= 512 and size * every <= 2048 else _Tile(16, 32, every, 4, 1)
    if size * every <= 1024:
        return _Tile(32 if rows <= 512 else 64, 128, every, 8, 1) if norm else _Tile(32, 64, every, 4, 1)
    return _Tile(16, 32, every, 4, 1) if norm else _Tile(64, 64, 128, 4, 3)


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Triton launches on the current GPU, whatever it is given."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@lru_cache
def _launch(device: torch.device) -> dict[str, bool]:
    """How kernels are launched: early, which an NVIDIA GPU knows how to from Hopper on."""
    if device.type != "cuda":
        return {"EARLY": False}
    early = torch.cuda.get_device_capability(device) >= (9, 0)
    return {"EARLY": early, "enable_fp_fusion": True} | ({"launch_pdl": True} if early else {})


# To a compiler they are single operations: what it needs to know is what comes out.
linear_op = torch.library.custom_op(
    "latentmt::linear",
    linear,
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor bias, Tensor? norm_weight, Tensor? norm_bias, float eps, bool relu, "
    "Tensor? added, bool wide) -> Tensor",
)
attend_op = torch.library.custom_op(
    "latentmt::attend",
    attend,
    mutates_args=(),
    schema="(Tensor query, Tensor key, Tensor value, Tensor bias) -> Tensor",
)


@linear_op.register_fake
def _(x: Tensor, weight: Tensor, *others: Any) -> Tensor:
    *_, wide = others
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=torch.float32 if wide else x.dtype)


@attend_op.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
    rows, heads, queries, width = query.shape
    return query.new_empty((rows, queries, heads * width))
