"""Measured numbers as JSON: one rule for every command that measures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from latentmt.errors import UserError
from latentmt.files import make_folder, write_atomically


def json_file(path: Path) -> Path:
    """Check that a file can be written to a path, before the work begins."""
    if path.is_dir():
        raise UserError(f"{path}: a folder, not a file")
    make_folder(path.parent)
    return path


def write_result(result: Any, console: Console, path: Path | None) -> None:
    """Write indented JSON to the file if one is named, and one line of JSON where the output is not a terminal."""
    if path:
        write_atomically(path, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    if not console.file.isatty():
        console.out(json.dumps(result), highlight=False)
