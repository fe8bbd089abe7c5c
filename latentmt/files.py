"""Reading, atomic writing, and hashing of files.

Whenever a process is killed, a reader finds the old content or the new one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from io import BufferedReader
from pathlib import Path

from latentmt.errors import UserError

TEXT_LIMIT = 1 << 20
"""The most bytes of a JSON file that describes an artefact."""


def open_plain(path: Path) -> BufferedReader:
    """Open a file of an artefact. A link is not followed, and a pipe or a device is not waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{path}: a symbolic link, not a file") from None
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, or a device without a driver
            raise UserError(f"{path}: not a plain file") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError(f"{path}: not a plain file")
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path, limit: int = TEXT_LIMIT) -> bytes:
    """The content of a plain file of at most `limit` bytes."""
    with open_plain(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise UserError(f"{path}: larger than {limit:,} bytes")
    return content


def write_atomically(path: Path, content: bytes | str, writer: str = "") -> None:
    """Replace `path` by `content` atomically, synced to disk first. Writers at the same time need different names."""
    temporary = path.with_name(f".{path.name}{writer}.writing")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        error.filename = error.filename or str(path)  # the error of a full disk has no file name
        raise
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Sync a file's content, or a folder's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> Path:
    """Create the folder if it does not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{path}: is needed as a folder, but there is a file") from None
    return path


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
