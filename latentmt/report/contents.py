"""What a report says: the measured tree as headings, tables, figures and samples, beside the paper's numbers.

Every number comes out of the tree or out of `measure.paper`; nothing is measured here, and nothing is drawn.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from latentmt.measure.paper import CITATION
from latentmt.measure.samples import CHANGED, KEPT
from latentmt.report.claims import SURE, glance, orderings
from latentmt.report.document import Block, Code, Grid, Heading, Paragraph, Passage, Picture, Span
from latentmt.report.tree import Tree, as_ratio, bleu, forms_of, paper_of, rows_of, signed, speedup, timed_others

_BLOCKS = ("L=0", "delta-1", "energy-1", "score-1")
"""Rows of Table 1 that begin a block."""
_CAPTIONS = {
    "tradeoff": (
        "Quality against latency",
        "Every way to translate as a point: up is better, left is faster. Numbers are refinement steps; open markers "
        "are searches; the time axis is logarithmic.",
    ),
    "likelihood": (
        "Figure 2: marginal log-probability of the output",
        "log p(ŷ|x) given the length, by importance sampling from the posterior, after L refinement steps; the mean "
        "over sentences. Bars are the standard error of the gain over L = 0.",
    ),
    "tokens": (
        "Figure 3: what refinement does to the tokens",
        "Left: edit distance, in pieces, from the output at L = 0, the mean over sentences with its standard error. "
        "Right: tokens that repeat the one before them, before they are removed, relative to L = 0.",
    ),
    "landscape": (
        "Figure 4: the score in a latent of two numbers a token",
        "Arrows: the learned score around each token's latent, the other tokens being at the prior’s mean. The "
        "target has the reference’s length. Markers become smaller with every step. Above each panel, in the same "
        "colours, the pieces that are decoded in the end.",
    ),
    "latency": (
        "Latency by length of the sentence",
        "Medians of texts of similar length, one at a time, text to text; the time axis is logarithmic.",
    ),
    "training": (
        "Training",
        "Lines: while training; markers: on the development set. The loss of a field is ‖g‖² − 2 g·displacement, so it "
        "is negative when the field points the right way.",
    ),
}
FIGURES = tuple(_CAPTIONS)
"""The names of the figures there can be, in the order of the page."""


def contents(tree: Tree, figures: Mapping[str, Path]) -> list[Block]:
    """The whole report. Figures: the SVG files of those that were drawn."""
    about = tree["about"]
    source, target = about["languages"]
    blocks: list[Block] = [
        Heading(title(tree), 1),
        Paragraph(
            f"Measured on {about['sentences']:,} lines, {source} → {target}, beside {CITATION} ({about['paper']}). "
            "The paper’s times are of another machine and its text is another; what can be compared are orderings, "
            "gaps to the autoregressive model, and speed-ups."
        ),
        Heading("At a glance"),
        Grid(("", "paper", "here", "does it hold?"), list(glance(tree)), words=True),
        Heading("Table 1: quality and speed"),
        table_one(tree),
        Paragraph(_table_note(tree)),
        Heading("Orderings"),
        Paragraph(
            f"Differences of BLEU (`{tree['comparisons']['result'][0]['signature']}`), with the interval that holds "
            f"95% of the resampled differences. Called a difference where p < {SURE} and the interval leaves out 0; "
            f"{len(tree['comparisons']['result'])} comparisons, none corrected for the others."
        ),
        orderings(tree),
        Heading("Figures"),
        *(block for name, path in figures.items() for block in _figure(tree, name, path)),
        Heading("Likelihood and tokens, step by step"),
        _steps(tree),
        *_likelihood_note(tree),
    ]
    if tree["samples"]:
        blocks += [Heading("Samples"), *samples_blocks(tree["samples"]["result"])]
    return [*blocks, Heading("How it was measured"), *_measured(tree)]


def title(tree: Tree) -> str:
    """What the report is about."""
    return f"Refinement in the latent space: {tree['about']['name']}"


def samples_blocks(result: Tree) -> Iterator[Block]:
    """Translations from a sample of the prior, and refined."""
    yield Paragraph(
        f"From a sample of the prior, and after {result['steps']} {result['method']} step"
        f"{'s' if result['steps'] > 1 else ''}: the first sentences of the test set that the step changes. Phrases on "
        "a tinted ground have moved; what is struck out has gone, what is underlined has come."
    )
    for sample in result["samples"]:
        yield Passage(
            [
                ("source", [Span(sample["source"])]),
                *(("reference", [Span(reference)]) for reference in sample["references"]),
                ("sampled", _spans(sample["before"], "gone")),
                ("refined", _spans(sample["after"], "come")),
            ]
        )


def _spans(phrases: Sequence[Tree], changed: str) -> list[Span]:
    styles = {KEPT: "", CHANGED: changed}
    return [Span(phrase["text"], styles.get(phrase["mark"], f"moved {phrase['mark']}")) for phrase in phrases]


def table_one(tree: Tree) -> Grid:
    """Ours beside the paper's."""
    paper, forms, rows = paper_of(tree), forms_of(tree), rows_of(tree)

    def gap(value: float, base: float | None, row: str) -> str:
        return "" if base is None or row == "AR b=4" else signed(value - base, 1)

    def cells(row: str) -> list[str]:
        quality = tree["ways"][row]["result"]["quality"]
        ours = bleu(tree, row)
        line = [row, f"{ours:.2f}", gap(ours, bleu(tree, "AR b=4") if "AR b=4" in rows else None, row)]
        line += [f"{quality['bleu']['value']:.2f}", f"{quality['chrf']['value']:.1f}"]
        for times in forms.values():
            line += [
                f"{times[row]['mean']:.2f} ± {times[row]['std']:.2f}" if row in times else "–",
                speedup(times, row),
            ]
        theirs = paper[row]
        line += [f"{theirs.bleu:.1f}", gap(theirs.bleu, paper["AR b=4"].bleu, row)]
        return [*line, f"{theirs.ms} ± {theirs.std}", as_ratio(theirs.speedup)]

    cased = "lc" if "case:lc" in tree["ways"][rows[0]]["result"]["quality"]["bleu"]["signature"] else "cased"
    timed = [column for form in forms for column in (f"ms, {form}", "speed-up")]
    return Grid(
        ("", "BLEU lc intl", "to AR b=4", f"BLEU {cased} 13a", "chrF", *timed, "BLEU", "to AR b=4", "ms", "speed-up"),
        [cells(row) for row in rows],
        groups=(("", 1), ("here", 4 + len(timed)), ("paper", 4)),
        breaks=[rows.index(row) for row in _BLOCKS if row in rows],
    )


def _table_note(tree: Tree) -> str:
    settings, speed = tree["about"]["settings"], tree["speed"]
    timed, on = speed["result"], speed["signature"]
    apart = f" (timed apart: {unlike})" if (unlike := _apart(tree)) else ""
    chooser = next(
        (way["signature"]["options"]["rerank"] for row, way in tree["ways"].items() if "Search" in row), "none"
    )
    return (
        f"Milliseconds: mean ± standard deviation of {timed['texts']} texts, one at a time, text to text, on "
        f"{on['device']}, {on['dtype']}, CPU threads: {timed['threads']}{apart}; speed-up: ratio of mean "
        f"times to AR b=4 in the same form. Search: {settings['lengths']} lengths × {settings['samples']} latents, "
        f"{settings['steps'][0]} step, chosen by the {chooser}. Length bias: {settings['length_bias']:+.0%} of the "
        "source."
    )


def _steps(tree: Tree) -> Grid:
    """Figures 2 and 3 in numbers."""
    rows: list[list[str]] = []
    breaks: list[int] = []
    for method in tree["tokens"]:
        breaks.append(len(rows))
        for tokens, likely in zip(tree["tokens"][method]["result"], tree["likelihood"][method]["result"], strict=True):
            repeats = f"{tokens['relative_repeats']:.0%}" if tokens["relative_repeats"] is not None else "–"
            rows.append(
                [
                    f"{method}, L={tokens['steps']}",
                    f"{likely['log_prob']:.2f}".replace("-", "−"),
                    f"{likely['per_token']:.3f}".replace("-", "−"),
                    f"{signed(likely['gain'])} ± {likely['gain_error']:.2f}" if tokens["steps"] else "",
                    f"{likely['effective']:.0f} ({likely['effective_low']:.0f})",
                    f"{tokens['edits']:.2f} ± {tokens['edits_error']:.2f}",
                    f"{tokens['changed']:.0%}",
                    f"{tokens['repeats']:,}",
                    repeats,
                    f"{tokens['length']:.3f}",
                ]
            )
    columns = ("", "a sentence", "a token", "gain over L=0", "ESS", "edits", "changed", "repeats", "of L=0", "length")
    return Grid(columns, rows, groups=(("", 1), ("log p(ŷ|x), nats", 4), ("tokens", 5)), breaks=breaks[1:])


def _likelihood_note(tree: Tree) -> Iterator[Block]:
    settings = tree["about"]["settings"]
    yield Paragraph(
        f"log p(ŷ|x) is estimated with {settings['posterior_samples']} posterior samples for each output of the first "
        f"{settings['judged']:,} sentences (all, where there are fewer). ESS: effective sample size, the median over "
        "sentences and, in brackets, "
        "what it is at most for the tenth of them where it is lowest; where it nears 1, a single sample decides, and "
        "the estimate is too low. Edits, repeats: pieces as decoded. Changed: share of sentences. Length: pieces as "
        "read, over the reference’s."
    )


def _figure(tree: Tree, name: str, path: Path) -> Iterator[Block]:
    """A figure, and under Figure 4 its sentence."""
    title, caption = _CAPTIONS[name]
    if name != "landscape":
        apart = _apart(tree) if name in ("tradeoff", "latency") else ""
        yield Picture(path, title, caption + (f" Timed apart: {apart}." if apart else ""))
        return
    found = tree["landscape"]["result"]
    if "line" in found:
        caption += " The sentence is the first short one that the score puts right, where there is one."
    if any(len({piece for row in panel["decoded"] for piece in row}) > 1 for panel in found["panels"]):
        caption += " Tints are regions that decode to different pieces."
    yield Picture(path, title, caption)
    lines = [("source", found["source"]), ("reference", found["reference"]), *found["translations"].items()]
    yield Passage([(name, [Span(text)]) for name, text in lines])


def _apart(tree: Tree) -> str:
    """How what was timed differs from the rest of the report, if it does."""
    about, on = tree["about"], tree["speed"]["signature"]
    bias = on["ways"][-1]["length_bias"]
    unlike = [
        "other models" if timed_others(tree) else "",
        "other texts" if on["text"] != about["text"] else "",
        f"length bias {bias:+.0%}" if bias != about["settings"]["length_bias"] else "",
    ]
    return ", ".join(filter(None, unlike))


def _measured(tree: Tree) -> Iterator[Block]:
    """The command, or, where no single one made the report, how it was put together: `made`, written by hand."""
    about, settings = tree["about"], tree["about"]["settings"]
    quality = next(iter(tree["ways"].values()))["result"]["quality"]
    if about.get("made"):
        yield Paragraph(about["made"])
    elif about.get("command"):
        yield Code(shlex.join(about["command"]))
    rows = [
        ["BLEU lc intl", f"`{quality['bleu_lc_intl']['signature']}`"],
        ["BLEU 13a", f"`{quality['bleu']['signature']}`"],
        ["chrF", f"`{quality['chrf']['signature']}`"],
        ["paired bootstrap", f"`{tree['comparisons']['result'][0]['signature']}`"],
        *([f"model: {kind}", f"`{fingerprint}`"] for kind, fingerprint in about["models"].items()),
        *([f"timed model: {kind}", f"`{fingerprint}`"] for kind, fingerprint in timed_others(tree).items()),
        *([f"two-number model: {kind}", f"`{fingerprint}`"] for kind, fingerprint in about.get("plane", {}).items()),
        *([f"test file: {name}", f"`{content}`"] for name, content in about["files"].items()),
        ["seed", f"{settings['seed']} (samples of the prior, noise of the estimates)"],
        ["machine", f"{about['device']}, {about['dtype']}"],
        ["versions", ", ".join(f"{name} {version}" for name, version in about["versions"].items())],
    ]
    yield Grid(("", ""), rows, words=True)
    again = "" if about.get("made") else "; running the command again measures only what has changed"
    yield Paragraph(
        "All ways to translate are timed in one process and take turns. Repetitions are removed from what is read, and "
        f"left in where they are counted. `report.json` holds every number with its signature{again}."
    )
