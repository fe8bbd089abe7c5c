"""One optimiser step: forward, backward, sum over ranks, clip, Adam, average. It does not know which step it is.

Everything that changes from step to step is a tensor on the device (`controls`), and nothing waits for the device:
a step whose gradient is not finite is skipped on the device and counted there. Gradients are sums over tokens divided
once by all tokens of the step, so it makes no difference how a batch is cut into ranks and parts.

On one GPU the first step is compiled and recorded as a CUDA graph, which leaves no trace, and every step replays it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import get_total_norm

from latentmt.data.tokens import Pairs
from latentmt.nn.fast import Recording, record
from latentmt.train.ranks import Ranks
from latentmt.train.tasks import Cost, CostFunction, Task

Mode = Literal["eager", "graph", "fast"]
"""As it is written; recorded as a CUDA graph; or compiled and then recorded."""


class Stepper:
    """A network, its optimiser and its average, advanced one step at a time."""

    def __init__(
        self,
        task: Task,
        ranks: Ranks,
        *,
        betas: tuple[float, float],
        epsilon: float,
        max_grad_norm: float,
        controls: Sequence[str],
        mode: Mode | None = None,
        bf16: bool | None = None,
    ) -> None:
        on_gpu = ranks.device.type == "cuda"
        self._task, self._ranks, self._max_grad_norm = task, ranks, max_grad_norm
        self._mode = mode or ("fast" if on_gpu and ranks.count == 1 else "eager")
        self._bf16 = on_gpu if bf16 is None else bf16
        network = task.network.to(ranks.device)
        self.names = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
        self.parameters: list[Tensor] = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.average = [parameter.detach().clone() for parameter in self.parameters]
        names = ("learning_rate", "ema_decay", *controls)
        self.controls = {name: torch.zeros((), device=ranks.device) for name in names}
        self._adam = torch.optim.Adam(
            self.parameters, self.controls["learning_rate"], betas, epsilon, fused=True, capturable=on_gpu
        )
        for parameter in self.parameters:  # made now, so that a saved state finds them
            self._adam.state[parameter] = {
                "step": torch.zeros((), device=ranks.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.sums: dict[str, Float[Tensor, ""]] = {}
        """What the batches cost since these were last read, and under `skipped` the steps that were not taken."""
        self._recorded: tuple[list[Pairs], Recording[None]] | None = None
        """The tensors a batch goes into, and the step on them."""

    def run(self, parts: Sequence[Pairs], controls: Mapping[str, float], seed: int) -> None:
        """Learn from a batch that comes in parts."""
        if self._mode != "eager" and self._recorded is None:
            self._record(parts)
        self.control(controls)
        torch.manual_seed(seed)
        if self._recorded is None:
            self._learn([part.to(self._ranks.device) for part in parts], self._task.cost)
            return
        inputs, recording = self._recorded
        for taken, part in zip(inputs, parts, strict=True):
            taken.copy_(part)
        recording.replay()

    def _record(self, parts: Sequence[Pairs]) -> None:
        """Compile and record the step, and leave everything as it was."""
        inputs = [part.to(self._ranks.device) for part in parts]
        cost = self._task.compiled_cost() if self._mode == "fast" else self._task.cost
        self._recorded = inputs, record(lambda: self._learn(inputs, cost), self._ranks.device, undo=self.snapshot())

    def _learn(self, parts: Sequence[Pairs], cost: CostFunction) -> None:
        self._task.network.train()
        tokens = torch.zeros((), device=self._ranks.device)
        for part in parts:
            with self._precision():
                some = cost(part, self.controls)
            some.total.backward()
            tokens = tokens + some.sums["tokens"]
            self._count(some.sums)
        self._update(tokens)

    def control(self, values: Mapping[str, float]) -> None:
        """Set what the next cost and the next step depend on."""
        for name, value in values.items():
            self.controls[name].fill_(value)

    def cost(self, batch: Pairs) -> Cost:
        """What a batch costs."""
        with self._precision():
            return self._task.cost(batch.to(self._ranks.device), self.controls)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self._ranks.device.type, torch.bfloat16, enabled=self._bf16, cache_enabled=False)

    def _update(self, tokens: Float[Tensor, ""]) -> None:
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        self._ranks.sum_([*gradients, tokens])
        norm = get_total_norm(gradients) / tokens
        bad = (~torch.isfinite(norm)).float()
        # The fused kernel divides gradients by the one, and takes no step where the other says so.
        self._adam.grad_scale = tokens * ((norm + 1e-6) / self._max_grad_norm).clamp(min=1.0)  # type: ignore[attr-defined]
        self._adam.found_inf = bad  # type: ignore[attr-defined]
        self._adam.step()
        change = list(torch._foreach_sub([parameter.detach() for parameter in self.parameters], self.average))
        torch._foreach_mul_(change, 1.0 - self.controls["ema_decay"])
        torch._foreach_add_(self.average, change)
        self._adam.zero_grad()
        self._count({"skipped": bad, "norm": norm, "steps": torch.ones_like(norm)})

    def _count(self, sums: Mapping[str, Tensor]) -> None:
        for name, value in sums.items():
            if name not in self.sums:
                self.sums[name] = torch.zeros((), dtype=torch.float64, device=value.device)
            self.sums[name].add_(value.detach())

    def read_sums(self) -> dict[str, float]:
        """The sums of all ranks since the last call; this waits for the device."""
        self._ranks.sum_(self.sums.values())
        read = torch.stack(list(self.sums.values())).tolist() if self.sums else []
        for total in self.sums.values():
            total.zero_()
        return dict(zip(self.sums, read, strict=True))

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

    def snapshot(self) -> Callable[[], None]:
        """Remember how things stand; what is returned makes them so again, and forgets what was counted since."""
        tensors = self.tensors()
        kept = {name: tensor.clone() for name, tensor in tensors.items()}

        @torch.no_grad()
        def put_back() -> None:
            for name, tensor in tensors.items():
                tensor.copy_(kept[name])
            self.read_sums()

        return put_back

    def averaged_weights(self) -> dict[str, Tensor]:
        """The averaged weights under the names of the network's own."""
        return dict(zip(self.names, self.average, strict=True))
