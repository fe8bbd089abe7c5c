"""A journal: what a job has done so far, an entry a line, so that a killed job goes on where it was.

The first line says what the job is. A journal of another job is refused. A line is complete when it ends with a line
feed and is JSON; whatever follows the last complete line is cut off. The kernel locks the file for one process.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from latentmt.errors import UserError
from latentmt.system import BINARY, NO_LINK, close_and_remove, try_lock

FORMAT = 2
"""Raised whenever a journal written before could be misread, or the same job would write other bytes."""


class Journal:
    """The journal of one job, open. Entries are in the file; memory has their positions only."""

    def __init__(self, path: Path, job: Mapping[str, Any], replace: bool = False) -> None:
        """Open or begin a journal. `replace`: another job's is begun anew instead of refused."""
        self.path = path
        header = _header(job)
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK | BINARY, 0o644), "r+b")
        try:
            self._lock()
            self._ends = array("q", [len(header)])
            first = self._file.readline(len(header) + (1 << 20))
            if first == header:
                self._read_entries()
            elif header.startswith(first) or replace:  # nothing yet, or killed while it wrote this line
                self._file.seek(0)
                self._file.truncate()
                self._write(header)
            else:
                raise UserError(f"{path}: work of another job{_difference(first, header)}; go on with it, or --replace")
        except BaseException:
            self._file.close()
            raise

    @staticmethod
    def is_of(path: Path, job: Mapping[str, Any]) -> bool:
        """Whether there is a journal of this job."""
        if not path.is_file():
            return False
        header = _header(job)
        with path.open("rb") as file:
            return file.read(len(header)) == header

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> Any:
        start, end = self._ends[number], self._ends[number + 1]
        self._file.seek(start)
        return json.loads(self._file.read(end - start))

    def append(self, entry: Any) -> None:
        """Add an entry. It outlives this process as soon as this returns."""
        line = (json.dumps(entry, separators=(",", ":")) + "\n").encode()
        self._file.seek(self._ends[-1])
        self._write(line)
        self._ends.append(self._ends[-1] + len(line))

    def remove(self) -> None:
        """The job is done: remove the file."""
        close_and_remove(self.path, self._file.close)

    def _write(self, line: bytes) -> None:
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            error.filename = str(self.path)  # the error of a full disk has no file name
            raise

    def _lock(self) -> None:
        try:
            locked = try_lock(self._file.fileno())
        except OSError:
            return  # a file system without locks
        if not locked:
            raise UserError(f"{self.path}: another process works on this")

    def _read_entries(self) -> None:
        for line in self._file:
            try:
                json.loads(line)
            except (ValueError, RecursionError):
                break
            if not line.endswith(b"\n"):
                break
            self._ends.append(self._ends[-1] + len(line))
        self._file.seek(self._ends[-1])
        self._file.truncate()


def _header(job: Mapping[str, Any]) -> bytes:
    return (json.dumps({"latentmt document": FORMAT, **job}, sort_keys=True) + "\n").encode()


def _difference(first: bytes, header: bytes) -> str:
    """What differs between two jobs, by the first key that does."""
    try:
        before, now = json.loads(first), json.loads(header)
        key = next(key for key in sorted(now) if before.get(key) != now[key])
        return f" ({key}: {before.get(key)}, now {now[key]})"
    except (ValueError, AttributeError, StopIteration, RecursionError):
        return ""
