"""Training curves, from the logs of training runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from latentmt.plots.style import LOOKS, WIDTH, Look

_LOOKS = {"teacher": LOOKS["AR"], "latent": Look("latent", "#CC79A7", "s"), **LOOKS}
_SECOND = {
    "teacher": ("accuracy", "tokens right, %", 100.0),
    "latent": ("kl", "raw KL, nats a token", 1.0),
    "score": ("cosine", "cosine", 1.0),
    "energy": ("cosine", "cosine", 1.0),
}
"""What matters beside the loss: the key in the log, its name, and its scale."""


def draw_training(training: Mapping[str, Any]) -> Figure:
    """A column for each stage: its loss, and what matters beside it; lines while training, markers on held-out text."""
    stages = [stage for stage in _SECOND if stage in training]
    figure = Figure(figsize=(WIDTH * max(2, len(stages)) / 3.4, 3.6), layout="constrained")
    columns = figure.subplots(2, len(stages), squeeze=False, sharex="col").T
    for stage, (top, bottom) in zip(stages, columns, strict=True):
        key, name, scale = _SECOND[stage]
        _curve(top, training[stage], stage, "loss", 1.0)
        _curve(bottom, training[stage], stage, key, scale)
        top.set_title(stage, loc="left")
        top.set_ylabel("loss")
        bottom.set_ylabel(name)
        bottom.set_xlabel("steps")
        bottom.set_xlim(left=0)
        bottom.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        bottom.xaxis.set_major_formatter(FuncFormatter(_thousands))
    columns[0][0].legend(loc="upper right")
    return figure


def _curve(axes: Axes, curves: Mapping[str, Any], stage: str, key: str, scale: float) -> None:
    look = _LOOKS[stage]
    for kind, line, marker in (("train", "-", ""), ("dev", "", look.marker)):
        points = [(entry["step"], scale * entry[key]) for entry in curves.get(kind, ()) if key in entry]
        if points:
            axes.plot(*zip(*points, strict=True), color=look.color, label=kind, linestyle=line, marker=marker)


def _thousands(value: float, _: int | None) -> str:
    return f"{value / 1000:g}K" if value >= 1000 else f"{value:g}"
