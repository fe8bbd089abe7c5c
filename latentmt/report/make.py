"""Makes a report: finds the model and its test set, measures what is missing, draws, and writes.

out/measured/       the cache: a file a measurement, translations included
out/report.json     all measurements without the translations
out/figures/        SVG and PNG
out/report.html     a self-contained page
out/report.md       the same as Markdown
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from latentmt.bundle import kinds_in
from latentmt.config import load_versioned, to_dict
from latentmt.data.corpus import Corpus
from latentmt.display import info, table
from latentmt.errors import UserError
from latentmt.files import make_folder, read_plain, write_atomically
from latentmt.installed import find_model, installed
from latentmt.measure.collect import LandscapeModel, measure_report, training_curves
from latentmt.measure.evaluate import EvalSet
from latentmt.measure.report import FORMAT, Report, Settings
from latentmt.measure.results import output_file, write_result
from latentmt.measure.samples import Sample
from latentmt.options import DecodingOptions
from latentmt.report.claims import claims
from latentmt.report.contents import FIGURES, contents, samples_blocks, title
from latentmt.report.document import GENERATOR, Heading, write_html, write_markdown
from latentmt.translator import Translator

_LIMIT = 1 << 26
"""The most bytes of report.json."""


@dataclass(frozen=True)
class Subject:
    """A model and the test set it is measured on."""

    folder: Path
    """The folder of its bundles."""
    name: str
    source: Path | None = None
    """The test set; by default that of the folder's corpus."""
    references: Sequence[Path] = ()
    lines: int | None = None
    """The first lines of the test set that are used; all by default."""

    @property
    def out(self) -> Path:
        """The default folder of the report: beside the bundles, but not inside the package."""
        return (Path("runs") / self.name if self.folder in installed().values() else self.folder) / "report"

    def texts(self) -> EvalSet:
        """The test set."""
        if self.lines is not None and self.lines < 1:
            raise UserError(f"--lines {self.lines}: expected 1 or more")
        texts = self._all()
        sources, *references = (side[: self.lines] for side in (texts.sources, *texts.references))
        return EvalSet(sources, references, texts.files)

    def _all(self) -> EvalSet:
        if (self.source is None) != (not self.references):
            raise UserError("--src and --ref belong together")
        if self.source:
            return EvalSet.read(self.source, self.references)
        if not (self.folder / "corpus" / "manifest.json").exists():
            raise UserError(f"{self.folder}: has no corpus, so name a test set with --src and --ref")
        corpus = Corpus.load(self.folder / "corpus")
        if "test" not in corpus.manifest.splits:
            raise UserError(f"{corpus.folder}: has no test set, so name one with --src and --ref")
        pairs = corpus.text("test")
        files = {name: facts.sha256 for name, facts in corpus.manifest.files.items() if name.startswith("test.")}
        return EvalSet([pair.source for pair in pairs], [[pair.target for pair in pairs]], files)


def make_report(
    subject: Subject,
    out: Path,
    settings: Settings,
    *,
    plane: Path | str | None = None,
    example: tuple[str, str] | None = None,
    times: Path | None = None,
    device: torch.device | str = "cpu",
    threads: int | None = None,
    command: Sequence[str] = (),
) -> Report:
    """Measure what is missing, draw and write.

    `plane`: a model with a two-dimensional latent, for Figure 4, and `example` its sentence. `times`: a report of
    models of the same sizes, whose times are used. `command`: shown to the reader.
    """
    require_matplotlib()
    if example and not plane:
        raise UserError("--example is for the model with two latent entries: name that with --plane")
    _check_folder(out)
    timings = read_report(times).timings if times else None
    texts = subject.texts()
    translator = Translator.load(subject.folder, device, threads, engine="torch")
    report = measure_report(
        translator,
        texts,
        settings,
        make_folder(out / "measured"),
        name=subject.name,
        training=training_curves(subject.folder),
        command=command,
        landscape_model=LandscapeModel(Translator.load(plane, device, engine="torch"), example) if plane else None,
        timings=timings,
    )
    write_atomically(out / "report.json", json.dumps(to_dict(report), indent=1, ensure_ascii=False) + "\n")
    return write_report(out)


def html_file(path: Path) -> Path:
    """Check that a page can be written to a path, before the work begins."""
    return output_file(path, "a page of latentmt", lambda content: GENERATOR.encode() in content[:1000])


def _check_folder(out: Path) -> None:
    """Refuse a folder with files of a report's names that are not of a report."""
    path = out / "report.json"
    present = [name for name in (path.name, "report.html", "report.md", "figures", "measured") if (out / name).exists()]
    try:
        is_report = "format" in json.loads(read_plain(path, _LIMIT))
    except (OSError, ValueError, TypeError, RecursionError, UserError):
        is_report = False
    if present not in ([], ["measured"]) and not is_report:  # a run that was stopped has left only measurements
        raise UserError(f"{out / present[0]}: is not part of a report, so it is not replaced; name another --out")


def write_report(out: Path) -> Report:
    """Draw the figures and write the pages of the report that is in a folder."""
    require_matplotlib()
    report = read_report(out)
    figures = dict(_drawn(report, make_folder(out / "figures")))
    blocks = contents(report, {name: figures[name] for name in FIGURES if name in figures})
    write_atomically(out / "report.html", write_html(title(report), blocks))
    write_atomically(out / "report.md", write_markdown(blocks, out))
    info(f"{out / 'report.html'}: written; {out / 'report.md'} has the same content")
    return report


def read_report(folder: Path) -> Report:
    """The data of the report that is in a folder."""
    return load_versioned(folder / "report.json", Report, FORMAT, "report", _LIMIT)


def show_report(report: Report, console: Console, path: Path | None = None) -> None:
    """Print the paper's claims beside our numbers as a table, and write them as JSON."""
    rows = list(claims(report))
    console.print(table("The paper’s claims", ["claim", "paper", "here", "does it hold?"], rows))
    results = [dict(zip(("claim", "paper", "here", "holds"), row, strict=True)) for row in rows]
    write_result({"claims": results}, console, path)


def write_samples(samples: Sequence[Sample], path: Path, options: DecodingOptions) -> None:
    """Write a page of samples."""
    heading = f"Before and after refinement: {options}"
    blocks = samples_blocks(options.method, options.steps, samples)
    write_atomically(path, write_html(heading, [Heading(heading, 1), *blocks]))


def is_report(path: Path) -> bool:
    """Whether a folder holds a report and no model."""
    return (path / "report.json").exists() and not kinds_in(path)


def require_matplotlib() -> None:
    """Fail with one clear line where matplotlib, an optional dependency, is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("figures need matplotlib: pip install 'latentmt[plots]'")


def _drawn(report: Report, folder: Path) -> Iterator[tuple[str, Path]]:
    """Draw the figures for which there are data."""
    from latentmt.plots.landscape import draw_landscape
    from latentmt.plots.speed import draw_latency, draw_tradeoff
    from latentmt.plots.steps import draw_likelihood, draw_tokens
    from latentmt.plots.style import write_figure
    from latentmt.plots.training import draw_training

    drawings: dict[str, tuple[object, Callable[[Report], Any]]] = {
        "tradeoff": (report.timings, draw_tradeoff),
        "likelihood": (report.likelihood, draw_likelihood),
        "tokens": (report.tokens, draw_tokens),
        "landscape": (report.landscape, draw_landscape),
        "latency": (report.timings, draw_latency),
        "training": (report.training, draw_training),
    }
    for name, (data, draw) in drawings.items():
        if data:
            yield name, write_figure(partial(draw, report), folder, name)


def find_subject(
    what: Path, source: Path | None, references: Sequence[Path], work: Path, lines: int | None = None
) -> Subject:
    """The subject named by a model's folder or name, or by a recipe with the work folder `work`."""
    is_recipe = what.suffix in (".yaml", ".yml") or ((what / "recipe.yaml").exists() and not kinds_in(what))
    folder = work if is_recipe else find_model(str(what))
    if not kinds_in(folder):
        raise UserError(f"{folder}: no model there yet" + ("; latentmt run makes one" if is_recipe else ""))
    return Subject(folder, folder.resolve().name, source, references, lines)
