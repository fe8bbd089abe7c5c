"""The files of an artefact, read only if they are as they were written.

An artefact lists its files with their sizes and hashes: plain files in one folder. A file is opened once. The bytes
that were hashed are the bytes that are returned, so another file cannot take its place in between. This file knows
neither bundles nor corpora.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Annotated

from pydantic import Field

from latentmt.config import Section
from latentmt.errors import UserError
from latentmt.files import open_plain, sha256

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, kw_only=True)
class FileFacts(Section):
    """The size and hash of a file."""

    bytes: Annotated[int, Field(ge=0, le=1 << 50)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

    @staticmethod
    def of(path: Path) -> FileFacts:
        """Those of a file that was just written."""
        return FileFacts(bytes=path.stat().st_size, sha256=sha256(path))


@dataclass(frozen=True)
class VerifiedFiles:
    """Files of a folder, with what they must be."""

    folder: Path
    files: Mapping[str, FileFacts]
    listing: Path
    """The file that lists them."""
    advice: str = ""
    """What to do about a damaged file."""

    def check(self) -> None:
        """Check that every file is in the folder and has its size. Nothing is read."""
        if not self.files:
            raise UserError(f"{self.listing}: lists no files")
        for name, facts in self.files.items():
            if not _NAME.fullmatch(name) or name == self.listing.name:
                raise UserError(f"{self.listing}: lists {name[:80]!r}, which is not the name of a file of its folder")
            with self._open(name, facts):
                pass

    def read(self, name: str) -> bytes:
        """The content of a file. A damaged one is named in the error."""
        facts = self._facts(name)
        with self._open(name, facts) as file:
            content = file.read(facts.bytes + 1)
        if len(content) != facts.bytes or hashlib.sha256(content).hexdigest() != facts.sha256:
            raise self._altered(name)
        return content

    def map(self, name: str) -> mmap.mmap | bytes:
        """The content of a file, memory-mapped after its hash was compared, once from beginning to end.

        What is mapped is the file that was hashed, even if another one takes its name.
        """
        facts = self._facts(name)
        if not facts.bytes:  # an empty file cannot be mapped
            return self.read(name)
        with self._open(name, facts) as file:
            content = mmap.mmap(file.fileno(), facts.bytes, access=mmap.ACCESS_READ)
        if hashlib.sha256(content).hexdigest() != facts.sha256:
            raise self._altered(name)
        return content

    def verify(self) -> None:
        """Check the hash of every file, without keeping their content."""
        for name, facts in self.files.items():
            with self._open(name, facts) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != facts.sha256:
                    raise self._altered(name)

    def _facts(self, name: str) -> FileFacts:
        if name not in self.files:
            raise UserError(f"{self.listing}: does not list {name[:80]!r}, which is needed")
        return self.files[name]

    def _open(self, name: str, facts: FileFacts) -> BufferedReader:
        """Open a file that has its size."""
        path = self.folder / name
        try:
            file = open_plain(path)
        except FileNotFoundError:
            raise UserError(f"{path}: missing{self.advice}") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None
        size = os.fstat(file.fileno()).st_size
        if size != facts.bytes:
            file.close()
            what = "truncated" if size < facts.bytes else "too long"
            raise UserError(f"{path}: {what} ({size} bytes, {facts.bytes} expected){self.advice}")
        return file

    def _altered(self, name: str) -> UserError:
        return UserError(f"{self.folder / name}: altered since it was written{self.advice}")
