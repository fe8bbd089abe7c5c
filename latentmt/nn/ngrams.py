"""An n-gram language model as tensors, asked about many tokens at once (`ngrams/model.py`)."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from latentmt.ngrams.model import ZERO_BACKOFF, NgramModel

NONE = -1
"""The node of n-grams that the trie does not have."""


class NgramTables(nn.Module):
    """For each level but the first, the keys of its n-grams, parent · vocabulary + token, in ascending order."""

    def __init__(self, model: NgramModel) -> None:
        super().__init__()
        self.order, self.surprisal, self.vocabulary = model.order, model.surprisal, model.sizes[0]
        for number, level in enumerate(model.levels, 1):
            if number > 1:
                parents = np.repeat(np.arange(model.sizes[number - 2]), np.diff(model.first[number - 2]))
                self._add(f"keys_{number}", parents * self.vocabulary + level.tokens)
            self._add(f"costs_{number}", level.costs.astype(np.int64))
            self._add(f"backoffs_{number}", ZERO_BACKOFF - level.backoffs.astype(np.int64))
        start = [*model.start, *[NONE] * (model.order - 1 - len(model.start))]
        self.start: Tensor
        self._add("start", np.array(start))

    def _add(self, name: str, values: np.ndarray) -> None:
        values = values if len(values) else np.array([NONE])  # a level without n-grams has one that is never found
        self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)), persistent=False)

    def step(
        self, state: Int[Tensor, "*b contexts"], token: Int[Tensor, "*b"]
    ) -> tuple[Float[Tensor, "*b"], Int[Tensor, "*b contexts"]]:
        """−log p of tokens in steps, and the states after them. A state has the nodes of the last 1, 2, … tokens."""
        cost, nodes, known = self._table("costs", 1)[token], [token], torch.ones_like(token, dtype=torch.bool)
        for number in range(2, self.order + 1):
            context, keys = state[..., number - 2], self._table("keys", number)
            wanted = context * self.vocabulary + token
            at = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
            exists = context != NONE
            known = known & exists & (keys[at] == wanted)
            backoff = torch.where(exists, self._table("backoffs", number - 1)[context.clamp(min=0)], 0)
            cost = torch.where(known, self._table("costs", number)[at], cost + backoff)
            nodes.append(torch.where(known, at, NONE))
        return cost.float(), torch.stack(nodes[: self.order - 1], -1)

    def levels(self, name: str) -> list[Int[Tensor, " n"]]:
        """The tables of all levels: `keys` (of all but the first), `costs` or `backoffs`."""
        return [self._table(name, number) for number in range(2 if name == "keys" else 1, self.order + 1)]

    def _table(self, name: str, number: int) -> Tensor:
        table: Tensor = getattr(self, f"{name}_{number}")
        return table
