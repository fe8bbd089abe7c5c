"""The forward recursion of CTC's lattice as one Triton kernel: a program for each row walks through its places.

Compiled by torch, the same loop is thousands of operations. What the states mean is in `lattice`, which decides when to
use this.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _arrivals(
    emission, starts, enter, skip, out, places, states, never,
    BEST: tl.constexpr, STATES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    state = tl.arange(0, STATES)
    exists = state < states
    entering = tl.load(enter + row * states + state, mask=exists, other=never)
    skipping = tl.load(skip + row * states + state, mask=exists, other=never)
    reached = tl.zeros([STATES], tl.float32) + never
    for place in range(places):
        at = (row.to(tl.int64) * places + place) * states + state
        label = tl.load(emission + at, mask=exists, other=never)
        stepped = tl.where(state >= 1, tl.gather(reached, tl.maximum(state - 1, 0), 0), never)
        skipped = tl.where(state >= 2, tl.gather(reached, tl.maximum(state - 2, 0), 0), never) + skipping
        arrival = tl.maximum(tl.maximum(reached, stepped), skipped)
        if not BEST:  # log Σ exp, of numbers that are all finite
            arrival += tl.log(tl.exp(reached - arrival) + tl.exp(stepped - arrival) + tl.exp(skipped - arrival))
        arrival = tl.where(tl.load(starts + row * places + place) != 0, entering, arrival)
        tl.store(out + at, arrival, mask=exists)
        reached = arrival + label


def arrivals(emission: Tensor, starts: Tensor, enter: Tensor, skip: Tensor, best: bool, never: float) -> Tensor:
    """`lattice._arrivals` in single precision."""
    rows, places, states = emission.shape
    out = torch.empty_like(emission, memory_format=torch.contiguous_format)
    tensors = [tensor.contiguous() for tensor in (emission, starts.to(torch.int8), enter, skip)]
    size = triton.next_power_of_2(states)
    _arrivals[(rows,)](*tensors, out, places, states, never, BEST=best, STATES=size, num_warps=1 if size <= 256 else 4)
    return out


arrivals_op = torch.library.custom_op(
    "latentmt::arrivals",
    arrivals,
    mutates_args=(),
    schema="(Tensor emission, Tensor starts, Tensor enter, Tensor skip, bool best, float never) -> Tensor",
)
"""For torch.compile, which needs the shape of the output."""


@arrivals_op.register_fake
def _(emission: Tensor, starts: Tensor, enter: Tensor, skip: Tensor, best: bool, never: float) -> Tensor:
    return torch.empty_like(emission, memory_format=torch.contiguous_format)
