"""The latent-variable model: a latent z for every target token, from which all tokens are decoded in parallel.

Prior p(z|x), posterior q(z|y,x) and decoder p(y|z,x) are non-causal decoder stacks over one encoder. Each projects
the source to keys and values once for all steps: `memory = model.decoder_stack.project_kv(source)`. The prior and the
output are separate modules (`priors`, `outputs`). This module computes distributions and states. It does not sample,
search or refine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from latentmt.data.tokens import Layout, Tokens
from latentmt.models.outputs import OUTPUTS, Output
from latentmt.models.presets import TransformerSize, WithEncoder
from latentmt.models.priors import PRIORS, GaussianHead, PriorNetwork
from latentmt.nn.attention import EncoderOutput, Memory
from latentmt.nn.gaussian import Gaussian
from latentmt.nn.positions import Embedding, Positions
from latentmt.nn.transformer import DecoderStack, EncoderStack

_NAMES_0_1 = {"prior_stack.": "prior.stack.", "prior_head.": "prior.head.", "length_": "output.length_"}
"""Prefixes of weight names in version 0.1, and the present ones."""


@dataclass(frozen=True, kw_only=True)
class LatentConfig(WithEncoder):
    """The latent-variable model's size and parts."""

    sizes: ClassVar = {
        "tiny": TransformerSize(d_model=128, d_filter=256, layers=2, heads=4, encoder_layers=2, dropout=0.1),
        "small": TransformerSize(d_model=256, d_filter=1024, layers=3, heads=4, encoder_layers=5, dropout=0.1),
        "base": TransformerSize(d_model=512, d_filter=2048, layers=6, heads=8, encoder_layers=6, dropout=0.1),
    }

    latent_dim: Annotated[int, Field(ge=1, le=4096)] = 8
    """Entries of z for each target token."""
    prior: str = "gaussian"
    """The prior's registered name (`models/priors.py`)."""
    output: str = "tokens"
    """The output model's registered name (`models/outputs.py`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, registered in (("prior", PRIORS), ("output", OUTPUTS)):
            if getattr(self, key) not in registered:
                raise ValueError(f"{key} {getattr(self, key)}: expected {', '.join(registered)}")


class LatentInput(nn.Module):
    """z as the input of a stack: a linear map, with or without positions."""

    def __init__(self, latent_dim: int, width: int, positions: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(latent_dim, width)
        # So z of unit scale has the scale of an embedded token. With Xavier it would have a quarter of that.
        nn.init.normal_(self.linear.weight, std=latent_dim**-0.5)
        nn.init.zeros_(self.linear.bias)
        self.positions = Positions(width) if positions else None

    def forward(self, z: Float[Tensor, "r t D"], layout: Layout) -> Float[Tensor, "r t d"]:
        x: Tensor = self.linear(z.to(self.linear.weight.dtype))
        return x if self.positions is None else x + self.positions(layout.position)


class LatentModel(nn.Module):
    """p(z|x), q(z|y,x), p(y|z,x) and the length. One matrix embeds both sides and scores the output."""

    prior: PriorNetwork
    output: Output

    def __init__(self, config: LatentConfig, vocabulary: int) -> None:
        super().__init__()
        size = config.size
        width = size.d_model
        self.latent_dim = config.latent_dim
        self.embedding = Embedding(vocabulary, width, size.dropout)
        self.encoder = EncoderStack(size.encoder)
        self.prior = PRIORS[config.prior](size.stack, config.latent_dim)
        self.posterior_stack = DecoderStack(size.stack)
        self.posterior_head = GaussianHead(width, config.latent_dim)
        self.latent_input = LatentInput(config.latent_dim, width)
        self.decoder_stack = DecoderStack(size.stack, input_skip=True)
        self.output = OUTPUTS[config.output](width)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load weights under their present names or those of version 0.1."""
        return super().load_state_dict(
            {current_weight_name(name): value for name, value in state_dict.items()}, *args, **kwargs
        )

    def encode(self, source: Tokens) -> EncoderOutput:
        encoded: EncoderOutput = self.encoder(self.embedding(source.ids, source.layout.position), source.layout.segment)
        return encoded

    def posterior(self, target: Tokens, memory: Memory) -> Gaussian:
        """q(z|y,x). Memory: `posterior_stack.project_kv(source)`."""
        x = self.embedding(target.ids, target.layout.position)
        return self.posterior_head.distribution(self.posterior_stack(x, target.layout.segment, memory))

    def decode(
        self, z: Float[Tensor, "r t D"], layout: Layout, memory: Memory, attention_weights: list[Tensor] | None = None
    ) -> Float[Tensor, "r t d"]:
        """The states that predict y from z. Memory: `decoder_stack.project_kv(source)`."""
        states: Tensor = self.decoder_stack(
            self.latent_input(z, layout), layout.segment, memory, attention_weights=attention_weights
        )
        return states

    def read(self, z: Float[Tensor, "r t D"], layout: Layout, memory: Memory) -> Tokens:
        """argmax p(y|z,x). Memory: as in `decode`."""
        return self.output.read(self.decode(z, layout, memory), self.embedding, layout)

    def log_prob(self, states: Float[Tensor, "r t d"], target: Tokens) -> Float[Tensor, "r t"]:
        """log p(y|z,x) of each token; 0 at padding. States: `decode(…)`."""
        return self.output.log_prob(states, self.embedding, target)


def current_weight_name(name: str) -> str:
    """The present name of a weight, given that one or its name in version 0.1."""
    for old, new in _NAMES_0_1.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name
