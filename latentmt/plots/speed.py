"""Quality against latency, and latency against the length of a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from latentmt.plots.style import LOOKS, WIDTH, Look, look_of

_BY_LENGTH = ("AR b=4", "AR b=1", "L=0", "delta-1", "energy-1", "score-1", "score Search")
"""The rows whose latency by length is drawn; more would be a thicket."""


def draw_tradeoff(ways: Mapping[str, Any], speed: Mapping[str, Any]) -> Figure:
    """Every way to translate as a point: milliseconds a sentence and BLEU; a panel for each form of execution."""
    figure, panels = _panels(speed, height=3.3)
    for axes, speeds in panels:
        points = {
            one["row"]: (one["text"]["mean"], ways[one["row"]]["result"]["quality"]["bleu_lc_intl"]["value"])
            for one in speeds
        }
        for method, look in LOOKS.items():
            _path(
                axes, {row: point for row, point in points.items() if look_of(row) == look}, points.get("L=0"), method
            )
        _milliseconds(axes.xaxis, axes.set_xscale)
        axes.set_xlabel("ms a sentence, one at a time")
    panels[0][0].set_ylabel("BLEU (lower-cased, intl)")
    panels[0][0].legend(loc="lower right", handlelength=1.2)
    return figure


def draw_latency(speed: Mapping[str, Any]) -> Figure:
    """The median latency of texts of similar length; a panel for each form of execution."""
    figure, panels = _panels(speed, height=3.1)
    for axes, speeds in panels:
        rows = {one["row"]: one["text"]["p50_by_tokens"] for one in speeds}
        for row in (row for row in _BY_LENGTH if row in rows):
            look, style = look_of(row), "--" if row in ("AR b=1", "score Search") else "-"
            face = "white" if row in ("AR b=1", "score Search") else look.color
            axes.plot(
                range(len(rows[row])),
                list(rows[row].values()),
                label=row,
                color=look.color,
                marker=look.marker,
                linestyle=style,
                markerfacecolor=face,
            )
        groups = next(iter(rows.values()))
        axes.set_xticks(range(len(groups)), list(groups))
        axes.set_xlabel("source tokens")
        _milliseconds(axes.yaxis, axes.set_yscale)
    panels[0][0].set_ylabel("ms a sentence, median")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _panels(speed: Mapping[str, Any], height: float) -> tuple[Figure, list[tuple[Axes, list[Any]]]]:
    """Axes for each form, beside each other, with the speeds that belong there."""
    speeds = speed["result"]["speeds"]
    forms = list(dict.fromkeys(one["form"] for one in speeds))
    figure = Figure(figsize=(WIDTH if len(forms) > 1 else 0.75 * WIDTH, height), layout="constrained")
    all_axes = figure.subplots(1, len(forms), squeeze=False, sharey=True)[0]
    for axes, form in zip(all_axes, forms, strict=True):
        if len(forms) > 1:
            axes.set_title(form, loc="left")
    return figure, [
        (axes, [s for s in speeds if s["form"] == form]) for axes, form in zip(all_axes, forms, strict=True)
    ]


def _path(
    axes: Axes, points: Mapping[str, tuple[float, float]], start: tuple[float, float] | None, method: str
) -> None:
    """A method's points; those with more and more steps are connected, from L = 0 on. A search is an open marker."""
    look, search = LOOKS[method], {row: point for row, point in points.items() if row.endswith("Search")}
    plain = {row: point for row, point in points.items() if row not in search}
    if not points:
        return
    line = [start, *plain.values()] if start and method not in ("AR", "L=0") else list(plain.values())
    axes.plot(*zip(*line, strict=True), color=look.color, linestyle=look.line, linewidth=1, alpha=0.6, zorder=2)
    _dots(axes, plain, look, look.color, look.label)
    _dots(axes, search, look, "white", f"{look.label}, search")


def _dots(axes: Axes, points: Mapping[str, tuple[float, float]], look: Look, face: str, label: str) -> None:
    if not points:
        return
    size = 75 if look.marker == "*" else 36
    x, y = zip(*points.values(), strict=True)
    axes.scatter(x, y, s=size, marker=look.marker, c=face, edgecolors=look.color, label=label, zorder=3)
    for row, point in points.items():
        if row.startswith("AR"):
            side = -1 if row == "AR b=1" else 1  # these two may lie close together
            at: dict[str, Any] = {"xytext": (7 * side, 0), "ha": "right" if side < 0 else "left", "va": "center"}
        else:
            at = {"xytext": (0, 5), "ha": "center"}
        name = "" if row == "L=0" or row.endswith("Search") else row.removeprefix("AR ").rpartition("-")[2]
        axes.annotate(name, point, textcoords="offset points", fontsize=7, color=look.color, **at)


def _milliseconds(axis: Any, set_scale: Any) -> None:
    """A logarithmic axis with plain numbers."""
    set_scale("log")
    axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
