"""The finished parts of a work folder: none makes way for another unless that is asked for.

    work/<part>                 corpus, teacher, distilled, latent, score, energy
    work/replaced/1/<part> …    what was put aside, until all of it has been made again

A part says what it was made with: its identity, a hash of all that decides it, and the settings themselves, so that a
difference can be named. This file moves parts; it makes none.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentmt.bundle import read_format
from latentmt.data.corpus import read_manifest
from latentmt.display import say
from latentmt.errors import UserError
from latentmt.files import make_folder, remove

PARTS = ("corpus", "teacher", "distilled", "latent", "score", "energy")
"""Each is made from those before it; but for fields, which are made from the latent model."""
ASIDE = "replaced"
SHOWN = 6
"""Differences that are named."""

MakeRoom = Callable[[str, Mapping[str, Any]], None]
"""Called with identity and settings before a part is made."""


@dataclass(frozen=True)
class Record:
    """What a finished part says of itself."""

    identity: str | None
    """None if it cannot be read."""
    settings: Mapping[str, Any]
    """Empty where an older version has made it."""


@dataclass(frozen=True)
class Finished:
    """The finished parts of a work folder."""

    work: Path
    replace: bool
    """Whether what has other settings may be put aside."""
    distilled: bool
    """Whether the latent model learns from the teacher."""

    def check(self, part: str, identity: str, settings: Mapping[str, Any]) -> None:
        """Refuse to lose something finished: a model, or a corpus that models have learnt from."""
        found = record(self.work / part)
        if self.replace or found is None or found.identity == identity or not (losing := self._losing(part)):
            return
        others = [other for other in reversed(losing) if other != part]
        learnt = f" ({', '.join(others)} learnt from it)" if others else ""
        raise UserError(
            f"{self.work / part}: is finished, with other settings{learnt}: {differences(found.settings, settings)}; "
            "name another folder with --work, or replace it with --replace, which keeps the old one until the new one "
            "is whole"
        )

    def make_room(self, part: str, identity: str) -> None:
        """Put aside what would be lost; what was put aside and is wanted again comes back. One process does this."""
        found = record(self.work / part)
        if found and found.identity == identity:
            return
        if losing := self._losing(part) if found else []:
            self._put_aside(losing)
        for aside in sorted(self.work.glob(f"{ASIDE}/*/{part}")):
            if (kept := record(aside)) and kept.identity == identity:
                remove(self.work / part)  # a corpus that nothing has learnt from, if anything
                os.rename(aside, self.work / part)
                say(f"{self.work / part}: taken back from {aside.parent}")
                return

    def tidy(self) -> None:
        """Remove what was put aside, once all of it has been made again."""
        if all(record(self.work / part.name) for part in self.work.glob(f"{ASIDE}/*/*")):
            remove(self.work / ASIDE)

    def _losing(self, part: str) -> list[str]:
        """The finished parts that a new one would take the place or the ground of, the last made first."""
        alone = part in ("score", "energy") or (part == "teacher" and not self.distilled)
        after = () if alone else PARTS[PARTS.index(part) + 1 :]
        losing = [other for other in reversed((part, *after)) if record(self.work / other)]
        return [] if losing == [part] and part in ("corpus", "distilled") else losing

    def _put_aside(self, parts: list[str]) -> None:
        number = 1 + max((int(path.name) for path in self.work.glob(f"{ASIDE}/*")), default=0)
        folder = make_folder(self.work / ASIDE / str(number))
        for part in parts:  # those that depend on others first: what is left in place goes together
            os.rename(self.work / part, folder / part)
        say(f"{folder}: {', '.join(reversed(parts))} put aside until all is made again")


def record(folder: Path) -> Record | None:
    """What the part in a folder says of itself; None if there is none."""
    try:
        if (folder / "manifest.json").exists():
            manifest = read_manifest(folder)
            return Record(manifest.fingerprint, manifest.settings)
        if (folder / "format.json").exists():
            about = read_format(folder)
            return Record(about.facts.get("run"), about.settings)
    except UserError:  # of another format, say: still somebody's
        return Record(None, {})
    return None


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What differs, in one line."""
    if not old:
        return "it does not say which"
    before, after = _flat(old), _flat(new)
    keys = [key for key in before | after if before.get(key) != after.get(key)]
    named = [f"{key} {_shown(before.get(key))} → {_shown(after.get(key))}" for key in keys[:SHOWN]]
    more = [f"and {len(keys) - SHOWN} more"] if len(keys) > SHOWN else []
    return ", ".join([*named, *more]) or "it was made by another version"


def _flat(tree: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """A tree of settings, by dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return flat


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return value[:12]
    return json.dumps(value, ensure_ascii=False)
