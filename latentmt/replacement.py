"""The finished artefacts of a work folder. None is replaced unless `--replace` is given.

    work/<artefact>                 corpus, teacher, distilled, latent, and a folder for each field
    work/training/<artefact>        the checkpoint and the logs of its training
    work/replaced/1/<artefact> …    old artefacts and their training, until all of them have been made again

An artefact records its identity, which is a hash of everything that affects it, and its settings, so that differences
can be named. This file moves artefacts. It creates none. What it removes are files that latentmt wrote, by their names:
anything else in their folders is refused before the work begins, or left where it is.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentmt.bundle import LANGUAGE_MODEL, check_replaceable, read_format, remove_bundle
from latentmt.config import current_names
from latentmt.data.corpus import check_replaceable_corpus, read_manifest, remove_corpus
from latentmt.display import info
from latentmt.errors import UserError
from latentmt.fields.registry import learned_fields
from latentmt.files import make_folder, move, remove_files
from latentmt.recipe import Recipe
from latentmt.train.checkpoint import CHECKPOINT, read_progress
from latentmt.train.metrics import LOG

REPLACED = "replaced"
TRAINING = "training"
CHOICES = "name another folder with --work, or replace it with --replace"
MAX_DIFFERENCES = 6
"""Differences that are listed in an error."""

BeforeWrite = Callable[[str, Mapping[str, Any]], None]
"""Called with identity and settings before an artefact is written."""


def artefacts() -> list[str]:
    """Each depends on those before it, except fields, which depend on the latent model only, and the language model,
    which depends on the corpus only."""
    return ["corpus", LANGUAGE_MODEL, "teacher", "distilled", "latent", *learned_fields()]


@dataclass(frozen=True)
class Record:
    """The identity and settings that a finished artefact records."""

    identity: str | None
    """None if it is not readable."""
    settings: Mapping[str, Any]
    """Empty if an older version wrote it."""
    problem: str = ""
    """Why it is not readable."""


@dataclass(frozen=True)
class WorkFolder:
    """The finished artefacts of a work folder."""

    work: Path
    replace: bool
    """Whether artefacts with other settings may be moved aside."""
    by_teacher: bool
    """Whether the latent model depends on the teacher."""

    def check(self, artefact: str, identity: str, settings: Mapping[str, Any]) -> None:
        """Raise an error if writing this artefact would lose a finished one or unfinished training.

        A corpus that no model was trained on may be lost.
        """
        path = self.work / artefact
        old = read_record(path)
        if old and old.identity == identity:
            return
        if artefact in ("corpus", "distilled"):
            check_replaceable_corpus(path)
        elif not old and not path.is_symlink():
            check_replaceable(path)
        if self.replace:
            return
        if path.is_symlink():
            raise UserError(
                f"{path}: is a symbolic link, and its target has other settings; name another folder with "
                "--work, or have the link removed with --replace"
            )
        if old and (invalidated := self._invalidated(artefact)):
            if old.problem:
                raise UserError(f"{old.problem}; {CHOICES}, which keeps the old one until the new one is whole")
            others = [other for other in reversed(invalidated) if other != artefact]
            learnt = f" ({', '.join(others)} learnt from it)" if others else ""
            raise UserError(
                f"{path}: is finished, with other settings{learnt}: {differences(old.settings, settings)}; "
                f"{CHOICES}, which keeps the old one until the new one is whole"
            )
        if self._unfinished_other(artefact, identity):
            raise UserError(f"{self.work / TRAINING / artefact}: is unfinished, with other settings; {CHOICES}")

    def set_aside(self, artefact: str, identity: str) -> None:
        """Move aside what would be lost; restore this artefact if it was moved aside before. Called by one process."""
        path = self.work / artefact
        old = read_record(path)
        if old and old.identity == identity:
            return
        if (old and self._invalidated(artefact)) or self._unfinished_other(artefact, identity):
            self._move_aside(artefact)
        if path.is_symlink():  # to a corpus that no model was trained on, or to nothing finished
            _unlink(path)
        for folder in self._folders():
            if _matches(folder, artefact, identity):
                self._restore(folder, artefact)
                return

    def clean_up(self) -> None:
        """Remove what was moved aside, once all of it has been made again."""
        replaced = self.replaced()
        if all(read_record(self.work / path.name) for path in replaced):
            removed = [str(path.relative_to(self.work / REPLACED)) for path in replaced if _remove(path)]
            if removed:
                info(f"{self.work / REPLACED}: {', '.join(removed)} removed, since all is made again")
        for folder in self._folders():
            _remove_empty(folder / TRAINING)
            _remove_empty(folder)
        _remove_empty(self.work / REPLACED)

    def replaced(self) -> list[Path]:
        """The paths that were moved aside."""
        parents = [parent for folder in self._folders() for parent in (folder, folder / TRAINING)]
        return [parent / artefact for parent in parents for artefact in artefacts() if (parent / artefact).exists()]

    def _folders(self) -> list[Path]:
        """The numbered folders of replaced artefacts, in order."""
        return sorted((path for path in self.work.glob(f"{REPLACED}/*") if path.name.isdecimal()), key=_number)

    def _with_dependents(self, artefact: str) -> list[str]:
        """An artefact and those that depend on it, dependents first."""
        alone = artefact in (LANGUAGE_MODEL, *learned_fields()) or (artefact == "teacher" and not self.by_teacher)
        names = artefacts()
        return list(reversed([artefact] if alone else names[names.index(artefact) :]))

    def _invalidated(self, artefact: str) -> list[str]:
        """The finished artefacts that a new one would replace or make stale, dependents first."""
        invalidated = [other for other in self._with_dependents(artefact) if read_record(self.work / other)]
        return [] if invalidated == ["corpus"] else invalidated

    def _unfinished_other(self, artefact: str, identity: str) -> bool:
        """Whether training of an artefact has started with other settings and is unfinished."""
        progress = read_progress(self.work / TRAINING / artefact / CHECKPOINT)
        return progress is not None and progress.run != identity and progress.step < progress.total

    def _move_aside(self, artefact: str) -> None:
        """Move aside an artefact, its dependents and their training."""
        folder = self.work / REPLACED / str(1 + max(map(_number, self._folders()), default=0))
        moved: list[str] = []
        for other in self._with_dependents(artefact):  # dependents first, so that what stays is consistent
            finished, training = read_record(self.work / other), self.work / TRAINING / other
            moved += [other] if finished or training.exists() else []
            if finished:
                _move(self.work / other, folder / other)
            if training.exists():  # after its artefact; restored before it
                _move(training, folder / TRAINING / other)
        info(f"{folder}: {', '.join(reversed(moved))} kept until everything is made again")

    def _restore(self, folder: Path, artefact: str) -> None:
        """Move an artefact and its training back."""
        if (training := folder / TRAINING / artefact).exists():
            _remove(self.work / TRAINING / artefact)  # no checkpoint, or that of a finished run
            _move(training, self.work / TRAINING / artefact)
        if (folder / artefact).exists():
            _remove(self.work / artefact)  # at most a corpus that no model was trained on
            _move(folder / artefact, self.work / artefact)
        info(f"{self.work / artefact}: restored from {folder}")


def _number(folder: Path) -> int:
    return int(folder.name)


def _matches(folder: Path, artefact: str, identity: str) -> bool:
    """Whether an artefact that was moved aside, or its unfinished training, has this identity."""
    if old := read_record(folder / artefact):
        return old.identity == identity
    progress = read_progress(folder / TRAINING / artefact / CHECKPOINT)
    return progress is not None and progress.run == identity


def _move(source: Path, target: Path) -> None:
    """Move a folder. A link is only removed, since its target belongs to another run."""
    if source.is_symlink():
        _unlink(source)
    else:
        make_folder(target.parent)
        if target.exists():  # with something that latentmt did not write
            raise UserError(f"{target}: is in the way; move it away")
        move(source, target)


def _remove(path: Path) -> bool:
    """Remove an artefact, or the folder of a training run. True unless something that is not ours is left there."""
    if not path.is_dir() or path.is_symlink():
        return not path.exists()
    if (path / "format.json").exists():
        left = remove_bundle(path)
    elif (path / "manifest.json").exists():
        left = remove_corpus(path)
    else:
        remove_files(path / "tensorboard", re.compile(r"events\.out\.tfevents\..*").fullmatch)
        left = remove_files(path, (CHECKPOINT, LOG).__contains__)
    if left:
        info(f"{path}: kept, since it holds {left[0]}")
    return not left


def _unlink(link: Path) -> None:
    link.unlink()
    info(f"{link}: link removed")


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not empty, or missing
        folder.rmdir()


def read_record(folder: Path) -> Record | None:
    """The record of the artefact in a folder; None if there is none."""
    try:
        if (folder / "manifest.json").exists():
            manifest = read_manifest(folder)
            return Record(manifest.fingerprint, _present_names(manifest.settings, folder))
        if (folder / "format.json").exists():
            about = read_format(folder)
            return Record(about.facts.get("run"), _present_names(about.settings, folder))
    except UserError as error:  # of another format, for example
        return Record(None, {}, str(error))
    return None


def _present_names(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Settings under the present names of their keys. Version 0.1 had fields at the top."""
    fields = {name: settings[name] for name in learned_fields() if name in settings}
    others = {name: value for name, value in settings.items() if name not in fields}
    return current_names(others | ({"fields": fields} if fields else {}), Recipe, str(folder))


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The differences between settings, in one line."""
    if not old:
        return "it does not say which"
    before, after = _flat(old), _flat(new)
    keys = [key for key in before | after if before.get(key) != after.get(key)]
    shown = [f"{key} {_format(before.get(key))} → {_format(after.get(key))}" for key in keys[:MAX_DIFFERENCES]]
    more = [f"and {len(keys) - MAX_DIFFERENCES} more"] if len(keys) > MAX_DIFFERENCES else []
    return ", ".join([*shown, *more]) or "it was made by another version"


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _format(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return value[:12]
    return json.dumps(value, ensure_ascii=False)
