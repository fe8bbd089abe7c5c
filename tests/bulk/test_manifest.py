"""The manifest: what counts as done, and which folders are refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from latentmt.bulk.manifest import FILE, Manifest, PartFacts
from latentmt.bulk.store import Folder, StoredFile
from latentmt.errors import UserError

INPUT = [StoredFile("a.txt", "file:///a.txt", 10, "1")]
FACTS = PartFacts(rows=2, errors={"no text": 1}, bytes=4, sha256="0")


def manifest(folder: Path, to: str = "text", files: list[StoredFile] = INPUT) -> Manifest:
    found = Manifest(Folder(str(folder)), {"to": to}, files)
    found.resume()
    return found


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A folder with one part that is done."""
    first = manifest(tmp_path)
    (tmp_path / "part-1").write_bytes(b"1234")
    first.add("part-1", FACTS)
    first.save()
    return tmp_path


def test_a_job_goes_on_with_what_is_done(begun: Path) -> None:
    again = manifest(begun)
    assert (again.parts, again.rows, again.errors) == ({"part-1": FACTS}, 2, {"no text": 1})


def test_a_part_that_is_missing_or_truncated_is_not_done(begun: Path) -> None:
    (begun / "part-1").write_bytes(b"123")
    assert not manifest(begun).parts
    (begun / "part-1").unlink()
    assert not manifest(begun).parts


def test_the_order_in_which_parts_are_done_does_not_matter(begun: Path) -> None:
    contents = []
    for order in (("part-1", "part-2"), ("part-2", "part-1")):
        new = Manifest(Folder(str(begun)), {"to": "text"}, INPUT)
        for name in order:
            new.add(name, FACTS)
        new.save()
        contents.append((begun / FILE).read_bytes())
    assert contents[0] == contents[1]


def test_another_job_is_refused(begun: Path) -> None:
    with pytest.raises(UserError, match=r"other settings \(to: text, now jsonl\)"):
        manifest(begun, to="jsonl")
    with pytest.raises(UserError, match=r"a\.txt has changed since the job began"):
        manifest(begun, files=[replace(INPUT[0], version="2")])
    with pytest.raises(UserError, match="began with 1 files, now there are 2"):
        manifest(begun, files=INPUT * 2)


def test_a_job_that_has_done_nothing_yet_may_be_changed(tmp_path: Path) -> None:
    manifest(tmp_path).save()
    assert not manifest(tmp_path, to="jsonl").parts
    (tmp_path / "part-1").write_bytes(b"1234")
    with pytest.raises(UserError, match="other settings"):
        manifest(tmp_path, to="jsonl")


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.doc").write_text("x")
    with pytest.raises(UserError, match="not empty, and not the output of a job"):
        manifest(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 99}', '{"format": 1}'])
def test_a_damaged_manifest_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(UserError, match=FILE):
        manifest(tmp_path)


def test_saving_takes_a_small_share_of_the_time(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many parts are done at once, the manifest is not written for each of them."""
    found, saves = manifest(begun), []
    monkeypatch.setattr(found, "save", lambda: saves.append(len(found.parts)))
    found._saved = float("inf")
    for number in range(100):
        found.add(f"part-{number}", FACTS)
    assert saves == []
    found._saved = float("-inf")
    found.add("part-100", FACTS)
    assert saves == [101]


def test_nothing_in_the_manifest_depends_on_time(begun: Path) -> None:
    content = json.loads((begun / FILE).read_text())
    assert content["inputs"] == [
        {"name": "a.txt", "bytes": 10, "version": "1", "rows": None, "parts": None, "damage": None}
    ]
    assert set(content) == {"format", "settings", "inputs", "complete", "parts"}
