"""What refinement does, step by step: Figures 2 and 3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latentmt.plots.style import WIDTH, look_of, steps_axis

_APART = 0.08
"""Of a tick's distance to the next."""


def draw_likelihood(likelihood: Mapping[str, Any]) -> Figure:
    """Figure 2: log p(ŷ|x) after L steps of each method; bars are the standard error of the gain over L = 0."""
    figure = Figure(figsize=(0.55 * WIDTH, 2.7), layout="constrained")
    axes = figure.subplots()
    for beside, (method, part) in _beside(likelihood):
        rows = part["result"]
        _line(axes, method, beside, rows, [row["log_prob"] for row in rows], [row["gain_error"] for row in rows])
    axes.set_ylabel("log p(ŷ | x), nats a sentence")
    axes.legend(loc="lower right")
    return figure


def draw_tokens(tokens: Mapping[str, Any]) -> Figure:
    """Figure 3: pieces changed since L = 0, and repetitions left, after L steps of each method."""
    figure = Figure(figsize=(WIDTH, 2.7), layout="constrained")
    left, right = figure.subplots(1, 2)
    for beside, (method, part) in _beside(tokens):
        rows = part["result"]
        _line(left, method, beside, rows, [row["edits"] for row in rows], [row["edits_error"] for row in rows])
        if all(row["relative_repeats"] is not None for row in rows):
            _line(right, method, beside, rows, [100 * row["relative_repeats"] for row in rows])
    left.set_title("changes", loc="left")
    left.set_ylabel("edit distance from L = 0, pieces")
    left.set_ylim(bottom=0)
    right.set_title("repetitions", loc="left")
    right.set_ylabel("repeated tokens, % of L = 0")
    right.set_ylim(bottom=0)
    left.legend(loc="lower right")
    return figure


def _beside(methods: Mapping[str, Any]) -> Iterator[tuple[float, tuple[str, Any]]]:
    """The methods, and how far each is drawn beside the tick, so that their bars can be told apart."""
    for number, method in enumerate(methods.items()):
        yield _APART * (number - (len(methods) - 1) / 2), method


def _line(
    axes: Axes, method: str, beside: float, rows: list[Any], values: list[float], errors: list[float] | None = None
) -> None:
    look, places = look_of(method), [place + beside for place in steps_axis(axes, [row["steps"] for row in rows])]
    axes.plot(places, values, label=look.label, color=look.color, marker=look.marker, linestyle=look.line)
    if errors:
        axes.errorbar(places, values, errors, color=look.color, linestyle="none", capsize=2, elinewidth=1)
