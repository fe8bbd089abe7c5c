"""The paper's claims, its numbers for them, and whether they hold here. What the paper does not claim is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from latentmt.measure.bootstrap import Comparison
from latentmt.measure.paper import AUTOREGRESSIVE, BASELINE, METHODS, PROPOSED
from latentmt.measure.report import Report
from latentmt.measure.timing import Timing
from latentmt.report.document import Table, as_ratio, signed

SIGNIFICANT = 0.05
"""The p below which a difference is called one, if its interval excludes 0 as well."""
_MIN_EFFECTIVE = 10
"""Effective samples below which an estimate is unreliable."""


def claims(report: Report) -> Iterator[list[str]]:
    """Each claim as a row: the claim, the paper's number, ours, and the verdict."""
    paper = report.paper_rows
    compared = {(each.better, each.worse): each.comparison for each in report.orderings.orderings}

    def difference(better: str, worse: str, name: str, verdict: str = "") -> Iterator[list[str]]:
        theirs = paper_difference(report, better, worse)
        if (ours := compared.get((better, worse))) and theirs is not None:
            here = f"{signed(ours.difference)} BLEU {_interval(ours)}"
            yield [name, f"{signed(theirs, 1)} BLEU", here, verdict or _verdict(ours, theirs)]

    if AUTOREGRESSIVE in report.systems:
        theirs, ours = paper[AUTOREGRESSIVE].bleu, report.systems[AUTOREGRESSIVE].bleu
        yield ["autoregressive, beam 4", f"{theirs:.1f} BLEU", f"{ours:.2f} BLEU", ""]
    search = f"{PROPOSED} Search"
    if gap := compared.get((AUTOREGRESSIVE, search)):
        theirs = paper[AUTOREGRESSIVE].bleu - paper[search].bleu
        verdict = "smaller" if gap.high < theirs else "larger" if gap.low > theirs else "alike, within noise"
        yield from difference(AUTOREGRESSIVE, search, f"gap from {AUTOREGRESSIVE} down to {search}", verdict)
    yield from difference(f"{PROPOSED}-1", "L=0", f"one {PROPOSED} step gains over L=0")
    for setting in ("-1", "-4", " Search"):
        better, worse = f"{PROPOSED}{setting}", f"{BASELINE}{setting}"
        yield from difference(better, worse, f"{better} over {worse}")
    yield from difference(search, f"{PROPOSED}-1", "search gains over one candidate")
    yield from _speed_claims(report)
    yield from _likelihood_claims(report)
    yield from _token_claims(report)


def speedup(times: Mapping[str, Timing], row: str) -> str:
    """The ratio of the mean times, as in the paper."""
    if AUTOREGRESSIVE not in times or row not in times:
        return "–"
    return as_ratio(times[AUTOREGRESSIVE].mean / times[row].mean)


def paper_difference(report: Report, better: str, worse: str) -> float | None:
    """The difference in BLEU that the paper has; None where it lacks one of the rows."""
    paper = report.paper_rows
    return paper[better].bleu - paper[worse].bleu if better in paper and worse in paper else None


def _speed_claims(report: Report) -> Iterator[list[str]]:
    paper, forms = report.paper_rows, report.timings.by_form()
    note = ", of other models" if report.other_timed_models else ""
    for row in (f"{PROPOSED}-1", f"{PROPOSED} Search"):
        ours = ", ".join(f"{speedup(times, row)} {form}" for form, times in forms.items() if row in times)
        if ours and "–" not in ours:
            yield [f"speed-up of {row} over {AUTOREGRESSIVE}", as_ratio(paper[row].speedup), ours + note, ""]
    costs = {
        form: (_step_cost(times, PROPOSED), _step_cost(times, BASELINE))
        for form, times in forms.items()
        if all(f"{method}-{steps}" in times for method in (PROPOSED, BASELINE) for steps in (1, 4))
    }
    ratios = {form: proposed / baseline for form, (proposed, baseline) in costs.items() if min(proposed, baseline) > 0}
    if ratios:
        proposed, baseline = (paper[f"{method}-4"].ms - paper[f"{method}-1"].ms for method in (PROPOSED, BASELINE))
        ours = ", ".join(f"{ratio:.2f} {form}" for form, ratio in ratios.items())
        verdict = "at most half" if max(ratios.values()) <= 0.5 else "more than half"
        name = f"what a {PROPOSED} step costs, in {BASELINE} steps"
        yield [name, f"{proposed / baseline:.2f}", ours + note, verdict]


def _step_cost(times: Mapping[str, Timing], method: str) -> float:
    """Milliseconds of one more step."""
    return (times[f"{method}-4"].mean - times[f"{method}-1"].mean) / 3


def _likelihood_claims(report: Report) -> Iterator[list[str]]:
    for method in (method for method in report.likelihood if method in METHODS):
        points = report.likelihood[method].points
        first, last = points[1], points[-1]
        ours = ", ".join(
            f"{signed(point.gain)} ± {point.gain_error:.2f} after {point.steps}" for point in (first, last)
        )
        sure = all(point.gain > 2 * point.gain_error for point in (first, last))
        verdict = "yes" if sure else "no" if last.gain < -2 * last.gain_error else "within noise"
        effective = min(point.effective for point in points)
        if effective < _MIN_EFFECTIVE:
            verdict += f", by {effective:.0f} effective samples"
        yield [f"{method} raises log p(ŷ|x)", "yes", f"{ours} steps, nats a sentence", verdict]


def _token_claims(report: Report) -> Iterator[list[str]]:
    if not {PROPOSED, BASELINE} <= report.tokens.keys():
        return
    proposed, baseline = (
        next(point for point in report.tokens[method].points if point.steps == 4) for method in (PROPOSED, BASELINE)
    )
    noise = 2 * (proposed.edits_error**2 + baseline.edits_error**2) ** 0.5
    edits = f"{proposed.edits:.2f} and {baseline.edits:.2f} pieces a sentence (4 steps)"
    verdict = _sign(proposed.edits - baseline.edits, noise)
    yield [f"{PROPOSED} changes more tokens than {BASELINE}", "yes", edits, verdict]
    noise = 2 * (baseline.repeats + proposed.repeats) ** 0.5  # of Poisson counts
    repeats = f"{proposed.repeats:,} and {baseline.repeats:,} (4 steps)"
    verdict = _sign(float(baseline.repeats - proposed.repeats), noise)
    yield [f"{PROPOSED} leaves fewer repetitions than {BASELINE}", "yes", repeats, verdict]


def _sign(difference: float, noise: float) -> str:
    return "yes" if difference > noise else "no" if difference < -noise else "within noise"


def _interval(comparison: Comparison) -> str:
    return f"[{signed(comparison.low)}, {signed(comparison.high)}]"


def _significant(comparison: Comparison) -> bool:
    return comparison.p < SIGNIFICANT and (comparison.low > 0 or comparison.high < 0)


def _verdict(comparison: Comparison, theirs: float) -> str:
    if not _significant(comparison):
        return "within noise"
    return "yes" if (comparison.difference > 0) == (theirs >= 0) else "no"


def orderings_table(report: Report) -> Table:
    """Every ordering with its interval and p-value, beside the paper's difference."""
    rows = []
    for each in report.orderings.orderings:
        ours, theirs = each.comparison, paper_difference(report, each.better, each.worse)
        rows.append(
            [
                f"{each.better} − {each.worse}",
                signed(ours.difference),
                _interval(ours),
                f"{ours.p:.3f}",
                "yes" if _significant(ours) else "no",
                "–" if theirs is None else signed(theirs, 1),
            ]
        )
    columns = ("", "BLEU", "95%", "p", "a difference?", "BLEU")
    return Table(columns, rows, groups=(("", 1), ("here", 4), ("paper", 1)))
