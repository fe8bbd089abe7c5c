"""Measured numbers as JSON: one rule for every command that measures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from latentmt.errors import UserError
from latentmt.files import make_folder, read_plain, write_atomically


def json_file(path: Path) -> Path:
    """Check that results can be written to a path, before the work begins. Only JSON is replaced."""
    return output_file(path, "JSON", lambda content: json.loads(content) is not ...)


def output_file(path: Path, kind: str, is_ours: Callable[[bytes], object]) -> Path:
    """Check that a path can be written to. What is there is replaced if it is empty, or of the same kind."""
    if path.is_dir():
        raise UserError(f"{path}: a folder, not a file")
    make_folder(path.parent)
    if os.path.lexists(path):
        content = read_plain(path, 1 << 30)
        try:
            replaceable = not content.strip() or bool(is_ours(content))
        except (ValueError, RecursionError):
            replaceable = False
        if not replaceable:
            raise UserError(f"{path}: exists and is not {kind}, so it is not replaced; name another file")
    return path


def write_result(result: Any, console: Console, path: Path | None) -> None:
    """Write indented JSON to the file if one is named, and one line of JSON where the output is not a terminal."""
    if path:
        write_atomically(path, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
    if not console.file.isatty():
        console.out(json.dumps(result), highlight=False)
