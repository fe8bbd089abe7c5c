"""JSON of every command that measures: in the named file, and as the last line where the output is no terminal."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.main import get_command

from latentmt.cli import app
from latentmt.errors import UserError
from latentmt.measure.health import Check, show_health
from latentmt.measure.results import json_file, write_result
from latentmt.measure.samples import CHANGED, Phrase, Sample, show_samples
from latentmt.options import DecodingOptions
from latentmt.report.document import write_html
from latentmt.report.make import html_file

RESULT = {"bleu": 27.5, "name": "5×5"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("named", [False, True])
def test_a_last_line_of_json_only_without_a_terminal(tmp_path: Path, named: bool) -> None:
    path = tmp_path / "result.json" if named else None
    pipe, terminal = io.StringIO(), Terminal()
    for file in (pipe, terminal):
        write_result(RESULT, Console(file=file, force_terminal=True), path)  # colours in a pipe make it no terminal
        assert not path or json.loads(path.read_text()) == RESULT
    assert json.loads(pipe.getvalue()) == RESULT
    assert pipe.getvalue().count("\n") == 1
    assert terminal.getvalue() == ""


def test_only_results_are_replaced(tmp_path: Path) -> None:
    """The file that results go to may be a user's by mistake: the sources, say."""
    path = tmp_path / "file"
    for content, check in ((b"Ein Satz.\n", json_file), (b"[1", json_file), (b"<p>Mine.</p>", html_file)):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"file: exists and is not .*, so it is not replaced"):
            check(path)
        assert path.read_bytes() == content
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="a symbolic link"):
        json_file(path)
    path.unlink()
    for content, check in ((b"", json_file), (b'{"bleu": 27.5}', json_file), (write_html("x", []).encode(), html_file)):
        path.write_bytes(content)
        assert check(path) == path
    path.unlink()
    assert json_file(path) == path


def test_health_and_samples_write_json(tmp_path: Path) -> None:
    sample = Sample("quelle", ["ziel"], [Phrase("a", CHANGED)], [Phrase("b", CHANGED)])
    for show in (
        lambda console, path: show_health([Check("KL", 0.7, low=0.5)], console, path),
        lambda console, path: show_samples([sample], DecodingOptions(), console, path),
    ):
        pipe, terminal = io.StringIO(), Terminal()
        show(Console(file=terminal, width=80, force_terminal=False), None)
        show(Console(file=pipe, width=80), tmp_path / "result.json")
        *shown, last = pipe.getvalue().splitlines()
        assert terminal.getvalue().splitlines() == shown
        assert json.loads(last) == json.loads((tmp_path / "result.json").read_text())


def test_every_measuring_command_takes_a_json_file() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    options = {
        name: option for name, command in commands.items() for option in command.params if "--json" in option.opts
    }
    files = {name for name, option in options.items() if not option.is_flag}
    assert files == {"evaluate", "bench", "health", "samples", "report", "document"}  # what measures, and documents
    assert options.keys() - files == {"translate", "trace"}  # where it is what a line of output looks like
