"""One optimizer step: forward, backward, sum over ranks, clip, Adam, EMA. It does not know the number of the step.

Everything that changes from step to step is a tensor on the device (`controls`), and the host never waits for the
device. A step whose gradient is not finite is skipped on the device and counted there. Gradients are sums over tokens,
divided once by all tokens of the step, so the split into ranks and micro-batches makes no difference.

On one GPU the first step is compiled and captured as a CUDA graph without changing any state. Every step replays it.
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
from latentmt.nn.cuda_graph import CapturedGraph, capture
from latentmt.task import Cost, CostFunction, Task
from latentmt.train.config import Optimizer
from latentmt.train.muon import Muon
from latentmt.train.ranks import Ranks

Mode = Literal["eager", "graph", "compiled"]
"""Eager; captured as a CUDA graph; or compiled and then captured."""


class TrainStep:
    """A network, its optimizer and the EMA of its weights, updated one step at a time."""

    def __init__(
        self,
        task: Task,
        ranks: Ranks,
        *,
        optimizer: Optimizer = "adam",
        betas: tuple[float, float],
        epsilon: float,
        max_grad_norm: float,
        controls: Sequence[str],
        mode: Mode | None = None,
        bf16: bool | None = None,
    ) -> None:
        on_gpu = ranks.device.type == "cuda"
        self._task, self._ranks, self._max_grad_norm = task, ranks, max_grad_norm
        self._mode = mode or ("compiled" if on_gpu and ranks.world_size == 1 else "eager")
        self._bf16 = on_gpu if bf16 is None else bf16
        network = task.network.to(ranks.device)
        self.names = [name for name, parameter in network.named_parameters() if parameter.requires_grad]
        self.parameters: list[Tensor] = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.ema = [parameter.detach().clone() for parameter in self.parameters]
        controls = ("learning_rate", "ema_decay", *controls)
        self.controls = {name: torch.zeros((), device=ranks.device) for name in controls}
        dtype = torch.bfloat16 if self._bf16 else torch.float32
        self._muon = Muon(network, dtype) if optimizer == "muon" else None
        momenta = self._muon.momenta if self._muon else {}
        others = [parameter for parameter in self.parameters if parameter not in momenta]
        self._adam = torch.optim.Adam(
            others, self.controls["learning_rate"], betas, epsilon, fused=True, capturable=on_gpu
        )
        for parameter in others:  # created now, so that a checkpoint can be loaded into them
            self._adam.state[parameter] = {
                "step": torch.zeros((), device=ranks.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.sums: dict[str, Float[Tensor, ""]] = {}
        """Sums of costs since the last `read_sums`, and the number of steps skipped, under `skipped`."""
        self._captured: tuple[list[Pairs], CapturedGraph[None]] | None = None
        """The input tensors of the captured step, and its graph."""

    def run(self, micro_batches: Sequence[Pairs], controls: Mapping[str, float], seed: int) -> None:
        """Update the weights from the micro-batches of one batch."""
        if self._mode != "eager" and self._captured is None:
            self._capture(micro_batches)
        self.set_controls(controls)
        torch.manual_seed(seed)
        if self._captured is None:
            self._step([batch.to(self._ranks.device) for batch in micro_batches], self._task.cost)
            return
        inputs, graph = self._captured
        for target, batch in zip(inputs, micro_batches, strict=True):
            target.copy_(batch)
        graph.replay()

    def _capture(self, micro_batches: Sequence[Pairs]) -> None:
        """Compile and capture the step, and restore all state."""
        inputs = [batch.to(self._ranks.device) for batch in micro_batches]
        cost = self._task.compiled_cost() if self._mode == "compiled" else self._task.cost
        self._captured = inputs, capture(lambda: self._step(inputs, cost), self._ranks.device, undo=self.snapshot())

    def _step(self, micro_batches: Sequence[Pairs], cost_function: CostFunction) -> None:
        self._task.network.train()
        tokens = torch.zeros((), device=self._ranks.device)
        for batch in micro_batches:
            with self._precision():
                cost = cost_function(batch, self.controls)
            cost.total.backward()
            tokens = tokens + cost.sums["tokens"]
            self._add_sums(cost.sums)
        self._update(tokens)

    def set_controls(self, values: Mapping[str, float]) -> None:
        """Set the values that the next cost and the next step depend on."""
        for name, value in values.items():
            self.controls[name].fill_(value)

    def cost(self, batch: Pairs) -> Cost:
        """The cost of a batch, without an update."""
        with self._precision():
            return self._task.cost(batch.to(self._ranks.device), self.controls)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self._ranks.device.type, torch.bfloat16, enabled=self._bf16, cache_enabled=False)

    def _update(self, tokens: Float[Tensor, ""]) -> None:
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        self._ranks.all_reduce_([*gradients, tokens])
        norm = get_total_norm(gradients) / tokens
        not_finite = (~torch.isfinite(norm)).float()
        # The fused kernel divides gradients by `grad_scale`, and skips the step if `found_inf` is set.
        scale = ((norm + 1e-6) / self._max_grad_norm).clamp(min=1.0)
        divisor = tokens * scale
        self._adam.grad_scale = divisor  # type: ignore[attr-defined]
        self._adam.found_inf = not_finite  # type: ignore[attr-defined]
        self._adam.step()
        if self._muon:
            self._muon.step(self.controls["learning_rate"], divisor, not_finite)
        change = list(torch._foreach_sub([parameter.detach() for parameter in self.parameters], self.ema))
        torch._foreach_mul_(change, 1.0 - self.controls["ema_decay"])
        torch._foreach_add_(self.ema, change)
        for parameter in self.parameters:
            parameter.grad = None
        self._add_sums({"skipped": not_finite, "norm": norm, "steps": torch.ones_like(norm)})

    def _add_sums(self, sums: Mapping[str, Tensor]) -> None:
        for name, value in sums.items():
            if name not in self.sums:
                self.sums[name] = torch.zeros((), dtype=torch.float64, device=value.device)
            self.sums[name].add_(value.detach())

    def read_sums(self) -> dict[str, float]:
        """The sums over all ranks since the last call. This waits for the device."""
        self._ranks.all_reduce_(self.sums.values())
        values = torch.stack(list(self.sums.values())).tolist() if self.sums else []
        for total in self.sums.values():
            total.zero_()
        return dict(zip(self.sums, values, strict=True))

    @contextmanager
    def ema_weights(self) -> Iterator[None]:
        """Use the EMA weights in the network, in evaluation mode, inside this context."""
        with torch.no_grad():
            weights = [parameter.detach().clone() for parameter in self.parameters]
            torch._foreach_copy_(self.parameters, self.ema)
            self._task.network.eval()
            try:
                yield
            finally:
                torch._foreach_copy_(self.parameters, weights)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that a later step depends on, by name. No copies."""
        tensors = {}
        for name, parameter, ema in zip(self.names, self.parameters, self.ema, strict=True):
            tensors[f"weight.{name}"] = parameter.data
            tensors[f"average.{name}"] = ema
            for key, value in self._state(parameter).items():
                tensors[f"{key}.{name}"] = value
        return tensors

    def _state(self, parameter: Tensor) -> Mapping[str, Tensor]:
        """What the optimizer remembers of a parameter."""
        if self._muon and parameter in self._muon.momenta:
            return {"momentum": self._muon.momenta[parameter]}
        state: Mapping[str, Tensor] = self._adam.state[parameter]
        return state

    def snapshot(self) -> Callable[[], None]:
        """Copy all state. The function returned restores it and clears the sums."""
        tensors = self.tensors()
        copies = {name: tensor.clone() for name, tensor in tensors.items()}

        @torch.no_grad()
        def restore() -> None:
            for name, tensor in tensors.items():
                tensor.copy_(copies[name])
            self.read_sums()

        return restore

    def ema_state_dict(self) -> dict[str, Tensor]:
        """The EMA weights under the network's parameter names."""
        return dict(zip(self.names, self.ema, strict=True))
