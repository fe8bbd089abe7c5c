"""Parts of the output: the input's columns with `row_id`, `translation` and `error`, or lines of text alone."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from latentmt.bulk.rows import Block, valid

OutputFormat = Literal["parquet", "jsonl", "text"]
EXTENSIONS: dict[OutputFormat, str] = {"parquet": "parquet", "jsonl": "jsonl", "text": "txt"}
ROW_ID, TRANSLATION, ERROR = "row_id", "translation", "error"
COLUMNS = (ROW_ID, TRANSLATION, ERROR)


@dataclass(frozen=True)
class TranslatedRow:
    """A translation, or the source where there is none, and what went wrong."""

    text: str | None
    error: str | None = None


def encode(block: Block, first: int, rows: Sequence[TranslatedRow], to: OutputFormat) -> bytes:
    """The content of a part. `first` is the number of its first row in the whole input."""
    if to == "text":
        return "".join(f"{_one_line(row.text)}\n" for row in rows).encode("utf-8", "replace")
    if to == "jsonl":
        return b"".join(
            _json({ROW_ID: first + number} | record | {TRANSLATION: row.text, ERROR: row.error})
            for number, (record, row) in enumerate(zip(block.records(), rows, strict=True))
        )
    table = block.table()
    table = table.drop_columns([name for name in COLUMNS if name in table.column_names])
    table = table.add_column(0, ROW_ID, pa.array(range(first, first + len(rows)), pa.int64()))
    for name, values in ((TRANSLATION, [row.text for row in rows]), (ERROR, [row.error for row in rows])):
        table = table.append_column(name, pa.array(map(valid, values), pa.large_string()))
    content = io.BytesIO()
    pq.write_table(table, content, compression="zstd")
    return content.getvalue()


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split("\n"))


def _json(record: dict[str, Any]) -> bytes:
    try:
        return (json.dumps(record, ensure_ascii=False, default=_plain) + "\n").encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can only escape
        return (json.dumps(record, default=_plain) + "\n").encode()


def _plain(value: Any) -> str:
    """Times, decimals and bytes, which Parquet has and JSON has not."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
