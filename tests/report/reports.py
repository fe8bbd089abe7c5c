"""Small reports for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latentmt.measure.bootstrap import Comparison
from latentmt.measure.machine import Machine
from latentmt.measure.report import Conditions, Ordering, Orderings, Report, Settings, Signature, SystemTime, Timings
from latentmt.measure.timing import summary

CONDITIONS = Conditions({}, "hash", 1, Machine("cpu", "float32", {}))


def make_signature(**models: str) -> Signature:
    return Signature(CONDITIONS, models, {})


def make_timings(means: Mapping[str, float], model: str = "this") -> Timings:
    times = [SystemTime(row, "eager", summary([mean], [1], [1.0]), None) for row, mean in means.items()]
    return Timings(make_signature(latent=model), 1, 1, 1, 0.0, times)


def make_orderings(*orderings: Ordering) -> Orderings:
    return Orderings(make_signature(), list(orderings))


def make_ordering(better: str, worse: str, low: float, high: float, p: float) -> Ordering:
    return Ordering(better, worse, Comparison((low + high) / 2, low, high, p, "signature"))


def make_report(**sections: Any) -> Report:
    """A report that is empty but for these sections."""
    empty: dict[str, Any] = {
        "name": "test",
        "languages": ("de", "en"),
        "paper": "IWSLT'16 De→En",
        "conditions": CONDITIONS,
        "models": {"latent": "this"},
        "settings": Settings(),
        "styles": {},
        "systems": {},
        "orderings": make_orderings(),
        "tokens": {},
        "likelihood": {},
        "timings": make_timings({}),
        "landscape": None,
        "samples": None,
        "training": {},
    }
    return Report(**(empty | sections))
