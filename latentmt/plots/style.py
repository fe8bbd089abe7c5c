"""How figures look: one colour and one marker a method, everywhere; and how they are written, byte for byte the same.

The colours are those of Okabe and Ito, which people with any kind of colour vision can tell apart; markers and line
styles say the same once more, for print without colours.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Look:
    """Of a method."""

    label: str
    color: str
    marker: str
    line: str = "-"


LOOKS = {
    "AR": Look("autoregressive", "#000000", "D", "--"),
    "L=0": Look("L = 0", "#7f7f7f", "*", ":"),
    "delta": Look("delta", "#0072B2", "X", "-"),
    "energy": Look("energy", "#D55E00", "^", "-"),
    "score": Look("score", "#009E73", "o", "-"),
}


def look_of(row: str) -> Look:
    """The look of a row of Table 1, or of a method."""
    return LOOKS[row if row in LOOKS else row.replace("-", " ").split()[0]]


@contextmanager
def styled(name: str) -> Iterator[None]:
    """All that is drawn and written inside looks like this; a figure's name makes its SVG's ids its own."""
    with matplotlib.rc_context(_RC | {"svg.hashsalt": name}):
        yield


def write_figure(draw: Callable[[], Figure], folder: Path, name: str) -> Path:
    """Draw a figure and write it as SVG and as PNG; the SVG's path."""
    with styled(name):
        figure = draw()
        for kind, nameless in (("svg", "Date"), ("png", "Software")):
            content = io.BytesIO()
            figure.savefig(content, format=kind, dpi=_DPI, metadata={nameless: None}, bbox_inches="tight")
            write_atomically(folder / f"{name}.{kind}", content.getvalue())
    return folder / f"{name}.svg"


def steps_axis(axes: Axes, steps: list[int]) -> list[int]:
    """An axis of refinement steps, which are 0, 1, 2, 4, 8: evenly spaced. The places of the steps on it."""
    places = list(range(len(steps)))
    axes.set_xticks(places, [str(step) for step in steps])
    axes.set_xlabel("refinement steps L")
    axes.grid(visible=False, axis="x")
    return places
