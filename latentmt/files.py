"""Reading, atomic writing, and hashing of files.

Whenever a process is killed, a reader finds the old content or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal

from latentmt.errors import UserError
from latentmt.system import BINARY, NO_LINK, NO_WAIT, is_alive, sync

_HOST = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}\.(?P<kind>writing|old)")

TEXT_LIMIT = 1 << 20
"""The most bytes of a JSON file that describes an artefact."""


def open_plain(path: Path) -> BufferedReader:
    """Open a file of an artefact. A link is not followed, and a pipe or a device is not waited for."""
    try:
        if not NO_LINK and path.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        descriptor = os.open(path, os.O_RDONLY | NO_LINK | NO_WAIT | BINARY)
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


def write_atomically(path: Path, content: bytes | str, *more: bytes | memoryview) -> None:
    """Replace `path` by `content`, and `more` after it, atomically, synced to disk first."""
    temporary = temporary_name(path)
    try:
        with temporary.open("xb") as file:
            for part in (content.encode() if isinstance(content, str) else content, *more):
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        error.filename = error.filename or str(path)  # the error of a full disk has no file name
        raise
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def temporary_name(path: Path, kind: Literal["writing", "old"] = "writing") -> Path:
    """A name beside `path` that no other process takes, for what will have its name, or had it."""
    return path.with_name(f".{path.name}.{_HOST}-{os.getpid()}-{secrets.token_hex(4)}.{kind}")


def remove_stale(folder: Path) -> None:
    """Remove what killed processes of this machine left in a folder under such names.

    If one was killed between the two renames that replace a folder, the old folder gets its name back.
    """
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        match = _TEMPORARY.fullmatch(path.name)
        if not match or match["host"] != _HOST or is_alive(int(match["pid"])):
            continue
        if match["kind"] == "old" and not os.path.lexists(folder / match["name"]):
            os.rename(path, folder / match["name"])
        else:
            remove(path)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The objects of a log, one in a line. A line that a killed process or a bad disk has damaged is left out."""
    entries = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError, RecursionError):
            entries.append(json.loads(line))
    return [entry for entry in entries if isinstance(entry, dict)]


def make_folder(path: Path) -> Path:
    """Create the folder if it does not exist."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{path}: is needed as a folder, but there is a file") from None
    for folder in missing:
        sync(folder.parent)
    return path


def move(source: Path, target: Path) -> None:
    """Give a file or a folder another name, and sync that to disk."""
    os.rename(source, target)
    for folder in {source.parent, target.parent}:
        sync(folder)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content, if it exists. Only for what this package has just written itself."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_files(folder: Path, is_ours: Callable[[str], object]) -> list[str]:
    """Remove the files of a folder whose names are ours, and the folder if it is empty then; what is left.

    Links and folders are left, whatever their names are.
    """
    left = []
    for path in sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ():
        if is_ours(path.name) and path.is_file() and not path.is_symlink():
            path.unlink()
        else:
            left.append(path.name)
    if not left:
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()
    return left


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
