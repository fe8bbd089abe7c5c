"""When a claim of the paper is said to hold: only where noise cannot have made it."""

from __future__ import annotations

from typing import Any

import pytest

from latentmt.report.claims import glance


def speed(means: dict[str, float], model: str = "this") -> dict[str, Any]:
    speeds = [{"form": "eager", "row": row, "text": {"mean": mean, "std": 0.1}} for row, mean in means.items()]
    return {"signature": {"models": {"latent": model}}, "result": {"speeds": speeds}}


def tree(**parts: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "about": {"paper": "IWSLT'16 De→En", "models": {"latent": "this"}},
        "ways": {},
        "comparisons": {"result": []},
        "speed": speed({}),
        "likelihood": {},
        "tokens": {},
    }
    return found | parts


def verdict(measured: dict[str, Any], claim: str) -> str:
    return next(row[-1] for row in glance(measured) if row[0] == claim)


@pytest.mark.parametrize(
    ("low", "high", "p", "expected"),
    [
        (0.4, 2.0, 0.01, "yes"),
        (-2.0, -0.4, 0.01, "no"),
        (0.4, 2.0, 0.2, "within noise"),
        (-0.4, 2.0, 0.01, "within noise"),  # p alone is not believed: few sentences make it small
    ],
)
def test_a_difference(low: float, high: float, p: float, expected: str) -> None:
    one = {"of": "score-1", "against": "L=0", "difference": (low + high) / 2, "low": low, "high": high, "p": p}
    assert verdict(tree(comparisons={"result": [one]}), "one score step gains over L=0") == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.1, 1.0, "smaller"), (0.5, 2.0, "alike, within noise"), (1.6, 2.4, "larger")]
)
def test_the_gap(low: float, high: float, expected: str) -> None:  # the paper's is 1.3
    one = {"of": "AR b=4", "against": "score Search", "difference": (low + high) / 2, "low": low, "high": high, "p": 0}
    assert verdict(tree(comparisons={"result": [one]}), "gap from AR b=4 down to score Search") == expected


@pytest.mark.parametrize(
    ("gain", "effective", "expected"),
    [
        (1.0, 50, "yes"),
        (0.1, 50, "within noise"),
        (-0.1, 50, "within noise"),
        (-1.0, 50, "no"),
        (1.0, 2, "yes, by 2 effective samples"),
    ],
)
def test_likelihood(gain: float, effective: float, expected: str) -> None:
    start = {"steps": 0, "gain": 0.0, "gain_error": 0.0, "effective": effective}
    rest = [{"steps": steps, "gain": gain, "gain_error": 0.2, "effective": 60} for steps in (1, 2, 4, 8)]
    measured = tree(likelihood={"score": {"result": [start, *rest]}})
    assert verdict(measured, "score raises log p(ŷ|x)") == expected


@pytest.mark.parametrize(("score", "delta", "expected"), [(10, 60, "yes"), (1, 2, "within noise"), (60, 10, "no")])
def test_repetitions(score: int, delta: int, expected: str) -> None:
    counts = {
        method: {"result": [{"steps": 4, "edits": 1.0, "edits_error": 0.1, "repeats": repeats}]}
        for method, repeats in (("score", score), ("delta", delta))
    }
    assert verdict(tree(tokens=counts), "score leaves fewer repetitions than delta") == expected


@pytest.mark.parametrize(("score", "expected"), [(0.4, "at most half"), (0.9, "more than half"), (-0.1, None)])
def test_what_a_step_costs(score: float, expected: str | None) -> None:
    means = {"score-1": 5.0, "score-4": 5.0 + 3 * score, "delta-1": 6.0, "delta-4": 9.0}
    rows = {row[0]: row[-1] for row in glance(tree(speed=speed(means)))}
    assert rows.get("what a score step costs, in delta steps") == expected


@pytest.mark.parametrize(("model", "expected"), [("this", "10× eager"), ("that", "10× eager, of other models")])
def test_times_of_other_models_are_said_to_be_theirs(model: str, expected: str) -> None:
    timed = speed({"AR b=4": 50.0, "score-1": 5.0}, model)
    rows = {row[0]: row[2] for row in glance(tree(speed=timed))}
    assert rows["speed-up of score-1 over AR b=4"] == expected
