"""What a report says of itself: the command that made it, or how it was put together; and the published ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from latentmt.report.contents import FIGURES, contents
from latentmt.report.document import write_markdown

TED = Path(__file__).parents[2] / "recipes" / "ted_deen"
PUBLISHED = (TED / "report", TED / "report_further")


def read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def written(tree: dict[str, Any], folder: Path) -> str:
    figures = {name: folder / "figures" / f"{name}.svg" for name in FIGURES}
    return write_markdown(contents(tree, {name: path for name, path in figures.items() if path.exists()}), folder)


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_a_published_report_is_what_its_numbers_say(folder: Path) -> None:
    assert written(read(folder), folder) == (folder / "report.md").read_text(encoding="utf-8")


def test_a_command_is_printed_unless_it_did_not_make_the_report() -> None:
    folder = TED / "report"
    tree = read(folder)
    about = {name: value for name, value in tree["about"].items() if name != "made"}
    by_command = written(tree | {"about": about | {"command": ["latentmt", "report", "a model"]}}, folder)
    assert "    latentmt report 'a model'\n" in by_command
    assert "running the command again" in by_command.replace("\n", " ")
    by_hand = written(tree | {"about": about | {"command": ["latentmt"], "made": "Put together by hand."}}, folder)
    assert "\n## How it was measured\n\nPut together by hand.\n\n| " in by_hand
    assert "    latentmt" not in by_hand
    assert "running the command again" not in by_hand.replace("\n", " ")
