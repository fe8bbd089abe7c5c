"""The training loop, one for every task. Network, data and validation are passed in.

The number of steps is fixed before the first step, and corrected once if a time budget gave it. Everything that changes
during a run is a function of the step. So a run that is stopped (by a time limit, SIGTERM or SIGKILL) and resumed gives
the result of an uninterrupted one.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from latentmt.data.batches import Cursor, PackedBatches, rows_to_batch
from latentmt.data.corpus import Split
from latentmt.data.pack import pack
from latentmt.data.tokens import Pairs
from latentmt.display import info
from latentmt.errors import UserError
from latentmt.task import Task
from latentmt.train.checkpoint import CHECKPOINT, Progress, load_checkpoint, save_checkpoint
from latentmt.train.config import TrainConfig, run_identity
from latentmt.train.metrics import MetricsLogger
from latentmt.train.ranks import Ranks
from latentmt.train.schedule import ema_decay, learning_rate, step_seed
from latentmt.train.step import TrainStep
from latentmt.train.stop import StopRequest

CALIBRATION = (3, 10)
"""Warm-up steps and timed steps when a time budget is converted into steps."""
CORRECTION = (0.1, 20)
"""After this share of a run with a time budget, and so many steps at least, their number is corrected: other work may
have slowed the first ones."""


@dataclass(frozen=True)
class TrainResult:
    """The result of training."""

    progress: Progress
    finished: bool
    metrics: dict[str, float]
    """Of the development set, at the end."""
    weights: dict[str, torch.Tensor]
    """The EMA weights."""


@dataclass(frozen=True)
class Validation:
    """The result of a validation."""

    metrics: dict[str, float]
    samples: str = ""
    """A few translations to read."""


Validate = Callable[[], Validation]
"""Called on rank 0 only, with the EMA weights in the network."""


class Trainer:
    """One training run. `folder` holds its checkpoint and its log.

    `identity` is everything that affects the result besides the configuration. A checkpoint with another identity is
    refused.
    """

    def __init__(
        self,
        name: str,
        task: Task,
        data: Split,
        dev: Split,
        width: int,
        config: TrainConfig,
        folder: Path,
        identity: Mapping[str, Any],
        ranks: Ranks,
        validate: Validate | None = None,
    ) -> None:
        self.name, self.task, self.config, self.folder, self.ranks = name, task, config, folder, ranks
        self.data, self.dev, self.validate = data, dev, validate
        share, rest = divmod(config.batch_rows, ranks.world_size * config.grad_accumulation)
        if rest:
            micro_batches = f"{config.grad_accumulation} micro-batches on each of {ranks.world_size} ranks"
            raise UserError(f"batch_rows {config.batch_rows} cannot be divided into {micro_batches}")
        self.rows = share * config.grad_accumulation
        self.packing = pack(data.source.lengths, data.target.lengths, width, config.seed)
        self.dev_packing = pack(dev.source.lengths, dev.target.lengths, width, 0)
        if not len(self.dev_packing):
            raise UserError(f"no pair of the development set has at most {width} tokens on either side")
        self.identity = run_identity(name, config, identity)
        self.train_step = TrainStep(
            task,
            ranks,
            optimizer=config.optimizer,
            betas=config.adam_betas,
            epsilon=config.adam_epsilon,
            max_grad_norm=config.max_grad_norm,
            controls=list(task.controls(0, 1)),
        )
        self.path = folder / CHECKPOINT
        self.progress = Progress(run=self.identity, total=config.steps)
        self.saved = -1
        self.metrics: dict[str, float] = {}
        self.window: dict[str, float] = {}
        """Sums since the last log line."""
        self.clock = time.monotonic()
        self.correct_at = 0
        """The step after which the number of steps is corrected, if it is."""
        self.deadline = math.inf
        """When a time budget ends, on the clock of `time.monotonic`."""

    def train(self, stop: StopRequest, budget_minutes: float | None = None) -> TrainResult:
        """Train from the checkpoint, if there is one, to the last step or until a stop is requested.

        `budget_minutes` sets the number of steps of a new run, corrected once. A resumed run keeps its number of steps.
        """
        with stop.graceful():
            self._resume_or_start(budget_minutes)
            self._train(stop)
            return self._result()

    def _resume_or_start(self, budget_minutes: float | None) -> None:
        """Load the checkpoint, or fix the number of steps of a new run."""
        start = time.monotonic()
        saved = load_checkpoint(self.path, self.identity, self.train_step.tensors())
        if saved:
            self.progress, self.saved = saved, saved.step
            if self.ranks.is_main and saved.step < saved.total:
                info(f"{self.name}: resuming at step {saved.step:,} of {saved.total:,}")
            return
        if budget_minutes is not None:
            seconds = self._calibrate()
            self.deadline = start + 60 * budget_minutes
            total = self._plan(seconds)
            self.correct_at = max(math.ceil(CORRECTION[0] * total), CORRECTION[1])
            if self.ranks.is_main:
                info(f"{self.name}: {seconds * 1000:.1f} ms a step, so {budget_minutes:g} minutes are {total:,} steps")

    def _plan(self, seconds: float) -> int:
        """The number of steps until the deadline, of so many seconds each. A resumed run keeps it."""
        total = self.progress.step + max(1, int((self.deadline - time.monotonic()) / max(seconds, 1e-6)))
        self.progress = replace(self.progress, total=self.ranks.broadcast(total))
        self.saved = -1
        self._save()
        return self.progress.total

    def _correct(self, start: float) -> None:
        """Plan again by the speed of the steps since `start`, validations included."""
        self._collect()  # waits for the device
        before, seconds = self.progress.total, (time.monotonic() - start) / self.progress.step
        if abs(self._plan(seconds) - before) > 0.02 * before and self.ranks.is_main:
            info(f"{self.name}: {seconds * 1000:.1f} ms a step so far, so {self.progress.total:,} steps")

    def _train(self, stop: StopRequest) -> None:
        """Train from the current step."""
        start = time.monotonic()
        logger = MetricsLogger(self.folder, self.name, self.progress.step) if self.ranks.is_main else None
        batches = self._batches(self.progress.cursor)
        stream = iter(batches)
        self.clock = time.monotonic()
        try:
            while self.progress.step < self.progress.total:
                self._step(next(stream), batches.cursor)
                if self.progress.step == self.correct_at:
                    self._correct(start)
                step, last = self.progress.step, self.progress.step == self.progress.total
                if step % self.config.report_every == 0 or last:
                    self._report(logger)
                if step % self.config.validate_every == 0 or last:
                    self._validate(logger)
                # All ranks must stop at the same step. Agreeing on it waits for the GPU, so it is not done each time.
                if (self.ranks.world_size == 1 or step % 10 == 0) and self.ranks.any(stop.requested()):
                    break
                if step % self.config.save_every == 0 and not last:
                    self._save()
            self._save()
        finally:
            stream.close()  # type: ignore[attr-defined] # a generator; this ends its thread
            if logger:
                logger.close()

    def _result(self) -> TrainResult:
        finished = self.progress.step >= self.progress.total
        if self.ranks.is_main and not finished:
            where = f"step {self.progress.step:,} of {self.progress.total:,}"
            info(f"{self.name}: stopped at {where}; the same command resumes")
        if finished and not self.metrics:
            self._validate(None)
        return TrainResult(self.progress, finished, self.metrics, self.train_step.ema_state_dict())

    def _batches(self, cursor: Cursor) -> PackedBatches:
        return PackedBatches(
            self.data,
            self.packing,
            self.rows,
            self.config.seed,
            self.ranks.rank,
            self.ranks.world_size,
            cursor,
            pin=self.ranks.device.type == "cuda",
        )

    def _step(self, batch: Pairs, cursor: Cursor) -> None:
        step, total, config = self.progress.step, self.progress.total, self.config
        controls = self.task.controls(step, total) | {
            "learning_rate": learning_rate(
                step, total, peak=config.learning_rate, warmup=config.warmup, schedule=config.schedule
            ),
            "ema_decay": ema_decay(step, config.ema_decay),
        }
        micro_batches = batch.split(config.grad_accumulation)
        self.train_step.run(micro_batches, controls, step_seed(config.seed, step, self.ranks.rank))
        self.progress = replace(self.progress, step=step + 1, cursor=cursor)

    def _collect(self) -> None:
        """Read the sums from the device."""
        sums, now = self.train_step.read_sums(), time.monotonic()
        sums["seconds"] = now - self.clock
        self.clock = now
        for name, value in sums.items():
            self.window[name] = self.window.get(name, 0.0) + value
        self.progress = replace(
            self.progress,
            tokens=self.progress.tokens + int(sums.get("tokens", 0)),
            seconds=self.progress.seconds + sums["seconds"],
            skipped=self.progress.skipped + int(sums.get("skipped", 0) / self.ranks.world_size),
        )

    def _report(self, logger: MetricsLogger | None) -> None:
        self._collect()
        sums, self.window = self.window, {}
        if logger:
            metrics = self._metrics(sums) | {
                "norm": sums["norm"] / sums["steps"],
                "learning_rate": float(self.train_step.controls["learning_rate"]),
                "tokens/s": sums["tokens"] / max(sums["seconds"], 1e-9),
            }
            if sums["skipped"]:
                metrics["skipped"] = sums["skipped"] / self.ranks.world_size
            logger.progress(self.progress.step, self.progress.total, metrics)

    def _validate(self, logger: MetricsLogger | None) -> None:
        self._collect()
        with self.train_step.ema_weights():
            metrics = self._dev_cost()
            result = self.validate() if self.ranks.is_main and self.validate else Validation({})
        metrics |= result.metrics
        if logger:
            logger.validation(self.progress.step, metrics, result.samples)
        self.metrics = metrics
        self.ranks.barrier()
        self.clock = time.monotonic()  # validation does not count as training time

    def _dev_cost(self) -> dict[str, float]:
        """The cost of the development set, with the same noise each time. Every rank computes all of it."""
        self.train_step.set_controls(
            self.task.controls(self.progress.total, self.progress.total)
        )  # the same at every validation
        torch.manual_seed(step_seed(self.config.seed, 0, 0))
        sums: dict[str, float] = {}
        for rows in torch.arange(len(self.dev_packing)).split(self.rows):
            cost = self.train_step.cost(rows_to_batch(self.dev, self.dev_packing, rows.numpy(), len(rows)))
            for name, value in cost.sums.items():
                sums[name] = sums.get(name, 0.0) + float(value)
        return self._metrics(sums)

    def _metrics(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {
            name: sums[numerator] / max(sums[denominator], 1e-9)
            for name, (numerator, denominator) in self.task.metrics.items()
        }

    def _save(self) -> None:
        if self.saved == self.progress.step:
            return
        self._collect()
        if self.ranks.is_main:
            save_checkpoint(self.path, self.progress, self.train_step.tensors())
        self.saved = self.progress.step
        self.ranks.barrier()
        self.clock = time.monotonic()

    def _calibrate(self) -> float:
        """Seconds per step, including its share of validation.

        All state is restored afterwards, and noise depends on the step alone.
        """
        restore, progress = self.train_step.snapshot(), self.progress
        batches = self._batches(Cursor())
        stream = iter(batches)
        for batch in itertools.islice(stream, CALIBRATION[0]):
            self._step(batch, batches.cursor)
        self.train_step.read_sums()
        start = time.monotonic()
        for batch in itertools.islice(stream, CALIBRATION[1]):
            self._step(batch, batches.cursor)
        self.train_step.read_sums()  # waits for the device
        seconds = (time.monotonic() - start) / CALIBRATION[1]
        stream.close()  # type: ignore[attr-defined]
        start = time.monotonic()
        self._validate(None)
        seconds += (time.monotonic() - start) / self.config.validate_every
        restore()
        self.progress, self.window, self.metrics = progress, {}, {}
        return seconds
