"""What learned fields share: size, input stack, and training on delta inference's displacement.

A network is called as `network(z, layout, memory)` with `memory = network.stack.project_kv(source)` of the *latent
model's* encoder states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, cast

import torch
from jaxtyping import Float
from pydantic import Field as Bounds
from torch import Tensor, nn

from latentmt.config import Section
from latentmt.data.tokens import Layout, Pairs
from latentmt.fields.base import Context, Field, FieldType
from latentmt.fields.delta import DELTA
from latentmt.fields.refine import refine
from latentmt.models.latent import LatentConfig, LatentInput, LatentModel
from latentmt.models.presets import Sized
from latentmt.models.priors import Prior
from latentmt.nn.attention import EncoderOutput, Memory
from latentmt.nn.cuda_graph import compiled
from latentmt.nn.transformer import DecoderStack
from latentmt.objectives import displacement_regression
from latentmt.task import Controls, Cost, CostFunction, Task


@dataclass(frozen=True, kw_only=True)
class FieldConfig(Sized):
    """A field's kind and size; its encoder is the latent model's."""

    sizes: ClassVar = LatentConfig.sizes

    kind: str
    """The field's registered name."""
    positions: bool = True
    """Whether the input includes the position of each token."""


class FieldNetwork(nn.Module):
    """Maps z to hidden states. A subclass adds a head and `forward(z, layout, memory)`, the direction."""

    def __init__(self, config: FieldConfig, latent: LatentConfig) -> None:
        super().__init__()
        size = config.size
        self.latent_input = LatentInput(latent.latent_dim, size.d_model, config.positions)
        self.stack = DecoderStack(size.stack, source_width=latent.encoder.width, upsampling=latent.repeated)

    def hidden(
        self, z: Float[Tensor, "r t D"], layout: Layout, memory: Memory, create_graph: bool = False
    ) -> Float[Tensor, "r t d"]:
        """The states that the direction is computed from. `create_graph`: whether they are differentiated twice."""
        states: Tensor = self.stack(self.latent_input(z, layout), layout.segment, memory, create_graph)
        return states


@dataclass(frozen=True, kw_only=True)
class DisplacementConfig(Section):
    """The training latents and the target displacement of a field."""

    delta_steps: Annotated[int, Bounds(ge=1)] = 4
    """k: the number of steps of delta inference that define the displacement."""
    noise: Annotated[float, Bounds(ge=0)] = 1.0
    """Training latents are samples of the prior, with noise scaled by this and by u ~ U(0, 1) for each row."""
    own_step: Annotated[float, Bounds(ge=0, le=1)] = 0.5
    """The share of rows that first take one step along the field itself."""
    own_step_from: Annotated[float, Bounds(ge=0, le=1)] = 0.1
    """The share of training after which they do."""


class LearnedField(FieldType):
    """A field with a network, trained on a frozen latent model."""

    learned = True
    config: ClassVar[type[FieldConfig]] = FieldConfig
    """The `model` section of its stage in a recipe. A field with more settings inherits `FieldConfig`."""
    network: ClassVar[type[FieldNetwork]]
    """Called with this configuration and that of the latent model."""
    exports: ClassVar[bool] = False
    """Whether it has an ONNX graph, which `export` completes."""

    def bind(self, context: Context, network: nn.Module | None = None) -> Field:
        net = cast(FieldNetwork, network)
        with torch.no_grad():
            memory = net.stack.project_kv(context.source)
        return torch.no_grad()(lambda z: net(z, context.layout, memory))

    def export(self, network: FieldNetwork, graph: Any, z: str, states: str) -> str:
        """Add the direction to an ONNX graph, a `GraphBuilder`, and name it. `states` is the name of `hidden(…)`."""
        raise NotImplementedError

    def task(self, network: FieldNetwork, latent: LatentModel, displacement: DisplacementConfig) -> Task:
        """How the network is trained."""
        return DisplacementTask(self, network, latent, displacement)


PriorOf = Callable[[Pairs], tuple[EncoderOutput, Layout, Prior]]
DisplacementOf = Callable[[Float[Tensor, "r t D"], EncoderOutput, Layout], Float[Tensor, "r t D"]]


@dataclass(frozen=True)
class DisplacementTask:
    """Regression of a field on delta inference's displacement, the latent model being frozen (Eq. 4 of the paper)."""

    field: LearnedField
    network: FieldNetwork
    latent: LatentModel
    displacement: DisplacementConfig

    metrics: ClassVar[Mapping[str, tuple[str, str]]] = {
        "loss": ("loss", "tokens"),
        "unexplained": ("residual", "size"),
        "cosine": ("cosine", "tokens"),
        "displacement": ("size", "tokens"),
    }

    def controls(self, step: int, total: int) -> dict[str, float]:
        begun = step >= self.displacement.own_step_from * total
        return {"own_step": self.displacement.own_step if begun else 0.0}

    def cost(self, batch: Pairs, controls: Controls) -> Cost:
        return self._regress(batch, controls, self._prior, self._displacement)

    def compiled_cost(self) -> CostFunction:
        if self.field.compiles:
            return compiled(self.cost)
        # A network that is differentiated twice cannot be compiled, so only the frozen ones are.
        prior, displacement = compiled(self._prior), compiled(self._displacement)
        return lambda batch, controls: self._regress(batch, controls, prior, displacement)

    def _regress(self, batch: Pairs, controls: Controls, prior: PriorOf, displacement: DisplacementOf) -> Cost:
        source, layout, start = prior(batch)
        z = self._start(start, source, layout, controls["own_step"])
        target = displacement(z, source, layout)
        direction = self.network(z, layout, self.network.stack.project_kv(source))
        loss = displacement_regression(direction, target, layout.real)
        sums = {"loss": loss.loss.detach(), "residual": loss.loss.detach() + loss.size, "size": loss.size}
        return Cost(loss.loss, sums | {"cosine": loss.cosine, "tokens": loss.count})

    @torch.no_grad()
    def _prior(self, batch: Pairs) -> tuple[EncoderOutput, Layout, Prior]:
        source = self.latent.encode(batch.source)
        places = self.latent.output.places(source, batch.target)
        return source, places, self.latent.prior(places, self.latent.prior.project_kv(source))

    @torch.no_grad()
    def _displacement(self, z: Float[Tensor, "r t D"], source: EncoderOutput, layout: Layout) -> Float[Tensor, "r t D"]:
        return refine(z, DELTA.bind(Context(self.latent, source, layout)), self.displacement.delta_steps) - z

    @torch.no_grad()
    def _start(
        self, prior: Prior, source: EncoderOutput, layout: Layout, own_step: Float[Tensor, ""]
    ) -> Float[Tensor, "r t D"]:
        rows = len(prior.mode)
        scale = self.displacement.noise * torch.rand(rows, 1, 1, device=prior.mode.device)
        z = prior.sample(torch.randn_like(prior.mode) * scale)
        moves = torch.rand(rows, 1, 1, device=z.device) < own_step
        field = self.field.bind(Context(self.latent, source, layout), self.network)
        moved: Tensor = torch.where(moves, z + field(z), z)
        return moved
