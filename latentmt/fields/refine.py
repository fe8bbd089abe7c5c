"""Refinement: the loop that moves a latent along a field.

It is independent of where a latent starts, of target lengths and of reranking. Nothing is differentiated through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentmt.data.tokens import Layout
from latentmt.fields.base import Field
from latentmt.options import STOP_RATIO

OnStep = Callable[[int, Float[Tensor, "r t D"]], None]
"""Called with the number of each step, from 1, and the latent after it."""


@dataclass(frozen=True)
class Stop:
    """When a sentence has converged: its step is shorter than `ratio` times its first one."""

    layout: Layout
    """The sentences of each row."""
    ratio: float = STOP_RATIO


@torch.no_grad()
def refine(
    z: Float[Tensor, "r t D"],
    field: Field,
    steps: int,
    step_size: float = 1.0,
    stop: Stop | None = None,
    on_step: OnStep | None = None,
) -> Float[Tensor, "r t D"]:
    """z ← z + α · field(z), `steps` times, in fp32 or better (the paper's Algorithm 1).

    With a `stop`, each sentence takes the step that shows its convergence and then stays unchanged, bit for bit.
    `steps` is then the maximum. Only with a `stop` does the loop synchronise with the device.
    """
    z = z.to(torch.promote_types(z.dtype, torch.float32))
    moving = _Moving(stop) if stop else None
    for step in range(1, steps + 1):
        move = step_size * field(z)
        z = z + move if moving is None else moving.apply(z, move)
        if on_step is not None:
            on_step(step, z)
        if moving is not None and not moving.any():
            break
    return z


class _Moving:
    """The tokens of sentences that have not converged."""

    def __init__(self, stop: Stop) -> None:
        segment = stop.layout.segment
        self._ratio = stop.ratio
        self._same_sentence: Bool[Tensor, "r t t"] = segment[:, :, None] == segment[:, None, :]
        self._tokens: Bool[Tensor, "r t"] = stop.layout.real
        self._threshold: Float[Tensor, "r t"] | None = None

    def any(self) -> bool:
        return bool(self._tokens.any())

    def apply(self, z: Float[Tensor, "r t D"], move: Float[Tensor, "r t D"]) -> Float[Tensor, "r t D"]:
        """Move the tokens that still move, and mark those whose sentence has converged."""
        squares = move.square().sum(-1)
        length = torch.where(self._same_sentence, squares[:, None, :], 0.0).sum(2).sqrt()
        if self._threshold is None:
            self._threshold = self._ratio * length
        z = torch.where(self._tokens[..., None], z + move, z)
        self._tokens = self._tokens & (length > self._threshold)
        return z
