"""Rows of the input: the text of each, and all its columns, whatever the format.

A block holds consecutive rows as they were read. What can be wrong with a row is found here, by the actor, and is never
an error: the row has a problem instead, and perhaps no text.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MAX_BYTES = 16 << 20
"""The most bytes of a line or a field that are kept."""

NOT_UTF8 = "not UTF-8: bytes were replaced"
NOT_JSON = "not a JSON object"
NOT_CSV = "not a CSV record"
CUT = f"longer than {MAX_BYTES >> 20} MiB: cut"
NO_TEXT = "no text in the column"

LINE_COLUMN = "text"
"""The column of a line of text."""


@dataclass(frozen=True)
class Row:
    """The text of a row, if it has one, and what is wrong with it."""

    text: str | None
    problem: str | None = None


class Block(ABC):
    """Consecutive rows of a file."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def rows(self) -> list[Row]:
        """The text of each row."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """The columns of each row, by name."""

    def table(self) -> pa.Table:
        """The columns as Arrow. Where the format has no types, they are text."""
        records = self.records()
        names = dict.fromkeys(name for record in records for name in record)
        columns = [pa.array([_as_text(record.get(name)) for record in records], pa.string()) for name in names]
        return pa.table(columns, names=[valid(name) for name in names])


@dataclass(frozen=True)
class TextBlock(Block):
    """Lines of text, without their ends."""

    lines: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.lines)

    def rows(self) -> list[Row]:
        return [decode(line) for line in self.lines]

    def records(self) -> list[dict[str, Any]]:
        return [{LINE_COLUMN: row.text} for row in self.rows()]


@dataclass(frozen=True)
class JsonBlock(Block):
    """Lines of JSON, an object each."""

    lines: Sequence[bytes]
    column: str

    def __len__(self) -> int:
        return len(self.lines)

    def rows(self) -> list[Row]:
        return [self._row(line) for line in self.lines]

    def records(self) -> list[dict[str, Any]]:
        found = ((line, _parsed(line)) for line in self.lines)
        return [{self.column: decode(line).text} if record is None else record for line, record in found]

    def _row(self, line: bytes) -> Row:
        record = _parsed(line)
        if record is None:
            return Row(None, NOT_JSON)
        text = record.get(self.column)
        return Row(text, decode(line).problem) if isinstance(text, str) else Row(None, NO_TEXT)


@dataclass(frozen=True)
class CsvBlock(Block):
    """Records of a CSV file. A line that is not one stands alone, as bytes."""

    header: Sequence[str]
    values: Sequence[list[str] | bytes]
    column: str

    def __len__(self) -> int:
        return len(self.values)

    def rows(self) -> list[Row]:
        place = self.header.index(self.column)
        return [
            Row(None, NOT_CSV) if isinstance(value, bytes) else _from_escaped(value[place]) for value in self.values
        ]

    def records(self) -> list[dict[str, Any]]:
        return [
            {self.column: decode(value).text}
            if isinstance(value, bytes)
            else {name: _from_escaped(field).text for name, field in zip(self.header, value, strict=True)}
            for value in self.values
        ]


@dataclass(frozen=True)
class TableBlock(Block):
    """Rows of a Parquet file."""

    content: pa.Table
    column: str

    def __len__(self) -> int:
        return int(self.content.num_rows)

    def rows(self) -> list[Row]:
        column = self.content[self.column]
        if pa.types.is_dictionary(column.type):
            column = pc.cast(column, column.type.value_type)
        # Arrow does not check what it reads. As bytes it can be decoded with care.
        raw = pc.cast(column, pa.large_binary(), safe=False).to_pylist()
        return [Row(None, NO_TEXT) if value is None else decode(value) for value in raw]

    def records(self) -> list[dict[str, Any]]:
        texts = [row.text for row in self.rows()]
        rest = self.content.drop_columns([self.column])
        found = [{} for _ in texts] if not rest.num_columns else _pylist(rest)
        names = self.content.column_names
        merged = (record | {self.column: text} for record, text in zip(found, texts, strict=True))
        return [{name: record[name] for name in names} for record in merged]

    def table(self) -> pa.Table:
        return self.content


def decode(raw: bytes) -> Row:
    """Bytes as text. NUL bytes become spaces, as `latentmt translate` reads them."""
    problem = CUT if len(raw) > MAX_BYTES else None
    raw = raw[:MAX_BYTES].replace(b"\0", b" ")
    try:
        return Row(raw.decode(), problem)
    except UnicodeDecodeError:
        return Row(raw.decode("utf-8", "replace"), problem or NOT_UTF8)


def _parsed(line: bytes) -> dict[str, Any] | None:
    text = decode(line).text
    try:
        record = json.loads(text or "")
        json.dumps(record)  # what cannot be written must not be read
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _from_escaped(field: str) -> Row:
    """A field of a CSV file, which is read with bytes that are not UTF-8 as surrogates."""
    return Row(field) if field.isascii() else decode(field.encode("utf-8", "surrogateescape"))


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return valid(value)
    return json.dumps(value)


def _pylist(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table. Where a string is not UTF-8, bytes that cannot be read are replaced."""
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except UnicodeDecodeError:
        strings = [field.name for field in table.schema if pa.types.is_string(field.type)]
        for name in strings:
            clean = [decode(value).text if value is not None else None for value in _bytes(table[name])]
            table = table.set_column(table.column_names.index(name), name, pa.array(clean, pa.string()))
        rows = table.to_pylist()
    return rows


def _bytes(column: pa.ChunkedArray) -> list[bytes | None]:
    values: list[bytes | None] = pc.cast(column, pa.large_binary(), safe=False).to_pylist()
    return values


def valid(text: str | None) -> str | None:
    """The text without lone surrogates, which JSON may have and UTF-8 has not."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
