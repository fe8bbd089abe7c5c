"""The quality of a model's methods on one test set: a table for people, and JSON with all it takes to repeat it.

Metrics are in `quality`, `oracle` and `bootstrap`; decoding is in the translator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from latentmt.data.text import all_text, read_lines
from latentmt.display import ProgressBar, table
from latentmt.errors import UserError
from latentmt.files import sha256
from latentmt.measure.bootstrap import Comparison, paired_bootstrap
from latentmt.measure.machine import Machine
from latentmt.measure.methods import refining_methods
from latentmt.measure.oracle import best_candidates
from latentmt.measure.quality import Quality, measure, require_sacrebleu
from latentmt.measure.results import write_result
from latentmt.measure.words import read_words
from latentmt.options import DecodingOptions
from latentmt.results import Translation
from latentmt.translator import Translator

T = TypeVar("T")

CHUNK = 1024
"""Lines handed to the translator at a time, candidates counted: progress is shown in between."""
_SEARCH = frozenset(("lengths", "samples", "rerank"))
"""Options of a search with several candidates."""


@dataclass(frozen=True)
class EvalSet:
    """Sources, their references, and what words there are."""

    sources: list[str]
    references: list[list[str]]
    """One or more lists, each as long as the sources."""
    files: dict[str, str]
    """Path → hash."""
    words: frozenset[str] | None = None
    """The words that are known; without them, non-words are not measured."""

    @staticmethod
    def read(source: Path, references: Sequence[Path], words: Sequence[Path] = ()) -> EvalSet:
        """Read text files, a sentence or text a line; lines may be empty. `words`: text whose words are known."""
        paths = [source, *references]
        sources, *others = texts = [list(all_text(read_lines([path]))) for path in paths]
        if any(len(other) != len(sources) for other in others):
            counts = ", ".join(f"{path}: {len(lines):,} lines" for path, lines in zip(paths, texts, strict=True))
            raise UserError(f"{counts}; they must be equally many")
        if not sources:
            raise UserError(f"{source}: no lines")
        known = read_words(words) if words else None
        return EvalSet(sources, others, {str(path): sha256(path) for path in (*paths, *words)}, known)


@dataclass(frozen=True)
class Sweep:
    """The decoding options that are measured: methods, numbers of steps, and options shared by all."""

    methods: Sequence[str] = ()
    """All of the model's methods by default."""
    steps: Sequence[int] = (1, 4)
    """Each is combined with each refining method. A search uses the first."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `DecodingOptions`. With several `lengths` or `samples`, each refining method has a search, too."""
    oracle: bool = False
    """Whether the best of several candidates is measured beside the one that is kept."""
    compare: Sequence[tuple[str, str]] = ()
    """Pairs of row names whose difference is tested."""

    def __post_init__(self) -> None:
        rerank = self.options.get("rerank", "none")
        if not self.is_search and (self.oracle or rerank != "none"):
            what = "oracle" if self.oracle else f"rerank {rerank}"
            raise UserError(f"{what}: there is only one candidate to choose from; ask for several lengths or samples")

    @property
    def is_search(self) -> bool:
        """Whether several candidates are requested; `DecodingOptions` checks how many."""
        return (self.options.get("lengths", 1), self.options.get("samples", 1)) != (1, 1)

    @property
    def shared(self) -> dict[str, Any]:
        """The options that apply with and without search."""
        return {name: value for name, value in self.options.items() if name not in _SEARCH}


@dataclass(frozen=True)
class Row:
    """Decoding options, the translations they gave, and their quality."""

    options: DecodingOptions
    texts: list[str]
    quality: Quality
    oracle: str | None = None
    """The signature of the metric that chose the candidates, if the model did not."""


@dataclass(frozen=True)
class Evaluation:
    """The rows of an evaluation and the comparisons between them."""

    rows: dict[str, Row]
    """By name."""
    comparisons: dict[tuple[str, str], Comparison]
    conditions: dict[str, Any]
    """What the numbers depend on beside the decoding options."""

    def to_dict(self) -> dict[str, Any]:
        """All but the translations, ready for JSON."""
        return {
            "results": {name: self._result(row) for name, row in self.rows.items()},
            "comparisons": [
                {"of": of, "against": against} | asdict(comparison)
                for (of, against), comparison in self.comparisons.items()
            ],
        }

    def _result(self, row: Row) -> dict[str, Any]:
        chunk = {"lines_at_once": _chunk_size(row.options)}
        return asdict(row.quality) | {"options": asdict(row.options), "oracle": row.oracle} | self.conditions | chunk


def sweep_options(translator: Translator, sweep: Sweep) -> list[DecodingOptions]:
    """The decoding options of a sweep, each once.

    The teacher with greedy and with beam search; L=0; every refining method with every number of steps, and with search
    if several candidates are requested; the model's default options, unless methods are named.
    """
    unique: dict[str, DecodingOptions] = {}
    for method in sweep.methods or translator.methods:
        for choices in _choices(method, sweep):
            options = translator.options(method=method, **choices)
            unique.setdefault(str(options), options)  # no steps are L=0 for every method; numbers may be repeated
    if not sweep.methods:
        default = translator.options(**sweep.shared)
        unique.setdefault(str(default), default)
    if sweep.is_search and all(options.candidates == 1 for options in unique.values()):
        refining = ", ".join(refining_methods(translator)) or "none here"
        raise UserError(f"several lengths or samples are for the methods that refine: {refining}")
    return list(unique.values())


def _choices(method: str, sweep: Sweep) -> Iterator[dict[str, Any]]:
    match method:
        case "teacher":
            yield from ({"beam": 1}, {"beam": 4})
        case "prior":
            yield sweep.shared | {"steps": 0}
        case _:
            yield from (sweep.shared | {"steps": steps} for steps in sweep.steps)
            if sweep.is_search:
                yield {**sweep.options, "steps": sweep.steps[0]}


def evaluate(translator: Translator, texts: EvalSet, sweep: Sweep) -> Evaluation:
    """Measure all options of a sweep, and compare the rows that are to be compared."""
    require_sacrebleu()
    all_options = sweep_options(translator, sweep)
    _check_names(all_options, sweep)
    rows: dict[str, Row] = {}
    for options in all_options:
        translations = _in_chunks(str(options), options, texts.sources, translator.translations)
        rows[str(options)] = _row(translator, options, translations, texts)
        if sweep.oracle and options.candidates > 1:
            rows[_oracle_name(options)] = _oracle_row(translator, options, translations, texts)
    comparisons = {
        (of, against): paired_bootstrap(
            rows[of].texts, rows[against].texts, texts.references, lowercase=translator.rules[1].lowercase
        )
        for of, against in sweep.compare
    }
    return Evaluation(rows, comparisons, _conditions(translator, texts))


def _check_names(all_options: Sequence[DecodingOptions], sweep: Sweep) -> None:
    """Refuse to compare rows that will not exist, before anything is translated."""
    oracles = (_oracle_name(options) for options in all_options if sweep.oracle and options.candidates > 1)
    names = [*map(str, all_options), *oracles]
    for name in (name for pair in sweep.compare for name in pair):
        if name not in names:
            raise UserError(f"compare {name}: not measured here; what is: {', '.join(names)}")


def measure_system(translator: Translator, texts: EvalSet, options: DecodingOptions) -> Row:
    """Translate a test set with one set of options, and measure the quality."""
    translations = _in_chunks(str(options), options, texts.sources, translator.translations)
    return _row(translator, options, translations, texts)


def _row(
    translator: Translator,
    options: DecodingOptions,
    translations: Sequence[Translation],
    texts: EvalSet,
    oracle: str | None = None,
) -> Row:
    """Case is ignored where the model writes lower case only."""
    outputs, ids = [each.text for each in translations], [each.ids for each in translations]
    lowercase = translator.rules[1].lowercase
    quality = measure(outputs, ids, texts.references, lowercase, texts.sources, texts.words)
    return Row(options, outputs, quality, oracle)


def _oracle_row(translator: Translator, options: DecodingOptions, kept: Sequence[Translation], texts: EvalSet) -> Row:
    """The candidates nearest to the references: an upper bound for reranking.

    A line of several sentences has candidates for its first sentence only. So the translation that was kept is a
    candidate, too, and the first one: such a line, or an empty one, stays as it was unless a candidate is really
    better. The headroom of such lines is underestimated.
    """
    found = _in_chunks(_oracle_name(options), options, texts.sources, translator.candidates)
    candidates = [[first, *others] for first, others in zip(kept, found, strict=True)]
    outputs = [[candidate.text for candidate in line] for line in candidates]
    choice = best_candidates(outputs, texts.references, translator.rules[1].lowercase)
    best = [line[index] for line, index in zip(candidates, choice.best, strict=True)]
    return _row(translator, options, best, texts, choice.signature)


def _oracle_name(options: DecodingOptions) -> str:
    return str(options).replace(f" by {options.rerank}", " by oracle")


def _chunk_size(options: DecodingOptions) -> int:
    return max(1, CHUNK // options.candidates)


def _in_chunks(
    name: str,
    options: DecodingOptions,
    texts: Sequence[str],
    translate: Callable[[Sequence[str], DecodingOptions], list[T]],
) -> list[T]:
    """Translate texts chunk by chunk, and show the progress."""
    results: list[T] = []
    with ProgressBar(name, "sentences", len(texts)) as counting:
        for start in range(0, len(texts), _chunk_size(options)):
            chunk = texts[start : start + _chunk_size(options)]
            results += translate(chunk, options)
            counting.advance(len(chunk))
    return results


def _conditions(translator: Translator, texts: EvalSet) -> dict[str, Any]:
    return asdict(Machine.from_translator(translator)) | {
        "sentences": len(texts.sources),
        "files": texts.files,
        "models": translator.fingerprints,
        "graphed": translator.backend.info["graphed"],
        "batch": translator.backend.info["batch_tokens"],
    }


def show_evaluation(evaluation: Evaluation, console: Console, path: Path | None = None) -> None:
    """Print a table, the signatures of its metrics and the comparisons, and write the JSON."""
    rows = [(name, *_cells(row.quality)) for name, row in evaluation.rows.items()]
    columns = ["method", "BLEU", "BLEU lc intl", "chrF", "exact", "repeats", "length", "numbers", "non-words"]
    console.print(table("Quality", columns, rows))
    quality = next(iter(evaluation.rows.values())).quality
    for column, score in (("BLEU", quality.bleu), ("BLEU lc intl", quality.bleu_lc_intl), ("chrF", quality.chrf)):
        console.out(f"{column}: {score.signature}", highlight=False)
    for (of, against), comparison in evaluation.comparisons.items():
        console.out(_sentence(of, against, comparison), highlight=False)
    write_result(evaluation.to_dict(), console, path)


def _cells(q: Quality) -> list[str]:
    scores = [f"{score.value:.2f}" for score in (q.bleu, q.bleu_lc_intl, q.chrf)]
    numbers, non_words = ("–" if share is None else f"{share:.2%}" for share in (q.numbers, q.non_words))
    return [*scores, f"{q.exact:.1%}", f"{q.repeats:.2%}", f"{q.length:.3f}", numbers, non_words]


def _sentence(of: str, against: str, comparison: Comparison) -> str:
    return (
        f"{of} against {against}: {comparison.difference:+.2f} BLEU, 95% between {comparison.low:+.2f} and "
        f"{comparison.high:+.2f}, p = {comparison.p:.3f} ({comparison.signature})"
    )
