"""The input, file by file, cut into blocks of rows.

Where a block ends depends on the file and the configuration alone. A file is streamed: one block is in memory at a
time.
"""

from __future__ import annotations

import csv
import lzma
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from latentmt.bulk.rows import LINE_COLUMN, MAX_BYTES, Block, CsvBlock, JsonBlock, TableBlock, TextBlock
from latentmt.bulk.store import StoredFile
from latentmt.errors import UserError

TEXT, JSON, CSV, PARQUET = "text", "jsonl", "csv", "parquet"
_SUFFIXES = {
    **dict.fromkeys((".txt", ".text", ""), TEXT),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), JSON),
    **dict.fromkeys((".csv", ".tsv"), CSV),
    **dict.fromkeys((".parquet", ".pq"), PARQUET),
}
_MAX_BLOCK = 32 << 20
"""Bytes of text after which a block ends, however few rows it has."""
_MAX_FIELD = 1 << 20
"""Characters of a CSV field. A quote that is never closed costs this much reading, once."""
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError, pa.ArrowException)
"""What reading a damaged file raises."""


@dataclass(frozen=True)
class Reader:
    """How the input is read."""

    column: str | None
    """The column with the text; None: `text`. Lines of text have no columns."""
    rows: int
    """Rows of a block."""

    def blocks(self, file: StoredFile) -> Iterator[tuple[Block, float]]:
        """The rows of a file, each block with the share of the file that was read.

        A file that cannot be read to its end raises one of `DAMAGE` after the blocks before.
        """
        column = self.column or LINE_COLUMN
        with file.open() as (content, position):
            if file_format(file) == PARQUET:
                yield from self._parquet(content, file, column)
                return
            for block in self._from_lines(content, file, column):
                yield block, position() / max(file.size, 1)

    def _from_lines(self, content: BufferedReader, file: StoredFile, column: str) -> Iterator[Block]:
        match file_format(file):
            case "text":
                yield from (TextBlock(lines) for lines in _cut(_lines(content), self.rows))
            case "jsonl":
                yield from (JsonBlock(lines, column) for lines in _cut(_lines(content), self.rows))
            case _:
                yield from self._csv(content, file, column)

    def _csv(self, content: BufferedReader, file: StoredFile, column: str) -> Iterator[Block]:
        records = _csv_records(_lines(content), "\t" if file.suffix == ".tsv" else ",")
        header = next(records, None)
        if header is None:
            return
        if isinstance(header, bytes) or column not in header:
            raise _no_column(file, column, [] if isinstance(header, bytes) else header)
        whole = (
            record if isinstance(record, bytes) or len(record) == len(header) else _line(record) for record in records
        )
        yield from (CsvBlock(header, values, column) for values in _cut(whole, self.rows))

    def _parquet(self, content: BufferedReader, file: StoredFile, column: str) -> Iterator[tuple[Block, float]]:
        parquet = pq.ParquetFile(content)
        _check_column(parquet.schema_arrow, file, column)
        waiting = pa.Table.from_batches([], parquet.schema_arrow)
        done = 0
        # Row groups may end batches early, so batches are put together until there are enough rows.
        for batch in parquet.iter_batches(batch_size=self.rows):
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch])])
            while waiting.num_rows >= self.rows:
                done += self.rows
                block, waiting = waiting.slice(0, self.rows), waiting.slice(self.rows)
                yield TableBlock(block.combine_chunks(), column), done / parquet.metadata.num_rows
        if waiting.num_rows:
            yield TableBlock(waiting.combine_chunks(), column), 1.0


def _check_column(schema: pa.Schema, file: StoredFile, column: str) -> None:
    if column not in schema.names:
        raise _no_column(file, column, schema.names)
    kind = schema.field(column).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)):
        raise UserError(f"{file.url}: column {column} has {kind}, not text")


def file_format(file: StoredFile) -> str:
    """The format of a file, by its name."""
    if file.suffix not in _SUFFIXES:
        raise UserError(f"{file.url}: unknown format {file.suffix}; there are {', '.join(filter(None, _SUFFIXES))}")
    return _SUFFIXES[file.suffix]


def _lines(content: BufferedReader) -> Iterator[bytes]:
    """The lines of a file, without their ends. Of a line that is too long, one byte more than the limit is kept."""
    first = True
    while line := content.readline(MAX_BYTES + 1):
        if len(line) > MAX_BYTES and not line.endswith(b"\n"):
            while (rest := content.readline(MAX_BYTES)) and not rest.endswith(b"\n"):
                pass
        else:
            line = line.removesuffix(b"\n").removesuffix(b"\r")
        if first:
            line, first = line.removeprefix(b"\xef\xbb\xbf"), False
        yield line


def _cut(items: Iterable[Any], rows: int) -> Iterator[list[Any]]:
    """Lists of so many items, or fewer if they are large."""
    block: list[Any] = []
    size = 0
    for item in items:
        block.append(item)
        size += len(item) if isinstance(item, bytes) else sum(map(len, item))
        if len(block) == rows or size >= _MAX_BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


def _csv_records(lines: Iterator[bytes], delimiter: str) -> Iterator[list[str] | bytes]:
    """The records of a CSV file. A line that begins none is returned as bytes, and the next one is tried."""
    csv.field_size_limit(_MAX_FIELD)
    again: deque[bytes] = deque()
    while True:
        taken: list[bytes] = []

        def source(taken: list[bytes] = taken) -> Iterator[str]:
            while (line := again.popleft() if again else next(lines, None)) is not None:
                taken.append(line)
                yield line.decode("utf-8", "surrogateescape") + "\n"

        try:
            record = next(csv.reader(source(), delimiter=delimiter, strict=True), None)
        except csv.Error:
            again.extendleft(reversed(taken[1:]))
            yield taken[0]
            continue
        if record is None:
            return
        yield record or [""]  # an empty line


def _line(record: list[str]) -> bytes:
    return ",".join(record).encode("utf-8", "surrogateescape")


def _no_column(file: StoredFile, column: str, names: list[str]) -> UserError:
    return UserError(f"{file.url}: no column {column}; name one with --column: {', '.join(names)}")
