"""Makes a report: finds the model and its test set, measures what is missing, draws, and writes.

out/measured/       what was measured, a part each, translations among it
out/report.json     all of it but the translations
out/figures/        SVG and PNG
out/report.html     the page; it needs nothing else
out/report.md       the same as Markdown
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from latentmt.bundle import kinds_in
from latentmt.data.corpus import Corpus
from latentmt.display import info, table
from latentmt.errors import UserError
from latentmt.files import make_folder, write_atomically
from latentmt.infer.translator import Translator
from latentmt.installed import find_model, installed
from latentmt.measure.evaluate import EvalSet
from latentmt.measure.paper import corpus_for
from latentmt.measure.report import FORMAT, Plane, Settings, measure_report, training_curves
from latentmt.measure.results import write_result
from latentmt.measure.samples import Sample
from latentmt.options import DecodingOptions
from latentmt.report.claims import glance
from latentmt.report.contents import FIGURES, contents, samples_blocks, title
from latentmt.report.document import Heading, write_html, write_markdown


@dataclass(frozen=True)
class Subject:
    """What a report is about."""

    folder: Path
    """Of bundles."""
    name: str
    source: Path | None = None
    """The test set; without one, that of the folder's corpus."""
    references: Sequence[Path] = ()
    lines: int | None = None
    """Of the test set, from its beginning; all, if it is None."""

    @property
    def out(self) -> Path:
        """Where its report goes: beside its bundles, but not into the package."""
        return (Path("runs") / self.name if self.folder in installed().values() else self.folder) / "report"

    def texts(self) -> EvalSet:
        """The test set."""
        if self.lines is not None and self.lines < 1:
            raise UserError(f"--lines {self.lines}: expected 1 or more")
        texts = self._all()
        first = [some[: self.lines] for some in (texts.sources, *texts.references)]
        return EvalSet(first[0], first[1:], texts.files)

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
) -> dict[str, Any]:
    """Measure what is missing, draw and write; the tree of all that was measured.

    `times`: a report whose times are taken, of models of the same sizes; `command` is for the reader.
    """
    require_matplotlib()
    if example and not plane:
        raise UserError("--example is for the model with two latent entries: name that with --plane")
    speed = _times(times) if times else None
    texts = subject.texts()
    translator = Translator.load(subject.folder, device, threads)
    drawn = Plane(Translator.load(plane, device), example) if plane else None
    tree = measure_report(translator, texts, settings, make_folder(out / "measured"), drawn, speed)
    assert translator.languages is not None
    tree["about"] |= {
        "name": subject.name,
        "languages": translator.languages,
        "paper": corpus_for(translator.languages),
        "command": list(command),
    }
    tree["training"] = training_curves(subject.folder)
    write_atomically(out / "report.json", json.dumps(tree, indent=1, ensure_ascii=False) + "\n")
    return write_report(out)


def write_report(out: Path) -> dict[str, Any]:
    """Draw the figures and write the page from what was measured, once more if need be; its tree."""
    require_matplotlib()
    tree = _read(out / "report.json")
    folder = make_folder(out / "figures")
    figures = dict(_drawn(tree, folder))
    blocks = contents(tree, {name: figures[name] for name in FIGURES if name in figures})
    write_atomically(out / "report.html", write_html(title(tree), blocks))
    write_atomically(out / "report.md", write_markdown(blocks, out))
    info(f"{out / 'report.html'}: written; {out / 'report.md'} says the same")
    return tree


def show_report(tree: Mapping[str, Any], console: Console, path: Path | None = None) -> None:
    """Print the paper's claims beside what was found as a table, and give them out as JSON."""
    claims = list(glance(tree))
    console.print(table("The paper’s claims", ["claim", "paper", "here", "does it hold?"], claims))
    found = [dict(zip(("claim", "paper", "here", "holds"), row, strict=True)) for row in claims]
    write_result({"claims": found}, console, path)


def write_samples(samples: Sequence[Sample], path: Path, options: DecodingOptions) -> None:
    """A page of samples."""
    result = {"method": options.method, "steps": options.steps, "samples": [asdict(sample) for sample in samples]}
    heading = f"Before and after refinement: {options}"
    write_atomically(path, write_html(heading, [Heading(heading, 1), *samples_blocks(result)]))


def is_report(path: Path) -> bool:
    """Whether a folder holds a report, and no model."""
    return (path / "report.json").exists() and not kinds_in(path)


def require_matplotlib() -> None:
    """Say what is missing where matplotlib is, which only figures need."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("figures need matplotlib: pip install 'latentmt[plots]'")


def _drawn(tree: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, Path]]:
    """The figures for which there is something to draw."""
    from latentmt.plots.landscape import draw_landscape
    from latentmt.plots.speed import draw_latency, draw_tradeoff
    from latentmt.plots.steps import draw_likelihood, draw_tokens
    from latentmt.plots.style import write_figure
    from latentmt.plots.training import draw_training

    drawings: dict[str, tuple[Any, Callable[[], Any]]] = {
        "tradeoff": (tree["speed"], lambda: draw_tradeoff(tree["ways"], tree["speed"])),
        "likelihood": (tree["likelihood"], lambda: draw_likelihood(tree["likelihood"])),
        "tokens": (tree["tokens"], lambda: draw_tokens(tree["tokens"])),
        "landscape": (tree["landscape"], lambda: draw_landscape(tree["landscape"])),
        "latency": (tree["speed"], lambda: draw_latency(tree["speed"])),
        "training": (tree["training"], lambda: draw_training(tree["training"])),
    }
    for name, (measured, draw) in drawings.items():
        if measured:
            yield name, write_figure(draw, folder, name)


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise UserError(f"{path}: not a report that this version reads; measure again")
    return tree


def _times(report: Path) -> dict[str, Any]:
    speed = _read(report / "report.json").get("speed")
    if not isinstance(speed, dict):
        raise UserError(f"{report}: has no times")
    return speed


def find_subject(
    what: Path, source: Path | None, references: Sequence[Path], work: Path, lines: int | None = None
) -> Subject:
    """A model's folder or name, or a recipe, whose work folder is `work`."""
    is_recipe = what.suffix in (".yaml", ".yml") or ((what / "recipe.yaml").exists() and not kinds_in(what))
    folder = work if is_recipe else find_model(str(what))
    if not kinds_in(folder):
        raise UserError(f"{folder}: no model there yet" + ("; latentmt run makes one" if is_recipe else ""))
    return Subject(folder, folder.resolve().name, source, references, lines)
