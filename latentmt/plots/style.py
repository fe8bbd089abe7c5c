"""The style of all figures, and how they are written: the same bytes each time.

A method has one colour and one marker in every figure; the report names them. Markers and line styles repeat what the
colours say, for print in black and white.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from latentmt.files import write_atomically

WIDTH = 7.0
"""Inches: a figure across both columns of a paper."""
_DPI = 200
_RC: Any = {
    "font.family": "DejaVu Sans",  # it comes with matplotlib, so it is the same everywhere
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "text.parse_math": False,  # a $ of the text is a $
}


@contextmanager
def styled(name: str) -> Iterator[None]:
    """The style for drawing and writing a figure; its name makes the ids in the SVG unique."""
    with matplotlib.rc_context(_RC | {"svg.hashsalt": name}):
        yield


def write_figure(draw: Callable[[], Figure], folder: Path, name: str) -> Path:
    """Draw a figure and write it as SVG and as PNG; the SVG's path."""
    with styled(name):
        figure = draw()
        for kind, omitted in (("svg", "Date"), ("png", "Software")):
            content = io.BytesIO()
            figure.savefig(content, format=kind, dpi=_DPI, metadata={omitted: None}, bbox_inches="tight")
            write_atomically(folder / f"{name}.{kind}", content.getvalue())
    return folder / f"{name}.svg"


def steps_axis(axes: Axes, steps: list[int]) -> list[int]:
    """Make the x axis one of refinement steps, evenly spaced; the positions of the steps on it."""
    positions = list(range(len(steps)))
    axes.set_xticks(positions, [str(step) for step in steps])
    axes.set_xlabel("refinement steps L")
    axes.grid(visible=False, axis="x")
    return positions
