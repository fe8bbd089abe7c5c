"""Multi-head attention over rows that may hold several segments. It does not know what the segments are.

The mask is an additive bias, computed once for a whole stack. A masked pair gets a large finite number instead of minus
infinity. Its weight is still exactly zero, and a query without keys attends to all of them instead of giving NaN. (A
boolean mask would be converted by every attention call.)

The keys and values of a source are a `Memory`. They are projected once and used by every layer, step and candidate.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from latentmt.nn.fused import attend, linear

FORBIDDEN = -1e4
"""Added to the score of a masked pair. exp(-1e4) is zero in every float type, and fp16 can represent it."""

KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""The kernels that attention may use. torch prefers cuDNN's on Hopper, but with a bias it is slower (forward and
backward of 256 rows of 64, 4 heads: 129 µs against 83), and its backward gives NaN for a query without keys."""

DOUBLE_BACKWARD_KERNELS = [SDPBackend.MATH]
"""The only kernel with a double backward."""


def attention_kernels(device: torch.device, create_graph: bool = False) -> AbstractContextManager[None]:
    """A context in which attention uses these kernels only.

    torch keeps this setting per process, so two threads could undo each other's. On a CPU, which serves many threads,
    it is set only for a double backward: every kernel is suitable.
    """
    if create_graph:
        return sdpa_kernel(DOUBLE_BACKWARD_KERNELS)
    return sdpa_kernel(KERNELS) if device.type == "cuda" else nullcontext()


@dataclass(frozen=True)
class EncoderOutput:
    """The output of an encoder."""

    states: Float[Tensor, "r s d"]
    segment: Int[Tensor, "r s"]
    """The segment of each state, from 1; 0 for padding."""

    def select(self, rows: Int[Tensor, " n"]) -> EncoderOutput:
        """The given rows, in that order."""
        return EncoderOutput(self.states.index_select(0, rows), self.segment.index_select(0, rows))

    def repeat(self, times: int) -> EncoderOutput:
        """Every row repeated, in adjacent rows."""
        return EncoderOutput(self.states.repeat_interleave(times, 0), self.segment.repeat_interleave(times, 0))

    def spread(self, places: Int[Tensor, "p t"], times: int) -> Float[Tensor, "p t d"]:
        """The state at each place, if every state has so many adjacent places, and the last one what is left over.

        `places` are segments. With n times as many rows of places, each row of states serves n adjacent rows.
        """
        rows = candidates(len(places), len(self.segment))
        index = torch.arange(self.segment.shape[1], device=places.device)
        segment = self.segment.repeat_interleave(rows, 0)
        last = torch.where(places[:, :, None] == segment[:, None, :], index, -1).amax(2)
        usual = torch.arange(places.shape[1], device=places.device) // times
        chosen = torch.minimum(usual, last).clamp(min=0).view(len(self.segment), rows * places.shape[1], 1)
        return self.states.gather(1, chosen.expand(-1, -1, self.states.shape[2])).view(*places.shape, -1)


@dataclass(frozen=True)
class Memory:
    """The projected keys and values of a source, for every layer of one stack."""

    keys_values: Float[Tensor, "layers 2 r h s e"]
    segment: Int[Tensor, "r s"]
    inputs: EncoderOutput | None = None
    """What is spread over the input of the stack, if it also reads its source there."""

    def select(self, rows: Int[Tensor, " n"]) -> Memory:
        """The given rows, in that order."""
        inputs = self.inputs and self.inputs.select(rows)
        return Memory(self.keys_values.index_select(2, rows), self.segment.index_select(0, rows), inputs)

    def joined(self, other: Memory) -> Memory:
        """Both at once. With n times as many rows in the other one, each row of this one serves n consecutive rows."""
        times = candidates(len(other.segment), len(self.segment))
        mine = self if times == 1 else self.repeat(times)
        keys_values = torch.cat((mine.keys_values, other.keys_values), 4)
        return Memory(keys_values, torch.cat((mine.segment, other.segment), 1), mine.inputs)

    def repeat(self, times: int) -> Memory:
        """Every row repeated, in adjacent rows."""
        inputs = self.inputs and self.inputs.repeat(times)
        return Memory(self.keys_values.repeat_interleave(times, 2), self.segment.repeat_interleave(times, 0), inputs)


@dataclass(frozen=True)
class Cache:
    """Keys and values of the previous tokens, for every layer of one causal stack. Written in place.

    A row may hold several hypotheses. At each position every hypothesis has its own slot. The caller says which slots a
    hypothesis may attend to. So a hypothesis can continue another one without copying keys or values.
    """

    keys_values: Float[Tensor, "layers 2 r h slots e"]
    hypotheses: int

    def first(self, width: int) -> Cache:
        """The slots of the first `width` positions; a view."""
        return Cache(self.keys_values[:, :, :, :, : width * self.hypotheses], self.hypotheses)

    def select(self, rows: Int[Tensor, " n"]) -> Cache:
        """The given rows, in that order."""
        return Cache(self.keys_values.index_select(2, rows), self.hypotheses)

    def slots(self, position: Int[Tensor, ""]) -> Int[Tensor, " k"]:
        """The slots of the hypotheses' tokens at a position."""
        return position * self.hypotheses + torch.arange(self.hypotheses, device=position.device)


def compute_dtype(like: Tensor) -> torch.dtype:
    """The dtype of a matrix product of `like`, which depends on autocast."""
    kind = like.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else like.dtype


def candidates(targets: int, sources: int) -> int:
    """How many consecutive rows of targets there are for each row of sources."""
    if targets % max(sources, 1):
        raise ValueError(f"{targets} rows of targets for {sources} of sources")
    return targets // max(sources, 1)


def membership(segment: Int[Tensor, "r t"], segments: int) -> Bool[Tensor, "r {segments} t"]:
    """One mask for each of the segments 1, 2, … `segments` of a row."""
    number = torch.arange(1, segments + 1, device=segment.device)
    return segment[:, None, :] == number[:, None]


def segment_lengths(segment: Int[Tensor, "r t"], segments: int) -> Int[Tensor, "r {segments}"]:
    """The number of tokens of each segment of a row."""
    return membership(segment, segments).sum(2)


def segment_sizes(segment: Int[Tensor, "r t"]) -> Int[Tensor, "r t"]:
    """The number of tokens in the segment of each token, including itself."""
    return (segment[:, :, None] == segment[:, None, :]).sum(2)


def attention_bias(
    query: Int[Tensor, "r t"], key: Int[Tensor, "r s"], dtype: torch.dtype, causal: bool = False
) -> Float[Tensor, "r 1 t s"]:
    """Zero where the segments of query and key are equal (and, if causal, the key is not later); masked elsewhere."""
    forbidden = query[:, :, None] != key[:, None, :]
    if causal:
        forbidden = forbidden | torch.ones_like(forbidden[0]).triu(1)
    return forbidden[:, None].to(dtype) * FORBIDDEN


def seen_bias(seen: Bool[Tensor, "r k s"], dtype: torch.dtype) -> Float[Tensor, "r 1 k s"]:
    """Zero where a key may be attended to."""
    return (~seen)[:, None].to(dtype) * FORBIDDEN


class PackedLinear(nn.Linear):
    """A linear layer with `blocks` outputs of size `outputs`, each initialised as a layer of its own."""

    def __init__(self, inputs: int, outputs: int, *, blocks: int = 1, gain: float = 1.0) -> None:
        super().__init__(inputs, blocks * outputs)
        self.blocks = blocks
        with torch.no_grad():
            for block in self.weight.chunk(blocks):
                nn.init.xavier_uniform_(block, gain)
            self.bias.zero_()


def split_heads(packed: Float[Tensor, "r t _"], blocks: int, heads: int) -> Float[Tensor, "{blocks} r {heads} t e"]:
    """Split the output of a projection into blocks (queries, keys, values) and heads."""
    split: Tensor = packed.unflatten(-1, (blocks, heads, -1))
    return split.permute(2, 0, 3, 1, 4)


class SelfAttention(nn.Module):
    """Self-attention. Queries, keys and values are computed in one matrix product."""

    def __init__(self, width: int, heads: int, gain: float = 1.0) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = PackedLinear(width, width, blocks=3)
        self.out = PackedLinear(width, width, gain=gain)

    def forward(
        self, x: Float[Tensor, "r t d"], bias: Float[Tensor, "#r 1 t t"], norm: nn.LayerNorm, dropout: nn.Dropout
    ) -> Float[Tensor, "r t d"]:
        """x + attention(norm(x))."""
        query, key, value = split_heads(linear(self.query_key_value, x, norm=norm), 3, self.heads).unbind()
        return linear(self.out, attend(query, key, value, bias), dropout=dropout, residual=x)

    def step(
        self,
        x: Float[Tensor, "r k d"],
        cache: Float[Tensor, "2 r h w e"],
        bias: Float[Tensor, "r 1 k w"],
        slots: Int[Tensor, " k"],
        norm: nn.LayerNorm,
    ) -> Float[Tensor, "r k d"]:
        """One decoding step: write the new tokens into the cache, then attend to it."""
        packed = split_heads(linear(self.query_key_value, x, norm=norm), 3, self.heads)
        cache.index_copy_(3, slots, packed[1:])
        return linear(self.out, attend(packed[0], cache[0], cache[1], bias), residual=x)


class CrossAttention(nn.Module):
    """Cross-attention to keys and values that were projected before.

    There may be several consecutive rows of queries for each row of keys: candidates for one source. They attend to it
    as queries of one long row, so keys and values are not copied.
    """

    def __init__(self, width: int, heads: int, gain: float = 1.0) -> None:
        super().__init__()
        self.heads = heads
        self.query = PackedLinear(width, width)
        self.out = PackedLinear(width, width, gain=gain)

    def forward(
        self,
        x: Float[Tensor, "r t d"],
        keys_values: Float[Tensor, "2 b h s e"],
        bias: Float[Tensor, "b 1 _ s"],
        norm: nn.LayerNorm,
        dropout: nn.Dropout,
    ) -> Float[Tensor, "r t d"]:
        """x + attention(norm(x), source)."""
        key, value = keys_values.unbind()
        return linear(
            self.out, attend(self._query(x, norm, len(key)), key, value, bias).view_as(x), dropout=dropout, residual=x
        )

    def attention_weights(
        self,
        x: Float[Tensor, "r t d"],
        keys_values: Float[Tensor, "2 b h s e"],
        bias: Float[Tensor, "b 1 _ s"],
        norm: nn.LayerNorm,
    ) -> Float[Tensor, "b h _ s"]:
        """The attention weights of `forward`."""
        key = keys_values[0]
        scores = self._query(x, norm, len(key)) @ key.transpose(2, 3) * key.shape[3] ** -0.5
        weights: Tensor = (scores + bias).softmax(3)
        return weights

    def _query(self, x: Float[Tensor, "r t d"], norm: nn.LayerNorm, rows: int) -> Float[Tensor, "{rows} h _ e"]:
        """The queries of x, with consecutive rows joined to `rows` rows."""
        projected = linear(self.query, x, norm=norm).view(rows, -1, x.shape[2])
        return split_heads(projected, 1, self.heads)[0]
