"""The contents of a report: headings, tables, figures and samples, beside the paper's numbers.

Every number comes from the report or from `measure.paper`. Nothing is measured or drawn here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from latentmt.measure.paper import AUTOREGRESSIVE, CITATION
from latentmt.measure.report import Report
from latentmt.measure.samples import CHANGED, KEPT, Phrase, Sample
from latentmt.report.claims import SIGNIFICANT, claims, orderings_table, speedup
from latentmt.report.document import (
    Block,
    Code,
    DefinitionList,
    Figure,
    Heading,
    Paragraph,
    Span,
    Table,
    as_ratio,
    signed,
)

_CAPTIONS = {
    "tradeoff": (
        "Quality against latency",
        "Every system as a point: up is better, left is faster. Numbers are refinement steps; open markers "
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
        "Figure 4: the {method} in a latent of two numbers a token",
        "Arrows: the learned {method} around each token's latent, the other tokens being at the prior’s mean. The "
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
"""The names of all figures, in the order of the page."""


def contents(report: Report, figures: Mapping[str, Path]) -> list[Block]:
    """The whole report. Figures: the SVG files of those that were drawn."""
    source, target = report.languages
    blocks: list[Block] = [
        Heading(title(report), 1),
        Paragraph(
            f"Measured on {report.conditions.lines:,} lines, {source} → {target}, beside {CITATION} ({report.paper}). "
            "The paper’s times are of another machine and its text is another; what can be compared are orderings, "
            "gaps to the autoregressive model, and speed-ups."
        ),
        Heading("At a glance"),
        Table(("", "paper", "here", "does it hold?"), list(claims(report)), words=True),
        Heading("Table 1: quality and speed"),
        table_one(report),
        Paragraph(_table_note(report)),
        *_orderings(report),
        Heading("Figures"),
        *(block for name, path in figures.items() for block in _figure(report, name, path)),
        Heading("Likelihood and tokens, step by step"),
        _steps(report),
        Paragraph(_steps_note(report)),
    ]
    if samples := report.samples:
        blocks += [Heading("Samples"), *samples_blocks(samples.method, samples.steps, samples.samples)]
    return [*blocks, Heading("How it was measured"), *_conditions(report)]


def title(report: Report) -> str:
    """The title of a report."""
    return f"Refinement in the latent space: {report.name}"


def samples_blocks(method: str, steps: int, samples: Sequence[Sample]) -> Iterator[Block]:
    """Translations of samples of the prior, before and after refinement."""
    yield Paragraph(
        f"From a sample of the prior, and after {steps} {method} step{'s' if steps > 1 else ''}: the first sentences "
        "of the test set that refinement changes. Phrases on a tinted ground have moved; what is struck out was "
        "removed, what is underlined was added."
    )
    for sample in samples:
        yield DefinitionList(
            [
                ("source", [Span(sample.source)]),
                *(("reference", [Span(reference)]) for reference in sample.references),
                ("sampled", _spans(sample.before, "removed")),
                ("refined", _spans(sample.after, "added")),
            ]
        )


def _spans(phrases: Sequence[Phrase], changed: str) -> list[Span]:
    styles = {KEPT: "", CHANGED: changed}
    return [Span(phrase.text, styles.get(phrase.mark, f"moved {phrase.mark}")) for phrase in phrases]


def table_one(report: Report) -> Table:
    """Table 1, ours beside the paper's; a dash where a row was not timed or the paper does not have it."""
    paper, forms, systems = report.paper_rows, report.timings.by_form(), report.systems

    def gap(value: float, base: float | None, row: str) -> str:
        return "" if base is None or row == AUTOREGRESSIVE else signed(value - base, 1)

    def cells(row: str) -> list[str]:
        system = systems[row]
        base = systems[AUTOREGRESSIVE].bleu if AUTOREGRESSIVE in systems else None
        line = [row, f"{system.bleu:.2f}", gap(system.bleu, base, row)]
        line += [f"{system.quality.bleu.value:.2f}", f"{system.quality.chrf.value:.1f}"]
        for times in forms.values():
            line += [f"{times[row].mean:.2f} ± {times[row].std:.2f}" if row in times else "–", speedup(times, row)]
        if not (theirs := paper.get(row)):
            return [*line, "–", "–", "–", "–"]
        line += [f"{theirs.bleu:.1f}", gap(theirs.bleu, paper[AUTOREGRESSIVE].bleu, row)]
        return [*line, f"{theirs.ms} ± {theirs.std}", as_ratio(theirs.speedup)]

    methods = [system.method for system in systems.values()]
    signature = next(iter(systems.values())).quality.bleu.signature
    cased = "lc" if "case:lc" in signature else "cased"
    timed = [column for form in forms for column in (f"ms, {form}", "speed-up")]
    to_ar = f"to {AUTOREGRESSIVE}"
    return Table(
        ("", "BLEU lc intl", to_ar, f"BLEU {cased} 13a", "chrF", *timed, "BLEU", to_ar, "ms", "speed-up"),
        [cells(row) for row in systems],
        groups=(("", 1), ("here", 4 + len(timed)), ("paper", 4)),
        breaks=[number for number in range(1, len(methods)) if methods[number] != methods[number - 1]],
    )


def _table_note(report: Report) -> str:
    settings, timings = report.settings, report.timings
    machine = timings.signature.conditions.machine
    apart = f" (timed apart: {differences})" if (differences := _timing_differences(report)) else ""
    chooser = next((system.rerank for system in report.systems.values() if system.is_search), "none")
    return (
        f"Milliseconds: mean ± standard deviation of {timings.texts} texts, one at a time, text to text, on "
        f"{machine.device}, {machine.dtype}, CPU threads: {timings.threads}{apart}; speed-up: ratio of mean "
        f"times to {AUTOREGRESSIVE} in the same form. Search: {settings.lengths} lengths × {settings.samples} latents, "
        f"{settings.steps[0]} step, chosen by the {chooser}. Length bias: {settings.length_bias:+.0%} of the "
        "source."
    )


def _orderings(report: Report) -> Iterator[Block]:
    if orderings := report.orderings.orderings:
        yield Heading("Orderings")
        yield Paragraph(
            f"Differences of BLEU (`{orderings[0].comparison.signature}`), with the interval that holds "
            f"95% of the resampled differences. Called a difference where p < {SIGNIFICANT} and the interval leaves "
            f"out 0; {len(orderings)} comparisons, none corrected for the others."
        )
        yield orderings_table(report)


def _steps(report: Report) -> Table:
    """Figures 2 and 3 in numbers."""
    rows: list[list[str]] = []
    breaks: list[int] = []
    for method in report.tokens:
        breaks.append(len(rows))
        for tokens, likely in zip(report.tokens[method].points, report.likelihood[method].points, strict=True):
            rows.append(
                [
                    f"{method}, L={tokens.steps}",
                    f"{likely.log_prob:.2f}".replace("-", "−"),
                    f"{likely.per_token:.3f}".replace("-", "−"),
                    f"{signed(likely.gain)} ± {likely.gain_error:.2f}" if tokens.steps else "",
                    f"{likely.effective:.0f} ({likely.effective_low:.0f})",
                    f"{tokens.edits:.2f} ± {tokens.edits_error:.2f}",
                    f"{tokens.changed:.0%}",
                    f"{tokens.repeats:,}",
                    f"{tokens.relative_repeats:.0%}" if tokens.relative_repeats is not None else "–",
                    f"{tokens.length:.3f}",
                ]
            )
    columns = ("", "a sentence", "a token", "gain over L=0", "ESS", "edits", "changed", "repeats", "of L=0", "length")
    return Table(columns, rows, groups=(("", 1), ("log p(ŷ|x), nats", 4), ("tokens", 5)), breaks=breaks[1:])


def _steps_note(report: Report) -> str:
    settings = report.settings
    return (
        f"log p(ŷ|x) is estimated with {settings.posterior_samples} posterior samples for each output of the first "
        f"{settings.judged:,} sentences (all, where there are fewer). ESS: effective sample size, the median over "
        "sentences and, in brackets, "
        "what it is at most for the tenth of them where it is lowest; where it nears 1, a single sample decides, and "
        "the estimate is too low. Edits, repeats: pieces as decoded. Changed: share of sentences. Length: pieces as "
        "read, over the reference’s."
    )


def _figure(report: Report, name: str, path: Path) -> Iterator[Block]:
    """A figure; under Figure 4, its sentence."""
    title, caption = _CAPTIONS[name]
    if name != "landscape" or not report.landscape:
        apart = _timing_differences(report) if name in ("tradeoff", "latency") else ""
        yield Figure(path, title, caption + (f" Timed apart: {apart}." if apart else ""))
        return
    landscape = report.landscape.landscape
    title, caption = (text.format(method=landscape.method) for text in (title, caption))
    if report.landscape.line is not None:
        caption += f" The sentence is the first short one that the {landscape.method} puts right, where there is one."
    if any(len({piece for row in panel.decoded for piece in row}) > 1 for panel in landscape.panels):
        caption += " Tints are regions that decode to different pieces."
    yield Figure(path, title, caption)
    lines = [("source", landscape.source), ("reference", landscape.reference), *landscape.translations.items()]
    yield DefinitionList([(name, [Span(text)]) for name, text in lines])


def _timing_differences(report: Report) -> str:
    """How the conditions of the timing differ from the rest of the report, if they do."""
    timings = report.timings
    differences = [
        "other models" if report.other_timed_models else "",
        "other texts" if timings.signature.conditions.text_hash != report.conditions.text_hash else "",
        f"length bias {timings.length_bias:+.0%}" if timings.length_bias != report.settings.length_bias else "",
    ]
    return ", ".join(filter(None, differences))


def _conditions(report: Report) -> Iterator[Block]:
    """The command or the provenance, the signatures, and the conditions."""
    quality = next(iter(report.systems.values())).quality
    machine = report.conditions.machine
    landscape_models = report.landscape.signature.models if report.landscape else {}
    if report.provenance:
        yield Paragraph(report.provenance)
    elif report.command:
        yield Code(shlex.join(report.command))
    rows = [
        ["BLEU lc intl", f"`{quality.bleu_lc_intl.signature}`"],
        ["BLEU 13a", f"`{quality.bleu.signature}`"],
        ["chrF", f"`{quality.chrf.signature}`"],
        *(["paired bootstrap", f"`{each.comparison.signature}`"] for each in report.orderings.orderings[:1]),
        *([f"model: {kind}", f"`{fingerprint}`"] for kind, fingerprint in report.models.items()),
        *([f"timed model: {kind}", f"`{fingerprint}`"] for kind, fingerprint in report.other_timed_models.items()),
        *([f"two-number model: {kind}", f"`{fingerprint}`"] for kind, fingerprint in landscape_models.items()),
        *([f"test file: {name}", f"`{hash_}`"] for name, hash_ in report.conditions.files.items()),
        ["seed", f"{report.settings.seed} (samples of the prior, noise of the estimates)"],
        ["machine", f"{machine.device}, {machine.dtype}"],
        ["versions", ", ".join(f"{name} {version}" for name, version in machine.versions.items())],
    ]
    yield Table(("", ""), rows, words=True)
    again = "" if report.provenance else "; running the command again measures only what has changed"
    yield Paragraph(
        "All systems are timed in one process and take turns. Repetitions are removed from what is read, and "
        f"left in where they are counted. `report.json` holds every number with its signature{again}."
    )
