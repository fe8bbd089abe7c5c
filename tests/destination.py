"""A field of one's own: its network predicts where delta inference ends, instead of how far away that is."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from latentmt.data.tokens import Layout
from latentmt.fields.base import Style
from latentmt.fields.learned import FieldConfig, FieldNetwork, LearnedField
from latentmt.fields.registry import register_field
from latentmt.models.latent import LatentConfig
from latentmt.nn.attention import Memory
from latentmt.nn.transformer import Readout


class DestinationNetwork(FieldNetwork):
    """Predicts where delta inference ends, not how far away that is."""

    def __init__(self, config: FieldConfig, latent: LatentConfig) -> None:
        super().__init__(config, latent)
        self.head = Readout(config.size.d_model, latent.latent_dim)

    def forward(self, z: Float[Tensor, "r t D"], layout: Layout, memory: Memory) -> Float[Tensor, "r t D"]:
        destination = self.head(self.hidden(z, layout, memory))
        return (destination - z) * layout.real[..., None]


@register_field
class Destination(LearnedField):
    """z ← the predicted destination."""

    name = "destination"
    style = Style("destination", "#CC79A7", "P")
    network = DestinationNetwork
    exports = True

    def export(self, network: FieldNetwork, graph: Any, z: str, states: str) -> str:
        """The same for engines without torch."""
        return graph.op("Sub", graph.linear(network.head, states), z)
