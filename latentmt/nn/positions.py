"""Token and position embeddings, and the output projection."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentmt.data.positions import sinusoids

LOGITS_CHUNK = 4096
"""Tokens whose logits are computed at a time."""


class Positions(nn.Module):
    """Sinusoidal position encodings, by the position of a token in its segment."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table: Tensor
        self.register_buffer("table", torch.tensor(sinusoids(width)), persistent=False)

    def forward(self, position: Int[Tensor, "r t"]) -> Float[Tensor, "r t d"]:
        return F.embedding(position.clamp(max=len(self.table) - 1), self.table)


class Embedding(nn.Module):
    """Tied input and output embeddings. Inputs are scaled by √d and positions are added."""

    def __init__(self, vocabulary: int, width: int, dropout: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))
        nn.init.normal_(self.weight, std=width**-0.5)
        self.positions = Positions(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Int[Tensor, "r t"], position: Int[Tensor, "r t"]) -> Float[Tensor, "r t d"]:
        x = F.embedding(ids, self.weight) * math.sqrt(self.weight.shape[1])
        out: Tensor = self.dropout(x + self.positions(position))
        return out

    def logits(self, states: Float[Tensor, "*b d"]) -> Float[Tensor, "*b v"]:
        """The logits of all ids."""
        return F.linear(states, self.weight)

    def best(self, states: Float[Tensor, "r t d"]) -> Int[Tensor, "r t"]:
        """The id with the highest logit."""
        chunks = [self.logits(chunk).argmax(1) for chunk in states.flatten(0, 1).split(LOGITS_CHUNK)]
        return torch.cat(chunks).view(states.shape[:2])

    def likeliest(
        self, states: Float[Tensor, "r t d"], count: int, without: Sequence[int]
    ) -> tuple[Int[Tensor, "r t {count}"], Float[Tensor, "r t {count}"]]:
        """The ids with the highest logits, but for some, and those logits; the highest first."""
        chunks = []
        for chunk in states.flatten(0, 1).split(LOGITS_CHUNK):
            logits = self.logits(chunk)
            for id_ in without:  # one by one: a list of them would be copied from the host
                logits[:, id_].fill_(-torch.inf)
            chunks.append(logits.topk(count, 1))
        shape = (*states.shape[:2], count)
        ids, logits = (torch.cat([getattr(chunk, name) for chunk in chunks]) for name in ("indices", "values"))
        return ids.view(shape), logits.view(shape)

    def log_prob(self, states: Float[Tensor, "r t d"], ids: Int[Tensor, "r t"]) -> Float[Tensor, "r t"]:
        """log softmax at the given ids, in fp32 (or better)."""
        chunks = []
        for chunk, labels in zip(
            states.flatten(0, 1).split(LOGITS_CHUNK), ids.flatten().split(LOGITS_CHUNK), strict=True
        ):
            logits = self.logits(chunk)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            chunks.append(logits.gather(1, labels[:, None])[:, 0] - logits.logsumexp(1))
        return torch.cat(chunks).view(ids.shape)

    def log_probs(self, states: Float[Tensor, "r t d"], ids: Int[Tensor, "r k"]) -> Float[Tensor, "r t k"]:
        """log softmax at several ids of a row, for each of its states, in fp32 (or better)."""
        rows, chunks = max(1, LOGITS_CHUNK // states.shape[1]), []
        for chunk, labels in zip(states.split(rows), ids.split(rows), strict=True):
            logits = self.logits(chunk)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            at_labels = logits.gather(2, labels[:, None].expand(-1, logits.shape[1], -1))
            chunks.append(at_labels - logits.logsumexp(2, keepdim=True))
        return torch.cat(chunks)
