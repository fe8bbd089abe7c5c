"""One owner of a work folder: a lock file that says who holds it.

The file is locked by the kernel, which lets go when the process ends, however it ends. Its content is for
people, and for other machines: not every shared file system passes locks on, so a file that another machine left is not
taken over. This file does not know what a work folder holds.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from latentmt.display import info
from latentmt.errors import UserError
from latentmt.files import make_folder
from latentmt.system import BINARY, NO_LINK, close_and_remove, hold_signals, is_alive, try_lock

LOCK = "latentmt.lock"
_LONGEST = 4096
"""Bytes of it that are read."""
_STOPPING = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock."""

    pid: int
    host: str
    started: str
    """When it took the lock, in UTC."""
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.started} ({self.command})"


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Own a folder. If another process does, the error says which."""
    path = make_folder(folder) / LOCK
    deliver = hold_signals(_STOPPING)  # a stop in between would leave the file behind
    try:
        descriptor = _acquire(path)
        try:
            deliver()
            yield
        finally:
            close_and_remove(path, partial(os.close, descriptor))
    finally:
        deliver()


def _acquire(path: Path) -> int:
    """The descriptor of the lock file, locked and with our name in it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK | BINARY, 0o644)
        try:
            locked = _locked(descriptor)
            owner = _read(descriptor)
            if not locked:
                raise UserError(f"{path.parent}: in use by {owner or 'another process'}")
            if not _is_current(path, descriptor):  # its owner removed it after we had opened it
                os.close(descriptor)
                continue
            _check_gone(path, owner)
            _write(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _locked(descriptor: int) -> bool:
    try:
        return try_lock(descriptor)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
    return True


def _is_current(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _check_gone(path: Path, owner: Owner | None) -> None:
    """Whoever left the file must be gone, as far as we can know."""
    if owner is None:
        return
    if owner.host != socket.gethostname():
        raise UserError(f"{path.parent}: in use by {owner}; if that process is gone, remove {path}")
    # Where the file system has no locks, the number of the process tells. A number that is in use again is harmless
    # elsewhere, since the kernel has given us the lock; there the file must be removed by hand.
    if is_alive(owner.pid) and owner.pid != os.getpid() and not _has_locks(path):
        raise UserError(f"{path.parent}: in use by {owner}; if that process is gone, remove {path}")
    info(f"{path}: was left by {owner}, which is gone")


def _has_locks(path: Path) -> bool:
    """Whether the file system has locks: a second descriptor does not get the one that we hold."""
    descriptor = os.open(path, os.O_RDWR | BINARY)
    try:
        return not _locked(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> Owner | None:
    """The owner that is named in the file; None if it is empty or not readable."""
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        values = json.loads(os.read(descriptor, _LONGEST))
        return Owner(int(values["pid"]), str(values["host"]), str(values["started"]), str(values["command"]))
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _write(descriptor: int) -> None:
    started = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    command = shlex.join(["latentmt", *sys.argv[1:]])[:500]
    owner = Owner(os.getpid(), socket.gethostname(), started, command)
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, (json.dumps(asdict(owner)) + "\n").encode())
    os.fsync(descriptor)
