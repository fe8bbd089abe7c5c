"""Where measured numbers go for programs: one rule for every command that measures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from latentmt.errors import UserError
from latentmt.files import make_folder, write_atomically


def json_file(path: Path) -> Path:
    """A path that a file can be written to: better to know before the work than after it."""
    if path.is_dir():
        raise UserError(f"{path}: a folder, not a file")
    make_folder(path.parent)
    return path


def write_result(tree: Any, console: Console, path: Path | None) -> None:
    """Write JSON, readable, to the file if one is named; and as a last line where no person is looking."""
    if path:
        write_atomically(path, json.dumps(tree, indent=2, ensure_ascii=False) + "\n")
    if not console.file.isatty():
        console.out(json.dumps(tree), highlight=False)
