"""Files by path or URL: a folder on this machine, or anything else that fsspec reaches.

A file appears whole or not at all: on a disk it is written beside and renamed, in an object store it is one put.
Several processes may write the same file, if they write the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec
from fsspec.compression import compr
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from latentmt.errors import UserError
from latentmt.files import make_folder, write_atomically

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".xz": "xz", ".bz2": "bz2"}
_BUFFER = 1 << 20
_LEFT_BEHIND = ".writing"
"""How the names of unfinished files end."""


@dataclass(frozen=True)
class StoredFile:
    """A file to read. Its name is relative to the folder that was named."""

    name: str
    url: str
    size: int
    """In bytes."""
    version: str
    """What changes when the file does: an object's ETag, or the time of a file's last change."""

    @property
    def suffix(self) -> str:
        """What says which format the file has, without that of its compression."""
        path = PurePosixPath(self.name)
        return PurePosixPath(path.stem).suffix if path.suffix in _COMPRESSIONS else path.suffix

    @contextmanager
    def open(self) -> Iterator[tuple[BufferedReader, Callable[[], int]]]:
        """Open the file, decompressed. The function says how much of what is stored was read."""
        compression = _COMPRESSIONS.get(PurePosixPath(self.name).suffix)
        with fsspec.open(self.url, "rb") as stored:
            content = compr[compression](stored, mode="rb") if compression else stored
            with BufferedReader(content, _BUFFER) as buffered:
                yield buffered, stored.tell if compression else buffered.tell


class Folder:
    """A folder that results are written to."""

    def __init__(self, url: str) -> None:
        self._files, self._root = _file_system(url)
        self.url: str = self._files.unstrip_protocol(self._root)
        """Absolute: other processes work in other folders."""
        self._local = isinstance(self._files, LocalFileSystem)

    def make(self) -> None:
        """Create the folder, and remove what writers that were killed left in it."""
        if not self._local:
            return
        for path in make_folder(Path(self._root)).glob(f".*{_LEFT_BEHIND}"):
            path.unlink(missing_ok=True)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none of that name."""
        try:
            content: bytes = self._files.cat_file(self._path(name))
        except FileNotFoundError:
            return None
        return content

    def put(self, name: str, content: bytes) -> None:
        """Write a file as a whole."""
        if self._local:
            write_atomically(Path(self._path(name)), content)
        else:
            self._files.pipe_file(self._path(name), content)

    def sizes(self) -> dict[str, int]:
        """The names of the files in the folder, and their sizes in bytes."""
        self._files.invalidate_cache()
        try:
            entries = self._files.ls(self._root, detail=True)
        except FileNotFoundError:
            return {}
        return {PurePosixPath(entry["name"]).name: entry["size"] for entry in entries if entry["type"] == "file"}

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def find_files(url: str, output: str) -> list[StoredFile]:
    """The file of that path or URL, or all files of the folder, by name. Hidden files are left out."""
    files, root = _file_system(url)
    other, folder = _file_system(output)
    files.invalidate_cache()
    try:
        found: dict[str, dict[str, Any]] = files.find(root, detail=True)
    except (OSError, ValueError) as error:
        raise UserError(f"{url}: cannot be read ({error})") from None
    if root in found:  # a file
        return [_stored(files, PurePosixPath(root).name, found[root])]
    if type(other) is type(files) and f"{folder}/".startswith(f"{root.rstrip('/')}/"):
        raise UserError(f"{output}: lies in the input; name another folder")
    named = {str(PurePosixPath(path).relative_to(root)): entry for path, entry in found.items()}
    visible = {name: entry for name, entry in named.items() if not any(part[0] in "._" for part in name.split("/"))}
    if not visible:
        raise UserError(f"{url}: no such file, and no folder with files")
    return [_stored(files, name, visible[name]) for name in sorted(visible)]


def _stored(files: Any, name: str, entry: dict[str, Any]) -> StoredFile:
    changed = next((entry[key] for key in ("ETag", "etag", "mtime", "LastModified", "created") if key in entry), "")
    return StoredFile(name, files.unstrip_protocol(entry["name"]), int(entry["size"] or 0), str(changed))


def _file_system(url: str) -> tuple[Any, str]:
    try:
        files, root = url_to_fs(url)
    except (ImportError, ValueError) as error:  # a protocol that is unknown, or whose package is not installed
        raise UserError(f"{url}: {error}") from None
    return files, str(root)
