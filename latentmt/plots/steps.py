"""Likelihood, changed tokens and repetitions against the number of refinement steps: Figures 2 and 3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latentmt.fields.base import Style
from latentmt.measure.report import Report
from latentmt.plots.style import WIDTH, steps_axis

T = TypeVar("T")

_OFFSET = 0.08
"""Between the bars of two methods, in ticks."""


def draw_likelihood(report: Report) -> Figure:
    """Figure 2: log p(ŷ|x) after L steps of each method; bars are the standard error of the gain over L = 0."""
    figure = Figure(figsize=(0.55 * WIDTH, 2.7), layout="constrained")
    axes = figure.subplots()
    for offset, method, curve in _with_offsets(report.likelihood):
        positions = [tick + offset for tick in steps_axis(axes, [point.steps for point in curve.points])]
        errors = [point.gain_error for point in curve.points]
        _line(axes, report.styles[method], positions, [point.log_prob for point in curve.points], errors)
    axes.set_ylabel("log p(ŷ | x), nats a sentence")
    axes.legend(loc="lower right")
    return figure


def draw_tokens(report: Report) -> Figure:
    """Figure 3: pieces changed since L = 0, and repetitions left, after L steps of each method."""
    figure = Figure(figsize=(WIDTH, 2.7), layout="constrained")
    left, right = figure.subplots(1, 2)
    for offset, method, curve in _with_offsets(report.tokens):
        style, steps = report.styles[method], [point.steps for point in curve.points]
        positions = [tick + offset for tick in steps_axis(left, steps)]
        edits, errors = [point.edits for point in curve.points], [point.edits_error for point in curve.points]
        _line(left, style, positions, edits, errors)
        repeats = [100 * point.relative_repeats for point in curve.points if point.relative_repeats is not None]
        if len(repeats) == len(steps):
            steps_axis(right, steps)
            _line(right, style, positions, repeats)
    left.set_title("changes", loc="left")
    left.set_ylabel("edit distance from L = 0, pieces")
    left.set_ylim(bottom=0)
    right.set_title("repetitions", loc="left")
    right.set_ylabel("repeated tokens, % of L = 0")
    right.set_ylim(bottom=0)
    left.legend(loc="lower right")
    return figure


def _with_offsets(curves: Mapping[str, T]) -> Iterator[tuple[float, str, T]]:
    """The curves with an offset from the tick, so that their error bars do not overlap."""
    for number, (method, curve) in enumerate(curves.items()):
        yield _OFFSET * (number - (len(curves) - 1) / 2), method, curve


def _line(
    axes: Axes, style: Style, positions: Sequence[float], values: Sequence[float], errors: Sequence[float] | None = None
) -> None:
    axes.plot(positions, values, label=style.label, color=style.color, marker=style.marker, linestyle="-")
    if errors:
        axes.errorbar(positions, values, errors, color=style.color, linestyle="none", capsize=2, elinewidth=1)
