"""A zip file as anybody may send it: members by name, within limits, and written again with some of them changed.

Nothing is unpacked to a disk. What these members are is not known here.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath

from latentmt.errors import UserError

MAX_BYTES = 512 * 2**20
"""All members together, uncompressed."""
MAX_RATIO = 200
"""How many times larger than the file its members may be. XML of real documents has 5 to 50."""
SMALL_BYTES = 2**20
"""Smaller contents have any ratio."""
MAX_MEMBERS = 20_000

_COMPOUND_FILE = bytes.fromhex("d0cf11e0a1b11ae1")
_ENCRYPTED = 1
"""Of a member's flags."""


@dataclass(frozen=True)
class Archive:
    """A zip file whose table of contents was checked."""

    content: bytes
    names: frozenset[str]

    @staticmethod
    def read(content: bytes) -> Archive:
        """The archive in a file. What is damaged, encrypted or far too large is refused."""
        if content.startswith(_COMPOUND_FILE):
            raise UserError("an encrypted document, or one of an old binary format")
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                members = archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError):
            raise UserError("not a zip file, or a truncated one") from None
        for member in members:
            _check(member)
        names = frozenset(member.filename for member in members)
        if len(members) > MAX_MEMBERS:
            raise UserError(f"{len(members)} files in it, and at most {MAX_MEMBERS} are read")
        if len(names) < len(members):
            raise UserError("two files of the same name in it")
        total = sum(member.file_size for member in members)
        if total > MAX_BYTES:
            raise UserError(f"{total} bytes when it is unpacked, and at most {MAX_BYTES} are read")
        if total > max(SMALL_BYTES, MAX_RATIO * len(content)):
            raise UserError(f"more than {MAX_RATIO} times larger when it is unpacked")
        return Archive(content, names)

    def member(self, name: str) -> bytes:
        """The content of a member."""
        if name not in self.names:
            raise UserError(f"no {name} in it")
        with zipfile.ZipFile(io.BytesIO(self.content)) as archive:
            return _read(archive, name)

    def replaced(self, changed: Mapping[str, bytes]) -> bytes:
        """The file with these members changed. The others stay as they are, and so do order and compression."""
        target = io.BytesIO()
        with (
            zipfile.ZipFile(io.BytesIO(self.content)) as source,
            zipfile.ZipFile(target, "w", strict_timestamps=False) as archive,
        ):
            archive.comment = source.comment
            for member in source.infolist():
                name = member.filename
                archive.writestr(_copy(member), changed[name] if name in changed else _read(source, name))
        return target.getvalue()


def _check(member: zipfile.ZipInfo) -> None:
    """Refuse a member that no writer of documents makes."""
    name = member.orig_filename
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    if posix.is_absolute() or windows.anchor or ".." in posix.parts or "\\" in name or "\0" in name:
        raise UserError(f"a file with the path {name} in it")
    if member.flag_bits & _ENCRYPTED:
        raise UserError("an encrypted document")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UserError(f"{name}: compressed in a way that documents are not")


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        return archive.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError):
        raise UserError(f"{name}: damaged or truncated") from None


def _copy(member: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """Name, time, compression and attributes of a member, without sizes and checksum."""
    copy = zipfile.ZipInfo(member.filename, member.date_time)
    copy.compress_type, copy.comment = member.compress_type, member.comment
    copy.external_attr, copy.create_system = member.external_attr, member.create_system
    return copy
