"""The score: a network that predicts the direction itself, in one pass (the paper's S(z;x))."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from latentmt.data.tokens import Layout
from latentmt.fields.base import Style
from latentmt.fields.learned import FieldConfig, FieldNetwork, LearnedField
from latentmt.models.latent import LatentConfig
from latentmt.nn.attention import Memory
from latentmt.nn.transformer import Readout


class ScoreNetwork(FieldNetwork):
    """S(z;x): the direction, a linear map of the states. Initially it is zero."""

    def __init__(self, config: FieldConfig, latent: LatentConfig) -> None:
        super().__init__(config, latent)
        self.head = Readout(config.size.d_model, latent.latent_dim)
        nn.init.zeros_(self.head.weight)

    def forward(self, z: Float[Tensor, "r t D"], layout: Layout, memory: Memory) -> Float[Tensor, "r t D"]:
        direction: Tensor = self.head(self.hidden(z, layout, memory))
        return direction * layout.real[..., None]


class Score(LearnedField):
    """The field of a score network."""

    name = "score"
    style = Style("score", "#009E73", "o")
    hint = "a learned direction, no word decoded"
    network = ScoreNetwork
    exports = True

    def export(self, network: FieldNetwork, graph: Any, z: str, states: str) -> str:
        direction: str = graph.linear(network.head, states)
        return direction
