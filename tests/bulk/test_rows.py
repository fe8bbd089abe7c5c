"""Reading and writing of rows: every format, compressed or not, and everything that can be wrong with a row."""

import bz2
import gzip
import io
import json
import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from latentmt.bulk.reading import DAMAGE, Reader
from latentmt.bulk.rows import CUT, MAX_BYTES, NO_TEXT, NOT_CSV, NOT_JSON, NOT_UTF8, Block, Row
from latentmt.bulk.store import find_files
from latentmt.bulk.writing import TranslatedRow, encode
from latentmt.errors import UserError


def blocks(path: Path, rows: int = 100, column: str | None = None) -> list[Block]:
    (file,) = find_files(str(path), str(path.parent / "out"))
    return [block for block, _ in Reader(column, rows).blocks(file)]


def rows_of(path: Path, column: str | None = None) -> list[Row]:
    return [row for block in blocks(path, column=column) for row in block.rows()]


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        ("", bytes),
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        (".bz2", bz2.compress),
        (".zst", zstandard.ZstdCompressor().compress),
    ],
)
def test_lines_are_read_whatever_compresses_them(tmp_path: Path, suffix: str, compress: Any) -> None:
    path = written(tmp_path / f"a.txt{suffix}", compress("\ufeffeins\r\nzwei\n\nvier".encode()))
    assert [row.text for row in rows_of(path)] == ["eins", "zwei", "", "vier"]


def test_a_text_that_is_not_utf8_is_kept_as_well_as_can_be(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", b"gut\nschl\xe4cht\nNUL\0hier\n")
    assert rows_of(path) == [Row("gut"), Row("schl\ufffdcht", NOT_UTF8), Row("NUL hier")]


def test_a_line_without_end_is_cut_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", b"x" * (2 * MAX_BYTES + 5) + b"\n" + b"y" * MAX_BYTES + b"\nkurz\n")
    long, exact, short = rows_of(path)
    assert (len(long.text or ""), long.problem) == (MAX_BYTES, CUT)
    assert (len(exact.text or ""), exact.problem) == (MAX_BYTES, None)
    assert short == Row("kurz")


def test_json_lines_keep_their_other_keys_and_bad_ones_their_text(tmp_path: Path) -> None:
    lines = ['{"id": 1, "de": "ja"}', "[1]", "{", '{"de": 3}', '{"de": "\\ud800"}', '{"de": ' + "[" * 10**5, "{}"]
    path = written(tmp_path / "a.jsonl", "\n".join(lines).encode())
    (block,) = blocks(path, column="de")
    assert block.rows() == [
        Row("ja"),
        *[Row(None, NOT_JSON)] * 2,
        Row(None, NO_TEXT),
        Row("\ud800"),
        Row(None, NOT_JSON),
        Row(None, NO_TEXT),
    ]
    out = encode(block, 7, [TranslatedRow(row.text, row.problem) for row in block.rows()], "jsonl")
    records = [json.loads(line) for line in out.splitlines()]
    assert records[0] == {"row_id": 7, "id": 1, "de": "ja", "translation": "ja", "error": None}
    assert records[1] == {"row_id": 8, "de": "[1]", "translation": None, "error": NOT_JSON}
    assert records[4]["translation"] == "\ud800"
    assert [record["row_id"] for record in records] == list(range(7, 14))


def test_a_quote_that_is_never_closed_costs_one_csv_record(tmp_path: Path) -> None:
    content = 'id,text\n1,"a, ""b""\nc"\n2,"offen\n3,gut\n4\n\n5,ende\n'
    (block,) = blocks(written(tmp_path / "a.csv", content.encode()))
    assert block.rows() == [Row('a, "b"\nc'), Row(None, NOT_CSV), Row("gut"), *[Row(None, NOT_CSV)] * 2, Row("ende")]
    assert block.records()[1] == {"text": '2,"offen'}
    assert block.records()[-1] == {"id": "5", "text": "ende"}


def test_tabs_separate_the_fields_of_a_tsv_file(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", b"id\tde\n1\teins, zwei\n2\tschl\xe4cht\n")
    assert rows_of(path, "de") == [Row("eins, zwei"), Row("schl\ufffdcht", NOT_UTF8)]


def parquet(path: Path, table: pa.Table, **options: Any) -> Path:
    pq.write_table(table, path, **options)
    return path


def test_parquet_keeps_types_and_row_groups_do_not_matter(tmp_path: Path) -> None:
    table = pa.table({"id": pa.array(range(10), pa.int8()), "text": [str(i) for i in range(9)] + [None]})
    whole = blocks(parquet(tmp_path / "a.parquet", table), rows=4)
    grouped = blocks(parquet(tmp_path / "b.parquet", table, row_group_size=3), rows=4)
    assert [len(block) for block in whole] == [len(block) for block in grouped] == [4, 4, 2]
    assert [block.table() for block in whole] == [block.table() for block in grouped]
    rows = whole[2].rows()
    assert rows == [Row("8"), Row(None, NO_TEXT)]
    out = encode(whole[2], 8, [TranslatedRow("acht"), TranslatedRow(None, NO_TEXT)], "parquet")
    assert pq.read_table(io.BytesIO(out)).to_pydict() == {
        "row_id": [8, 9],
        "id": [8, 9],
        "text": ["8", None],
        "translation": ["acht", None],
        "error": [None, NO_TEXT],
    }
    assert pq.read_schema(io.BytesIO(out)).field("id").type == pa.int8()


def test_parquet_may_have_dictionaries_bytes_and_strings_that_are_none(tmp_path: Path) -> None:
    raw = pa.array([b"gut", b"schl\xe4cht"])
    table = pa.table(
        {"text": raw.dictionary_encode(), "note": pa.Array.from_buffers(pa.string(), 2, raw.buffers()), "blob": raw}
    )
    (block,) = blocks(parquet(tmp_path / "a.parquet", table))
    assert block.rows() == [Row("gut"), Row("schl\ufffdcht", NOT_UTF8)]
    line = encode(block, 0, [TranslatedRow(row.text) for row in block.rows()], "jsonl").splitlines()[1]
    record = json.loads(line)
    assert record["text"] == record["note"] == record["blob"] == "schl\ufffdcht"


def test_a_part_as_text_has_one_line_a_row(tmp_path: Path) -> None:
    (block,) = blocks(written(tmp_path / "a.txt", b"a\nb\nc\n"))
    rows = [TranslatedRow("eins\nzwei"), TranslatedRow(None, NO_TEXT), TranslatedRow("\ud800")]
    assert encode(block, 0, rows, "text") == b"eins zwei\n\n?\n"


def test_records_without_types_become_columns_of_text(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", b'{"text": "a", "n": 1}\n{"text": "\\ud800", "m": [true]}\n')
    (block,) = blocks(path)
    assert block.table().to_pydict() == {"text": ["a", "\ufffd"], "n": ["1", None], "m": [None, "[true]"]}


def test_a_block_ends_after_so_many_rows_or_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.txt", b"".join(b"%d\n" % i for i in range(10)) + b"x" * 100 + b"\ny\n")
    assert [len(block) for block in blocks(path, rows=4)] == [4, 4, 4]
    monkeypatch.setattr("latentmt.bulk.reading._MAX_BLOCK", 50)
    assert [len(block) for block in blocks(path, rows=4)] == [4, 4, 3, 1]


def test_rows_before_the_damage_of_a_file_are_read(tmp_path: Path) -> None:
    content = gzip.compress(b"".join(b"Zeile %d\n" % (i * i * 7919) for i in range(200_000)))
    path = written(tmp_path / "a.txt.gz", content[: len(content) // 2])
    (file,) = find_files(str(path), str(tmp_path / "out"))
    seen = []
    with pytest.raises(DAMAGE):  # noqa: PT012 (the rows before it are what is tested)
        for block, _ in Reader(None, 1000).blocks(file):
            seen += block.rows()
    assert len(seen) > 50_000
    assert seen[:2] == [Row("Zeile 0"), Row("Zeile 7919")]


@pytest.mark.parametrize(("name", "content"), [("a.csv", b"id,de\n1,ja\n"), ("a.tsv", b"id\tde\n")])
def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(UserError, match=r"no column text; name one with --column: id, de"):
        blocks(written(tmp_path / name, content))


def test_a_column_of_numbers_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="column text has int64, not text"):
        blocks(parquet(tmp_path / "a.parquet", pa.table({"text": [1]})))


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown format \.pdf"):
        blocks(written(tmp_path / "a.pdf", b""))
