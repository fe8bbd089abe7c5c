"""Parallel text from files, streamed: plain, gzip or xz, two files a side or one TSV.

Only a line feed ends a line, so other Unicode separators cannot misalign the two sides. Invalid UTF-8, NUL bytes and
unequal line counts are errors that name file and line. This file does not know about cleaning or tokenization.
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
    """Files of parallel text: `source` and `target`, or `tsv`. Names are relative to the data folder."""

    source: tuple[str, ...] = ()
    """The source files, concatenated."""
    target: tuple[str, ...] = ()
    """The target files. Together they must have as many lines as the source files."""
    tsv: tuple[str, ...] = ()
    """Instead of the two above: files of tab-separated lines."""
    columns: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]] = (0, 1)
    """Which columns of the TSV, counted from 0, are source and target."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """The maximum number of pairs to read."""
    repeat: Annotated[int, Field(ge=1)] = 1
    """How often each pair is used for training: the weight of this text."""

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
    """An error message for a line that is not valid text."""

    message: str


def read_pairs(text: ParallelText, folder: Path) -> Iterator[Pair | BadLine]:
    """The pairs in order. An invalid line is returned as a `BadLine`. Unequal line counts are an error."""
    if bool(text.tsv) == bool(text.source or text.target) or bool(text.source) != bool(text.target):
        raise UserError("parallel text needs either source and target files, or tsv files")
    pairs = _read_tsv(text, folder) if text.tsv else _read_two_sides(text, folder)
    return itertools.islice(pairs, text.limit)


def read_lines(paths: Sequence[Path]) -> Iterator[str | BadLine]:
    """The lines of several files, without line ends and byte order marks."""
    for path in paths:
        yield from decode_lines(_raw_lines(path), str(path))


def decode_lines(raw: Iterable[bytes], name: str) -> Iterator[str | BadLine]:
    """Decode lines of bytes. `name` is their origin in errors."""
    for number, line in enumerate(raw, start=1):
        yield _decode(line, name, number)


def all_text(lines: Iterable[str | BadLine]) -> Iterator[str]:
    """The lines. A bad one is an error."""
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
                    f"{folder / name}, line {number}: {len(cells)} columns, column {max(text.columns)} expected"
                )
                continue
            yield Pair(cells[text.columns[0]], cells[text.columns[1]])


def _pair(source: str | BadLine, target: str | BadLine) -> Pair | BadLine:
    if isinstance(source, BadLine):
        return source
    return target if isinstance(target, BadLine) else Pair(source, target)


def _joined(folder: Path, names: Sequence[str]) -> str:
    return " + ".join(str(folder / name) for name in names)
