"""Logging of a training run: lines on standard error, a JSON log, TensorBoard, and warnings.

The log is `log.jsonl` in the run's folder, one JSON object per line. Training curves are drawn from it. A resumed run
drops the lines after the step it resumes from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from latentmt.display import info
from latentmt.files import make_folder, read_log, write_atomically

LOG = "log.jsonl"
"""The log's name in the folder of a run."""
KL_FLOOR = 0.05
"""Raw KL in nats per token below which the posterior has collapsed to the prior."""
REPEATS_CEILING = 0.10
"""The share of tokens that repeat the previous one. Above it, an increase is a warning."""


class MetricsLogger:
    """Logs metrics and warns. Only rank 0 has one."""

    def __init__(self, folder: Path, name: str, step: int) -> None:
        self._name, self._path = name, make_folder(folder) / LOG
        entries = [entry for entry in read_log(self._path) if _number(entry, "step", math.inf) <= step]
        write_atomically(self._path, "".join(json.dumps(entry) + "\n" for entry in entries))
        self._tensorboard = _summary_writer(folder / "tensorboard", step)
        repeats = [_number(entry, "repeats", math.inf) for entry in entries if "repeats" in entry]
        self._repeats = repeats[-1] if repeats else math.inf

    def progress(self, step: int, total: int, metrics: Mapping[str, float]) -> None:
        """The metrics of the latest steps."""
        self._write("train", step, metrics)
        shown = "  ".join(f"{name} {_short(name, value)}" for name, value in metrics.items())
        info(f"{self._name} {step:>6,}/{total:,}  {shown}")
        if not math.isfinite(metrics["loss"]):
            info(f"WARNING: the loss of {self._name} is not finite at step {step:,}")
        if metrics.get("skipped"):
            info(f"WARNING: {metrics['skipped']:.0f} steps of {self._name} skipped: their gradient was not finite")
        if metrics.get("kl", math.inf) < KL_FLOOR:
            info(f"WARNING: posterior collapse: raw KL {metrics['kl']:.3f} nats a token; raise the budget or its floor")

    def validation(self, step: int, metrics: Mapping[str, float], samples: str) -> None:
        """The metrics of the development set, and some of its translations."""
        self._write("dev", step, metrics)
        info(f"{self._name} {step:>6,} dev  " + "  ".join(f"{name} {_short(name, v)}" for name, v in metrics.items()))
        if samples:
            info(samples)
        if not math.isfinite(metrics["loss"]):
            info(f"WARNING: the development loss of {self._name} is not finite at step {step:,}")
        repeats = metrics.get("repeats", 0.0)
        if repeats > max(REPEATS_CEILING, self._repeats):
            info(f"WARNING: {repeats:.1%} of the tokens repeat the previous one, more than at the last validation")
        self._repeats = repeats

    def close(self) -> None:
        if self._tensorboard:
            self._tensorboard.close()

    def _write(self, kind: str, step: int, metrics: Mapping[str, float]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "step": step, **metrics}) + "\n")
        if self._tensorboard:
            for name, value in metrics.items():
                self._tensorboard.add_scalar(f"{kind}/{name}", value, step)


def _number(entry: Mapping[str, Any], name: str, default: float) -> float:
    value = entry.get(name, default)
    return float(value) if isinstance(value, int | float) else default


def _short(name: str, value: float) -> str:
    if name in ("accuracy", "length", "repeats", "exact"):
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" if name == "learning_rate" else f"{value:.3f}"


def _summary_writer(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # optional: the extra `train` installs it; the log has the same numbers
        return None
    return SummaryWriter(folder, purge_step=step + 1)
