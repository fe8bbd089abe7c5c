"""Output models: the places of a source, the loss of a target written on them, and what they read.

A place has one latent. An output model is a module registered by name (`LatentConfig.output`). It decides which places
there are and how they and the tokens of a target belong together. `TokenOutput` has one place for each token of the
target, whose length is predicted. Another alignment, as in `ctc.py`, is another class with these methods and one entry
of `OUTPUTS`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from latentmt.config import Section, added
from latentmt.data.tokenizer import PAD
from latentmt.data.tokens import Layout, Tokens
from latentmt.ngrams.fusion import Fusion
from latentmt.nn.attention import FORBIDDEN, EncoderOutput, Memory, membership, segment_lengths
from latentmt.nn.ngrams import NgramTables
from latentmt.nn.positions import Embedding
from latentmt.nn.transformer import Readout, StackSize
from latentmt.objectives import LengthLoss, TokenLoss, length_loss, smoothed_cross_entropy
from latentmt.options import LENGTH_LIMIT, MAX_POSITIONS, MAX_UPSAMPLING

MIN_LENGTH = 2
"""The shortest target: a piece and EOS."""


@dataclass(frozen=True, kw_only=True)
class OutputConfig(Section):
    """The output model and its settings."""

    output: Annotated[str, added("tokens")] = "tokens"
    """The output model's registered name: `tokens` or `ctc`."""
    upsampling: Annotated[int, Field(ge=1, le=MAX_UPSAMPLING), added(2)] = 2
    """Places for each token of the source, with CTC."""
    length_pooling: Annotated[Literal["mean", "attention"], added("mean")] = "mean"
    """What the length is predicted from: the mean of the encoder's states, or one with learnt weights."""


class Output(nn.Module, ABC):
    """Maps states to targets. The embedding, which scores tokens, belongs to the model and is passed in."""

    loops: ClassVar[bool] = False
    """Whether the likelihood of a target, or reading it with a language model, takes a loop over its places."""
    fuses: ClassVar[bool] = False
    """Whether targets can be read with a language model."""

    @abstractmethod
    def predict_lengths(self, source: EncoderOutput, count: int = 1, bias: float = 0.0) -> Int[Tensor, "r count"]:
        """The likeliest numbers of places for each row's one sentence. `bias`: added, as a share of the source's."""

    @abstractmethod
    def room(self, source: int, count: int = 1, bias: float = 0.0) -> int:
        """How many places are nearly always enough for `predict_lengths` of sources with up to so many tokens."""

    @abstractmethod
    def places(self, source: EncoderOutput, target: Tokens) -> Layout:
        """The places of given targets. A target that cannot be written on its places has none.

        With n times as many targets as sources, each source has n of them in adjacent rows.
        """

    @abstractmethod
    def posterior_input(
        self, target: Tokens, places: Layout, embedding: Embedding, memory: Memory
    ) -> tuple[Float[Tensor, "r p d"], Memory]:
        """The input of the posterior's stack and what it attends to. Memory: of the source."""

    @abstractmethod
    def length_loss(
        self, source: EncoderOutput, places: Layout, target: Layout, sentences: int, std: float = 0.0
    ) -> LengthLoss:
        """The loss of the lengths of a batch. `sentences`: the maximum in a row. `std`: as in `objectives`."""

    @abstractmethod
    def token_loss(
        self,
        states: Float[Tensor, "r p d"],
        places: Layout,
        embedding: Embedding,
        target: Tokens,
        smoothing: float,
        learnt: Bool[Tensor, "r p"] | None = None,
    ) -> TokenLoss:
        """−log p(y|z,x) of a batch, smoothed. `learnt`: the places that have a gradient, if not all have."""

    @abstractmethod
    def wrong(
        self, states: Float[Tensor, "r p d"], places: Layout, embedding: Embedding, target: Tokens
    ) -> Bool[Tensor, "r p"]:
        """The places whose likeliest id is not the target's."""

    @abstractmethod
    def log_prob(
        self, states: Float[Tensor, "r p d"], places: Layout, embedding: Embedding, target: Tokens
    ) -> Float[Tensor, "r t"]:
        """log p of each token given those before it, z and x; 0 at padding. So a row's sum is its log p(y|z,x)."""

    @abstractmethod
    def labels(self, states: Float[Tensor, "r p d"], places: Layout, embedding: Embedding) -> Int[Tensor, "r p"]:
        """The likeliest id at each place; PAD at padding."""

    @abstractmethod
    def labels_of(
        self, states: Float[Tensor, "r p d"], places: Layout, embedding: Embedding, target: Tokens
    ) -> Int[Tensor, "r p"]:
        """The ids of the likeliest way to write a target on the places."""

    @abstractmethod
    def written(self, labels: Int[Tensor, "r p"], places: Layout) -> Bool[Tensor, "r p"]:
        """The places that write a token of the target: their label."""

    @abstractmethod
    def read(
        self,
        states: Float[Tensor, "r p d"],
        places: Layout,
        embedding: Embedding,
        fusion: Fusion[NgramTables] | None = None,
    ) -> Tokens:
        """The target that the likeliest ids write; or with a language model, which needs CTC, the best target found."""

    @abstractmethod
    def to_tokens(
        self,
        values: Float[Tensor, "r p k"],
        states: Float[Tensor, "r p d"],
        places: Layout,
        embedding: Embedding,
        target: Tokens,
    ) -> Float[Tensor, "r t k"]:
        """Values of places as values of the tokens that they write: means, where there are several."""


class TokenOutput(Output):
    """One token per place. The length is predicted from a mean of the encoder's states."""

    def __init__(self, config: OutputConfig, posterior: StackSize, source_width: int) -> None:
        super().__init__()
        self.length_query = Readout(source_width, 1) if config.length_pooling == "attention" else None
        self.length_hidden = nn.Linear(source_width, posterior.width)
        self.length_head = Readout(posterior.width, 2 * LENGTH_LIMIT + 1)

    def length_logits(self, source: EncoderOutput, sentences: int) -> Float[Tensor, "r {sentences} lengths"]:
        """Logits of target − source length, from −50 to 50, for segments 1 to `sentences` of each row."""
        member, states = membership(source.segment, sentences), source.states
        if self.length_query is None:
            pooled = (member.to(states.dtype) @ states) / member.sum(2, keepdim=True).clamp(min=1).to(states.dtype)
        else:
            score = self.length_query(states)[..., 0]
            pooled = score[:, None].masked_fill(~member, FORBIDDEN).softmax(2).to(states.dtype) @ states
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

    def room(self, source: int, count: int = 1, bias: float = 0.0) -> int:
        """A quarter more than the source."""
        return source + source // 4 + math.ceil(max(0.0, bias) * source)

    def places(self, source: EncoderOutput, target: Tokens) -> Layout:
        return target.layout

    def posterior_input(
        self, target: Tokens, places: Layout, embedding: Embedding, memory: Memory
    ) -> tuple[Float[Tensor, "r p d"], Memory]:
        """The target itself, attending to the source."""
        return embedding(target.ids, target.layout.position), memory

    def length_loss(
        self, source: EncoderOutput, places: Layout, target: Layout, sentences: int, std: float = 0.0
    ) -> LengthLoss:
        return length_loss(self.length_logits(source, sentences), source.segment, target.segment, std)

    def token_loss(
        self,
        states: Float[Tensor, "r p d"],
        places: Layout,
        embedding: Embedding,
        target: Tokens,
        smoothing: float,
        learnt: Bool[Tensor, "r p"] | None = None,
    ) -> TokenLoss:
        """Places that are not learnt are not counted."""
        counted = places.real if learnt is None else places.real & learnt
        return smoothed_cross_entropy(states, embedding.weight, target.ids, counted, smoothing)

    def wrong(
        self, states: Float[Tensor, "r p d"], places: Layout, embedding: Embedding, target: Tokens
    ) -> Bool[Tensor, "r p"]:
        return (embedding.best(states) != target.ids) & places.real

    def log_prob(
        self, states: Float[Tensor, "r p d"], places: Layout, embedding: Embedding, target: Tokens
    ) -> Float[Tensor, "r t"]:
        return embedding.log_prob(states, target.ids).masked_fill(~target.layout.real, 0.0)

    def labels(self, states: Float[Tensor, "r p d"], places: Layout, embedding: Embedding) -> Int[Tensor, "r p"]:
        return embedding.best(states).masked_fill(~places.real, PAD)

    def labels_of(
        self, states: Float[Tensor, "r p d"], places: Layout, embedding: Embedding, target: Tokens
    ) -> Int[Tensor, "r p"]:
        return target.ids

    def written(self, labels: Int[Tensor, "r p"], places: Layout) -> Bool[Tensor, "r p"]:
        return places.real

    def read(
        self,
        states: Float[Tensor, "r p d"],
        places: Layout,
        embedding: Embedding,
        fusion: Fusion[NgramTables] | None = None,
    ) -> Tokens:
        assert fusion is None
        return Tokens(self.labels(states, places, embedding), places)

    def to_tokens(
        self,
        values: Float[Tensor, "r p k"],
        states: Float[Tensor, "r p d"],
        places: Layout,
        embedding: Embedding,
        target: Tokens,
    ) -> Float[Tensor, "r t k"]:
        return values
