"""The energy: a network that predicts one number per sentence. Its field is −∇E (the paper's E(z;x))."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentmt.data.tokens import Layout
from latentmt.fields.base import Context, Field, Style
from latentmt.fields.learned import FieldConfig, FieldNetwork, LearnedField
from latentmt.models.latent import LatentConfig
from latentmt.nn.attention import Memory, segment_sizes
from latentmt.nn.transformer import Readout


class EnergyNetwork(FieldNetwork):
    """E(z;x): one number per sentence. Its field is −∇E.

    The head has no bias: an energy is known up to a constant, and a constant has no gradient to learn from.
    For the same reason the bias of the stack's last norm gets no gradient (None, not zero).
    """

    def __init__(self, config: FieldConfig, latent: LatentConfig) -> None:
        super().__init__(config, latent)
        self.head = Readout(config.size.d_model, 1, bias=False)

    def energy(
        self, z: Float[Tensor, "r t D"], layout: Layout, memory: Memory, create_graph: bool = False
    ) -> Float[Tensor, " r"]:
        """The sum of the energies of a row's sentences. Each is linear in the mean of its tokens' states."""
        token_energy: Tensor = self.head(self.hidden(z, layout, memory, create_graph))[..., 0]
        return (token_energy * layout.real / segment_sizes(layout.segment)).sum(1)

    def forward(self, z: Float[Tensor, "r t D"], layout: Layout, memory: Memory) -> Float[Tensor, "r t D"]:
        """−∇E at z, which is detached. It can be differentiated again if gradients are enabled."""
        create_graph = torch.is_grad_enabled()
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            total = self.energy(z, layout, memory, create_graph).sum()
            (gradient,) = torch.autograd.grad(total, z, create_graph=create_graph)
        return -gradient


class Energy(LearnedField):
    """The field of an energy network. It differentiates inside, so it is not compiled."""

    name = "energy"
    style = Style("energy", "#D55E00", "^")
    hint = "downhill on a learned energy"
    compiles = False
    network = EnergyNetwork

    def bind(self, context: Context, network: nn.Module | None = None) -> Field:
        """Leaves inference mode while the field is computed, because autograd refuses inference tensors."""
        net = cast(EnergyNetwork, network)
        with _outside_inference_mode(), torch.no_grad():
            memory = net.stack.project_kv(context.source)

        def field(z: Float[Tensor, "r t D"]) -> Float[Tensor, "r t D"]:
            with _outside_inference_mode(), torch.no_grad():
                direction: Tensor = net(z.clone() if z.is_inference() else z, context.layout, memory)
            return direction

        return field


def _outside_inference_mode() -> AbstractContextManager[object]:
    """Leaving inference mode enables gradients. `no_grad` must follow, or the energy keeps its graph."""
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
