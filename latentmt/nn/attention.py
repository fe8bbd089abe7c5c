"""Multi-head attention over rows that may hold several segments. It knows nothing of what the segments are.

Who may attend to whom is one additive bias, made once for a whole stack. A forbidden pair gets a large finite
number instead of minus infinity: its weight is exactly zero all the same, and a query with nobody to attend
to looks at everything instead of turning into NaN. (A boolean mask would be converted anew by every attention
call.)

The keys and values of a source are a `Memory`: projected once, read by every layer, step and candidate.
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
"""Added to the score of a forbidden pair. exp(-1e4) is zero in every float type, and fp16 can hold it."""

KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Attention may be computed by these. cuDNN's is torch's choice on Hopper, but with a bias it is slower (forward and
backward of 256 rows of 64, 4 heads: 129 µs against 83), and its backward makes NaN of a query that may attend to
nobody."""

KERNELS_TWICE = [SDPBackend.MATH]
"""The only one that can be differentiated twice."""


def attention_kernels(device: torch.device, create_graph: bool = False) -> AbstractContextManager[None]:
    """Attention by these kernels alone, for a while.

    torch keeps this choice for the whole process, so two threads could undo each other's. On a CPU, where threads are
    many, nothing is chosen but for what is differentiated twice: every kernel will do.
    """
    if create_graph:
        return sdpa_kernel(KERNELS_TWICE)
    return sdpa_kernel(KERNELS) if device.type == "cuda" else nullcontext()


@dataclass(frozen=True)
class Source:
    """States to attend to."""

    states: Float[Tensor, "r s d"]
    segment: Int[Tensor, "r s"]
    """Which segment of its row a state is part of, from 1; 0 where the row is empty."""


@dataclass(frozen=True)
class Memory:
    """The keys and values of a source for every layer of one stack."""

    keys_values: Float[Tensor, "layers 2 r h s e"]
    segment: Int[Tensor, "r s"]

    def select(self, rows: Int[Tensor, " n"]) -> Memory:
        """The named rows, in that order."""
        return Memory(self.keys_values.index_select(2, rows), self.segment.index_select(0, rows))


@dataclass(frozen=True)
class Cache:
    """Keys and values of the tokens so far, for every layer of one causal stack; written in place.

    A row may hold several hypotheses that go on side by side. At each position every hypothesis has a slot of its
    own; whose slots it may attend to is for the caller to say. So a hypothesis that continues another one takes over
    what that one has seen, and no key or value is ever copied.
    """

    keys_values: Float[Tensor, "layers 2 r h slots e"]
    hypotheses: int

    def first(self, width: int) -> Cache:
        """The slots of the first `width` positions; a view."""
        return Cache(self.keys_values[:, :, :, :, : width * self.hypotheses], self.hypotheses)

    def select(self, rows: Int[Tensor, " n"]) -> Cache:
        """The named rows, in that order."""
        return Cache(self.keys_values.index_select(2, rows), self.hypotheses)

    def slots(self, position: Int[Tensor, ""]) -> Int[Tensor, " k"]:
        """Where the hypotheses' tokens at a position go."""
        return position * self.hypotheses + torch.arange(self.hypotheses, device=position.device)


def compute_dtype(like: Tensor) -> torch.dtype:
    """What a matrix product of `like` would be computed in, here and now."""
    kind = like.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else like.dtype


def membership(segment: Int[Tensor, "r t"], segments: int) -> Bool[Tensor, "r {segments} t"]:
    """True where a token is part of segment 1, 2, … `segments` of its row."""
    number = torch.arange(1, segments + 1, device=segment.device)
    return segment[:, None, :] == number[:, None]


def segment_lengths(segment: Int[Tensor, "r t"], segments: int) -> Int[Tensor, "r {segments}"]:
    """How many tokens each segment of a row has."""
    return membership(segment, segments).sum(2)


def segment_sizes(segment: Int[Tensor, "r t"]) -> Int[Tensor, "r t"]:
    """How many tokens the segment of each token has, itself included."""
    return (segment[:, :, None] == segment[:, None, :]).sum(2)


def attention_bias(
    query: Int[Tensor, "r t"], key: Int[Tensor, "r s"], dtype: torch.dtype, causal: bool = False
) -> Float[Tensor, "r 1 t s"]:
    """Zero where the segments of query and key are equal (and, if causal, the key is not later)."""
    forbidden = query[:, :, None] != key[:, None, :]
    if causal:
        forbidden = forbidden | torch.ones_like(forbidden[0]).triu(1)
    return forbidden[:, None].to(dtype) * FORBIDDEN


def seen_bias(seen: Bool[Tensor, "r k s"], dtype: torch.dtype) -> Float[Tensor, "r 1 k s"]:
    """Zero where a key is seen."""
    return (~seen)[:, None].to(dtype) * FORBIDDEN


def projection(inputs: int, outputs: int, *, blocks: int = 1, gain: float = 1.0) -> nn.Linear:
    """A linear map to `blocks` things of size `outputs` at once, each initialised as if it were alone."""
    layer = nn.Linear(inputs, blocks * outputs)
    with torch.no_grad():
        for block in layer.weight.chunk(blocks):
            nn.init.xavier_uniform_(block, gain)
        layer.bias.zero_()
    return layer


def split_heads(packed: Float[Tensor, "r t _"], blocks: int, heads: int) -> Float[Tensor, "{blocks} r {heads} t e"]:
    """Keys, values and whatever else one projection made, as attention wants them."""
    parts: Tensor = packed.unflatten(-1, (blocks, heads, -1))
    return parts.permute(2, 0, 3, 1, 4)


class SelfAttention(nn.Module):
    """Attention of a sequence to itself; queries, keys and values come from one matrix product."""

    def __init__(self, width: int, heads: int, gain: float = 1.0) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = projection(width, width, blocks=3)
        self.out = projection(width, width, gain=gain)

    def forward(
        self, x: Float[Tensor, "r t d"], bias: Float[Tensor, "#r 1 t t"], norm: nn.LayerNorm, dropout: nn.Dropout
    ) -> Float[Tensor, "r t d"]:
        """x, and what its tokens gather from each other once they are normalised."""
        query, key, value = split_heads(linear(self.query_key_value, x, norm=norm), 3, self.heads).unbind()
        return linear(self.out, attend(query, key, value, bias), dropout=dropout, added=x)

    def step(
        self,
        x: Float[Tensor, "r k d"],
        cache: Float[Tensor, "2 r h w e"],
        bias: Float[Tensor, "r 1 k w"],
        slots: Int[Tensor, " k"],
        norm: nn.LayerNorm,
    ) -> Float[Tensor, "r k d"]:
        """The same for the newest tokens, which attend to the cache after taking their own slots there."""
        packed = split_heads(linear(self.query_key_value, x, norm=norm), 3, self.heads)
        cache.index_copy_(3, slots, packed[1:])
        return linear(self.out, attend(packed[0], cache[0], cache[1], bias), added=x)


class CrossAttention(nn.Module):
    """Attention to keys and values that somebody else projected.

    There may be several rows for each row of keys, beside each other: candidates for one source. They attend to it
    as queries of one long row, so that nothing is copied.
    """

    def __init__(self, width: int, heads: int, gain: float = 1.0) -> None:
        super().__init__()
        self.heads = heads
        self.query = projection(width, width)
        self.out = projection(width, width, gain=gain)

    def forward(
        self,
        x: Float[Tensor, "r t d"],
        keys_values: Float[Tensor, "2 b h s e"],
        bias: Float[Tensor, "b 1 _ s"],
        norm: nn.LayerNorm,
        dropout: nn.Dropout,
    ) -> Float[Tensor, "r t d"]:
        """x, and what its tokens, once normalised, gather from the source."""
        key, value = keys_values.unbind()
        asked = linear(self.query, x, norm=norm).view(len(key), -1, x.shape[2])
        (query,) = split_heads(asked, 1, self.heads).unbind()
        return linear(self.out, attend(query, key, value, bias).view_as(x), dropout=dropout, added=x)

    def attention_weights(
        self,
        x: Float[Tensor, "r t d"],
        keys_values: Float[Tensor, "2 b h s e"],
        bias: Float[Tensor, "b 1 _ s"],
        norm: nn.LayerNorm,
    ) -> Float[Tensor, "b h _ s"]:
        """The weights that `forward` gathers with: where in the source each token looks."""
        key = keys_values[0]
        asked = linear(self.query, x, norm=norm).view(len(key), -1, x.shape[2])
        (query,) = split_heads(asked, 1, self.heads).unbind()
        weights: Tensor = (query @ key.transpose(2, 3) * key.shape[3] ** -0.5 + bias).softmax(3)
        return weights
