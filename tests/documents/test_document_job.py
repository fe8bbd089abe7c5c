"""`latentmt document`: files and folders, what is refused, and kills at any moment."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from lively import save_lively_model

from latentmt.documents import job as jobs
from latentmt.documents.bilingual import bilingual_page
from latentmt.documents.job import Job, Outputs, translate_file
from latentmt.errors import UserError
from latentmt.results import Translation
from latentmt.translator import Translator

GERMAN = (Path(__file__).parent.parent / "fixtures" / "tatoeba" / "train.de").read_text().splitlines()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_lively_model(tmp_path_factory.mktemp("model"))


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "latentmt", "document", *map(str, arguments)]


def run(*arguments: object, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    def before() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False, preexec_fn=before)


def refused(*arguments: object, limit: int | None = None) -> str:
    result = run(*arguments, limit=limit)
    assert result.returncode == 1, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr.strip().splitlines()[-1].removeprefix("error: ")


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_file_is_translated_beside_itself_with_all_it_may_have(model: Path, tmp_path: Path) -> None:
    source = tmp_path / "report.de.txt"
    source.write_bytes(b"Ein <kleiner> Satz.\r\n\r\n  Noch einer.\r\nEin <kleiner> Satz.")
    result = run(source, "--model", model, "--bilingual", "--json", tmp_path / "facts.jsonl", "--steps", 2)
    assert result.returncode == 0, result.stderr
    translator = Translator.load(model)
    first, second = translator.translate(["Ein <kleiner> Satz.", "Noch einer."], steps=2)
    assert (tmp_path / "report.en.txt").read_bytes() == f"{first}\r\n\r\n  {second}\r\n{first}".encode()
    facts = [json.loads(line) for line in (tmp_path / "facts.jsonl").read_text().splitlines()]
    assert [fact["translation"] for fact in facts] == [first, second, first]
    assert facts[0]["source"] == "Ein <kleiner> Satz."
    assert {"text", "confidence"} == facts[0]["tokens"][0].keys()
    assert {"source", "target", "weight"} == facts[0]["alignment"][0].keys()
    page = (tmp_path / "report.en.txt.bilingual.html").read_text()
    assert page.count("Ein &lt;kleiner&gt; Satz.") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "facts.jsonl",
        "report.de.txt",
        "report.en.txt",
        "report.en.txt.bilingual.html",
    ]
    assert "exists; --replace" in refused(source, "--model", model)
    assert run(source, "--model", model, "--replace").returncode == 0


def test_pages_escape_everything() -> None:
    page = bilingual_page("<a>", ["<script>&"], [Translation('"<b>')], ("de", "en")).decode()
    assert "<script>" not in page
    assert "<b>" not in page
    assert "<h1>&lt;a&gt;</h1>" in page


def test_mistakes_are_one_line_and_the_input_stays(model: Path, tmp_path: Path) -> None:
    source, other = tmp_path / "a.txt", tmp_path / "a.xyz"
    source.write_text("Ein kleiner Satz.\n" * 3)
    other.write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.txt").write_bytes(b"gut\n\xff\xfe\n")
    (tmp_path / "bad.tsv").write_text("a\n")
    use = ("--model", model)
    assert refused(tmp_path / "none.txt", *use) == f"{tmp_path}/none.txt: no such file"
    assert "documents of this type are not translated" in refused(other, *use)
    assert "has no documents" in refused(tmp_path / "empty", *use)
    assert "the input itself" in refused(source, "-o", source, *use, "--replace")
    assert "the output has the type of the input" in refused(source, "-o", tmp_path / "a.md", *use)
    assert "inside the other" in refused(tmp_path, "-o", tmp_path / "out", *use)
    assert "line 2: not UTF-8" in refused(tmp_path / "bad.txt", *use)
    assert "line 1: expected a term" in refused(source, *use, "--glossary", tmp_path / "bad.tsv")
    assert "only for a single document" in refused(tmp_path, *use, "--json", tmp_path / "j")
    big = tmp_path / "big.txt"
    big.write_text("\n".join(GERMAN[:40]))
    assert "File too large" in refused(big, *use, limit=1500)
    assert source.read_text() == "Ein kleiner Satz.\n" * 3
    assert run(big, *use).returncode == 0  # what the full disk left is gone on with
    assert not list(tmp_path.glob(".*"))


def test_a_folder_keeps_its_tree_and_a_bad_file_stops_no_other(model: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    (source / "sub").mkdir(parents=True)
    (source / ".git").mkdir()
    for name in ("a.txt", "sub/b.txt", ".git/c.txt"):
        (source / name).write_text(f"Ein kleiner Satz in {name}.")
    (source / "bad.txt").write_bytes(b"\xff\xfe\xff")
    (source / "image.png").write_bytes(b"\x89PNG")
    (source / "link.txt").symlink_to(source / "a.txt")
    result = run(source, "-o", out, "--model", model)
    assert result.returncode == 1
    assert result.stderr.count("WARNING") == 1
    assert "1 other files left out" in result.stderr
    assert tree(out).keys() - {".latentmt-partial"} == {"a.txt", "sub/b.txt"}
    (source / "bad.txt").write_text("Jetzt gut.")
    before = (out / "a.txt").stat().st_mtime_ns
    assert run(source, "-o", out, "--model", model, "--copy-others").returncode == 0
    assert tree(out).keys() == {"a.txt", "bad.txt", "image.png", "sub/b.txt"}
    assert (out / "a.txt").stat().st_mtime_ns == before  # done before
    assert "not empty" in refused(source, "-o", out, "--model", model)


class Marked:
    """A document with inline elements: it writes the alignment of each text."""

    inline = True

    def __init__(self, content: bytes) -> None:
        self.texts: Sequence[str] = content.decode().splitlines()

    def render(self, translations: Sequence[Translation]) -> bytes:
        return "\n".join(f"{item.text} {item.alignment}" for item in translations).encode()


class CancelledError(Exception):
    pass


def test_alignments_come_back_from_the_journal_as_they_were(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "read_document", lambda name, content, languages: Marked(content))
    monkeypatch.setattr(jobs, "_BATCH_TEXTS", 3)
    source = tmp_path / "a.txt"
    texts = [*GERMAN[:10], *GERMAN[:4]]
    source.write_text("\n".join(texts))
    translator = Translator.load(model)
    job = Job(translator, translator.options())
    wanted = Marked(source.read_bytes()).render(translator.translations(texts, alignment=True))
    seen: list[tuple[int, int]] = []

    def stop_at_six(done: int, total: int) -> None:
        seen.append((done, total))
        if done == 6:
            raise CancelledError

    with pytest.raises(CancelledError):
        translate_file(job, source, Outputs(tmp_path / "out.txt"), progress=stop_at_six)
    assert seen == [(0, 10), (3, 10), (6, 10)]
    assert not (tmp_path / "out.txt").exists()
    seen.clear()
    assert translate_file(job, source, Outputs(tmp_path / "out.txt"), progress=lambda *at: seen.append(at)) == 14
    assert seen[0] == (6, 10)
    assert (tmp_path / "out.txt").read_bytes() == wanted
    other = Job(translator, translator.options(steps=3))
    with pytest.raises(UserError, match="exists"):
        translate_file(other, source, Outputs(tmp_path / "out.txt"))


def _killed(arguments: Sequence[object], moment: Callable[[], bool]) -> bool:
    """Run a command and kill it at a moment. Whether the kill came before its end."""
    process = subprocess.Popen(command(*arguments), stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if moment():
            process.kill()
            process.wait()
            return True
        time.sleep(0.002)
    return False


def _kills(model: Path, tmp_path: Path, rounds: int, kills: int, lines: int) -> None:
    source = tmp_path / "in"
    (source / "sub").mkdir(parents=True)
    for number, name in enumerate(("a.txt", "sub/b.txt")):
        (source / name).write_text("\n".join(GERMAN[number * lines : (number + 1) * lines]))
    began = time.monotonic()
    assert run(source, "-o", tmp_path / "undisturbed", "--model", model).returncode == 0
    longest, wanted = time.monotonic() - began, tree(tmp_path / "undisturbed")
    before, chance = tree(source), random.Random(rounds)
    for number in range(rounds):
        out = tmp_path / f"out{number}"
        arguments = (source, "-o", out, "--model", model)
        assert _killed(arguments, lambda out=out: any(out.rglob(".*.latentmt-partial")))  # as the first text comes
        for _ in range(kills - 1):
            end = time.monotonic() + chance.uniform(0.2, longest)
            _killed(arguments, lambda end=end: time.monotonic() > end)
        last = run(*arguments)
        assert last.returncode == 0 or "not empty" in last.stderr, last.stderr  # it had ended before a kill
        assert tree(out) == wanted
    assert tree(source) == before


def test_killed_at_random_moments_it_ends_with_the_same_bytes(model: Path, tmp_path: Path) -> None:
    _kills(model, tmp_path, rounds=2, kills=3, lines=400)


@pytest.mark.long
def test_killed_at_many_random_moments_it_ends_with_the_same_bytes(model: Path, tmp_path: Path) -> None:
    _kills(model, tmp_path, rounds=15, kills=5, lines=900)


def test_a_kill_between_output_and_end_leaves_a_command_that_ends(model: Path, tmp_path: Path) -> None:
    """The output is there and the journal too: the same command goes on, another one is refused."""
    source, out = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text("\n".join(GERMAN[:5]))
    code = (
        "import os, sys; from latentmt.documents.journal import Journal; from latentmt.cli import main; "
        "Journal.remove = lambda self: os.kill(os.getpid(), 9); main()"
    )
    arguments = ["document", str(source), "-o", str(out), "--model", str(model)]
    assert subprocess.run([sys.executable, "-c", code, *arguments], check=False, capture_output=True).returncode == -9
    wanted = hashlib.sha256(out.read_bytes()).hexdigest()
    assert "exists" in refused(*arguments[1:], "--steps", "3")
    assert run(*arguments[1:]).returncode == 0
    assert hashlib.sha256(out.read_bytes()).hexdigest() == wanted
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt"]


def test_neither_torch_nor_matplotlib_nor_a_parser_is_imported_for_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Guten Morgen!")
    code = (
        "import sys; from latentmt.cli import app; app(sys.argv[1:], standalone_mode=False); "
        "print(sorted({'torch', 'matplotlib', 'lxml', 'selectolax', 'ray'} & set(sys.modules)))"
    )
    arguments = ["document", str(tmp_path / "a.txt"), "--device", "cpu"]
    result = subprocess.run([sys.executable, "-c", code, *arguments], check=False, capture_output=True, text=True)
    assert result.stdout == "[]\n", result.stderr
