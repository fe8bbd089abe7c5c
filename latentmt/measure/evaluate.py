"""Every method of a model on one test set, as a table and as one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from latentmt.data.text import all_text, read_lines
from latentmt.display import table
from latentmt.errors import UserError
from latentmt.infer.how import How, Method
from latentmt.infer.translator import Translator
from latentmt.measure.quality import measure


def read_texts(path: Path) -> list[str]:
    """The lines of a test set."""
    return list(all_text(read_lines([path])))


def ways_of(methods: Sequence[Method], steps: Sequence[int]) -> Iterator[How]:
    """Greedy and beam search of a teacher, L=0, and every refining method at every number of steps."""
    for method in methods:
        match method:
            case "teacher":
                yield from (How(method="teacher", beam=1), How(method="teacher", beam=4))
            case "prior":
                yield How(method="prior", steps=0)
            case _:
                yield from (How(method=method, steps=count) for count in steps)


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    steps: Sequence[int],
    console: Console,
) -> dict[str, dict[str, object]]:
    """Measure, print, and return the quality of each way to translate."""
    if not sources or any(len(reference) != len(sources) for reference in references):
        counts = ", ".join(str(len(reference)) for reference in references)
        raise UserError(f"{len(sources)} sources, {counts} references: they must be equally many, and some")
    results = {}
    for way in ways_of(translator.methods, steps):
        done = translator.translations(sources, way)
        results[str(way)] = measure([one.text for one in done], [one.ids for one in done], references)
    rows = [
        (
            name,
            *(f"{score.value:.2f}" for score in (q.bleu, q.bleu_lc_intl, q.chrf)),
            f"{q.exact:.1%}",
            f"{q.repeats:.2%}",
            f"{q.length:.3f}",
        )
        for name, q in results.items()
    ]
    columns = ["method", "BLEU", "BLEU lc intl", "chrF", "exact", "repeats", "length"]
    console.print(table("Quality", columns, rows))
    tree = {name: asdict(quality) for name, quality in results.items()}
    facts = {"sentences": len(sources), "models": translator.fingerprints, "device": str(translator.device)}
    console.out(json.dumps(facts | {"results": tree}), highlight=False)
    return tree
