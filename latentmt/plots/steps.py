"""What refinement does, step by step: Figures 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latentmt.plots.style import WIDTH, look_of, steps_axis

_BESIDE = 0.08


def draw_likelihood(likelihood: Mapping[str, Any]) -> Figure:
    """Figure 2: log p(ŷ|x) after L steps of each method; bars are the standard error of the gain over L = 0."""
    figure = Figure(figsize=(0.55 * WIDTH, 2.7), layout="constrained")
    axes = figure.subplots()
    for number, (method, part) in enumerate(likelihood.items()):
        rows = part["result"]
        _line(axes, method, number, rows, [row["log_prob"] for row in rows], [row["gain_error"] for row in rows])
    axes.set_ylabel("log p(ŷ | x), nats a sentence")
    axes.legend(loc="lower right")
    return figure


def draw_tokens(tokens: Mapping[str, Any]) -> Figure:
    """Figure 3: pieces changed since L = 0, and repetitions left, after L steps of each method."""
    figure = Figure(figsize=(WIDTH, 2.7), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, (method, part) in enumerate(tokens.items()):
        rows = part["result"]
        _line(left, method, number, rows, [row["edits"] for row in rows], [row["edits_error"] for row in rows])
        if all(row["relative_repeats"] is not None for row in rows):
            _line(right, method, number, rows, [100 * row["relative_repeats"] for row in rows])
    left.set_title("changes", loc="left")
    left.set_ylabel("edit distance from L = 0, pieces")
    left.set_ylim(bottom=0)
    right.set_title("repetitions", loc="left")
    right.set_ylabel("repeated tokens, % of L = 0")
    right.set_ylim(bottom=0)
    left.legend(loc="lower right")
    return figure


def _line(
    axes: Axes, method: str, number: int, rows: list[Any], values: list[float], errors: list[float] | None = None
) -> None:
    """A method's line, a little beside those before it, so that bars can be told apart."""
    look, places = look_of(method), steps_axis(axes, [row["steps"] for row in rows])
    moved = [place + _BESIDE * number for place in places]
    axes.plot(moved, values, label=look.label, color=look.color, marker=look.marker, linestyle=look.line)
    if errors:
        axes.errorbar(moved, values, errors, color=look.color, linestyle="none", capsize=2, elinewidth=1)
