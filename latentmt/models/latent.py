"""The latent-variable model: a latent z for every place, from which all tokens are decoded in parallel.

Prior p(z|x), posterior q(z|y,x) and decoder p(y|z,x) are non-causal decoder stacks over one encoder. Each projects
the source to keys and values once for all steps: `memory = model.decoder_stack.project_kv(source)`. The prior and the
output are separate modules (`priors`, `outputs`). Which places a sentence has is decided by the output. This module
computes distributions and states. It does not sample, search or refine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from latentmt.config import added
from latentmt.data.tokens import Layout, Tokens
from latentmt.models.ctc import CTCOutput
from latentmt.models.outputs import Output, OutputConfig, TokenOutput
from latentmt.models.presets import Count, Layers, TransformerSize, WithEncoder
from latentmt.models.priors import PRIORS, GaussianHead, PriorNetwork
from latentmt.ngrams.fusion import Fusion
from latentmt.nn.attention import EncoderOutput, Memory
from latentmt.nn.gaussian import Gaussian
from latentmt.nn.ngrams import NgramTables
from latentmt.nn.positions import Embedding, Positions
from latentmt.nn.transformer import DecoderStack, EncoderStack, StackSize

_NAMES_0_1 = {"prior_stack.": "prior.stack.", "prior_head.": "prior.head.", "length_": "output.length_"}
"""Prefixes of weight names in version 0.1, and the present ones."""


OUTPUTS: dict[str, Callable[[OutputConfig, StackSize, int], Output]] = {"tokens": TokenOutput, "ctc": CTCOutput}
"""Output models by name. Called with their settings, the posterior's size and the width of the source's states."""


@dataclass(frozen=True, kw_only=True)
class LatentConfig(WithEncoder, OutputConfig):
    """The latent-variable model's size and parts."""

    sizes: ClassVar = {
        "tiny": TransformerSize(d_model=128, d_filter=256, layers=2, heads=4, encoder_layers=2, dropout=0.1),
        "small": TransformerSize(d_model=256, d_filter=1024, layers=3, heads=4, encoder_layers=5, dropout=0.1),
        "base": TransformerSize(d_model=512, d_filter=2048, layers=6, heads=8, encoder_layers=6, dropout=0.1),
    }

    encoder_width: Annotated[Count | None, added(None)] = None
    """Width of the encoder, if not `d_model`. Then the source has an embedding of its own."""
    encoder_filter: Annotated[Count | None, added(None)] = None
    """Width inside the encoder's feed-forward sublayers, if not `d_filter`."""
    encoder_heads: Annotated[Count | None, added(None)] = None
    """Attention heads of the encoder, if not `heads`."""
    source_input: Annotated[bool, added(False)] = False
    """Whether all stacks, those of fields too, also have the source's states in their input, each repeated for its
    places. With CTC, where it is known which places those are."""
    latent_dim: Annotated[int, Field(ge=1, le=4096)] = 8
    """Entries of z at each place."""
    prior_layers: Annotated[Layers | None, added(None)] = None
    """Layers of the prior, if not `layers`."""
    posterior_layers: Annotated[Layers | None, added(None)] = None
    """Layers of the posterior, if not `layers`."""
    decoder_layers: Annotated[Layers | None, added(None)] = None
    """Layers of the decoder, if not `layers`."""
    prior: Annotated[str, added("gaussian")] = "gaussian"
    """The prior's registered name (`models/priors.py`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, registered in (("prior", PRIORS), ("output", OUTPUTS)):
            if getattr(self, key) not in registered:
                raise ValueError(f"{key} {getattr(self, key)}: expected {', '.join(registered)}")
        if self.source_input and self.output != "ctc":
            raise ValueError("source_input needs output: ctc")
        if (encoder := self.encoder).width % 2 or encoder.width % encoder.heads:
            raise ValueError(f"encoder_width {encoder.width} is not even and a multiple of its heads {encoder.heads}")

    @property
    def resolved_fields(self) -> dict[str, Any]:
        """A part whose size is that of the others has no number of its own."""
        usual = dict.fromkeys(("prior_layers", "posterior_layers", "decoder_layers"), self.size.layers)
        usual |= {
            "encoder_width": self.size.d_model,
            "encoder_filter": self.size.d_filter,
            "encoder_heads": self.size.heads,
        }
        own = {key: getattr(self, key) for key in usual}
        return super().resolved_fields | {key: None if own[key] == usual[key] else own[key] for key in usual}

    @property
    def encoder(self) -> StackSize:
        """The size of the encoder."""
        usual = super().encoder
        own = {"width": self.encoder_width, "filter": self.encoder_filter, "heads": self.encoder_heads}
        return replace(usual, **{key: value for key, value in own.items() if value is not None})

    @property
    def repeated(self) -> int | None:
        """How often a state of the source is repeated in the input of a stack, if it is there."""
        return self.upsampling if self.source_input else None

    @property
    def stacks(self) -> list[StackSize]:
        """The sizes of prior, posterior and decoder."""
        return [self.stack(layers) for layers in (self.prior_layers, self.posterior_layers, self.decoder_layers)]

    def stack(self, layers: int | None) -> StackSize:
        """The size of a decoder stack with so many layers, or as many as is usual."""
        return replace(self.size.stack, layers=layers or self.size.layers)


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
    """p(z|x), q(z|y,x), p(y|z,x) and the length. One matrix embeds both sides and scores the output.

    Only an encoder of another width has an embedding of its own.
    """

    prior: PriorNetwork
    output: Output

    def __init__(self, config: LatentConfig, vocabulary: int) -> None:
        super().__init__()
        size = config.size
        width, source_width = size.d_model, config.encoder.width

        def stack(layers: int | None, input_skip: bool = False) -> DecoderStack:
            return DecoderStack(
                config.stack(layers), input_skip=input_skip, source_width=source_width, upsampling=config.repeated
            )

        self.latent_dim = config.latent_dim
        self.embedding = Embedding(vocabulary, width, size.dropout)
        own = source_width != width
        self.own_source_embedding = Embedding(vocabulary, source_width, size.dropout) if own else None
        self.encoder = EncoderStack(config.encoder)
        self.prior = PRIORS[config.prior](stack(config.prior_layers), config.latent_dim)
        self.posterior_stack = stack(config.posterior_layers)
        self.posterior_head = GaussianHead(width, config.latent_dim)
        self.latent_input = LatentInput(config.latent_dim, width)
        self.decoder_stack = stack(config.decoder_layers, input_skip=True)
        self.output = OUTPUTS[config.output](config, self.posterior_stack.size, source_width)

    @property
    def source_embedding(self) -> Embedding:
        """What embeds the source."""
        return self.own_source_embedding or self.embedding

    def take_encoder(self, other: EncoderStack, embedding: Embedding) -> None:
        """Copy the weights of another model's encoder, and of what embeds its source. Both must be of this size."""
        self.encoder.load_state_dict(other.state_dict())
        self.source_embedding.load_state_dict(embedding.state_dict())

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load weights under their present names or those of version 0.1."""
        return super().load_state_dict(
            {current_weight_name(name): value for name, value in state_dict.items()}, *args, **kwargs
        )

    def encode(self, source: Tokens) -> EncoderOutput:
        embedded = self.source_embedding(source.ids, source.layout.position)
        encoded: EncoderOutput = self.encoder(embedded, source.layout.segment)
        return encoded

    def posterior(self, target: Tokens, places: Layout, memory: Memory) -> Gaussian:
        """q(z|y,x). Places: `output.places(source, target)`. Memory: `posterior_stack.project_kv(source)`."""
        x, memory = self.output.posterior_input(target, places, self.embedding, memory)
        return self.posterior_head.distribution(self.posterior_stack(x, places.segment, memory))

    def decode(
        self,
        z: Float[Tensor, "r p D"],
        places: Layout,
        memory: Memory,
        attention_weights: list[Tensor] | None = None,
        hidden: list[Tensor] | None = None,
    ) -> Float[Tensor, "r p d"]:
        """The states that predict y from z. Memory: `decoder_stack.project_kv(source)`. Lists: see `DecoderStack`."""
        states: Tensor = self.decoder_stack(
            self.latent_input(z, places), places.segment, memory, attention_weights=attention_weights, hidden=hidden
        )
        return states

    def read(
        self,
        z: Float[Tensor, "r p D"],
        places: Layout,
        memory: Memory,
        fusion: Fusion[NgramTables] | None = None,
    ) -> Tokens:
        """The likeliest y given z and x, or the best with a language model. Memory: as in `decode`."""
        return self.output.read(self.decode(z, places, memory), places, self.embedding, fusion)

    def log_prob(self, states: Float[Tensor, "r p d"], places: Layout, target: Tokens) -> Float[Tensor, "r t"]:
        """log p(y|z,x), token by token; 0 at padding. States: `decode(…)`."""
        return self.output.log_prob(states, places, self.embedding, target)


def current_weight_name(name: str) -> str:
    """The present name of a weight, given that one or its name in version 0.1."""
    for old, new in _NAMES_0_1.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name
