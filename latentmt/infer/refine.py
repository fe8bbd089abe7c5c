"""A field maps a latent to a direction; refinement is one loop.

Delta inference, score and energy differ only in the field handed to `refine`. A field is bound to a source and to
a layout of targets when it is made: the keys and values of the source are projected once, for all steps. Nothing
here knows where a latent starts, how long a target is, or which of several candidates is kept; and nothing is
differentiated through.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentmt.data.tokenizer import PAD
from latentmt.data.tokens import Layout, Tokens
from latentmt.models.fields import EnergyNet, ScoreNet
from latentmt.models.latent import LatentModel
from latentmt.nn.attention import EncoderOutput, Memory

Field = Callable[[Float[Tensor, "r t D"]], Float[Tensor, "r t D"]]
"""z ↦ the direction in which to move it, zero where a row is empty."""

OnStep = Callable[[int, Float[Tensor, "r t D"]], None]
"""Is shown the number of each step, from 1, and the latent after it."""

ADAPTIVE_STEPS = 6
"""How many steps to allow where sentences may stop by themselves."""


@dataclass(frozen=True)
class Stop:
    """When a sentence has converged: its step is shorter than `ratio` times its first one."""

    layout: Layout
    """Which tokens make a sentence."""
    ratio: float = 1 / 16


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

    With a `stop`, each sentence makes the step that shows that it has converged and then stays where it is, bit
    for bit; `steps` is the most there are. Only then does the loop wait for the device.
    """
    z = z.to(torch.promote_types(z.dtype, torch.float32))
    moving = _Moving(stop) if stop else None
    for step in range(1, steps + 1):
        move = step_size * field(z)
        z = z + move if moving is None else moving.apply(z, move)
        if on_step is not None:
            on_step(step, z)
        if moving is not None and not moving.going():
            break
    return z


def delta_field(model: LatentModel, source: EncoderOutput, layout: Layout, decoder: Memory | None = None) -> Field:
    """Delta inference as a field: the posterior's mean at the most likely target, less z.

    A step of size 1 lands on that mean. Source: `model.encode(…)`; as in every field, a layout with n times as
    many rows has n candidates for each row of the source, beside each other. Whoever has the decoder's memory of
    the source hands it over.
    """
    with torch.no_grad():
        decoder = decoder or model.decoder_stack.project_kv(source)
        posterior = model.posterior_stack.project_kv(source)

    @torch.no_grad()
    def field(z: Float[Tensor, "r t D"]) -> Float[Tensor, "r t D"]:
        target = decode_tokens(model, z, layout, decoder)
        return (model.posterior(target, posterior).mean - z).masked_fill(~layout.real[..., None], 0.0)

    return field


def net_field(net: ScoreNet | EnergyNet, source: EncoderOutput, layout: Layout) -> Field:
    """A learned field. Source: the latent model's `encode(…)`."""
    with torch.no_grad():
        if isinstance(net, ScoreNet):
            memory = net.stack.project_kv(source)
            return torch.no_grad()(lambda z: net(z, layout, memory))
    return _energy_field(net, source, layout)


def _energy_field(net: EnergyNet, source: EncoderOutput, layout: Layout) -> Field:
    """An energy is differentiated inside, and autograd refuses tensors made in inference mode."""
    with _outside_inference_mode(), torch.no_grad():
        memory = net.stack.project_kv(source)

    def field(z: Float[Tensor, "r t D"]) -> Float[Tensor, "r t D"]:
        with _outside_inference_mode(), torch.no_grad():
            direction: Tensor = net(z.clone() if z.is_inference() else z, layout, memory)
        return direction

    return field


@torch.no_grad()
def decode_tokens(model: LatentModel, z: Float[Tensor, "r t D"], layout: Layout, memory: Memory) -> Tokens:
    """argmax p(y|z,x), PAD where a row is empty. Memory: `decoder_stack.project_kv(source)`."""
    best = model.best(model.decode(z, layout, memory))
    return Tokens(best.masked_fill(~layout.real, PAD), layout)


def _outside_inference_mode() -> AbstractContextManager[object]:
    """Leaving that mode also switches gradients on; `no_grad` has to follow, or the energy keeps its graph."""
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()


class _Moving:
    """Which tokens belong to a sentence that has not converged."""

    def __init__(self, stop: Stop) -> None:
        segment = stop.layout.segment
        self._ratio = stop.ratio
        self._together: Bool[Tensor, "r t t"] = segment[:, :, None] == segment[:, None, :]
        self._tokens: Bool[Tensor, "r t"] = stop.layout.real
        self._short: Float[Tensor, "r t"] | None = None

    def going(self) -> bool:
        return bool(self._tokens.any())

    def apply(self, z: Float[Tensor, "r t D"], move: Float[Tensor, "r t D"]) -> Float[Tensor, "r t D"]:
        """Move what still moves, and see what has converged."""
        squares = move.square().sum(-1)
        length = torch.where(self._together, squares[:, None, :], 0.0).sum(2).sqrt()
        if self._short is None:
            self._short = self._ratio * length
        z = torch.where(self._tokens[..., None], z + move, z)
        self._tokens = self._tokens & (length > self._short)
        return z
