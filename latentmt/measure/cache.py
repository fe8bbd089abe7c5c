"""A folder of finished measurements, a JSON file each. What is measured is not known here.

A measurement whose signature has not changed is read back instead of being repeated. An interrupted run loses one
measurement at most.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from latentmt.config import from_dict, to_dict
from latentmt.display import info
from latentmt.errors import UserError
from latentmt.files import make_folder, write_atomically
from latentmt.measure.report import Measurement, Signature

T = TypeVar("T", bound=Measurement)


class Cache:
    """Measurements by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = make_folder(folder)

    def get(self, name: str, kind: type[T], signature: Signature, measure: Callable[[], T]) -> T:
        """The measurement of this name: read if it is there with this signature, else made now and written."""
        path = self._folder / (re.sub(r"[^a-z0-9=+.-]+", "_", name.lower()) + ".json")
        cached = _read(path, kind)
        if cached and cached.signature == signature:
            info(f"{name}: measured before")
            return cached
        result = measure()
        write_atomically(path, json.dumps(to_dict(result), ensure_ascii=False) + "\n")
        return result


def _read(path: Path, kind: type[T]) -> T | None:
    """What an earlier run left; None where it cannot be read, since it can be measured again."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        return from_dict(tree, kind, str(path)) if isinstance(tree, dict) else None
    except (FileNotFoundError, ValueError, UserError):
        return None
