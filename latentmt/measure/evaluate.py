"""The ways a model can translate, measured on one test set: a table for people, JSON with all it takes to repeat it.

What a number means is `quality`'s business, `oracle`'s and `bootstrap`'s; how a translation is made, the translator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from latentmt.data.text import all_text, read_lines
from latentmt.display import ProgressBar, table
from latentmt.errors import UserError
from latentmt.files import sha256
from latentmt.infer.translator import Translation, Translator
from latentmt.measure.bootstrap import Comparison, paired_bootstrap
from latentmt.measure.machine import machine
from latentmt.measure.oracle import best_candidates
from latentmt.measure.quality import Quality, measure, require_sacrebleu
from latentmt.measure.results import write_result
from latentmt.options import DecodingOptions, Method, RemoveRepeats, Rerank

T = TypeVar("T")

TOGETHER = 1024
"""Lines handed to the translator at a time, candidates counted: progress is shown in between."""


@dataclass(frozen=True)
class EvalSet:
    """Sources and what they should become."""

    sources: list[str]
    references: list[list[str]]
    """One list or more, each as long as the sources."""
    files: dict[str, str]
    """Where they come from, with hashes."""

    @staticmethod
    def read(source: Path, references: Sequence[Path]) -> EvalSet:
        """Read files of a line each; lines may be empty."""
        paths = [source, *references]
        sources, *others = texts = [list(all_text(read_lines([path]))) for path in paths]
        if any(len(other) != len(sources) for other in others):
            counts = ", ".join(f"{path}: {len(lines):,} lines" for path, lines in zip(paths, texts, strict=True))
            raise UserError(f"{counts}; they must be equally many")
        if not sources:
            raise UserError(f"{source}: no lines")
        return EvalSet(sources, others, {str(path): sha256(path) for path in paths})


@dataclass(frozen=True)
class Wanted:
    """What is to be measured."""

    methods: Sequence[Method] = ()
    """All the model has, if none is named."""
    steps: Sequence[int] = (1, 4)
    """Each is tried with each method that refines; the first one, with several candidates too."""
    lengths: int = 1
    samples: int = 1
    rerank: Rerank = "none"
    seed: int = 1
    length_bias: float = 0.0
    remove_repeats: RemoveRepeats = "words"
    verbatim: bool = True
    oracle: bool = False
    """Whether the best of several candidates is measured beside the one that is kept."""
    compare: Sequence[tuple[str, str]] = ()
    """Names of ways, of two each, whose difference is tested."""

    def __post_init__(self) -> None:
        if not self.several and (self.oracle or self.rerank != "none"):
            what = "oracle" if self.oracle else f"rerank {self.rerank}"
            raise UserError(f"{what}: there is only one candidate to choose from; ask for several lengths or samples")

    @property
    def several(self) -> bool:
        """Whether there are to be several candidates; how many there may be is for `DecodingOptions` to say."""
        return (self.lengths, self.samples) != (1, 1)


@dataclass(frozen=True)
class Row:
    """One way to translate, and how well it did."""

    options: DecodingOptions
    texts: list[str]
    quality: Quality
    oracle: str | None = None
    """What chose the candidates, if it was not the model."""


@dataclass(frozen=True)
class Evaluation:
    """All that was measured."""

    rows: dict[str, Row]
    """By name."""
    comparisons: dict[tuple[str, str], Comparison]
    facts: dict[str, Any]
    """What the numbers depend on, apart from how it was translated."""

    def tree(self) -> dict[str, Any]:
        """All of it but the translations, as JSON can say it."""
        return {
            "results": {name: self._result(row) for name, row in self.rows.items()},
            "comparisons": [
                {"of": of, "against": against} | asdict(found) for (of, against), found in self.comparisons.items()
            ],
        }

    def _result(self, row: Row) -> dict[str, Any]:
        at_once = {"lines_at_once": _together(row.options)}
        return asdict(row.quality) | {"options": asdict(row.options), "oracle": row.oracle} | self.facts | at_once


def ways_of(translator: Translator, wanted: Wanted) -> list[DecodingOptions]:
    """The ways to translate, each once.

    A teacher's greedy and beam search; L=0; every refining method at every number of steps, and once more with
    several candidates if there are to be several; the model's own way, unless methods are named.
    """
    ways: dict[str, DecodingOptions] = {}
    for method in wanted.methods or translator.methods:
        for choices in _ways(method, wanted):
            options = translator.options(method=method, **choices)
            ways.setdefault(
                str(options), options
            )  # no steps are L=0, whatever the method; and a number may be given twice
    if not wanted.methods:
        own = translator.options(**_common(wanted))
        ways.setdefault(str(own), own)
    if wanted.several and all(options.candidates == 1 for options in ways.values()):
        raise UserError("several lengths or samples are for the methods that refine: delta, score, energy")
    return list(ways.values())


def _common(wanted: Wanted) -> dict[str, Any]:
    """What goes with any way."""
    return {name: getattr(wanted, name) for name in ("seed", "length_bias", "remove_repeats", "verbatim")}


def _ways(method: Method, wanted: Wanted) -> Iterator[dict[str, Any]]:
    common = _common(wanted)
    match method:
        case "teacher":
            yield from ({"beam": 1}, {"beam": 4})
        case "prior":
            yield common | {"steps": 0}
        case _:
            yield from (common | {"steps": count} for count in wanted.steps)
            if wanted.several:
                search = {"lengths": wanted.lengths, "samples": wanted.samples, "rerank": wanted.rerank}
                yield common | search | {"steps": wanted.steps[0]}


def evaluate(translator: Translator, texts: EvalSet, wanted: Wanted) -> Evaluation:
    """Measure each way to translate, and compare those that are to be compared."""
    require_sacrebleu()
    ways = ways_of(translator, wanted)
    _check_names(ways, wanted)
    rows: dict[str, Row] = {}
    for options in ways:
        done = _in_parts(str(options), options, texts.sources, translator.translations)
        rows[str(options)] = _row(translator, options, done, texts)
        if wanted.oracle and options.candidates > 1:
            rows[_oracle_name(options)] = _oracle_row(translator, options, done, texts)
    comparisons = {
        (of, against): paired_bootstrap(
            rows[of].texts, rows[against].texts, texts.references, lowercase=translator.rules[1].lowercase
        )
        for of, against in wanted.compare
    }
    return Evaluation(rows, comparisons, _facts(translator, texts))


def _check_names(ways: Sequence[DecodingOptions], wanted: Wanted) -> None:
    """Refuse to compare what will not be there, before the work and not after it."""
    oracles = (_oracle_name(options) for options in ways if wanted.oracle and options.candidates > 1)
    names = [*map(str, ways), *oracles]
    for name in (name for pair in wanted.compare for name in pair):
        if name not in names:
            raise UserError(f"compare {name}: not measured here; what is: {', '.join(names)}")


def measure_way(translator: Translator, texts: EvalSet, options: DecodingOptions) -> Row:
    """Measure one way to translate."""
    return _row(translator, options, _in_parts(str(options), options, texts.sources, translator.translations), texts)


def _row(
    translator: Translator,
    options: DecodingOptions,
    done: Sequence[Translation],
    texts: EvalSet,
    oracle: str | None = None,
) -> Row:
    """Who writes lower case only is not asked for more."""
    found, lowercase = [one.text for one in done], translator.rules[1].lowercase
    return Row(options, found, measure(found, [one.ids for one in done], texts.references, lowercase), oracle)


def _oracle_row(translator: Translator, options: DecodingOptions, kept: Sequence[Translation], texts: EvalSet) -> Row:
    """The candidates nearest to the references, to show what a better choice could bring.

    A line of several sentences has candidates for its first sentence only. So what was kept is a candidate, too, and
    the first one: such a line, or an empty one, stays as it was unless a candidate is really better. The headroom of
    such lines is underestimated.
    """
    found = _in_parts(_oracle_name(options), options, texts.sources, translator.candidates)
    candidates = [[one, *others] for one, others in zip(kept, found, strict=True)]
    readings = [[one.text for one in each] for each in candidates]
    choice = best_candidates(readings, texts.references, translator.rules[1].lowercase)
    done = [each[best] for each, best in zip(candidates, choice.best, strict=True)]
    return _row(translator, options, done, texts, choice.signature)


def _oracle_name(options: DecodingOptions) -> str:
    return str(options).replace(f" by {options.rerank}", " by oracle")


def _together(options: DecodingOptions) -> int:
    return max(1, TOGETHER // options.candidates)


def _in_parts(
    name: str, options: DecodingOptions, texts: Sequence[str], do: Callable[[Sequence[str], DecodingOptions], list[T]]
) -> list[T]:
    """What `do` makes of texts, a part at a time, for a person to see how far it has come."""
    found: list[T] = []
    with ProgressBar(name, "sentences", len(texts)) as counting:
        for start in range(0, len(texts), _together(options)):
            part = texts[start : start + _together(options)]
            found += do(part, options)
            counting.advance(len(part))
    return found


def _facts(translator: Translator, texts: EvalSet) -> dict[str, Any]:
    return machine(translator) | {
        "sentences": len(texts.sources),
        "files": texts.files,
        "models": translator.fingerprints,
        "graphed": translator.engine.graphed,
        "batch": translator.engine.batch_tokens,
    }


def show_evaluation(evaluation: Evaluation, console: Console, path: Path | None = None) -> None:
    """Print a table, what its numbers are and the comparisons; and give the JSON out."""
    rows = [(name, *_cells(row.quality)) for name, row in evaluation.rows.items()]
    columns = ["method", "BLEU", "BLEU lc intl", "chrF", "exact", "repeats", "length"]
    console.print(table("Quality", columns, rows))
    quality = next(iter(evaluation.rows.values())).quality
    for column, score in (("BLEU", quality.bleu), ("BLEU lc intl", quality.bleu_lc_intl), ("chrF", quality.chrf)):
        console.out(f"{column}: {score.signature}", highlight=False)
    for (of, against), found in evaluation.comparisons.items():
        console.out(_sentence(of, against, found), highlight=False)
    write_result(evaluation.tree(), console, path)


def _cells(q: Quality) -> list[str]:
    scores = [f"{score.value:.2f}" for score in (q.bleu, q.bleu_lc_intl, q.chrf)]
    return [*scores, f"{q.exact:.1%}", f"{q.repeats:.2%}", f"{q.length:.3f}"]


def _sentence(of: str, against: str, found: Comparison) -> str:
    return (
        f"{of} against {against}: {found.difference:+.2f} BLEU, 95% between {found.low:+.2f} and {found.high:+.2f}, "
        f"p = {found.p:.3f} ({found.signature})"
    )
