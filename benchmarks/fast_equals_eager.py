"""Whether the compiled training step equals the eager one: same state, same batches, no dropout, for every task.

    python benchmarks/fast_equals_eager.py CORPUS [--preset small] [--rows 256] [--steps 20]

Both use the same noise. (By default compiled code has its own generator.) In fp32 the two differ by rounding alone. In
bf16, which training uses, they differ by bf16's rounding. A third run loads the compiled step's state after half of the
steps into a new `TrainStep`, which captures its step again, as a resumed run does. Each line gives the largest relative
difference of a step's loss, and that of the weights' total movement. The last line is JSON. The exit code is 1 if a
difference exceeds its tolerance.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch._inductor.config
from torch import Tensor
from train_step import batches_of, controls_of, make_parser, make_task, make_train_step

from latentmt.data.corpus import Corpus
from latentmt.data.tokens import Pairs
from latentmt.task import Task
from latentmt.train.ranks import Ranks, pick_device
from latentmt.train.step import TrainStep

TOLERANCE = {"fp32": (1e-4, 2e-2), "bf16": (1e-2, 2e-1), "resumed": (1e-2, 2e-1)}
"""Of losses, and of the movement. Where a gradient is almost zero, Adam turns rounding into movement."""


@dataclass(frozen=True)
class Curve:
    """The losses of a few steps and the change of the weights."""

    losses: list[float]
    movement: Tensor
    """All weights minus the initial ones."""

    def differ(self, other: Curve) -> tuple[float, float]:
        """The largest relative difference of a loss, and the relative difference of the movement."""
        pairs = zip(self.losses, other.losses, strict=True)
        loss = max(abs(mine - theirs) / max(abs(mine), 1e-9) for mine, theirs in pairs)
        return loss, float((self.movement - other.movement).norm() / self.movement.norm())


def weights_of(train_step: TrainStep) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in train_step.parameters]).double()


def steps_of(train_step: TrainStep, task: Task, batches: Sequence[Pairs], numbers: range) -> list[float]:
    losses = []
    for step in numbers:
        train_step.run([batches[step]], controls_of(task, step, len(batches)), seed=step)
        sums = train_step.read_sums()
        losses.append(sums["residual" if "residual" in sums else "loss"] / sums["tokens"])
    return losses


def compare(name: str, arguments: argparse.Namespace, corpus: Corpus, ranks: Ranks) -> dict[str, Any]:
    batches = list(itertools.islice(batches_of(corpus, arguments.rows, pin=False), arguments.steps))
    half, whole = range(arguments.steps // 2), range(arguments.steps)

    def start(mode: str, bf16: bool) -> tuple[Task, TrainStep, Tensor]:
        torch.compiler.reset()
        task = make_task(name, arguments.preset, corpus.tokenizer.size, ranks.device, dropout=0.0)
        train_step = make_train_step(task, ranks, mode=mode, bf16=bf16)
        return task, train_step, weights_of(train_step)

    def curve(mode: str, bf16: bool) -> Curve:
        task, train_step, before = start(mode, bf16)
        return Curve(steps_of(train_step, task, batches, whole), weights_of(train_step) - before)

    def resumed() -> Curve:
        task, train_step, before = start(arguments.mode, True)
        losses = steps_of(train_step, task, batches, half)
        kept = {key: tensor.clone() for key, tensor in train_step.tensors().items()}
        task, train_step, _ = start(arguments.mode, True)
        with torch.no_grad():
            for key, tensor in train_step.tensors().items():
                tensor.copy_(kept[key])
        return Curve(losses + steps_of(train_step, task, batches, whole[len(half) :]), weights_of(train_step) - before)

    compiled = curve(arguments.mode, True)
    results = {
        "fp32": curve("eager", False).differ(curve(arguments.mode, False)),
        "bf16": curve("eager", True).differ(compiled),
        "resumed": compiled.differ(resumed()),
    }
    for kind, (loss, movement) in results.items():
        print(f"{name:<8} {kind:<8} losses {loss:.1e}  movement {movement:.1e}", flush=True)
    return {"losses": compiled.losses, **results}


def _within(results: dict[str, Any]) -> bool:
    return all(
        loss <= TOLERANCE[kind][0] and movement <= TOLERANCE[kind][1]
        for result in results.values()
        for kind in TOLERANCE
        for loss, movement in [result[kind]]
    )


def main() -> None:
    parser = make_parser(__doc__, steps=20)
    parser.add_argument("--mode", default="compiled", help="The mode to compare with eager.")
    arguments = parser.parse_args()
    torch._inductor.config.fallback_random = True
    ranks, corpus = Ranks(device=pick_device(arguments.device)), Corpus.load(arguments.corpus)
    results = {name: compare(name, arguments, corpus, ranks) for name in arguments.tasks}
    within = _within(results)
    print("compiled equals eager" if within else "compiled differs from eager")
    print(json.dumps({"tolerance": TOLERANCE, "within": within, "results": results}))
    sys.exit(not within)


if __name__ == "__main__":
    main()
