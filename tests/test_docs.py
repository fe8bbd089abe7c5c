"""The documentation: links, commands and names exist, and README stays short."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click
import pytest
import typer.main

from latentmt.cli import app

ROOT = Path(__file__).parent.parent
GUIDE = [
    ROOT / "README.md",
    *sorted({*ROOT.glob("docs/*.md")} - {ROOT / "docs" / "LOG.md"}),
    *sorted((ROOT / "recipes").rglob("*.md")),
]
PAGES = [
    *(
        ROOT / name
        for name in (
            "CONTRIBUTING.md",
            "SECURITY.md",
            "CHANGELOG.md",
            "docs/LOG.md",
            "benchmarks/RESULTS.md",
            "tests/MUTANTS.md",
        )
    ),
    *GUIDE,
]
COMMANDS = cast(click.Group, typer.main.get_command(app)).commands
FLAGS = {
    name: {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    for name, command in COMMANDS.items()
}

CODE = re.compile(r"^```[\s\S]*?^```|^(?: {4}.*\n)+|`[^`\n]+`", re.MULTILINE)
LINK = re.compile(r"\]\(([^()\s]+)\)")
SHOWN = re.compile(r"(?<!from )\blatentmt ([a-z]+)\b([^\n`|;&#]*)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links(page: Path) -> list[str]:
    """The links of a page that do not leave the repository."""
    return [link for link in LINK.findall(CODE.sub("", page.read_text())) if not re.match(r"\w+:", link)]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = CODE.sub(lambda code: "" if "\n" in code[0] else code[0].strip("`"), page.read_text())
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands_shown(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Every `latentmt COMMAND` in the code of a page, with the flags that follow it."""
    for code in CODE.findall(page.read_text().replace("\\\n", " ")):
        for command, rest in SHOWN.findall(code):
            yield command, re.findall(r"(?<!\S)--[a-z-]+", rest)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_and_anchor_exists(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", GUIDE, ids=name_of)
def test_every_command_and_flag_shown_exists(page: Path) -> None:
    for command, flags in commands_shown(page):
        assert command in COMMANDS, f"latentmt {command}"
        assert set(flags) <= FLAGS[command], f"latentmt {command}: {set(flags) - FLAGS[command]}"
    alone = set(re.findall(r"`(--[a-z-]+)[^`\n]*`", page.read_text()))
    assert alone <= set().union(*FLAGS.values()), page


def test_links_and_commands_are_found() -> None:
    """What the tests above look for is there to be found."""
    assert "docs/translate.md" in links(ROOT / "README.md")
    assert "decoding-options" in anchors(ROOT / "docs" / "translate.md")
    shown = dict(commands_shown(ROOT / "README.md"))
    assert {"translate", "trace", "run", "serve"} <= shown.keys()
    assert shown["translate"] == ["--method", "--lengths", "--rerank"]


def test_every_name_of_the_reference_exists() -> None:
    names = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "reference.md").read_text(), re.MULTILINE)
    assert names
    for name in names:
        pkgutil.resolve_name(name)


def test_readme_is_short_and_names_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 140
    assert {"make demo", "make test"} <= {line.split("#")[0].strip() for line in lines}
