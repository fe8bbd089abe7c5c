"""Figure 4: the score's field around each token of a sentence, and the ways that refinement takes through it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from latentmt.plots.style import LOOKS, WIDTH

_COLUMNS = 4
_POSTERIOR = "#D55E00"
_NAMES = {
    "posterior": ("posterior mean", _POSTERIOR),
    "prior": ("prior mean", "#000000"),
    "delta": ("delta", LOOKS["delta"].color),
    "score": ("score", LOOKS["score"].color),
}
_PALE = ("#ffffff", "#fdf1dd", "#e6f2fa", "#e9f5ee", "#f7e9f1", "#f0ece2", "#ecebf5", "#fbeae6")
"""Of regions that decode to different pieces."""


def draw_landscape(part: Mapping[str, Any]) -> Figure:
    """A panel for each token: arrows are the score, tints are what the token would be read as there."""
    panels = part["result"]["panels"]
    rows = -(-len(panels) // _COLUMNS)
    figure = Figure(figsize=(WIDTH, 2.22 * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, min(_COLUMNS, len(panels)), squeeze=False).flatten()
    for number, (axes, panel) in enumerate(zip(grid, panels, strict=False), start=1):
        _regions(axes, panel)
        _field(axes, panel)
        _ways(axes, panel)
        _title(axes, number, panel["pieces"])
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4)
    return figure


def _regions(axes: Axes, panel: Mapping[str, Any]) -> None:
    """A tint for each piece, the most frequent ones first; the rest share the last."""
    pieces, counts = np.unique(np.array(panel["decoded"]), return_counts=True)
    order = [str(piece) for piece in pieces[np.argsort(-counts, kind="stable")]]
    numbers = np.array([[min(order.index(piece), len(_PALE) - 1) for piece in row] for row in panel["decoded"]])
    colors = np.array([[int(tint[i : i + 2], 16) / 255 for i in (1, 3, 5)] for tint in _PALE])
    axes.pcolormesh(panel["x"], panel["y"], colors[numbers], shading="nearest", rasterized=True, zorder=0)


def _field(axes: Axes, panel: Mapping[str, Any]) -> None:
    field = np.array(panel["field"])
    axes.quiver(
        panel["x"], panel["y"], field[..., 0], field[..., 1], color="#8c8c8c", angles="xy", width=0.004, zorder=1
    )
    axes.grid(visible=False)
    axes.set_aspect("equal")
    axes.tick_params(labelsize=6.5, length=2)
    axes.locator_params(nbins=4)
    axes.set_xlim(panel["x"][0], panel["x"][-1])
    axes.set_ylim(panel["y"][0], panel["y"][-1])


def _ways(axes: Axes, panel: Mapping[str, Any]) -> None:
    """Markers become smaller with every step, as in the paper."""
    for method in ("delta", "score"):
        look, points = LOOKS[method], np.array([panel["prior"], *panel[method]])
        axes.plot(points[:, 0], points[:, 1], color=look.color, linewidth=1, zorder=3)
        _mark(axes, points[1:], look.marker, look.color, np.linspace(60, 16, len(points) - 1), zorder=4)
    x, y = panel["posterior"]  # open, since delta inference often ends right there
    axes.scatter([x], [y], s=95, c="none", marker="s", edgecolors=_POSTERIOR, linewidths=1.4, zorder=5)
    _mark(axes, np.array([panel["prior"]]), "*", "black", 90, zorder=5)


def _mark(axes: Axes, points: Any, marker: str, color: str, size: Any, zorder: int) -> None:
    x, y = points.T
    axes.scatter(x, y, s=size, c=color, marker=marker, edgecolors="white", linewidths=0.5, zorder=zorder)


def _title(axes: Axes, number: int, pieces: Mapping[str, str]) -> None:
    """The pieces in the colours of what they come from, two and two; all in points, since panels differ in height."""
    size = 7.5
    axes.set_title(f"token {number}", fontsize=size, loc="left", pad=3.1 * size)
    for place, (name, (_, color)) in enumerate(_NAMES.items()):
        row, column = divmod(place, 2)
        above = (0, (1.6 if row == 0 else 0.4) * size)
        axes.annotate(
            pieces[name],
            (0.52 * column, 1),
            xycoords="axes fraction",
            xytext=above,
            textcoords="offset points",
            color=color,
            fontsize=size,
            fontweight="bold",
            va="bottom",
        )


def _legend() -> list[Line2D]:
    looks: dict[str, dict[str, Any]] = {
        "posterior": {"marker": "s", "markersize": 8, "markerfacecolor": "none", "markeredgewidth": 1.4},
        "prior": {"marker": "*", "markersize": 9},
        "delta": {"marker": LOOKS["delta"].marker, "linestyle": "-"},
        "score": {"marker": LOOKS["score"].marker, "linestyle": "-"},
    }
    return [
        Line2D([], [], color=color, label=label, **({"linestyle": "none"} | looks[name]))
        for name, (label, color) in _NAMES.items()
    ]
