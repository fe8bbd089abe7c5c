"""Parallel text from files, streamed: plain, gzip or xz, two files a side or one TSV.

A line ends at a line feed and nowhere else, so the two sides cannot drift apart at an exotic Unicode separator. What
is not text (invalid UTF-8, a NUL byte) and what is not parallel (unequal line counts) is an error naming file and
line. This file knows nothing of cleaning or of pieces.
"""

from __future__ import annotations

import gzip
import itertools
import lzma
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated

from pydantic import Field

from latentmt.config import Section
from latentmt.errors import UserError


@dataclass(frozen=True, kw_only=True)
class ParallelText(Section):
    """Where one part of a corpus is read from: `source` and `target`, or `tsv`. Names are relative to a folder."""

    source: tuple[str, ...] = ()
    """The source side's files, read one after another."""
    target: tuple[str, ...] = ()
    """The target side's files; together they must have as many lines as the source side's."""
    tsv: tuple[str, ...] = ()
    """Instead of the two above: files of tab-separated lines."""
    columns: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]] = (0, 1)
    """Which columns of the TSV, counted from 0, are source and target."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Read this many pairs at most."""
    repeat: Annotated[int, Field(ge=1)] = 1
    """How often each pair is used for training: the weight of this text beside the others."""

    def files(self) -> tuple[str, ...]:
        """Every file that is read, in order."""
        return self.source + self.target + self.tsv


@dataclass(frozen=True)
class Pair:
    """One line of parallel text."""

    source: str
    target: str


@dataclass(frozen=True)
class BadLine:
    """A line that is not text: what is wrong with it, and where."""

    message: str


def read_pairs(text: ParallelText, folder: Path) -> Iterator[Pair | BadLine]:
    """The pairs in order. A line that is not text comes as a `BadLine` in its place; unequal sides are an error."""
    if bool(text.tsv) == bool(text.source or text.target) or bool(text.source) != bool(text.target):
        raise UserError("parallel text needs either source and target files, or tsv files")
    pairs = _read_tsv(text, folder) if text.tsv else _read_two_sides(text, folder)
    return itertools.islice(pairs, text.limit)


def read_lines(paths: Sequence[Path]) -> Iterator[str | BadLine]:
    """The lines of several files one after another, without their line ends and byte order marks."""
    for path in paths:
        yield from decode_lines(_raw_lines(path), str(path))


def decode_lines(raw: Iterable[bytes], name: str) -> Iterator[str | BadLine]:
    """Lines of bytes as text; `name` says in errors where they come from."""
    for number, line in enumerate(raw, start=1):
        yield _decode(line, name, number)


def all_text(lines: Iterable[str | BadLine]) -> Iterator[str]:
    """The lines, of which none may be bad."""
    for line in lines:
        if isinstance(line, BadLine):
            raise UserError(line.message)
        yield line


def open_text(path: Path) -> BufferedIOBase:
    """Open a file for reading bytes; `.gz` and `.xz` are decompressed."""
    try:
        match path.suffix:
            case ".gz":
                return gzip.open(path, "rb")
            case ".xz":
                return lzma.open(path, "rb")
            case _:
                return path.open("rb")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path}: a folder, not a file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


def _raw_lines(path: Path) -> Iterator[bytes]:
    with open_text(path) as file:
        try:
            yield from file
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise UserError(f"{path}: damaged or truncated ({error})") from None


def _decode(raw: bytes, name: str, number: int) -> str | BadLine:
    try:
        line = raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        return BadLine(f"{name}, line {number}: invalid UTF-8 at byte {error.start + 1}")
    if "\0" in line:
        return BadLine(f"{name}, line {number}: NUL byte")
    return line.removeprefix("\ufeff") if number == 1 else line


def _read_two_sides(text: ParallelText, folder: Path) -> Iterator[Pair | BadLine]:
    sources = read_lines([folder / name for name in text.source])
    targets = read_lines([folder / name for name in text.target])
    for number in itertools.count():
        source, target = next(sources, None), next(targets, None)
        if source is None and target is None:
            return
        if source is None or target is None:
            counts = [
                number + sum(1 for _ in side) + (line is not None)
                for side, line in ((sources, source), (targets, target))
            ]
            raise UserError(
                f"unequal line counts: {_joined(folder, text.source)} has {counts[0]} lines, "
                f"{_joined(folder, text.target)} has {counts[1]}"
            )
        yield _pair(source, target)


def _read_tsv(text: ParallelText, folder: Path) -> Iterator[Pair | BadLine]:
    for name in text.tsv:
        for number, line in enumerate(read_lines([folder / name]), start=1):
            if isinstance(line, BadLine):
                yield line
                continue
            cells = line.split("\t")
            if len(cells) <= max(text.columns):
                yield BadLine(
                    f"{folder / name}, line {number}: {len(cells)} columns, column {max(text.columns)} wanted"
                )
                continue
            yield Pair(cells[text.columns[0]], cells[text.columns[1]])


def _pair(source: str | BadLine, target: str | BadLine) -> Pair | BadLine:
    if isinstance(source, BadLine):
        return source
    return target if isinstance(target, BadLine) else Pair(source, target)


def _joined(folder: Path, names: Sequence[str]) -> str:
    return " + ".join(str(folder / name) for name in names)
