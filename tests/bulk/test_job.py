"""A whole job: every format in one folder, hostile rows, and what a user can get wrong."""

import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import bulk, files_of, finish, start

from latentmt.bulk.rows import NO_TEXT, NOT_CSV, NOT_JSON, NOT_UTF8
from latentmt.bulk.translating import FAILED, KILLED, too_long
from latentmt.translator import Translator

TEXTS = ["Guten Morgen!", "Wie geht es dir?", "", "Er kauft 12 Äpfel.\tJa?", "Siehe https://example.org/a?b=c."]
ENVIRONMENT = """
import sys
import latentmt.cli
from latentmt.translator import Translator
Translator.load("deen", "cpu").translate("Ja.")
print(sorted({name.partition(".")[0] for name in sys.modules} & {"ray", "pyarrow", "fsspec", "zstandard", "torch"}))
"""


def expected(text: str, error: str | None = None) -> tuple[str, str | None]:
    return Translator.load("deen", "cpu", 1).translate(text), error


@pytest.mark.usefixtures("deadly")
def test_every_format_in_one_folder_with_hostile_rows(tmp_path: Path) -> None:
    """The job ends, every row comes out once and in order, and only the hostile ones have an error."""
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    (folder / "a.txt.gz").write_bytes(
        gzip.compress("\n".join([*TEXTS, "schl\udce4cht", "x" * 10_001, "TOD"]).encode("utf-8", "surrogateescape"))
    )
    records = [json.dumps({"id": number, "text": text}) for number, text in enumerate(TEXTS)]
    (folder / "b.jsonl").write_text("\n".join([*records, "{", '{"text": 5}', '{"text": "FEHLER"}']))
    (folder / "c.csv").write_text('n,text\n1,"Guten, Tag!"\n2,"offen\n3,Danke!\n')
    pq.write_table(pa.table({"text": [*TEXTS, None], "n": range(6)}), folder / "d.parquet")
    wanted = [
        *(expected(text) for text in TEXTS),
        expected("schl\ufffdcht", NOT_UTF8),
        ("x" * 10_001, too_long(10_000)),
        ("TOD", KILLED),
        *(expected(text) for text in TEXTS),
        (None, NOT_JSON),
        (None, NO_TEXT),
        ("FEHLER", f"{FAILED}: ValueError: ein Fehler"),
        expected("Guten, Tag!"),
        (None, NOT_CSV),
        expected("Danke!"),
        *(expected(text) for text in TEXTS),
        (None, NO_TEXT),
    ]
    command = (folder, out, "--actors", "2", "--rows-per-part", "3")
    bulk(*command)
    parts = sorted(out.glob("part-*.jsonl"))
    rows = [json.loads(line) for part in parts for line in part.read_bytes().splitlines()]
    assert [(row["translation"], row["error"]) for row in rows] == wanted
    assert [row["row_id"] for row in rows] == list(range(len(wanted)))
    assert (rows[8]["id"], rows[16]["n"], rows[19]["n"]) == (0, "1", 0)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["complete"]
    assert {name: facts["sha256"] for name, facts in manifest["parts"].items()} == {
        part.name: hashlib.sha256(part.read_bytes()).hexdigest() for part in parts
    }
    before = files_of(out)
    assert "translating: " not in bulk(*command)  # nothing is left to do, so Ray does not start
    assert files_of(out) == before


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("ja\n", ["--to", "pdf"], "--to pdf: expected one of parquet, jsonl, text"),
        ("ja\n", ["--model", "xx"], "xx: neither a folder nor the name of a model"),
        ('{"de": "ja"}\n', [], "no row has text in text; name its column with --column"),
        ('{"text": "ja", "error": 1}\n', [], "has a column error, which the output adds"),
    ],
)
def test_what_a_user_can_get_wrong_is_one_line(
    tmp_path: Path, content: str, arguments: list[str], message: str
) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    code, said = finish(start(tmp_path / "a.jsonl", tmp_path / "out", *arguments))
    assert code == 1
    assert said.startswith("error: ")
    assert message in said
    assert said.count("\n") == 1


def test_translating_imports_nothing_that_only_a_cluster_needs() -> None:
    done = subprocess.run([sys.executable, "-c", ENVIRONMENT], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
