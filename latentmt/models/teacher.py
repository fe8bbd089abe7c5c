"""The autoregressive teacher: a Transformer that predicts each token from those before it.

It scores targets (all tokens at once) and next tokens (one step at a time). Beam search and greedy decoding are in
`infer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentmt.data.tokenizer import BOS
from latentmt.data.tokens import Tokens
from latentmt.models.presets import TransformerSize, WithEncoder
from latentmt.nn.attention import Cache, EncoderOutput, Memory
from latentmt.nn.positions import Embedding
from latentmt.nn.transformer import DecoderStack, EncoderStack


@dataclass(frozen=True, kw_only=True)
class TeacherConfig(WithEncoder):
    """The teacher's size."""

    sizes: ClassVar = {
        "tiny": TransformerSize(d_model=128, d_filter=256, layers=2, heads=4, encoder_layers=2, dropout=0.1),
        "small": TransformerSize(d_model=256, d_filter=1024, layers=5, heads=2, encoder_layers=5, dropout=0.2),
        "base": TransformerSize(d_model=512, d_filter=2048, layers=6, heads=8, encoder_layers=6, dropout=0.1),
    }


def shift_right(tokens: Tokens) -> Int[Tensor, "r t"]:
    """The id before each token of its sentence, BOS before the first."""
    before = F.pad(tokens.ids[:, :-1], (1, 0))
    return torch.where(tokens.layout.position == 0, BOS, before)


class Teacher(nn.Module):
    """p(y|x), factorised from left to right. One matrix embeds both sides and scores the output."""

    def __init__(self, config: TeacherConfig, vocabulary: int) -> None:
        super().__init__()
        size = config.size
        self.embedding = Embedding(vocabulary, size.d_model, size.dropout)
        self.encoder = EncoderStack(size.encoder)
        self.decoder_stack = DecoderStack(size.stack, causal=True)

    def encode(self, source: Tokens) -> EncoderOutput:
        encoded: EncoderOutput = self.encoder(self.embedding(source.ids, source.layout.position), source.layout.segment)
        return encoded

    def states(
        self, target: Tokens, memory: Memory, attention_weights: list[Tensor] | None = None
    ) -> Float[Tensor, "r t d"]:
        """The states that predict each target token from its prefix. Memory: `decoder_stack.project_kv(source)`."""
        x = self.embedding(shift_right(target), target.layout.position)
        states: Tensor = self.decoder_stack(x, target.layout.segment, memory, attention_weights=attention_weights)
        return states

    def logits(self, states: Float[Tensor, "*b d"]) -> Float[Tensor, "*b v"]:
        return self.embedding.logits(states)

    def log_prob(
        self, target: Tokens, memory: Memory, attention_weights: list[Tensor] | None = None
    ) -> Float[Tensor, "r t"]:
        """log p of each target token; 0 at padding, so that `.sum(1)` is that of the row."""
        scores = self.embedding.log_prob(self.states(target, memory, attention_weights), target.ids)
        return scores.masked_fill(~target.layout.real, 0.0)

    def cache(self, rows: int, hypotheses: int, width: int) -> Cache:
        """An empty cache for targets of up to `width` tokens, with several hypotheses per row."""
        return self.decoder_stack.cache(rows, hypotheses, width)

    def step(
        self,
        previous: Int[Tensor, "r k"],
        cache: Cache,
        seen: Bool[Tensor, "r k slots"],
        memory: Memory,
        position: Int[Tensor, ""],
    ) -> Float[Tensor, "r k v"]:
        """Logits of the tokens at `position`, given the ids before them (BOS at 0). Writes the cache there.

        `seen`: the cache slots that each hypothesis may attend to, including its own.
        """
        x = self.embedding(previous, position.expand(previous.shape))
        return self.logits(self.decoder_stack.step(x, cache, seen, memory, position))
