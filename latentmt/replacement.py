"""The finished parts of a work folder: none makes way for another unless that is asked for.

    work/<part>                 corpus, teacher, distilled, latent, score, energy
    work/training/<part>        the state and the logs of the training that makes it
    work/replaced/1/<part> …    what was put aside with its training, until all of it has been made again

A part says what it was made with: its identity, a hash of all that decides it, and the settings themselves, so that a
difference can be named. This file moves parts; it makes none.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentmt.bundle import read_format
from latentmt.config import current_names
from latentmt.data.corpus import read_manifest
from latentmt.display import say
from latentmt.errors import UserError
from latentmt.files import make_folder, remove
from latentmt.recipe import Recipe
from latentmt.train.checkpoint import CHECKPOINT, read_progress

PARTS = ("corpus", "teacher", "distilled", "latent", "score", "energy")
"""Each is made from those before it; but for fields, which are made from the latent model."""
ASIDE = "replaced"
TRAINING = "training"
CHOICES = "name another folder with --work, or replace it with --replace"
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
        """Refuse to lose what is finished, but for a corpus that nothing has learnt from, or training that goes on."""
        path = self.work / part
        found = record(path)
        if self.replace or (found and found.identity == identity):
            return
        if path.is_symlink():
            raise UserError(
                f"{path}: is a symbolic link, and what it leads to is not of these settings; name another folder with "
                "--work, or have the link removed with --replace"
            )
        if found and (losing := self._losing(part)):
            others = [other for other in reversed(losing) if other != part]
            learnt = f" ({', '.join(others)} learnt from it)" if others else ""
            raise UserError(
                f"{path}: is finished, with other settings{learnt}: {differences(found.settings, settings)}; "
                f"{CHOICES}, which keeps the old one until the new one is whole"
            )
        if self._interrupts(part, identity):
            raise UserError(f"{self.work / TRAINING / part}: is unfinished, with other settings; {CHOICES}")

    def make_room(self, part: str, identity: str) -> None:
        """Put aside what would be lost; what was put aside and is wanted again comes back. One process does this."""
        path = self.work / part
        found = record(path)
        if found and found.identity == identity:
            return
        if (found and self._losing(part)) or self._interrupts(part, identity):
            self._put_aside(part)
        if path.is_symlink():  # to a corpus that nothing has learnt from, or to nothing finished
            _unlink(path)
        for folder in self._numbered():
            if _holds(folder, part, identity):
                self._take_back(folder, part)
                return

    def tidy(self) -> None:
        """Remove what was put aside, once all of it has been made again."""
        aside = self.aside()
        if all(record(self.work / path.name) for path in aside):
            for path in aside:
                remove(path)
            if aside:
                names = ", ".join(str(path.relative_to(self.work / ASIDE)) for path in aside)
                say(f"{self.work / ASIDE}: {names} removed, since all is made again")
        for folder in self._numbered():
            _remove_empty(folder / TRAINING)
            _remove_empty(folder)
        _remove_empty(self.work / ASIDE)

    def aside(self) -> list[Path]:
        """What was put aside."""
        places = [place for folder in self._numbered() for place in (folder, folder / TRAINING)]
        return [place / part for place in places for part in PARTS if (place / part).exists()]

    def _numbered(self) -> list[Path]:
        """The folders of what was put aside, the first one first."""
        return sorted((path for path in self.work.glob(f"{ASIDE}/*") if path.name.isdecimal()), key=_number)

    def _with_later(self, part: str) -> list[str]:
        """A part and those made from it, the last made first."""
        alone = part in ("score", "energy") or (part == "teacher" and not self.distilled)
        return list(reversed((part,) if alone else PARTS[PARTS.index(part) :]))

    def _losing(self, part: str) -> list[str]:
        """The finished parts that a new one would take the place or the ground of, the last made first."""
        losing = [other for other in self._with_later(part) if record(self.work / other)]
        return [] if losing == ["corpus"] else losing

    def _interrupts(self, part: str, identity: str) -> bool:
        """Whether a part's training has begun with other settings, and not ended."""
        progress = read_progress(self.work / TRAINING / part / CHECKPOINT)
        return progress is not None and progress.run != identity and progress.step < progress.total

    def _put_aside(self, part: str) -> None:
        """Put a part aside with all that was made from it, and their training."""
        folder = self.work / ASIDE / str(1 + max(map(_number, self._numbered()), default=0))
        moved: list[str] = []
        for other in self._with_later(part):  # those that depend on others first: what is left in place goes together
            finished, training = record(self.work / other), self.work / TRAINING / other
            moved += [other] if finished or training.exists() else []
            if finished:
                _move(self.work / other, folder / other)
            if training.exists():  # after its part, and back before it
                _move(training, folder / TRAINING / other)
        say(f"{folder}: {', '.join(reversed(moved))} put aside until all is made again")

    def _take_back(self, folder: Path, part: str) -> None:
        """Put a part and its training back where they were."""
        if (training := folder / TRAINING / part).exists():
            remove(self.work / TRAINING / part)  # no state, or that of training that has ended
            _move(training, self.work / TRAINING / part)
        if (folder / part).exists():
            remove(self.work / part)  # a corpus that nothing has learnt from, if anything
            _move(folder / part, self.work / part)
        say(f"{self.work / part}: taken back from {folder}")


def _number(folder: Path) -> int:
    return int(folder.name)


def _holds(folder: Path, part: str, identity: str) -> bool:
    """Whether a part that was put aside, or its training if it is unfinished, is of an identity."""
    if found := record(folder / part):
        return found.identity == identity
    progress = read_progress(folder / TRAINING / part / CHECKPOINT)
    return progress is not None and progress.run == identity


def _move(source: Path, target: Path) -> None:
    """Move a folder; a link is only removed, since what it leads to is not of this run."""
    if source.is_symlink():
        _unlink(source)
    else:
        make_folder(target.parent)
        os.rename(source, target)


def _unlink(link: Path) -> None:
    link.unlink()
    say(f"{link}: link removed")


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # it holds something, or is not there
        folder.rmdir()


def record(folder: Path) -> Record | None:
    """What the part in a folder says of itself; None if there is none."""
    try:
        if (folder / "manifest.json").exists():
            manifest = read_manifest(folder)
            return Record(manifest.fingerprint, current_names(manifest.settings, Recipe, str(folder)))
        if (folder / "format.json").exists():
            about = read_format(folder)
            return Record(about.facts.get("run"), current_names(about.settings, Recipe, str(folder)))
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
