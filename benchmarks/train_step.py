"""The speed of a training step, eager and compiled, for every task.

    python benchmarks/train_step.py CORPUS [--preset small] [--rows 256] [--steps 100]

CORPUS is a folder that `latentmt prepare` wrote. Batches come as in training: packed, made in a thread, copied to the
device. Tokens are real target tokens, padding not counted. Weights are random. FLOPs are those of the matrix products
of one eager step, and the peak is what a large bf16 matrix product reaches on this device in this run. The last line
is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from latentmt.data.batches import PackedBatches
from latentmt.data.corpus import Corpus
from latentmt.data.pack import pack
from latentmt.data.tokens import Pairs
from latentmt.engines.torch_engine import device_name
from latentmt.fields.learned import DisplacementConfig, FieldConfig
from latentmt.fields.registry import field_network, learned_field
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.task import Task
from latentmt.train.ranks import Ranks, pick_device
from latentmt.train.step import TrainStep
from latentmt.train.tasks import ElboConfig, LatentTask, TeacherTask


def make_task(name: str, preset: Any, vocabulary: int, device: torch.device, dropout: float | None = None) -> Task:
    """A task with random weights, the same at every call."""
    torch.manual_seed(0)
    if name == "teacher":
        return TeacherTask(Teacher(TeacherConfig(preset=preset, dropout=dropout), vocabulary), 0.1)
    config = LatentConfig(preset=preset, dropout=dropout)
    latent = LatentModel(config, vocabulary).to(device)
    if name == "latent":
        return LatentTask(latent, 0.1, ElboConfig())
    network = field_network(FieldConfig(kind=name, preset=preset, dropout=dropout), config)
    return learned_field(name).task(network, latent.eval().requires_grad_(False), DisplacementConfig())


def make_train_step(task: Task, ranks: Ranks, **options: Any) -> TrainStep:
    controls = list(task.controls(0, 1))
    return TrainStep(task, ranks, betas=(0.9, 0.98), epsilon=1e-9, max_grad_norm=1.0, controls=controls, **options)


def controls_of(task: Task, step: int, total: int) -> dict[str, float]:
    return task.controls(step, total) | {"learning_rate": 1e-4, "ema_decay": 0.999}


def batches_of(corpus: Corpus, rows: int, pin: bool) -> PackedBatches:
    split = corpus.split("train")
    packing = pack(split.source.lengths, split.target.lengths, corpus.manifest.row_width, 1)
    return PackedBatches(split, packing, rows, seed=1, pin=pin)


def measure(train_step: TrainStep, task: Task, stream: Iterator[Pairs], steps: int) -> dict[str, float]:
    """Seconds until the first steps are done, then the time of a step and real tokens a second."""
    began = time.perf_counter()
    for step, batch in enumerate(itertools.islice(stream, 3)):
        train_step.run([batch], controls_of(task, step, steps), seed=step)
    train_step.read_sums()
    ready = time.perf_counter() - began
    began = time.perf_counter()
    for step, batch in enumerate(itertools.islice(stream, steps)):
        train_step.run([batch], controls_of(task, step, steps), seed=step)
    sums = train_step.read_sums()
    seconds = time.perf_counter() - began
    return {"ready_s": ready, "step_ms": 1e3 * seconds / steps, "tokens_per_s": sums["tokens"] / seconds}


class CountFlops(TorchDispatchMode):
    """Adds up the matrix products (torch's own counter watches modules too, which a double backward does not bear)."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.overloadpacket in flop_registry:
            self.total += flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=out)
        return out


def step_flops(train_step: TrainStep, task: Task, batch: Pairs) -> int:
    with CountFlops() as counter:
        train_step.run([batch], controls_of(task, 0, 1), seed=0)
    return int(counter.total)


def peak_flops(device: torch.device, size: int = 8192) -> float:
    """FLOP/s of a large matrix product of random bf16 numbers."""
    if device.type != "cuda":
        size = 1024
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    times = []
    for _ in range(20):
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        left @ right
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return float(2 * size**3 / statistics.median(times))


def make_parser(description: str | None, steps: int) -> argparse.ArgumentParser:
    """What every benchmark of training steps is told."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--tasks", nargs="+", default=["teacher", "latent", "score", "energy"])
    parser.add_argument("--device", default="auto")
    return parser


def main() -> None:
    parser = make_parser(__doc__, steps=100)
    parser.add_argument("--modes", nargs="+", default=["eager", "compiled"])
    arguments = parser.parse_args()
    ranks = Ranks(device=pick_device(arguments.device))
    corpus = Corpus.load(arguments.corpus)
    peak = peak_flops(ranks.device)
    print(f"peak {peak / 1e12:.0f} TFLOP/s in bf16; {arguments.rows} rows of {corpus.manifest.row_width} tokens a side")
    results: dict[str, Any] = {}
    for name in arguments.tasks:
        stream = iter(batches_of(corpus, arguments.rows, pin=ranks.device.type == "cuda"))
        task = make_task(name, arguments.preset, corpus.tokenizer.size, ranks.device)
        flops = step_flops(make_train_step(task, ranks, mode="eager"), task, next(stream))
        results[name] = {"flops": flops}
        for mode in arguments.modes:
            torch.compiler.reset()
            found = measure(make_train_step(task, ranks, mode=mode), task, stream, arguments.steps)
            found["of_peak"] = flops / (found["step_ms"] / 1e3) / peak
            results[name][mode] = found
            print(
                f"{name:<8} {mode:<6} ready after {found['ready_s']:6.1f} s  {found['step_ms']:7.2f} ms a step  "
                f"{found['tokens_per_s']:>11,.0f} tokens/s  {found['of_peak']:.1%} of peak",
                flush=True,
            )
        stream.close()  # type: ignore[attr-defined]
    facts = {"preset": arguments.preset, "rows": arguments.rows, "vocabulary": corpus.tokenizer.size}
    facts |= {"torch": torch.__version__, "device": device_name(ranks.device), "peak_flops": peak}
    print(json.dumps(facts | {"results": results}))


if __name__ == "__main__":
    main()
