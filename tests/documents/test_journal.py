"""Journals: what is appended survives, what is torn is cut off, what is another job's is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from latentmt.documents.journal import Journal
from latentmt.errors import UserError

JOB = {"input": "a", "options": {"steps": 1}}


def written(path: Path, entries: int = 5) -> bytes:
    with Journal(path, JOB) as journal:
        for number in range(entries):
            journal.append({"number": number, "text": "ä\n" * number})
    return path.read_bytes()


def test_a_journal_that_ends_anywhere_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    content = written(path)
    for size in random.Random(1).sample(range(len(content) + 1), 60):
        path.write_bytes(content[:size])
        with Journal(path, JOB) as journal:
            assert len(journal) == max(0, content[:size].count(b"\n") - 1)
            assert [journal[number]["number"] for number in range(len(journal))] == list(range(len(journal)))
            for number in range(len(journal), 5):
                journal.append({"number": number, "text": "ä\n" * number})
        assert path.read_bytes() == content


def test_damage_in_the_middle_ends_it_there(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    lines = written(path).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"\0" * 20 + b"\n", *lines[4:]]))
    with Journal(path, JOB) as journal:
        assert len(journal) == 2


def test_the_journal_of_another_job_is_kept_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    content = written(path)
    other = JOB | {"options": {"steps": 2}}
    with pytest.raises(UserError, match=r"work of another job.*'steps': 1.*now.*'steps': 2"):
        Journal(path, other)
    assert path.read_bytes() == content
    with Journal(path, other, replace=True) as journal:
        assert len(journal) == 0
    path.write_bytes(b"a letter of mine\n")
    with pytest.raises(UserError, match="another job"):
        Journal(path, JOB)
    assert path.read_bytes() == b"a letter of mine\n"


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal", JOB) as journal:
        with pytest.raises(UserError, match="another process"):
            Journal(tmp_path / "journal", JOB)
        journal.remove()
    assert list(tmp_path.iterdir()) == []
