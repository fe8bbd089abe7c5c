"""The interface between what is trained and the training loop.

A task holds a network and computes the loss of a batch of packed pairs. It knows nothing of optimizers, steps or where
batches come from. What changes along a run (the KL budget, say) is passed as `controls`, tensors on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor, nn

from latentmt.data.tokens import Pairs

Controls = Mapping[str, Float[Tensor, ""]]


@dataclass(frozen=True)
class Cost:
    """The loss of a batch: sums over its tokens, not means."""

    total: Float[Tensor, ""]
    """What is minimised, once it is divided by all tokens of a step."""
    sums: dict[str, Float[Tensor, ""]]
    """What is reported, `tokens` among it."""


CostFunction = Callable[[Pairs, Controls], Cost]


@runtime_checkable
class Task(Protocol):
    """Something to train."""

    @property
    def metrics(self) -> Mapping[str, tuple[str, str]]:
        """What is reported: name → (numerator, denominator), both keys of `Cost.sums`."""
        ...

    @property
    def network(self) -> nn.Module:
        """The network that is trained."""
        ...

    def controls(self, step: int, total: int) -> dict[str, float]:
        """The values that the cost depends on at a step of a run."""
        ...

    def cost(self, batch: Pairs, controls: Controls) -> Cost: ...

    def compiled_cost(self) -> CostFunction:
        """The same function, compiled as far as possible."""
        ...
