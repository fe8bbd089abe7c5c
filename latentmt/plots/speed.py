"""Quality against latency, and latency against the length of a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from latentmt.fields.base import Style
from latentmt.measure.report import Report, System, SystemTime
from latentmt.plots.style import WIDTH

_LINES = {"teacher": "--", "prior": ":"}
"""Line styles of the methods that do not refine; the others have solid lines."""

Point = tuple[float, float]


def draw_tradeoff(report: Report) -> Figure:
    """Every system as a point: milliseconds a sentence and BLEU; a panel for each form of execution."""
    figure, panels = _panels(report, height=3.3)
    for axes, times in panels:
        points = {time.row: (time.text.mean, report.systems[time.row].bleu) for time in times}
        for method in dict.fromkeys(report.systems[row].method for row in points):
            _path(axes, report, points, method)
        _milliseconds(axes.xaxis, axes.set_xscale)
        axes.set_xlabel("ms a sentence, one at a time")
    panels[0][0].set_ylabel("BLEU (lower-cased, intl)")
    panels[0][0].legend(loc="lower right", handlelength=1.2)
    return figure


def draw_latency(report: Report) -> Figure:
    """The median latency of texts of similar length; a panel for each form of execution."""
    figure, panels = _panels(report, height=3.1)
    for axes, times in panels:
        rows = {time.row: time.text.p50_by_tokens for time in times}
        for row in _latency_rows(report):
            if row not in rows:
                continue
            system = report.systems[row]
            style, is_open = report.styles[system.method], system.is_search or system.beam == 1
            axes.plot(
                range(len(rows[row])),
                list(rows[row].values()),
                label=row,
                color=style.color,
                marker=style.marker,
                linestyle="--" if is_open else "-",
                markerfacecolor="white" if is_open else style.color,
            )
        groups = next(iter(rows.values()))
        axes.set_xticks(range(len(groups)), list(groups))
        axes.set_xlabel("source tokens")
        _milliseconds(axes.yaxis, axes.set_yscale)
    panels[0][0].set_ylabel("ms a sentence, median")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _latency_rows(report: Report) -> list[str]:
    """The rows with the fewest steps of each method, and the best search: more lines could not be told apart."""
    systems = report.systems
    steps = {system.method: system.steps for system in reversed(systems.values()) if not system.is_search}
    rows = [row for row, system in systems.items() if not system.is_search and system.steps == steps[system.method]]
    rows.sort(key=lambda row: -(systems[row].beam or 0))  # open markers are drawn over filled ones
    searches = [row for row, system in systems.items() if system.is_search]
    return rows + sorted(searches, key=lambda row: systems[row].bleu)[-1:]


def _panels(report: Report, height: float) -> tuple[Figure, list[tuple[Axes, list[SystemTime]]]]:
    """Axes for each form, beside each other, with the times that belong there."""
    times = report.timings.times
    forms = list(dict.fromkeys(time.form for time in times))
    figure = Figure(figsize=(WIDTH if len(forms) > 1 else 0.75 * WIDTH, height), layout="constrained")
    all_axes = figure.subplots(1, len(forms), squeeze=False, sharey=True)[0]
    for axes, form in zip(all_axes, forms, strict=True):
        if len(forms) > 1:
            axes.set_title(form, loc="left")
    return figure, [
        (axes, [time for time in times if time.form == form]) for axes, form in zip(all_axes, forms, strict=True)
    ]


def _path(axes: Axes, report: Report, points: Mapping[str, Point], method: str) -> None:
    """A method's points, connected by the number of steps from L = 0 on. A search is an open marker."""
    style = report.styles[method]
    own = {row: point for row, point in points.items() if report.systems[row].method == method}
    search = {row: point for row, point in own.items() if report.systems[row].is_search}
    single = {row: point for row, point in own.items() if row not in search}
    refines = any(report.systems[row].steps for row in own)
    line = [*([points["L=0"]] if refines and "L=0" in points else []), *single.values()]
    linestyle = _LINES.get(method, "-")
    axes.plot(*zip(*line, strict=True), color=style.color, linestyle=linestyle, linewidth=1, alpha=0.6, zorder=2)
    _dots(axes, report.systems, single, style, style.color, style.label)
    _dots(axes, report.systems, search, style, "white", f"{style.label}, search")


def _dots(
    axes: Axes, systems: Mapping[str, System], points: Mapping[str, Point], style: Style, face: str, label: str
) -> None:
    if not points:
        return
    size = 75 if style.marker == "*" else 36
    x, y = zip(*points.values(), strict=True)
    axes.scatter(x, y, s=size, marker=style.marker, c=face, edgecolors=style.color, label=label, zorder=3)
    for row, point in points.items():
        system = systems[row]
        name = str(system.steps) if system.steps and not system.is_search else ""
        where: dict[str, Any] = {"xytext": (0, 5), "ha": "center"}
        if system.beam:
            name, side = f"b={system.beam}", -1 if system.beam == 1 else 1  # the two may lie close together
            where = {"xytext": (7 * side, 0), "ha": "right" if side < 0 else "left", "va": "center"}
        axes.annotate(name, point, textcoords="offset points", fontsize=7, color=style.color, **where)


def _milliseconds(axis: Any, set_scale: Any) -> None:
    """A logarithmic axis with plain numbers."""
    set_scale("log")
    axis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
