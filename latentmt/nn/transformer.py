"""The Transformer: pre-norm layers, an encoder stack, and one decoder stack for every use. Embeddings are not included.

Teacher decoder, prior, posterior, latent decoder, score and energy all use a `DecoderStack`. The model around it
provides the input and the output head. Of a layout the stack sees only the segments.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentmt.nn.attention import (
    Cache,
    CrossAttention,
    EncoderOutput,
    Memory,
    PackedLinear,
    SelfAttention,
    attention_bias,
    attention_kernels,
    candidates,
    compute_dtype,
    seen_bias,
    split_heads,
)
from latentmt.nn.fused import linear, readout


@dataclass(frozen=True)
class StackSize:
    """The size of a stack."""

    width: int
    filter: int
    layers: int
    heads: int
    dropout: float = 0.0
    """On the output of every sublayer and inside the feed-forward layer."""

    def parameters(self, attentions: int, source_width: int | None = None) -> int:
        """About how many a stack has whose layers have so many attentions. `source_width`: as of a `DecoderStack`."""
        other = 2 * self.width * (source_width - self.width) if source_width else 0
        return self.layers * (4 * attentions * self.width**2 + 2 * self.width * self.filter + other)


class Readout(nn.Linear):
    """A linear layer in fp32 (or better), regardless of autocast."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__(inputs, outputs, bias)
        nn.init.normal_(self.weight, std=inputs**-0.5)
        if bias:
            nn.init.zeros_(self.bias)

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b o"]:
        return readout(x, self.weight, self.bias)


class FeedForward(nn.Module):
    """The position-wise sublayer."""

    def __init__(self, size: StackSize, gain: float) -> None:
        super().__init__()
        self.inner = PackedLinear(size.width, size.filter)
        self.dropout = nn.Dropout(size.dropout)
        self.out = PackedLinear(size.filter, size.width, gain=gain)

    def forward(self, x: Float[Tensor, "r t d"], norm: nn.LayerNorm, dropout: nn.Dropout) -> Float[Tensor, "r t d"]:
        """x + feed_forward(norm(x))."""
        hidden = linear(self.inner, x, norm=norm, relu=True, dropout=self.dropout)
        return linear(self.out, hidden, dropout=dropout, residual=x)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, pre-norm with residual connections."""

    def __init__(self, size: StackSize) -> None:
        super().__init__()
        gain = (2 * size.layers) ** -0.5  # so that the sum of all sublayers has unit scale at first
        self.self_norm = nn.LayerNorm(size.width)
        self.self_attention = SelfAttention(size.width, size.heads, gain)
        self.feed_norm = nn.LayerNorm(size.width)
        self.feed_forward = FeedForward(size, gain)
        self.dropout = nn.Dropout(size.dropout)

    def forward(self, x: Float[Tensor, "r t d"], bias: Float[Tensor, "r 1 t t"]) -> Float[Tensor, "r t d"]:
        x = self.self_attention(x, bias, self.self_norm, self.dropout)
        out: Tensor = self.feed_forward(x, self.feed_norm, self.dropout)
        return out


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward, pre-norm with residual connections."""

    def __init__(self, size: StackSize) -> None:
        super().__init__()
        gain = (3 * size.layers) ** -0.5
        self.self_norm = nn.LayerNorm(size.width)
        self.self_attention = SelfAttention(size.width, size.heads, gain)
        self.cross_norm = nn.LayerNorm(size.width)
        self.cross_attention = CrossAttention(size.width, size.heads, gain)
        self.feed_norm = nn.LayerNorm(size.width)
        self.feed_forward = FeedForward(size, gain)
        self.dropout = nn.Dropout(size.dropout)

    def forward(
        self,
        x: Float[Tensor, "r t d"],
        bias: Float[Tensor, "r 1 t t"],
        memory: Float[Tensor, "2 b h s e"],
        memory_bias: Float[Tensor, "b 1 _ s"],
    ) -> Float[Tensor, "r t d"]:
        x = self.self_attention(x, bias, self.self_norm, self.dropout)
        return self._cross_and_feed(x, memory, memory_bias)

    def attention_weights(
        self,
        x: Float[Tensor, "r t d"],
        bias: Float[Tensor, "r 1 t t"],
        memory: Float[Tensor, "2 b h s e"],
        memory_bias: Float[Tensor, "b 1 _ s"],
    ) -> Float[Tensor, "b h _ s"]:
        """The cross-attention weights."""
        x = self.self_attention(x, bias, self.self_norm, self.dropout)
        return self.cross_attention.attention_weights(x, memory, memory_bias, self.cross_norm)

    def step(
        self,
        x: Float[Tensor, "r k d"],
        cache: Float[Tensor, "2 r h w e"],
        bias: Float[Tensor, "r 1 k w"],
        memory: Float[Tensor, "2 r h s e"],
        memory_bias: Float[Tensor, "r 1 k s"],
        slots: Int[Tensor, " k"],
    ) -> Float[Tensor, "r k d"]:
        x = self.self_attention.step(x, cache, bias, slots, self.self_norm)
        return self._cross_and_feed(x, memory, memory_bias)

    def _cross_and_feed(self, x: Tensor, memory: Tensor, memory_bias: Tensor) -> Tensor:
        x = self.cross_attention(x, memory, memory_bias, self.cross_norm, self.dropout)
        out: Tensor = self.feed_forward(x, self.feed_norm, self.dropout)
        return out


class EncoderStack(nn.Module):
    """A stack of encoder layers."""

    def __init__(self, size: StackSize) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)

    def forward(self, x: Float[Tensor, "r s d"], segment: Int[Tensor, "r s"]) -> EncoderOutput:
        bias = attention_bias(segment, segment, compute_dtype(x))
        with attention_kernels(x.device):
            for layer in self.layers:
                x = layer(x, bias)
        return EncoderOutput(self.norm(x), segment)


def split_memory(packed: Float[Tensor, "r s _"], segment: Int[Tensor, "r s"], size: StackSize) -> Memory:
    """Split the keys and values of all layers of a stack, which one projection made."""
    return Memory(split_heads(packed, 2 * size.layers, size.heads).unflatten(0, (size.layers, 2)), segment)


class DecoderStack(nn.Module):
    """A stack of decoder layers.

    `causal`: a token attends only to itself and previous ones. `input_skip`: add the input of the stack after every
    layer and scale the sum by 1/√2. `source_width`: the width of the source's states, if it differs. `upsampling`: add
    the source's states, projected and each repeated so many times, to the input.
    """

    def __init__(
        self,
        size: StackSize,
        *,
        causal: bool = False,
        input_skip: bool = False,
        source_width: int | None = None,
        upsampling: int | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        self.causal = causal
        self.input_skip = input_skip
        self.upsampling = upsampling
        self.layers = nn.ModuleList(DecoderLayer(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        blocks = 2 * size.layers + (upsampling is not None)
        self.source_keys_values = PackedLinear(source_width or size.width, size.width, blocks=blocks)

    def project_kv(self, source: EncoderOutput) -> Memory:
        """Keys and values of the source for all layers, and what is added to the input, in one matrix product."""
        packed = self.source_keys_values(source.states)
        if self.upsampling is None:
            return split_memory(packed, source.segment, self.size)
        keys_values, inputs = packed.split((packed.shape[2] - self.size.width, self.size.width), 2)
        memory = split_memory(keys_values, source.segment, self.size)
        return replace(memory, inputs=EncoderOutput(inputs, source.segment))

    def forward(
        self,
        x: Float[Tensor, "r t d"],
        segment: Int[Tensor, "r t"],
        memory: Memory,
        create_graph: bool = False,
        attention_weights: list[Tensor] | None = None,
        hidden: list[Tensor] | None = None,
    ) -> Float[Tensor, "r t d"]:
        """All tokens at once. `create_graph` is needed for a double backward, and is slower.

        The cross-attention weights of every layer are appended to `attention_weights`, if given, and the states after
        every layer but the last to `hidden`, normalised like the last ones. With n times as many rows as the memory,
        every n consecutive rows are candidates for one of its rows.
        """
        dtype = compute_dtype(x)
        bias = attention_bias(segment, segment, dtype, self.causal)
        together = segment.view(len(memory.segment), candidates(len(segment), len(memory.segment)) * segment.shape[1])
        memory_bias = attention_bias(together, memory.segment, dtype)
        if memory.inputs is not None and self.upsampling is not None:
            x = x + memory.inputs.spread(segment, self.upsampling)
        inputs = x
        with attention_kernels(x.device, create_graph):
            layers = cast("Iterable[DecoderLayer]", self.layers)
            for number, (layer, keys_values) in enumerate(zip(layers, memory.keys_values.unbind(), strict=True)):
                if hidden is not None and number:
                    hidden.append(self.norm(x))
                if attention_weights is not None:
                    attention_weights.append(layer.attention_weights(x, bias, keys_values, memory_bias))
                x = layer(x, bias, keys_values, memory_bias)
                if self.input_skip:
                    x = (x + inputs) * math.sqrt(0.5)
        out: Tensor = self.norm(x)
        return out

    def cache(self, rows: int, hypotheses: int, width: int) -> Cache:
        """A cache for `width` tokens of each hypothesis of a row."""
        like, slots = self.norm.weight, hypotheses * width
        shape = (self.size.layers, 2, rows, self.size.heads, slots, self.size.width // self.size.heads)
        return Cache(torch.zeros(shape, dtype=compute_dtype(like), device=like.device), hypotheses)

    @torch.no_grad()
    def step(
        self,
        x: Float[Tensor, "r k d"],
        cache: Cache,
        seen: Bool[Tensor, "r k slots"],
        memory: Memory,
        position: Int[Tensor, ""],
    ) -> Float[Tensor, "r k d"]:
        """One decoding step: the token at `position` of each hypothesis. It is written into its slot of the cache.

        It attends to the slots in `seen`, which must include its own, and to segment 1 of the memory.
        """
        if not self.causal or self.input_skip:
            raise ValueError("only a causal stack without input_skip goes step by step")
        dtype = compute_dtype(x)
        slots, bias = cache.slots(position), seen_bias(seen, dtype)
        memory_bias = attention_bias(torch.ones_like(seen[:, :, 0], dtype=torch.long), memory.segment, dtype)
        layers = cast("Iterable[DecoderLayer]", self.layers)
        tensors = zip(layers, cache.keys_values.unbind(), memory.keys_values.unbind(), strict=True)
        with attention_kernels(x.device):
            for layer, cached, keys_values in tensors:
                x = layer.step(x, cached, bias, keys_values, memory_bias, slots)
        out: Tensor = self.norm(x)
        return out
