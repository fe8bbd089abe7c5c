"""Output models: the number of positions for a source, the loss of a target, and decoding states to tokens.

An output model is a module registered by name (`LatentConfig.output`). `TokenOutput` predicts one token per position,
at a predicted length. Another alignment of positions and tokens (CTC) is another class with these methods and one entry
of `OUTPUTS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentmt.data.tokenizer import PAD
from latentmt.data.tokens import Layout, Tokens
from latentmt.nn.attention import EncoderOutput, membership, segment_lengths
from latentmt.nn.positions import Embedding
from latentmt.nn.transformer import Readout
from latentmt.objectives import LengthLoss, TokenLoss, length_loss, smoothed_cross_entropy
from latentmt.options import LENGTH_LIMIT, MAX_POSITIONS

MIN_LENGTH = 2
"""The shortest target: a piece and EOS."""


class Output(nn.Module, ABC):
    """Maps states to targets. The embedding, which scores tokens, belongs to the model and is passed in."""

    @abstractmethod
    def predict_lengths(self, source: EncoderOutput, count: int = 1, bias: float = 0.0) -> Int[Tensor, "r count"]:
        """The likeliest numbers of positions for each row's one sentence. `bias`: added, as a share of the source's."""

    @abstractmethod
    def length_loss(self, source: EncoderOutput, target: Layout, sentences: int) -> LengthLoss:
        """The loss of the lengths of a batch. `sentences`: the maximum in a row."""

    @abstractmethod
    def token_loss(
        self, states: Float[Tensor, "r t d"], embedding: Embedding, target: Tokens, smoothing: float
    ) -> TokenLoss:
        """−log p(y|z,x) of a batch, smoothed."""

    @abstractmethod
    def read(self, states: Float[Tensor, "r t d"], embedding: Embedding, layout: Layout) -> Tokens:
        """The likeliest target."""

    @abstractmethod
    def log_prob(self, states: Float[Tensor, "r t d"], embedding: Embedding, target: Tokens) -> Float[Tensor, "r t"]:
        """log p(y|z,x) of each token; 0 at padding."""


class TokenOutput(Output):
    """One token per position. The length is predicted from the mean of the encoder's states."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.length_hidden = nn.Linear(width, width)
        self.length_head = Readout(width, 2 * LENGTH_LIMIT + 1)

    def length_logits(self, source: EncoderOutput, sentences: int) -> Float[Tensor, "r {sentences} lengths"]:
        """Logits of target − source length, from −50 to 50, for segments 1 to `sentences` of each row."""
        member = membership(source.segment, sentences).to(source.states.dtype)
        pooled = (member @ source.states) / member.sum(2, keepdim=True).clamp(min=1)
        logits: Tensor = self.length_head(F.relu(self.length_hidden(pooled)))
        return logits

    def predict_lengths(self, source: EncoderOutput, count: int = 1, bias: float = 0.0) -> Int[Tensor, "r count"]:
        """Lengths are distinct, as far as there are enough between the minimum and the maximum."""
        size = segment_lengths(source.segment, 1)
        difference = torch.arange(-LENGTH_LIMIT, LENGTH_LIMIT + 1, device=size.device)
        lengths = size + difference + (bias * size.double()).round().long()
        possible = (lengths >= MIN_LENGTH) & (lengths <= MAX_POSITIONS)
        best = self.length_logits(source, 1)[:, 0].masked_fill(~possible, -torch.inf).topk(count).indices
        return lengths.gather(1, best).clamp(MIN_LENGTH, MAX_POSITIONS)

    def length_loss(self, source: EncoderOutput, target: Layout, sentences: int) -> LengthLoss:
        return length_loss(self.length_logits(source, sentences), source.segment, target.segment)

    def token_loss(
        self, states: Float[Tensor, "r t d"], embedding: Embedding, target: Tokens, smoothing: float
    ) -> TokenLoss:
        return smoothed_cross_entropy(states, embedding.weight, target.ids, target.layout.real, smoothing)

    def read(self, states: Float[Tensor, "r t d"], embedding: Embedding, layout: Layout) -> Tokens:
        return Tokens(embedding.best(states).masked_fill(~layout.real, PAD), layout)

    def log_prob(self, states: Float[Tensor, "r t d"], embedding: Embedding, target: Tokens) -> Float[Tensor, "r t"]:
        return embedding.log_prob(states, target.ids).masked_fill(~target.layout.real, 0.0)


OUTPUTS: dict[str, Callable[[int], Output]] = {"tokens": TokenOutput}
"""By the name in a configuration. Called with the width of the states."""
