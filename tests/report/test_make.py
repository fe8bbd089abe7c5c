"""A report from bundles to page: measured once, drawn and written reproducibly, errors in one line."""

from __future__ import annotations

import json
import re
import shutil
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import write_corpus, write_models
from typer.testing import CliRunner, Result

from latentmt.cli import app
from latentmt.config import to_dict
from latentmt.errors import UserError
from latentmt.measure import collect
from latentmt.measure.bootstrap import paired_bootstrap
from latentmt.measure.collect import training_curves
from latentmt.measure.evaluate import EvalSet
from latentmt.measure.paper import ROWS
from latentmt.measure.quality import measure
from latentmt.measure.report import Report, Settings, Timings
from latentmt.options import DecodingOptions
from latentmt.report.make import find_subject, is_report, read_report, write_report
from latentmt.train.metrics import MetricsLogger
from latentmt.translator import Translator

SIZES = ("--timed", "3", "--judged", "2", "--posterior-samples", "8", "--shown", "2", "--device", "cpu")
FIGURES = {"tradeoff", "likelihood", "tokens", "landscape", "latency", "training"}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, a second one with two latent entries, and the log of a training run."""
    folder = tmp_path_factory.mktemp("numbers")
    corpus = write_corpus(folder, held_out=8)
    write_models(folder, corpus)
    write_models(folder / "plane", corpus, latent_dim=2)
    for stage, more in (("latent", {"kl": 0.4}), ("score", {"cosine": 0.6}), ("teacher", {"accuracy": 0.5})):
        reporter = MetricsLogger(folder / "training" / stage, stage, 0)
        for step in (10, 20, 30):
            reporter.progress(step, 30, {"loss": 3.0 / step, **more})
        reporter.validation(30, {"loss": 0.2, **more}, "")
        reporter.close()
    return folder


@pytest.fixture(scope="module")
def example(work: Path) -> tuple[str, ...]:
    return ("--plane", str(work / "plane"), "--example", "Anna hat zwei Lampen.", "Anna has $2 <lamps>.")


@pytest.fixture(scope="module")
def out(work: Path, example: tuple[str, ...]) -> Path:
    result = run("report", work, *SIZES, *example)
    assert result.exit_code == 0, result.output
    claims = json.loads(result.stdout.splitlines()[-1])["claims"]
    assert "one score step gains over L=0" in {claim["claim"] for claim in claims}
    return work / "report"


@pytest.fixture(scope="module")
def report(out: Path) -> Report:
    return read_report(out)


def write(report: Report, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "report.json").write_text(json.dumps(to_dict(report)))


def test_a_model_with_ctc_has_a_report(tmp_path: Path) -> None:
    """All of it: searches over numbers of places, likelihoods, and the field around places that write nothing."""
    corpus = write_corpus(tmp_path, held_out=8)
    write_models(tmp_path, corpus, output="ctc")
    write_models(tmp_path / "plane", corpus, latent_dim=2, output="ctc")
    example = ("--plane", tmp_path / "plane", "--example", "Anna hat zwei Lampen.", "Anna has two lamps.")
    result = run("report", tmp_path, *SIZES, *example)
    assert result.exit_code == 0, result.output
    report = read_report(tmp_path / "report")
    assert tuple(report.systems) == ROWS
    assert report.landscape is not None
    source = Translator.load(tmp_path).sentences("Anna hat zwei Lampen.")[0]
    assert len(report.landscape.landscape.panels) == 2 * len(source) - 1


def test_the_numbers_are_those_of_the_translator(work: Path, report: Report) -> None:
    assert tuple(report.systems) == ROWS  # in the order of the paper's table
    translator = Translator.load(work)
    pairs = [(work / f"test.{side}").read_text().splitlines() for side in ("de", "en")]
    texts: dict[str, list[str]] = {}
    options = {row: DecodingOptions(**system.signature.settings["options"]) for row, system in report.systems.items()}
    for row, system in report.systems.items():
        outputs = translator.translations(pairs[0], options[row])
        texts[row] = [output.text for output in outputs]
        quality = measure(texts[row], [output.ids for output in outputs], pairs[1:])
        assert system.quality.bleu_lc_intl == quality.bleu_lc_intl
        assert system.texts == []
    search = report.systems["score Search"]
    assert (options["score Search"].lengths, options["score Search"].samples, search.rerank) == (5, 5, "teacher")
    assert (search.method, search.steps, search.candidates, search.beam) == ("score", 1, 25, None)
    assert set(search.signature.models) == {"latent", "score", "teacher"}
    removed = {options[row].remove_repeats for row in options if not row.startswith("AR")}
    assert removed == {"pieces"}  # as in the paper
    assert report.samples is not None
    assert report.samples.signature.settings["options"]["remove_repeats"] == "pieces"
    assert set(report.systems["AR b=4"].signature.models) == {"teacher"}
    assert set(report.systems["L=0"].signature.models) == {"latent"}
    first = report.orderings.orderings[0]
    assert (first.better, first.worse) == ("delta-1", "L=0")
    assert first.comparison == paired_bootstrap(
        texts["delta-1"], texts["L=0"], pairs[1:], lowercase=True, tokenize="intl"
    )
    for curves in (report.tokens, report.likelihood):
        assert list(curves) == ["delta", "energy", "score"]
        for curve in curves.values():
            assert [point.steps for point in curve.points] == [0, 1, 2, 4, 8]
    assert {time.row for time in report.timings.times} == set(ROWS)
    assert report.timings.texts == 3
    assert set(report.models) == {"latent", "score", "energy", "teacher"}
    assert report.styles["score"].color == "#009E73"


def test_nothing_is_measured_twice(
    work: Path, out: Path, example: tuple[str, ...], report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only what depends on a changed setting is measured again."""
    folder = shutil.copytree(work, out.parent.parent / "copy", dirs_exist_ok=True)
    for name in ("measure_system", "measure_speed", "landscape", "paired_bootstrap", "count_tokens", "take_samples"):
        monkeypatch.setattr(collect, name, None)
    likelihoods = collect.likelihoods
    monkeypatch.setattr(collect, "likelihoods", None)
    again = run("report", folder, *SIZES, *example)
    assert again.exit_code == 0, again.output
    assert again.stderr.count("measured before") == len(ROWS) + 1 + 3 + 3 + 1 + 1 + 1
    assert read_report(folder / "report").systems == report.systems
    monkeypatch.setattr(collect, "likelihoods", likelihoods)
    other = run("report", folder, *SIZES, *example, "--posterior-samples", 9)
    assert other.stderr.count("measured before") == len(ROWS) + 1 + 3 + 1 + 1 + 1
    changed = run("report", folder, *SIZES, *example, "--lines", 5)
    assert isinstance(changed.exception, TypeError)  # other sentences: all of it


def elsewhere(timings: Timings) -> Timings:
    """The same times as if they were measured with another model and text on another machine."""
    conditions, first = timings.signature.conditions, timings.times[0]
    machine = replace(conditions.machine, device="a fast one")
    signature = replace(
        timings.signature,
        conditions=replace(conditions, text_hash="other", machine=machine),
        models=timings.signature.models | {"latent": "another"},
        settings=timings.signature.settings | {"timed": 7},
    )
    slower = replace(first, text=replace(first.text, mean=1234.5))
    return replace(timings, signature=signature, length_bias=0.25, times=[slower, *timings.times[1:]])


def test_times_can_be_those_of_another_report(
    work: Path, out: Path, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed, here = tmp_path / "timed", tmp_path / "out"
    write(replace(report, timings=elsewhere(report.timings)), timed)
    monkeypatch.setattr(collect, "measure_speed", None)
    shutil.copytree(out / "measured", here / "measured")  # all else was measured before
    sizes = SIZES[2:]  # without --timed
    result = run("report", work, *sizes, "--out", here, "--times", timed)
    assert result.exit_code == 0, result.output
    text = (here / "report.md").read_text().replace("\n", " ")
    assert "(timed apart: other models, other texts, length bias +25%)" in text
    assert text.count("logarithmic. Timed apart: other models, other texts, length bias +25%.") == 2
    assert "on a fast one" in text
    assert "1234.5" in text
    assert "| timed model: latent | `another` |" in text
    assert "timed model: score" not in text
    assert read_report(here).settings.timed == 7
    assert "timed apart" not in (out / "report.md").read_text().lower()
    for arguments, message in (
        ((work, *SIZES, "--times", timed), "leave out --timed"),
        ((work, *sizes, "--compiled", "--times", timed), "leave out --timed and --compiled"),
        ((work, "--times", tmp_path), "not a report (it has no report.json)"),
        ((here, "--times", timed), "is measured already"),
    ):
        assert message in str(run("report", *arguments).exception)


def test_times_of_systems_that_a_model_does_not_have_are_left_out(
    work: Path, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "measure_speed", None)
    write(report, tmp_path)
    few = shutil.copytree(work, tmp_path / "few", ignore=shutil.ignore_patterns("energy", "teacher", "report"))
    files = ("--src", work / "test.de", "--ref", work / "test.en")
    result = run("report", few, *files, *SIZES[2:], "--times", tmp_path)
    assert result.exit_code == 0, result.output
    times = read_report(few / "report").timings.times
    assert {time.row for time in times} == {row for row in ROWS if not row.startswith(("AR", "energy"))}
    write(replace(report, timings=replace(report.timings, times=[])), tmp_path)
    assert "timed nothing" in str(run("report", few, *files, *SIZES[2:], "--times", tmp_path).exception)
    (tmp_path / "report.json").write_text(json.dumps({**to_dict(report), "timings": None}))
    refused = run("report", few, *files, *SIZES[2:], "--times", tmp_path).exception
    assert isinstance(refused, UserError)
    assert "report.json: timings: " in str(refused)


def test_the_pages_are_self_contained_and_complete(out: Path, report: Report) -> None:
    page, text = (out / "report.html").read_text(), (out / "report.md").read_text()
    assert not re.search(r"(src|href)=[\"']?http|url\(http|@import", page)
    assert page.count("<svg") == len(FIGURES)
    for row, system in report.systems.items():
        bleu = f"{system.bleu:.2f}"
        assert f"<td>{row}</td><td class=edge>{bleu}</td>" in page
        assert f"| {row} | {bleu} |" in text
    for shown in ("30.2", "33 ± 4", "6.3×"):  # the paper's
        assert f"<td>{shown}</td>" in page or f"<td class=edge>{shown}</td>" in page
    for fingerprint in report.models.values():
        assert fingerprint in page
        assert fingerprint in text
    assert "Anna has $2 &lt;lamps&gt;." in page
    assert report.samples is not None
    assert report.samples.samples[0].source in page


def test_figures_are_reproducible(out: Path) -> None:
    figures = {path.name: path.read_bytes() for path in (out / "figures").iterdir()}
    assert set(figures) == {f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png")}
    page = (out / "report.html").read_bytes()
    assert is_report(out)
    assert run("report", out).exit_code == 0
    assert {path.name: path.read_bytes() for path in (out / "figures").iterdir()} == figures
    assert (out / "report.html").read_bytes() == page
    for name, content in figures.items():
        if name.endswith("svg"):
            assert ET.fromstring(content).tag.endswith("svg")
        else:
            assert content.startswith(b"\x89PNG")


def test_a_report_of_a_latent_model_alone(work: Path, tmp_path: Path) -> None:
    """No teacher, no field, no logs, no second model: sections without data are left out."""
    shutil.copytree(work / "latent", tmp_path / "latent")
    shutil.copytree(work / "corpus", tmp_path / "corpus")
    result = run("report", tmp_path, *SIZES, "--shown", 0, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    report = read_report(tmp_path / "out")
    assert set(report.systems) == {"L=0", "delta-1", "delta-2", "delta-4", "delta Search"}
    assert report.systems["delta Search"].rerank == "elbo"
    assert report.samples is report.landscape is None
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<h2>Samples" not in page
    assert page.count("<svg") == 4


def test_errors_are_one_line(work: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> str:
        result = run("report", *arguments, "--device", "cpu")
        assert isinstance(result.exception, UserError), result.output
        return str(result.exception)

    assert "neither a folder nor the name of a model" in refused(tmp_path / "nothing")
    assert "no model there yet" in refused(tmp_path)
    assert "no model there yet; latentmt run makes one" in refused(work / "recipe.yaml", "--work", tmp_path)
    assert "--src and --ref belong together" in refused(work, "--src", work / "test.de")
    assert "--lines 0: expected 1 or more" in refused(work, "--lines", 0)
    assert "timed 0: expected 1 or more" in refused(work, "--timed", 0)
    assert "a latent model of two entries" in refused(work, "--plane", work)
    assert "--example is for the model with two latent entries" in refused(work, "--example", "a", "b")
    shutil.copytree(work / "latent", tmp_path / "latent")
    assert "has no corpus, so name a test set" in refused(tmp_path)
    shutil.copytree(work / "teacher", tmp_path / "teacher" / "teacher")
    source, reference = work / "test.de", work / "test.en"
    assert "there is no latent model" in refused(tmp_path / "teacher", "--src", source, "--ref", reference)
    (tmp_path / "report.json").write_text('{"format": 0}')
    with pytest.raises(UserError, match="report format 0, this version reads 2"):
        write_report(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "figures need matplotlib: pip install 'latentmt\\[plots\\]'".replace("\\", "") in refused(out)


def test_where_the_test_set_comes_from(work: Path) -> None:
    pairs = EvalSet.read(work / "test.de", [work / "test.en"])
    of_recipe = find_subject(work / "recipe.yaml", None, (), work).texts()
    assert (of_recipe.sources, of_recipe.references) == (pairs.sources, pairs.references)
    named = find_subject(work, work / "dev.de", [work / "dev.en", work / "dev.british.en"], work, lines=3).texts()
    assert named.sources == (work / "dev.de").read_text().splitlines()[:3]
    assert len(named.references) == 2


def test_curves_are_thinned_and_end_where_the_run_does(tmp_path: Path) -> None:
    (tmp_path / "training" / "latent").mkdir(parents=True)
    lines = [json.dumps({"kind": "train", "step": step, "loss": 1.0}) for step in range(1, 1001)]
    (tmp_path / "training" / "latent" / "log.jsonl").write_text("\n".join(lines) + '\n{"kind": "tr')
    curves = training_curves(tmp_path)["latent"]
    steps = [entry["step"] for entry in curves.train]
    assert curves.dev == []
    assert steps == list(range(4, 1001, 4))
    assert training_curves(tmp_path / "nowhere") == {}


def test_settings_have_bounds() -> None:
    with pytest.raises(UserError, match="posterior_samples 1: expected 2 or more"):
        Settings(posterior_samples=1)


def test_samples_are_written_as_a_page(work: Path, tmp_path: Path) -> None:
    given = ("samples", "--model", work, "--src", work / "test.de", "--ref", work / "test.en", "--device", "cpu")
    shown = run(*given, "--count", 2, "--html", tmp_path / "samples.html")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.count("refined    ") == 2
    page = (tmp_path / "samples.html").read_text()
    assert page.count("<dt>refined</dt>") == 2
    assert "<dt>reference</dt>" in page
    *_, last = run(*given, "--count", 2, "--json", tmp_path / "samples.json").stdout.splitlines()
    assert json.loads(last) == json.loads((tmp_path / "samples.json").read_text())
    assert [sample["source"] for sample in json.loads(last)["samples"]] == re.findall(
        r"^source +(.*)$", shown.stdout, re.MULTILINE
    )


def test_another_text_is_another_measurement(work: Path, tmp_path: Path) -> None:
    """Even if its files have the same names, and whatever their order."""
    shutil.copytree(work / "latent", tmp_path / "latent")
    sizes = ("--out", tmp_path / "out", "--timed", 1, "--judged", 1, "--posterior-samples", 2, "--shown", 0)

    def run_on(*files: Path) -> str:
        source, *references = files
        chosen = [word for path in references for word in ("--ref", path)]
        done = run("report", tmp_path, "--src", source, *chosen, *sizes, "--device", "cpu")
        assert done.exit_code == 0, done.output
        return done.output

    for side, texts in (("source", "Ein Haus.\nZwei."), ("first", "A house.\nTwo."), ("second", "One house.\n2.")):
        (tmp_path / side).mkdir()
        (tmp_path / side / "test").write_text(texts + "\n")
    source, first, second = (tmp_path / side / "test" for side in ("source", "first", "second"))
    assert "measured before" not in run_on(source, first, second)
    assert run_on(source, first, second).count("measured before") > 5
    assert "measured before" not in run_on(source, second, first)
    source.write_text("Ein Hut.\nZwei.\n")
    assert "measured before" not in run_on(source, second, first)


def test_what_cannot_be_measured_is_refused_first(work: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n \n")
    nothing = run("report", work, "--src", tmp_path / "empty", "--ref", tmp_path / "empty", "--out", tmp_path / "out")
    assert "there is nothing to translate" in str(nothing.exception)
    compiled = run("report", work, "--compiled", "--device", "cpu", "--out", tmp_path / "out")
    assert "only searches on a GPU are compiled" in str(compiled.exception)


def test_a_report_does_not_go_into_the_package() -> None:
    assert find_subject(Path("deen"), None, (), Path("unused")).out == Path("runs/deen/report")
