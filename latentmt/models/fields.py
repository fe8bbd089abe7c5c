"""Learned fields over the latent: a network that maps z to the direction in which it should move.

Both kinds are called alike, `net(z, layout, memory)`, with `memory = net.stack.project_kv(source)` of the
*latent model's* encoder states. They know nothing of how they are trained or of how far a step goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentmt.data.tokens import Layout
from latentmt.models.latent import LatentConfig, LatentInput
from latentmt.models.presets import Sized
from latentmt.nn.attention import Memory, segment_sizes
from latentmt.nn.transformer import DecoderStack, Readout


@dataclass(frozen=True, kw_only=True)
class FieldConfig(Sized):
    """A field's kind and size; its encoder is the latent model's."""

    sizes: ClassVar = LatentConfig.sizes

    kind: Literal["score", "energy"]
    """`score` predicts the direction itself; `energy` a scalar whose downhill direction it is."""
    positions: bool = True
    """Whether the field is told the place of each token."""


class FieldNet(nn.Module):
    """What both kinds share: z in, hidden states out."""

    def __init__(self, config: FieldConfig, latent: LatentConfig) -> None:
        super().__init__()
        size = config.size
        self.latent_input = LatentInput(latent.latent_dim, size.d_model, config.positions)
        self.stack = DecoderStack(size.stack, source_width=latent.size.d_model)

    def hidden(
        self, z: Float[Tensor, "r t D"], layout: Layout, memory: Memory, create_graph: bool = False
    ) -> Float[Tensor, "r t d"]:
        """The states the direction is read off; `create_graph` if they are to be differentiated twice."""
        states: Tensor = self.stack(self.latent_input(z, layout), layout.segment, memory, create_graph)
        return states


class ScoreNet(FieldNet):
    """S(z;x): the direction, read off directly. It starts as the field that moves nothing."""

    def __init__(self, config: FieldConfig, latent: LatentConfig) -> None:
        super().__init__(config, latent)
        self.head = Readout(config.size.d_model, latent.latent_dim)
        nn.init.zeros_(self.head.weight)

    def forward(self, z: Float[Tensor, "r t D"], layout: Layout, memory: Memory) -> Float[Tensor, "r t D"]:
        direction: Tensor = self.head(self.hidden(z, layout, memory))
        return direction * layout.real[..., None]


class EnergyNet(FieldNet):
    """E(z;x): one number a sentence. Its field is −∇E.

    The head has no bias: an energy is known up to a constant, and a constant has no gradient to learn from.
    For the same reason the bias of the stack's last norm gets no gradient (None, not zero).
    """

    def __init__(self, config: FieldConfig, latent: LatentConfig) -> None:
        super().__init__(config, latent)
        self.head = Readout(config.size.d_model, 1, bias=False)

    def energy(
        self, z: Float[Tensor, "r t D"], layout: Layout, memory: Memory, create_graph: bool = False
    ) -> Float[Tensor, " r"]:
        """The energies of a row's sentences, added up; each is linear in the mean of its tokens' states."""
        heights: Tensor = self.head(self.hidden(z, layout, memory, create_graph))[..., 0]
        return (heights * layout.real / segment_sizes(layout.segment)).sum(1)

    def forward(self, z: Float[Tensor, "r t D"], layout: Layout, memory: Memory) -> Float[Tensor, "r t D"]:
        """−∇E at z, taken as a constant. Can be differentiated again where gradients are enabled."""
        create_graph = torch.is_grad_enabled()
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            total = self.energy(z, layout, memory, create_graph).sum()
            (slope,) = torch.autograd.grad(total, z, create_graph=create_graph)
        return -slope


def make_field(config: FieldConfig, latent: LatentConfig) -> ScoreNet | EnergyNet:
    """The network of a configuration, for a latent model of the given configuration."""
    return ScoreNet(config, latent) if config.kind == "score" else EnergyNet(config, latent)
