"""Long measurements in parts: a file each, that says what it depends on. What a part measures is not known here.

Where all that a part depends on is as it was, it is not measured again; so whoever is interrupted loses one part at
most.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from latentmt.display import info
from latentmt.files import make_folder, write_atomically


class Parts:
    """What has been measured, in a folder, a file each."""

    def __init__(self, folder: Path, common: Mapping[str, Any]) -> None:
        self._folder, self._common = make_folder(folder), common

    def get(self, name: str, facts: Mapping[str, Any], measure: Callable[[], Any]) -> dict[str, Any]:
        """The part of this name, `{signature, result}`: measured now unless it was, with these facts."""
        signature = _plain({**self._common, **facts})
        path = self._folder / (re.sub(r"[^a-z0-9=+.-]+", "_", name.lower()) + ".json")
        if (found := _read(path)) and found.get("signature") == signature:
            info(f"{name}: measured before")
            return found
        part: dict[str, Any] = {"signature": signature, "result": _plain(measure())}
        write_atomically(path, json.dumps(part, ensure_ascii=False) + "\n")
        return part


def _read(path: Path) -> dict[str, Any] | None:
    """What an earlier run left; nothing if it cannot be read, since it can be measured again."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return tree if isinstance(tree, dict) and "result" in tree else None


def _plain(tree: Any) -> Any:
    """As it will be when it has been written and read."""
    return json.loads(json.dumps(tree))
