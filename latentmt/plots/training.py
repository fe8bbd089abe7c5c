"""Training curves, from the logs of training runs."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from latentmt.fields.base import Style
from latentmt.measure.report import Curves, Report
from latentmt.plots.style import WIDTH

_METRICS = {
    "cosine": ("cosine", 1.0),
    "kl": ("raw KL, nats a token", 1.0),
    "accuracy": ("tokens right, %", 100.0),
}
"""What is drawn below the loss: the first of these metrics that a log has, with its axis label and scale."""


def draw_training(report: Report) -> Figure:
    """A column for each stage, from the teacher to the fields: the loss, and another metric below it.

    Lines are training batches, markers the development set.
    """
    order = [None, *_METRICS]
    stages = sorted(report.training, key=lambda stage: -order.index(_second_metric(report.training[stage])))
    figure = Figure(figsize=(WIDTH * max(2, len(report.training)) / 3.4, 3.6), layout="constrained")
    columns = figure.subplots(2, len(report.training), squeeze=False, sharex="col").T
    for stage, (top, bottom) in zip(stages, columns, strict=True):
        curves, style = report.training[stage], report.styles[stage]
        _curve(top, curves, style, "loss", 1.0)
        top.set_title(stage, loc="left")
        top.set_ylabel("loss")
        if metric := _second_metric(curves):
            label, scale = _METRICS[metric]
            _curve(bottom, curves, style, metric, scale)
            bottom.set_ylabel(label)
        bottom.set_xlabel("steps")
        bottom.set_xlim(left=0)
        bottom.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        bottom.xaxis.set_major_formatter(FuncFormatter(_thousands))
    columns[0][0].legend(loc="upper right")
    return figure


def _second_metric(curves: Curves) -> str | None:
    logged = {key for entry in (*curves.train, *curves.dev) for key in entry}
    return next((metric for metric in _METRICS if metric in logged), None)


def _curve(axes: Axes, curves: Curves, style: Style, metric: str, scale: float) -> None:
    for kind, entries, line, marker in (("train", curves.train, "-", ""), ("dev", curves.dev, "", style.marker)):
        points = [(entry["step"], scale * entry[metric]) for entry in entries if metric in entry]
        if points:
            axes.plot(*zip(*points, strict=True), color=style.color, label=kind, linestyle=line, marker=marker)


def _thousands(value: float, _: int | None) -> str:
    return f"{value / 1000:g}K" if value >= 1000 else f"{value:g}"
