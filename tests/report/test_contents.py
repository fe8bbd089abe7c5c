"""The contents of a report: the published ones, their provenance, and methods that the paper does not have."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from latentmt.measure.methods import field_style
from latentmt.measure.report import Report
from latentmt.report.contents import FIGURES, contents, table_one
from latentmt.report.document import write_markdown
from latentmt.report.make import read_report, write_report

TED = Path(__file__).parents[2] / "recipes" / "ted_deen"
PUBLISHED = (TED / "report", TED / "report_further")


def written(report: Report, folder: Path) -> str:
    figures = {name: folder / "figures" / f"{name}.svg" for name in FIGURES}
    return write_markdown(contents(report, {name: path for name, path in figures.items() if path.exists()}), folder)


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_a_published_report_agrees_with_its_json(folder: Path) -> None:
    assert written(read_report(folder), folder) == (folder / "report.md").read_text(encoding="utf-8")


def test_the_command_is_printed_unless_there_is_a_provenance() -> None:
    folder = TED / "report"
    report = read_report(folder)
    by_command = written(replace(report, provenance="", command=["latentmt", "report", "a model"]), folder)
    assert "    latentmt report 'a model'\n" in by_command
    assert "running the command again" in by_command.replace("\n", " ")
    by_hand = written(replace(report, command=["latentmt"], provenance="Put together by hand."), folder)
    assert "\n## How it was measured\n\nPut together by hand.\n\n| " in by_hand
    assert "    latentmt" not in by_hand
    assert "running the command again" not in by_hand.replace("\n", " ")


@pytest.fixture
def unknown(tmp_path: Path) -> Path:
    """A published report in which a method that the paper does not have stands in the place of energy."""
    text = (TED / "report" / "report.json").read_text(encoding="utf-8").replace("energy", "curl")
    data = json.loads(text)
    data["styles"]["curl"] = vars(field_style("curl"))
    data["orderings"]["orderings"] = [  # the paper has no such orderings
        each for each in data["orderings"]["orderings"] if "curl" not in each["better"] + each["worse"]
    ]
    (tmp_path / "report.json").write_text(json.dumps(data), encoding="utf-8")
    return tmp_path


def test_a_method_that_the_paper_does_not_have(unknown: Path) -> None:
    report = write_report(unknown)
    table = table_one(report)
    rows = {row[0]: row for row in table.rows}
    published = {row[0]: row for row in table_one(read_report(TED / "report")).rows}
    for setting in ("-1", "-2", "-4", " Search"):
        assert rows[f"curl{setting}"][1:-4] == published[f"energy{setting}"][1:-4]
        assert rows[f"curl{setting}"][-4:] == ["–"] * 4
        assert rows[f"score{setting}"] == published[f"score{setting}"]
    assert table.rows[table.breaks[2]][0] == "curl-1"  # its rows are a block of their own
    text = (unknown / "report.md").read_text(encoding="utf-8")
    assert "curl raises log p" not in text
    assert "score raises log p" in text
    assert "| curl, L=8 |" in text
    assert field_style("curl").color.lower() in (unknown / "figures" / "tradeoff.svg").read_text().lower()


def test_numbers_of_steps_that_the_paper_does_not_have(unknown: Path) -> None:
    report = read_report(unknown)
    systems = {row.replace("-2", "-3"): system for row, system in report.systems.items()}
    times = [replace(time, row=time.row.replace("-2", "-3")) for time in report.timings.times]
    orderings = replace(report.orderings, orderings=[])
    report = replace(report, systems=systems, timings=replace(report.timings, times=times), orderings=orderings)
    rows = {row[0]: row for row in table_one(report).rows}
    assert rows["score-3"][-4:] == ["–"] * 4
    text = written(report, unknown)
    assert "| score-3 |" in text
    assert "## Orderings" not in text


def test_figures_need_no_registry_of_methods(unknown: Path, tmp_path: Path) -> None:
    """The style that is stored in the report is drawn."""
    folder = shutil.copytree(unknown, tmp_path / "copy")
    text = (folder / "report.json").read_text(encoding="utf-8")
    (folder / "report.json").write_text(text.replace(field_style("curl").color, "#123456"), encoding="utf-8")
    write_report(folder)
    for name in ("tradeoff", "latency", "likelihood", "tokens", "training"):
        assert "#123456" in (folder / "figures" / f"{name}.svg").read_text()
