"""Every task can be compiled, and a step depends on its tensors only.

Compilation runs in a separate process, which executes this file: the shape checks inside the tests cannot be compiled.
Tracing needs neither a GPU nor a C compiler.
"""

from __future__ import annotations

import functools
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from latentmt.data.batches import rows_to_batch
from latentmt.data.corpus import Sentences, Split
from latentmt.data.pack import pack
from latentmt.data.tokenizer import EOS
from latentmt.data.tokens import Pairs
from latentmt.fields.learned import DisplacementConfig, DisplacementTask, FieldConfig
from latentmt.fields.registry import field_network, learned_field
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.nn import cuda_graph
from latentmt.task import CostFunction, Task
from latentmt.train.glancing import GlancingConfig
from latentmt.train.ranks import Ranks
from latentmt.train.step import TrainStep
from latentmt.train.tasks import ElboConfig, LatentTask, TeacherTask

GRAPHS = {"teacher": 1, "latent": 1, "score": 1, "energy": 2, "glancing ctc": 1, "score ctc": 1, "glancing wide": 1}
"""In how many pieces each task is compiled. An energy is differentiated twice: only what is frozen beside it is."""
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2}
"""Relative to a tensor's largest entry. Compiled in bf16, products that are in fp32 on the way there are in bf16 on the
way back."""
VOCABULARY = 50
ROWS, WIDTH = 4, 16
SIZE: dict[str, Any] = {"preset": "tiny", "d_model": 32, "d_filter": 48, "layers": 1, "heads": 2}
OPTIMISER: dict[str, Any] = {"betas": (0.9, 0.98), "epsilon": 1e-9, "max_grad_norm": 1.0}


def make_task(name: str, dropout: float = 0.0) -> Task:
    """A task with random weights, the same at every call; a field that already moves something."""
    torch.manual_seed(1)
    if name == "teacher":
        return TeacherTask(Teacher(TeacherConfig(**SIZE, encoder_layers=1, dropout=dropout), VOCABULARY), 0.1)
    name, _, output = name.partition(" ")
    more = (
        {"output": "ctc", "encoder_width": 24, "source_input": True}
        if output == "wide"
        else {"output": output or "tokens"}
    )
    config = LatentConfig(**SIZE, encoder_layers=1, dropout=dropout, latent_dim=3, **more)
    latent = LatentModel(config, VOCABULARY)
    if name in ("latent", "glancing"):
        losses = (
            {"glancing": GlancingConfig(), "deep_supervision": True, "length_std": 1.0} if name == "glancing" else {}
        )
        return LatentTask(latent, 0.1, ElboConfig(**losses))
    net = field_network(FieldConfig(kind=name, **SIZE, dropout=dropout), config)
    torch.nn.init.normal_(net.head.weight, std=0.1)
    return DisplacementTask(
        learned_field(name), net, latent.eval().requires_grad_(False), DisplacementConfig(delta_steps=2)
    )


def batches() -> Iterator[Pairs]:
    """Packed rows of random pairs, always in the same shape, the last row empty."""
    rng = np.random.default_rng(1)

    def side() -> Sentences:
        lengths = rng.integers(1, 9, size=200)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ids = rng.integers(4, VOCABULARY, size=offsets[-1]).astype(np.uint16)
        ids[offsets[1:] - 1] = EOS
        return Sentences(ids, offsets)

    split = Split(side(), side())
    packing = pack(split.source.lengths, split.target.lengths, WIDTH, seed=1)
    for first in itertools.count(step=ROWS - 1):
        yield rows_to_batch(split, packing, np.arange(first, first + ROWS - 1), ROWS)


def counted(task: Task, batch: Pairs) -> int:
    """What a cost is divided by: the tokens of the target, or the places of a field."""
    if isinstance(task, DisplacementTask):
        return int(task.latent.output.places(task.latent.encode(batch.source), batch.target).real.sum())
    return int(batch.target.layout.real.sum())


# What the other process does.


def outcome(task: Task, cost: CostFunction, batch: Pairs, controls: dict[str, Tensor], bf16: bool) -> dict[str, Tensor]:
    """The cost of a batch, its sums and all its gradients, by name; computed as a step computes them."""
    torch.manual_seed(7)
    task.network.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16, cache_enabled=False):
        found = cost(batch, controls)
    found.total.backward()
    gradients = {f"gradient of {name}": p.grad for name, p in task.network.named_parameters() if p.grad is not None}
    return {"total": found.total.detach(), **found.sums, **gradients}


def difference(left: dict[str, Tensor], right: dict[str, Tensor]) -> float:
    """The largest difference of an entry, relative to the largest entry of its tensor."""
    assert left.keys() == right.keys(), left.keys() ^ right.keys()
    assert all(tensor.isfinite().all() for tensor in (*left.values(), *right.values()))
    return max(float((left[k] - right[k]).abs().max() / left[k].abs().max().clamp(min=1e-6)) for k in left)


def compare(name: str, bf16: bool) -> dict[str, Any]:
    """A task's cost, compiled and not, over batches of one shape and with controls that change."""
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    task, differences = make_task(name), []
    compiled = task.compiled_cost()
    for step, batch in enumerate(itertools.islice(batches(), 3)):
        controls = {key: torch.tensor(value) for key, value in task.controls(step + 1, 3).items()}
        expected = outcome(task, task.cost, batch, controls, bf16)
        differences.append(difference(expected, outcome(task, compiled, batch, controls, bf16)))
    return {
        "differences": differences,
        "graphs": counters["stats"]["unique_graphs"],
        "learning": sum(bool(t.any()) for key, t in expected.items() if key.startswith("gradient")),
        "parameters": len(list(task.network.parameters())),
    }


def main() -> None:
    cuda_graph.BACKEND = "aot_eager"
    cases = json.loads(sys.argv[1])
    print(json.dumps({f"{name}-{kind}": compare(name, kind == "bf16") for name, kind in cases}))


# The tests.


LOW = ("latent", "glancing ctc")
CASES = (*((name, "fp32") for name in GRAPHS), *((name, "bf16") for name in LOW))
MORE = tuple((name, "bf16") for name in GRAPHS if name not in LOW)
"""Compiling takes long, and the latent model's cost has all that a lower precision touches."""
each_case = pytest.mark.parametrize(
    ("name", "kind"), [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in MORE)]
)


@functools.cache
def compared(cases: tuple[tuple[str, str], ...]) -> dict[str, dict[str, Any]]:
    """What the other process found, by task and precision."""
    command = [sys.executable, __file__, json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return result


@each_case
def test_compiled_cost_and_gradients_equal_eager(name: str, kind: str) -> None:
    found = compared(CASES if (name, kind) in CASES else MORE)[f"{name}-{kind}"]
    assert max(found["differences"]) < TOLERANCE[kind]
    assert found["learning"] >= found["parameters"] - 1  # an energy does not feel the last norm's bias


@each_case
def test_compiled_once_for_all_batches(name: str, kind: str) -> None:
    found = compared(CASES if (name, kind) in CASES else MORE)[f"{name}-{kind}"]
    assert found["graphs"] == GRAPHS[name]


def stepper_of(task: Task) -> TrainStep:
    return TrainStep(task, Ranks(), **OPTIMISER, controls=list(task.controls(0, 1)))


def advance(train_step: TrainStep, task: Task, batch: Pairs, step: int, parts: int = 1) -> None:
    train_step.run(batch.split(parts), task.controls(step, 8) | {"learning_rate": 1e-3, "ema_decay": 0.9}, seed=step)


@pytest.mark.parametrize("name", GRAPHS)
def test_sums_are_exact_and_cleared_in_place(name: str) -> None:
    task = make_task(name)
    train_step = stepper_of(task)
    assert train_step.read_sums() == {}
    some = list(itertools.islice(batches(), 3))
    for step, batch in enumerate(some):
        advance(train_step, task, batch, step, parts=2 if step else 1)
    tensors = dict(train_step.sums)  # a recorded step goes on writing to these
    read = train_step.read_sums()
    assert read["steps"] == len(some)
    assert read["tokens"] == sum(counted(task, batch) for batch in some)
    assert read["skipped"] == 0
    assert {name for pair in task.metrics.values() for name in pair} <= read.keys()
    assert all(train_step.sums[name] is tensor for name, tensor in tensors.items())
    assert train_step.read_sums() == dict.fromkeys(read, 0.0)
    advance(train_step, task, some[0], 3)
    again = train_step.read_sums()
    assert (again["steps"], again["tokens"]) == (1, counted(task, some[0]))


def test_sums_are_the_costs_of_the_batches() -> None:
    """One part at a time, at a rate of nothing, so that the weights stay what they are."""
    task = make_task("latent")
    train_step = stepper_of(task)
    batch = next(batches())
    controls = task.controls(0, 8) | {"learning_rate": 0.0, "ema_decay": 0.9}
    train_step.run([batch], controls, seed=5)
    torch.manual_seed(5)
    expected = train_step.cost(batch).sums
    read = train_step.read_sums()
    assert {name: read[name] for name in expected} == {name: value.item() for name, value in expected.items()}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_step_depends_only_on_its_tensors(name: str) -> None:
    some = list(itertools.islice(batches(), 6))
    first_task, second_task = make_task(name, dropout=0.2), make_task(name, dropout=0.2)
    first, second = stepper_of(first_task), stepper_of(second_task)
    for step, batch in enumerate(some[:3]):
        advance(first, first_task, batch, step)
    advance(second, second_task, some[5], 7)  # it has been elsewhere
    first.read_sums(), second.read_sums()
    with torch.no_grad():
        for key, tensor in second.tensors().items():
            tensor.copy_(first.tensors()[key])
    for step, batch in enumerate(some[3:], start=3):
        advance(first, first_task, batch, step)
        advance(second, second_task, batch, step)
    assert first.tensors().keys() == second.tensors().keys()
    for key, tensor in first.tensors().items():
        assert torch.equal(tensor, second.tensors()[key]), key
    assert first.read_sums() == second.read_sums()


if __name__ == "__main__":
    main()
