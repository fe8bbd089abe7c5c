"""Figure 4: a learned field around each token of a sentence, and the paths of refinement through it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from latentmt.fields.base import Style
from latentmt.measure.landscape import Panel
from latentmt.measure.report import Report
from latentmt.plots.style import WIDTH

_COLUMNS = 4
_MEANS = {"posterior": Style("posterior mean", "#D55E00", "s"), "prior": Style("prior mean", "#000000", "*")}
_PALE = ("#ffffff", "#fdf1dd", "#e6f2fa", "#e9f5ee", "#f7e9f1", "#f0ece2", "#ecebf5", "#fbeae6")
"""Tints of regions that decode to different pieces."""


def draw_landscape(report: Report) -> Figure:
    """A panel for each token: arrows are the field, tints are the piece that the token would be decoded as."""
    assert report.landscape is not None
    panels = report.landscape.landscape.panels
    styles = _MEANS | {method: report.styles[method] for method in panels[0].paths}
    rows = -(-len(panels) // _COLUMNS)
    figure = Figure(figsize=(WIDTH, 2.22 * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, min(_COLUMNS, len(panels)), squeeze=False).flatten()
    for number, (axes, panel) in enumerate(zip(grid, panels, strict=False), start=1):
        _regions(axes, panel)
        _field(axes, panel)
        _paths(axes, panel, styles)
        _title(axes, number, panel.pieces, styles)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.legend(handles=_legend(styles), loc="outside lower center", ncols=4)
    return figure


def _regions(axes: Axes, panel: Panel) -> None:
    """A tint for each piece, the most frequent ones first; the rest share the last."""
    pieces, counts = np.unique(np.array(panel.decoded), return_counts=True)
    order = [str(piece) for piece in pieces[np.argsort(-counts, kind="stable")]]
    numbers = np.array([[min(order.index(piece), len(_PALE) - 1) for piece in row] for row in panel.decoded])
    colors = np.array([[int(tint[i : i + 2], 16) / 255 for i in (1, 3, 5)] for tint in _PALE])
    axes.pcolormesh(panel.x, panel.y, colors[numbers], shading="nearest", rasterized=True, zorder=0)


def _field(axes: Axes, panel: Panel) -> None:
    field = np.array(panel.field)
    axes.quiver(panel.x, panel.y, field[..., 0], field[..., 1], color="#8c8c8c", angles="xy", width=0.004, zorder=1)
    axes.grid(visible=False)
    axes.set_aspect("equal")
    axes.tick_params(labelsize=6.5, length=2)
    axes.locator_params(nbins=4)
    axes.set_xlim(panel.x[0], panel.x[-1])
    axes.set_ylim(panel.y[0], panel.y[-1])


def _paths(axes: Axes, panel: Panel, styles: Mapping[str, Style]) -> None:
    """Markers become smaller with every step, as in the paper."""
    for method, path in panel.paths.items():
        style, points = styles[method], np.array([panel.prior, *path])
        axes.plot(points[:, 0], points[:, 1], color=style.color, linewidth=1, zorder=3)
        _mark(axes, points[1:], style.marker, style.color, np.linspace(60, 16, len(points) - 1), zorder=4)
    (x, y), color = panel.posterior, styles["posterior"].color  # open, since delta inference often ends right there
    axes.scatter([x], [y], s=95, c="none", marker="s", edgecolors=color, linewidths=1.4, zorder=5)
    _mark(axes, np.array([panel.prior]), "*", "black", 90, zorder=5)


def _mark(axes: Axes, points: Any, marker: str, color: str, size: Any, zorder: int) -> None:
    x, y = points.T
    axes.scatter(x, y, s=size, c=color, marker=marker, edgecolors="white", linewidths=0.5, zorder=zorder)


def _title(axes: Axes, number: int, pieces: Mapping[str, str], styles: Mapping[str, Style]) -> None:
    """The pieces in the colours of their methods, two a row; offsets are in points, since panels differ in height."""
    size, rows = 7.5, -(-len(styles) // 2)
    axes.set_title(f"token {number}", fontsize=size, loc="left", pad=(1.2 * rows + 0.7) * size)
    for index, (name, style) in enumerate(styles.items()):
        row, column = divmod(index, 2)
        axes.annotate(
            pieces[name],
            (0.52 * column, 1),
            xycoords="axes fraction",
            xytext=(0, (1.2 * (rows - 1 - row) + 0.4) * size),
            textcoords="offset points",
            color=style.color,
            fontsize=size,
            fontweight="bold",
            va="bottom",
        )


def _legend(styles: Mapping[str, Style]) -> list[Line2D]:
    means: dict[str, dict[str, Any]] = {
        "posterior": {"linestyle": "none", "markersize": 8, "markerfacecolor": "none", "markeredgewidth": 1.4},
        "prior": {"linestyle": "none", "markersize": 9},
    }
    return [
        Line2D([], [], color=style.color, label=style.label, marker=style.marker, **means.get(name, {"linestyle": "-"}))
        for name, style in styles.items()
    ]
