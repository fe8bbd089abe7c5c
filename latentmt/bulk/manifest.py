"""manifest.json: what a job is, and which parts of it are done.

A job that ends leaves the same manifest, byte for byte, however often it was killed. A part is done when the manifest
has it and its file has the size that the manifest says. What was written after the manifest's last save is written
again, with the same bytes.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from latentmt.bulk.store import Folder, StoredFile
from latentmt.config import Section, from_dict, to_dict
from latentmt.errors import UserError

FILE = "manifest.json"
FORMAT = 1
"""Raised whenever a manifest written before could be misread, or the same job would write other bytes."""

_SAVE_SECONDS = 5.0
"""The least time between two saves, …"""
_SAVE_SHARE = 0.02
"""… which take at most this share of the time, however many parts there are."""

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, kw_only=True)
class PartFacts(Section):
    """A finished part."""

    rows: Count
    errors: dict[str, int]
    """Rows with an error, by its kind."""
    bytes: Count
    sha256: str


@dataclass(frozen=True, kw_only=True)
class InputFacts(Section):
    """A file of the input. `rows` and `parts` are known when it was read to its end."""

    name: str
    bytes: Count
    version: str
    rows: Count | None = None
    parts: Count | None = None
    damage: str | None = None
    """Why it could not be read further."""

    @staticmethod
    def of(file: StoredFile) -> InputFacts:
        return InputFacts(name=file.name, bytes=file.size, version=file.version)

    @property
    def identity(self) -> tuple[str, int, str]:
        return self.name, self.bytes, self.version


@dataclass(frozen=True, kw_only=True)
class ManifestFile(Section):
    """The content of manifest.json."""

    format: int
    settings: dict[str, Any]
    inputs: tuple[InputFacts, ...]
    complete: bool
    parts: dict[str, PartFacts] = field(default_factory=dict)


class Manifest:
    """The manifest of a job under way. One process writes it."""

    def __init__(self, folder: Folder, settings: Mapping[str, Any], files: list[StoredFile]) -> None:
        self._folder, self._settings = folder, json.loads(json.dumps(settings))
        self.inputs = [InputFacts.of(file) for file in files]
        self.parts: dict[str, PartFacts] = {}
        self.rows = 0
        """Rows that are done."""
        self.errors: Counter[str] = Counter()
        """Rows with an error, by its kind."""
        self._saved, self._took = 0.0, 0.0
        self.complete = False

    def resume(self) -> None:
        """Take over what an earlier run has done, if it was the same job. A folder with anything else is refused."""
        sizes, content = self._folder.sizes(), self._folder.read(FILE)
        if content is None:
            if sizes:
                raise UserError(f"{self._folder.url}: not empty, and not the output of a job")
            return
        where = f"{self._folder.url}/{FILE}"
        found = _parsed(content, where)
        if not found.parts and sizes.keys() == {FILE}:
            return  # it had not done anything yet: what it was makes no difference
        if found.settings != self._settings:
            keys = sorted(found.settings.keys() | self._settings.keys())
            key = next(key for key in keys if found.settings.get(key) != self._settings.get(key))
            raise UserError(
                f"{where}: a job with other settings ({key}: {found.settings.get(key)}, now "
                f"{self._settings.get(key)}); name another folder"
            )
        for before, now in zip(found.inputs, self.inputs, strict=False):
            if before.identity != now.identity:
                raise UserError(f"{where}: {before.name} has changed since the job began; name another folder")
        if len(found.inputs) != len(self.inputs):
            raise UserError(f"{where}: the job began with {len(found.inputs)} files, now there are {len(self.inputs)}")
        self.inputs = list(found.inputs)
        for name, facts in found.parts.items():
            if sizes.get(name) == facts.bytes:
                self._count(name, facts)

    def add(self, name: str, facts: PartFacts) -> None:
        """Note a finished part, and save if it is time."""
        self._count(name, facts)
        waited = time.monotonic() - self._saved
        if waited > max(_SAVE_SECONDS, self._took / _SAVE_SHARE):
            self.save()

    def save(self) -> None:
        start = time.monotonic()
        parts = {name: self.parts[name] for name in sorted(self.parts)}
        content = ManifestFile(
            format=FORMAT, settings=self._settings, inputs=tuple(self.inputs), complete=self.complete, parts=parts
        )
        self._folder.put(FILE, (json.dumps(to_dict(content), indent=1) + "\n").encode())
        self._saved = time.monotonic()
        self._took = self._saved - start

    def _count(self, name: str, facts: PartFacts) -> None:
        self.parts[name] = facts
        self.rows += facts.rows
        self.errors.update(facts.errors)


def _parsed(content: bytes, where: str) -> ManifestFile:
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: cannot be read ({error})") from None
    found = values.get("format") if isinstance(values, dict) else None
    if found != FORMAT:
        raise UserError(f"{where}: manifest format {found}, this version reads {FORMAT}; name another folder")
    return from_dict(values, ManifestFile, where)
