"""When a claim of the paper is said to hold: only where the difference is larger than the noise."""

from __future__ import annotations

import pytest
from reports import make_ordering, make_orderings, make_report, make_signature, make_timings

from latentmt.measure.likelihood import Likelihood
from latentmt.measure.report import LikelihoodCurve, Report, TokenCurve
from latentmt.measure.tokens import TokenCounts
from latentmt.report.claims import claims, orderings_table


def verdict(report: Report, claim: str) -> str:
    return next(row[-1] for row in claims(report) if row[0] == claim)


@pytest.mark.parametrize(
    ("low", "high", "p", "expected"),
    [
        (0.4, 2.0, 0.01, "yes"),
        (-2.0, -0.4, 0.01, "no"),
        (0.4, 2.0, 0.2, "within noise"),
        (-0.4, 2.0, 0.01, "within noise"),  # p alone is not enough: it is small for few sentences
    ],
)
def test_a_difference_holds_if_p_and_interval_agree(low: float, high: float, p: float, expected: str) -> None:
    report = make_report(orderings=make_orderings(make_ordering("score-1", "L=0", low, high, p)))
    assert verdict(report, "one score step gains over L=0") == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.1, 1.0, "smaller"), (0.5, 2.0, "alike, within noise"), (1.6, 2.4, "larger")]
)
def test_the_gap_to_the_autoregressive_model(low: float, high: float, expected: str) -> None:  # the paper's is 1.3
    report = make_report(orderings=make_orderings(make_ordering("AR b=4", "score Search", low, high, 0.0)))
    assert verdict(report, "gap from AR b=4 down to score Search") == expected


def curve(gain: float, effective: float) -> LikelihoodCurve:
    points = [Likelihood(0, -9.0, -1.0, 0.0, 0.0, -9.5, effective, 1.0)]
    points += [Likelihood(steps, -9.0, -1.0, gain, 0.2, -9.5, 60.0, 1.0) for steps in (1, 2, 4, 8)]
    return LikelihoodCurve(make_signature(), points)


@pytest.mark.parametrize(
    ("gain", "effective", "expected"),
    [
        (1.0, 50.0, "yes"),
        (0.1, 50.0, "within noise"),
        (-0.1, 50.0, "within noise"),
        (-1.0, 50.0, "no"),
        (1.0, 2.0, "yes, by 2 effective samples"),
    ],
)
def test_a_gain_in_likelihood(gain: float, effective: float, expected: str) -> None:
    report = make_report(likelihood={"score": curve(gain, effective)})
    assert verdict(report, "score raises log p(ŷ|x)") == expected


@pytest.mark.parametrize(("score", "delta", "expected"), [(10, 60, "yes"), (1, 2, "within noise"), (60, 10, "no")])
def test_fewer_repetitions(score: int, delta: int, expected: str) -> None:
    counts = {
        method: TokenCurve(make_signature(), [TokenCounts(4, 1.0, 0.1, 0.5, repeats, 1.0, 1.0)])
        for method, repeats in (("score", score), ("delta", delta))
    }
    assert verdict(make_report(tokens=counts), "score leaves fewer repetitions than delta") == expected


@pytest.mark.parametrize(("score", "expected"), [(0.4, "at most half"), (0.9, "more than half"), (-0.1, None)])
def test_the_cost_of_a_step(score: float, expected: str | None) -> None:
    means = {"score-1": 5.0, "score-4": 5.0 + 3 * score, "delta-1": 6.0, "delta-4": 9.0}
    rows = {row[0]: row[-1] for row in claims(make_report(timings=make_timings(means)))}
    assert rows.get("what a score step costs, in delta steps") == expected


@pytest.mark.parametrize(("model", "expected"), [("this", "10× eager"), ("that", "10× eager, of other models")])
def test_times_of_other_models_are_labelled(model: str, expected: str) -> None:
    timed = make_timings({"AR b=4": 50.0, "score-1": 5.0}, model)
    rows = {row[0]: row[2] for row in claims(make_report(timings=timed))}
    assert rows["speed-up of score-1 over AR b=4"] == expected


def test_what_the_paper_does_not_claim_is_left_out() -> None:
    report = make_report(
        orderings=make_orderings(make_ordering("curl-1", "L=0", 0.4, 2.0, 0.01)),
        likelihood={"curl": curve(1.0, 50.0)},
        timings=make_timings({"AR b=4": 50.0, "curl-1": 5.0}),
    )
    assert list(claims(report)) == []
    (row,) = orderings_table(report).rows
    assert row[0] == "curl-1 − L=0"
    assert row[-1] == "–"
