"""Where things are in a measured tree, and the paper's numbers for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentmt.measure.paper import ROWS, TABLE, Entry

Tree = Mapping[str, Any]


def paper_of(tree: Tree) -> dict[str, Entry]:
    return TABLE[tree["about"]["paper"]]


def bleu(tree: Tree, row: str) -> float:
    return float(tree["ways"][row]["result"]["quality"]["bleu_lc_intl"]["value"])


def forms_of(tree: Tree) -> dict[str, dict[str, Any]]:
    """Form → row → its times, text to text."""
    forms: dict[str, dict[str, Any]] = {}
    for speed in tree["speed"]["result"]["speeds"]:
        forms.setdefault(speed["form"], {})[speed["row"]] = speed["text"]
    return forms


def timed_others(tree: Tree) -> dict[str, str]:
    """The models that were timed, by kind, if they are not those of the report."""
    timed: dict[str, str] = tree["speed"]["signature"]["models"]
    return {kind: hash_ for kind, hash_ in timed.items() if tree["about"]["models"].get(kind) != hash_}


def speedup(times: Mapping[str, Any], row: str) -> str:
    """The ratio of the mean times, as in the paper."""
    if "AR b=4" not in times or row not in times:
        return "–"
    return as_ratio(times["AR b=4"]["mean"] / times[row]["mean"])


def as_ratio(ratio: float) -> str:
    return f"{ratio:.0f}×" if ratio >= 9.95 else f"{ratio:.1f}×"


def rows_of(tree: Tree) -> list[str]:
    return [row for row in ROWS if row in tree["ways"]]


def signed(value: float, digits: int = 2) -> str:
    """With a real minus; what rounds to nothing is +0."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")
