"""The latent-variable model: a Gaussian z for every target token, from which all tokens are read off at once.

Prior p(z|x), posterior q(z|y,x) and decoder p(y|z,x) are non-causal decoder stacks over one encoder, each
with its own memory of the source: `memory = model.prior_stack.project_kv(source)`, made once and used for every
step. This module computes distributions and states; it does not sample, search or refine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentmt.data.tokens import Layout, Tokens
from latentmt.models.presets import Count, TransformerSize, WithEncoder
from latentmt.nn.attention import EncoderOutput, Memory, membership
from latentmt.nn.gaussian import Gaussian
from latentmt.nn.positions import Embedding, Positions
from latentmt.nn.transformer import DecoderStack, EncoderStack, Readout

LENGTH_LIMIT = 50
"""Target length minus source length is predicted within ± this."""


@dataclass(frozen=True, kw_only=True)
class LatentConfig(WithEncoder):
    """The latent-variable model's size."""

    sizes: ClassVar = {
        "tiny": TransformerSize(d_model=128, d_filter=256, layers=2, heads=4, encoder_layers=2, dropout=0.1),
        "small": TransformerSize(d_model=256, d_filter=1024, layers=3, heads=4, encoder_layers=5, dropout=0.1),
        "base": TransformerSize(d_model=512, d_filter=2048, layers=6, heads=8, encoder_layers=6, dropout=0.1),
    }

    latent_dim: Count = 8
    """Entries of z for each target token."""


class LatentInput(nn.Module):
    """z as the input of a stack: a linear map, with or without the places of the tokens."""

    def __init__(self, latent_dim: int, width: int, positions: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(latent_dim, width)
        # A z of unit scale enters at the scale of an embedded token; Xavier would leave it a quarter of that.
        nn.init.normal_(self.linear.weight, std=latent_dim**-0.5)
        nn.init.zeros_(self.linear.bias)
        self.positions = Positions(width) if positions else None

    def forward(self, z: Float[Tensor, "r t D"], layout: Layout) -> Float[Tensor, "r t d"]:
        x: Tensor = self.linear(z.to(self.linear.weight.dtype))
        return x if self.positions is None else x + self.positions(layout.position)


class GaussianHead(Readout):
    """A Gaussian read off every state. It starts with means of unit scale and one standard deviation for all."""

    def __init__(self, width: int, latent_dim: int) -> None:
        super().__init__(width, 2 * latent_dim)
        nn.init.zeros_(self.weight[latent_dim:])

    def of(self, states: Float[Tensor, "r t d"]) -> Gaussian:
        return Gaussian.from_output(self(states))


class LatentModel(nn.Module):
    """p(z|x), q(z|y,x), p(y|z,x) and the length. One matrix embeds both sides and scores the output."""

    def __init__(self, config: LatentConfig, vocabulary: int) -> None:
        super().__init__()
        size = config.size
        width = size.d_model
        self.latent_dim = config.latent_dim
        self.embedding = Embedding(vocabulary, width, size.dropout)
        self.encoder = EncoderStack(size.encoder)
        self.prior_stack = DecoderStack(size.stack)
        self.prior_head = GaussianHead(width, config.latent_dim)
        self.posterior_stack = DecoderStack(size.stack)
        self.posterior_head = GaussianHead(width, config.latent_dim)
        self.latent_input = LatentInput(config.latent_dim, width)
        self.decoder_stack = DecoderStack(size.stack, input_skip=True)
        self.length_hidden = nn.Linear(width, width)
        self.length_head = Readout(width, 2 * LENGTH_LIMIT + 1)

    def encode(self, source: Tokens) -> EncoderOutput:
        encoded: EncoderOutput = self.encoder(self.embedding(source.ids, source.layout.position), source.layout.segment)
        return encoded

    def prior(self, layout: Layout, memory: Memory) -> Gaussian:
        """p(z|x) for targets laid out like this. Memory: `prior_stack.project_kv(source)`."""
        x = self.embedding.positions(layout.position)
        return self.prior_head.of(self.prior_stack(x, layout.segment, memory))

    def posterior(self, target: Tokens, memory: Memory) -> Gaussian:
        """q(z|y,x). Memory: `posterior_stack.project_kv(source)`."""
        x = self.embedding(target.ids, target.layout.position)
        return self.posterior_head.of(self.posterior_stack(x, target.layout.segment, memory))

    def decode(
        self, z: Float[Tensor, "r t D"], layout: Layout, memory: Memory, attention_weights: list[Tensor] | None = None
    ) -> Float[Tensor, "r t d"]:
        """The states that predict y from z. Memory: `decoder_stack.project_kv(source)`."""
        states: Tensor = self.decoder_stack(
            self.latent_input(z, layout), layout.segment, memory, attention_weights=attention_weights
        )
        return states

    def logits(self, states: Float[Tensor, "*b d"]) -> Float[Tensor, "*b v"]:
        return self.embedding.logits(states)

    def best(self, states: Float[Tensor, "r t d"]) -> Int[Tensor, "r t"]:
        """argmax p(y_t|z,x) of every token."""
        return self.embedding.best(states)

    def log_prob(self, states: Float[Tensor, "r t d"], target: Tokens) -> Float[Tensor, "r t"]:
        """log p(y_t|z,x) of each target token; 0 where the row is empty."""
        return self.embedding.log_prob(states, target.ids).masked_fill(~target.layout.real, 0.0)

    def length(self, source: EncoderOutput, sentences: int) -> Float[Tensor, "r {sentences} lengths"]:
        """Logits of target − source length, from −50 to 50, for segments 1 to `sentences` of each row."""
        member = membership(source.segment, sentences).to(source.states.dtype)
        pooled = (member @ source.states) / member.sum(2, keepdim=True).clamp(min=1)
        logits: Tensor = self.length_head(F.relu(self.length_hidden(pooled)))
        return logits
