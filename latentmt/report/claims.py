"""What the paper claims, its numbers for it, and whether it holds here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latentmt.report.document import Grid
from latentmt.report.tree import Tree, as_ratio, bleu, forms_of, paper_of, signed, speedup, timed_others

SURE = 0.05
"""The p below which a difference is called one, if its interval leaves out 0 as well."""
_FEW = 10
"""Effective samples below which an estimate is not to be relied upon."""


def glance(tree: Tree) -> Iterator[list[str]]:
    """The paper's claims, its numbers for them, and ours."""
    paper = paper_of(tree)
    compared = {(one["of"], one["against"]): one for one in tree["comparisons"]["result"]}

    def difference(of: str, against: str, name: str, wanted: str = "") -> Iterator[list[str]]:
        if found := compared.get((of, against)):
            theirs = paper[of].bleu - paper[against].bleu
            verdict = wanted or _verdict(found, theirs)
            yield [name, f"{signed(theirs, 1)} BLEU", f"{signed(found['difference'])} BLEU {_interval(found)}", verdict]

    if "AR b=4" in tree["ways"]:
        yield ["autoregressive, beam 4", f"{paper['AR b=4'].bleu:.1f} BLEU", f"{bleu(tree, 'AR b=4'):.2f} BLEU", ""]
    if found := compared.get(("AR b=4", "score Search")):
        theirs = paper["AR b=4"].bleu - paper["score Search"].bleu
        holds = "smaller" if found["high"] < theirs else "larger" if found["low"] > theirs else "alike, within noise"
        yield from difference("AR b=4", "score Search", "gap from AR b=4 down to score Search", holds)
    yield from difference("score-1", "L=0", "one score step gains over L=0")
    for steps in ("-1", "-4", " Search"):
        yield from difference(f"score{steps}", f"delta{steps}", f"score{steps} over delta{steps}")
    yield from difference("score Search", "score-1", "search gains over one candidate")
    yield from _speed_claims(tree)
    yield from _likelihood_claims(tree)
    yield from _token_claims(tree)


def _speed_claims(tree: Tree) -> Iterator[list[str]]:
    paper, forms = paper_of(tree), forms_of(tree)
    whose = ", of other models" if timed_others(tree) else ""
    for row in ("score-1", "score Search"):
        ours = ", ".join(f"{speedup(times, row)} {form}" for form, times in forms.items() if row in times)
        if ours and "–" not in ours:
            yield [f"speed-up of {row} over AR b=4", as_ratio(paper[row].speedup), ours + whose, ""]
    steps = {
        form: (_step(times, "score"), _step(times, "delta"))
        for form, times in forms.items()
        if all(f"{method}-{steps}" in times for method in ("score", "delta") for steps in (1, 4))
    }
    ratios = {form: score / delta for form, (score, delta) in steps.items() if min(score, delta) > 0}
    if ratios:
        theirs = (paper["score-4"].ms - paper["score-1"].ms) / (paper["delta-4"].ms - paper["delta-1"].ms)
        ours = ", ".join(f"{ratio:.2f} {form}" for form, ratio in ratios.items())
        verdict = "at most half" if max(ratios.values()) <= 0.5 else "more than half"
        yield ["what a score step costs, in delta steps", f"{theirs:.2f}", ours + whose, verdict]


def _step(times: Mapping[str, Any], method: str) -> float:
    """What one step more costs."""
    return float(times[f"{method}-4"]["mean"] - times[f"{method}-1"]["mean"]) / 3


def _likelihood_claims(tree: Tree) -> Iterator[list[str]]:
    for method, part in tree["likelihood"].items():
        first, last = part["result"][1], part["result"][-1]
        ours = ", ".join(
            f"{signed(one['gain'])} ± {one['gain_error']:.2f} after {one['steps']}" for one in (first, last)
        )
        sure = all(one["gain"] > 2 * one["gain_error"] for one in (first, last))
        verdict = "yes" if sure else "no" if last["gain"] < -2 * last["gain_error"] else "within noise"
        effective = min(one["effective"] for one in part["result"])
        if effective < _FEW:
            verdict += f", by {effective:.0f} effective samples"
        yield [f"{method} raises log p(ŷ|x)", "yes", f"{ours} steps, nats a sentence", verdict]


def _token_claims(tree: Tree) -> Iterator[list[str]]:
    if not {"score", "delta"} <= set(tree["tokens"]):
        return
    score, delta = (next(r for r in tree["tokens"][m]["result"] if r["steps"] == 4) for m in ("score", "delta"))
    apart = score["edits"] - delta["edits"]
    noise = 2 * (score["edits_error"] ** 2 + delta["edits_error"] ** 2) ** 0.5
    verdict = "yes" if apart > noise else "no" if apart < -noise else "within noise"
    edits = f"{score['edits']:.2f} and {delta['edits']:.2f} pieces a sentence (4 steps)"
    yield ["score changes more tokens than delta", "yes", edits, verdict]
    repeats = f"{score['repeats']:,} and {delta['repeats']:,} (4 steps)"
    fewer, doubt = delta["repeats"] - score["repeats"], 2 * (delta["repeats"] + score["repeats"]) ** 0.5  # as Poisson
    verdict = "yes" if fewer > doubt else "no" if fewer < -doubt else "within noise"
    yield ["score leaves fewer repetitions than delta", "yes", repeats, verdict]


def _interval(found: Tree) -> str:
    return f"[{signed(found['low'])}, {signed(found['high'])}]"


def _sure(found: Tree) -> bool:
    return bool(found["p"] < SURE and (found["low"] > 0 or found["high"] < 0))


def _verdict(found: Tree, theirs: float) -> str:
    if not _sure(found):
        return "within noise"
    return "yes" if (found["difference"] > 0) == (theirs >= 0) else "no"


def orderings(tree: Tree) -> Grid:
    paper = paper_of(tree)
    rows = [
        [
            f"{found['of']} − {found['against']}",
            signed(found["difference"]),
            _interval(found),
            f"{found['p']:.3f}",
            "yes" if _sure(found) else "no",
            signed(paper[found["of"]].bleu - paper[found["against"]].bleu, 1),
        ]
        for found in tree["comparisons"]["result"]
    ]
    columns = ("", "BLEU", "95%", "p", "a difference?", "BLEU")
    return Grid(columns, rows, groups=(("", 1), ("here", 4), ("paper", 1)))
