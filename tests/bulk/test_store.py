"""Folders on a disk and elsewhere: what is listed, and that files appear whole."""

from pathlib import Path

import fsspec
import pytest

from latentmt.bulk.store import Folder, find_files
from latentmt.errors import UserError


def test_a_folder_is_listed_by_name_without_hidden_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a/c.jsonl.gz", ".hidden.txt", "_SUCCESS", "a/_temporary/d.txt"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text("x\n")
    files = find_files(str(tmp_path / "in"), str(tmp_path / "out"))
    assert [(file.name, file.suffix, file.size) for file in files] == [
        ("a/c.jsonl.gz", ".jsonl", 2),
        ("b.txt", ".txt", 2),
    ]


def test_a_changed_file_has_another_version(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    versions = []
    for text in ("alt", "neu"):
        path.write_text(text)
        versions += [file.version for file in find_files(str(path), str(tmp_path / "out"))]
    assert versions[0] != versions[1]


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        find_files(str(tmp_path / "missing"), str(tmp_path / "out"))
    with pytest.raises(UserError, match="nowhere"):
        find_files("nowhere://bucket/a.txt", str(tmp_path / "out"))
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UserError, match="lies in the input"):
        find_files(str(tmp_path), str(tmp_path / "out"))


@pytest.mark.parametrize("remote", [False, True])
def test_files_are_put_and_listed(tmp_path: Path, remote: bool) -> None:
    url = f"memory://{tmp_path}/out" if remote else str(tmp_path / "out")
    folder = Folder(url)
    folder.make()
    assert folder.sizes() == {}
    assert folder.read("a") is None
    folder.put("a", b"eins")
    folder.put("a", b"zwei!")
    folder.put("b", b"")
    assert (folder.read("a"), folder.sizes()) == (b"zwei!", {"a": 5, "b": 0})


def test_what_a_killed_writer_left_is_removed_and_not_read(tmp_path: Path) -> None:
    (tmp_path / ".part-1.jsonl12-ab.writing").write_bytes(b"half")
    folder = Folder(str(tmp_path))
    folder.put("part-1.jsonl", b"whole")
    folder.make()
    assert [path.name for path in tmp_path.iterdir()] == ["part-1.jsonl"]


def test_input_may_lie_in_another_file_system(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe_file(f"{tmp_path}/in/a.txt", b"eins\n")
    (file,) = find_files(f"memory://{tmp_path}/in", f"memory://{tmp_path}/out")
    with file.open() as (content, _):
        assert (file.name, content.read()) == ("a.txt", b"eins\n")
