"""The notebook runs from the first cell to the last, offline and without torch.

After a change of the model, `jupyter execute --inplace docs/tour.ipynb` writes its outputs anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parent.parent
TOUR = ROOT / "docs" / "tour.ipynb"
OFFLINE = """
import socket

def refuse(*_):
    raise OSError("offline")

socket.socket.connect = refuse
"""
WITHOUT = """
import sys
assert not {"torch", "matplotlib"} & set(sys.modules)
"""


def executed(cells: list[Any], folder: Path) -> Any:
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, timeout=60, kernel_name="python3", resources=resources).execute()


@pytest.fixture(autouse=True)
def nothing_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_the_tour_runs_and_says_something_in_every_cell(tmp_path: Path) -> None:
    tour = nbformat.read(TOUR, as_version=4)
    code = nbformat.v4.new_code_cell
    cells = executed([code(OFFLINE), *tour.cells, code(WITHOUT)], tmp_path).cells[1:-1]
    for stored, cell in zip(tour.cells, cells, strict=True):
        if cell.cell_type == "code":
            assert cell.outputs
            assert [output.output_type for output in cell.outputs] == [output.output_type for output in stored.outputs]
    texts = ["".join(output.get("text", "") for output in cell.get("outputs", ())) for cell in cells]
    loop = next(text for text in texts if "from the end" in text).split()
    assert float(loop[-1]) < 0.2 * float(loop[1])  # the loop by hand arrives where the trace did
    assert any("○" in text and "●" in text for text in texts)


def test_a_cell_that_fails_is_noticed(tmp_path: Path) -> None:
    connect = "import socket; socket.create_connection(('127.0.0.1', 9))"
    with pytest.raises(CellExecutionError, match="offline"):
        executed([nbformat.v4.new_code_cell(source) for source in (OFFLINE, connect)], tmp_path)


def test_the_tour_is_valid_and_names_no_place() -> None:
    tour = nbformat.read(TOUR, as_version=4)
    nbformat.validate(tour)
    assert all(not cell.metadata for cell in tour.cells)
    assert str(Path.home()) not in TOUR.read_text(encoding="utf-8")
    assert len(tour.cells) <= 24
