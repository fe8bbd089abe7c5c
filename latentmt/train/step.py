"""One optimiser step: forward, backward, sum over ranks, clip, Adam, average. It does not know which step it is.

Everything that changes from step to step is a tensor on the device (`controls`), and nothing waits for the device:
a step whose gradient is not finite is skipped on the device and counted there. Gradients are sums over tokens divided
once by all tokens of the step, so it makes no difference how a batch is cut into ranks and parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import get_total_norm

from latentmt.data.tokens import Pairs
from latentmt.train.ranks import Ranks
from latentmt.train.tasks import Cost, Task


class Stepper:
    """A network, its optimiser and its average, advanced one step at a time."""

    def __init__(
        self,
        task: Task,
        ranks: Ranks,
        *,
        betas: tuple[float, float],
        epsilon: float,
        clip: float,
        controls: Sequence[str],
    ) -> None:
        self._task, self._ranks, self._clip = task, ranks, clip
        network = task.network.to(ranks.device)
        self.names = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
        self.parameters: list[Tensor] = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.average = [parameter.detach().clone() for parameter in self.parameters]
        self.controls = {name: torch.zeros((), device=ranks.device) for name in ("rate", "decay", *controls)}
        self._adam = torch.optim.Adam(self.parameters, self.controls["rate"], betas, epsilon, fused=True)
        for parameter in self.parameters:  # made now, so that a saved state finds them
            self._adam.state[parameter] = {
                "step": torch.zeros((), device=ranks.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.sums: dict[str, Float[Tensor, ""]] = {}
        """What the batches cost since these were last read, and under `skipped` the steps that were not taken."""

    def run(self, parts: Sequence[Pairs], controls: Mapping[str, float], seed: int) -> None:
        """Learn from a batch that comes in parts."""
        self.control(controls)
        torch.manual_seed(seed)
        self._task.network.train()
        tokens = torch.zeros((), device=self._ranks.device)
        for part in parts:
            cost = self.cost(part)
            cost.total.backward()
            tokens = tokens + cost.sums["tokens"]
            self._count(cost.sums)
        self._update(tokens)

    def control(self, values: Mapping[str, float]) -> None:
        """Set what the next cost and the next step depend on."""
        for name, value in values.items():
            self.controls[name].fill_(value)

    def cost(self, batch: Pairs) -> Cost:
        """What a batch costs, in bf16 where that is fast."""
        device = self._ranks.device
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda", cache_enabled=False):
            return self._task.cost(batch.to(device), self.controls)

    def _update(self, tokens: Float[Tensor, ""]) -> None:
        learnt = [parameter for parameter in self.parameters if parameter.grad is not None]
        gradients = [parameter.grad for parameter in learnt if parameter.grad is not None]
        self._ranks.sum_([*gradients, tokens])
        torch._foreach_mul_(gradients, 1.0 / tokens)
        norm = get_total_norm(gradients)
        torch._foreach_mul_(gradients, (self._clip / (norm + 1e-6)).clamp(max=1.0))
        bad = (~torch.isfinite(norm)).float()
        self._adam.found_inf = bad  # type: ignore[attr-defined] # the fused kernel then takes no step
        self._adam.step()
        change = list(torch._foreach_sub([parameter.detach() for parameter in self.parameters], self.average))
        torch._foreach_mul_(change, 1.0 - self.controls["decay"])
        torch._foreach_add_(self.average, change)
        self._adam.zero_grad()
        self._count({"skipped": bad, "norm": norm, "steps": torch.ones_like(norm)})

    def _count(self, sums: Mapping[str, Tensor]) -> None:
        for name, value in sums.items():
            value = value.detach().float()
            self.sums[name] = self.sums[name] + value if name in self.sums else value

    def read_sums(self) -> dict[str, float]:
        """The sums of all ranks since the last call; this waits for the device."""
        sums, self.sums = self.sums, {}
        self._ranks.sum_(sums.values())
        return {name: float(value) for name, value in sums.items()}

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The network with its averaged weights, in evaluation mode, for a while."""
        with torch.no_grad():
            kept = [parameter.detach().clone() for parameter in self.parameters]
            torch._foreach_copy_(self.parameters, self.average)
            self._task.network.eval()
            try:
                yield
            finally:
                torch._foreach_copy_(self.parameters, kept)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a later step depends on, by name; the tensors themselves."""
        found = {}
        for name, parameter, average in zip(self.names, self.parameters, self.average, strict=True):
            found[f"weight.{name}"] = parameter.data
            found[f"average.{name}"] = average
            for key, value in self._adam.state[parameter].items():
                found[f"{key}.{name}"] = value
        return found

    def averaged_weights(self) -> dict[str, Tensor]:
        """The averaged weights under the names of the network's own."""
        return dict(zip(self.names, self.average, strict=True))
