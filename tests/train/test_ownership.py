"""A work folder has one owner, and nothing in it that latentmt did not write is removed or overwritten."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from latentmt.data.corpus import Corpus
from latentmt.data.numbers import Sizes, write_numbers
from latentmt.data.tokenizer import _interruptible
from latentmt.errors import UNFINISHED, Stopped, UserError
from latentmt.files import remove_stale, temporary_name, write_atomically
from latentmt.lock import LOCK, lock
from latentmt.pipeline import distill_corpus, prepare_corpus, train_stage
from latentmt.recipe import load_recipe
from latentmt.train.ranks import Ranks
from latentmt.train.stop import StopRequest, stop_on_signal

MINE = "A year's work."


@pytest.fixture
def work(numbers: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(numbers, tmp_path / "work"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def mine(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MINE)
    return path


def train(work: Path, stage: str, *overrides: str, replace: bool = False) -> bool:
    recipe = load_recipe(work, overrides)
    return train_stage(recipe, work, stage, ranks=Ranks(), stop=StopRequest(), replace=replace)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("name", ["teacher/thesis.tex", "teacher/format.json", "teacher"])
def test_a_foreign_folder_in_the_place_of_a_model_is_refused_before_training(
    work: Path, name: str, replace: bool
) -> None:
    path = mine(work / name)
    before = files(work)
    if name == "teacher/format.json" and replace:  # what is unreadable is moved aside, and not removed later
        assert train(work, "teacher", replace=True)
        assert (work / "replaced" / "1" / name).read_text() == MINE
        return
    with pytest.raises(UserError, match=r"teacher"):
        train(work, "teacher", replace=replace)
    assert path.read_text() == MINE
    assert files(work) == before


def test_a_model_with_something_else_in_its_folder_is_moved_and_not_removed(work: Path) -> None:
    train(work, "teacher")
    mine(work / "teacher" / "thesis.tex")
    mine(work / "training" / "teacher" / "notes")
    assert train(work, "teacher", "teacher.train.seed=2", replace=True)
    assert (work / "replaced" / "1" / "teacher" / "thesis.tex").read_text() == MINE
    assert (work / "replaced" / "1" / "training" / "teacher" / "notes").read_text() == MINE
    assert not (work / "replaced" / "1" / "teacher" / "format.json").exists()  # that of the model is removed


def test_a_foreign_manifest_is_refused_and_foreign_data_stay(work: Path) -> None:
    kept = [mine(work / "corpus" / name) for name in ("data-2020/a.txt", "data-0123abcd/a.txt", "notes")]
    recipe = load_recipe(work, ["data.row_width=65"])
    prepare_corpus(recipe, work, work)
    assert all(path.read_text() == MINE for path in kept)
    mine(work / "corpus" / "manifest.json")
    before = files(work)
    with pytest.raises(UserError, match=r"manifest\.json: is not of a corpus, so it is not replaced"):
        prepare_corpus(recipe, work, work)
    assert files(work) == before


def test_foreign_files_among_shards_are_refused(work: Path) -> None:
    train(work, "teacher")
    mine(work / "distilled" / "parts" / "thesis.tex")
    before = files(work)
    with pytest.raises(UserError, match=r"parts: holds thesis\.tex"):
        distill_corpus(load_recipe(work), work, Ranks())
    assert files(work) == before


def test_the_numbers_corpus_does_not_replace_other_text(tmp_path: Path) -> None:
    sizes = Sizes(train=5, dev=2, test=2)
    mine(tmp_path / "train.de")
    with pytest.raises(UserError, match=r"train\.de: exists with other content"):
        write_numbers(tmp_path, sizes, seed=1)
    assert files(tmp_path) == {"train.de": MINE.encode()}
    (tmp_path / "train.de").unlink()
    write_numbers(tmp_path, sizes, seed=1)
    write_numbers(tmp_path, sizes, seed=1)


def test_the_second_owner_is_told_who_the_first_is(tmp_path: Path) -> None:
    with lock(tmp_path):
        with pytest.raises(
            UserError, match=rf"in use by process {os.getpid()} on {socket.gethostname()} since 2.* UTC"
        ):
            prepare_corpus(load_recipe(Path("recipes/numbers")), tmp_path, tmp_path)
        assert set(files(tmp_path)) == {LOCK}
    assert not files(tmp_path)


def test_two_runs_in_one_folder(work: Path) -> None:
    """The second says who holds it, and changes nothing. When the first is killed, the third goes on."""
    command = [sys.executable, "-m", "latentmt", "run", str(work), "--data", str(work), "--work", str(work)]
    command += ["--set", "teacher.train.steps=100000", "--set", "teacher.train.report_every=1"]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert first.stderr
    assert any("accuracy" in line for line in first.stderr)
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert f"error: {work}: in use by process {first.pid} on {socket.gethostname()} since" in second.stderr
    first.kill()
    first.wait()
    first.stderr.close()
    third = subprocess.run([*command, "--max-minutes", "0"], capture_output=True, text=True, check=False)
    assert third.returncode == UNFINISHED, third.stderr
    assert f"was left by process {first.pid}" in third.stderr
    assert not (work / LOCK).exists()


def test_a_lock_that_another_machine_left_is_not_taken_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    owner = {"pid": 1, "host": "elsewhere", "started": "2020-01-01 00:00:00 UTC", "command": "latentmt run"}
    (tmp_path / LOCK).write_text(json.dumps(owner))
    with (
        pytest.raises(UserError, match=rf"process 1 on elsewhere .*; if that process is gone, remove .*{LOCK}"),
        lock(tmp_path),
    ):
        raise AssertionError
    for left in ("", "{", "[]", json.dumps(owner | {"host": socket.gethostname(), "pid": 1 << 30})):
        (tmp_path / LOCK).write_text(left)
        with lock(tmp_path):
            assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    assert "was left by process" in capfd.readouterr().err


def test_what_killed_writers_left_is_removed_and_what_others_write_stays(tmp_path: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    own = temporary_name(tmp_path / "latent")
    stale = [own.name.replace(f"-{os.getpid()}-", f"-{dead.pid}-"), own.name]
    for name in (*stale, ".latent.writing", ".latent.x-1-2.old"):
        (tmp_path / name).mkdir()
    old = temporary_name(tmp_path / "teacher", "old").name.replace(f"-{os.getpid()}-", f"-{dead.pid}-")
    mine(tmp_path / old / "file")
    remove_stale(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [own.name, ".latent.writing", ".latent.x-1-2.old", "teacher"]
    )
    assert (tmp_path / "teacher" / "file").read_text() == MINE  # killed between two renames: it is back


def test_two_writers_of_one_file_do_not_share_a_temporary_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is interrupted after writing; the second writes all of its own; each is whole."""
    replace = os.replace

    def interrupted(source: Path, target: Path) -> None:
        monkeypatch.setattr("latentmt.files.os.replace", replace)
        write_atomically(target, "second")
        assert Path(source).read_text() == "first"
        replace(source, target)

    monkeypatch.setattr("latentmt.files.os.replace", interrupted)
    write_atomically(tmp_path / "file", "first")
    assert files(tmp_path) == {"file": b"first"}


def test_a_file_and_its_folder_are_synced_around_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power cut may leave an empty file, or none."""
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        events.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        fsync(descriptor)

    def replaced(source: Path, target: Path) -> None:
        events.append("rename")
        replace(source, target)

    monkeypatch.setattr("latentmt.files.os.fsync", synced)
    monkeypatch.setattr("latentmt.files.os.replace", replaced)
    write_atomically(tmp_path / "file", "content")
    assert events == ["file", "rename", "folder"]


def test_a_distillation_stops_between_shards_and_goes_on(work: Path) -> None:
    train(work, "teacher")
    recipe, asked = load_recipe(work, ["distill.batch_tokens=500"]), iter([False] * 3 + [True] * 99)
    stop = StopRequest()
    stop.requested = lambda: next(asked)  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        distill_corpus(recipe, work, Ranks(), stop=stop)
    assert len(list((work / "distilled" / "parts").iterdir())) == 3
    distilled = distill_corpus(recipe, work, Ranks())
    assert distilled.manifest.splits["train"].pairs == Corpus.load(work / "corpus").manifest.splits["train"].pairs


@pytest.mark.parametrize("kills", [2, pytest.param(33, marks=pytest.mark.long)])
def test_a_distillation_killed_at_random_moments_gives_the_same_corpus(work: Path, tmp_path: Path, kills: int) -> None:
    """SIGKILL at random moments: no shard is lost or damaged, and the corpus is that of an uninterrupted run."""
    train(work, "teacher")
    whole = Path(shutil.copytree(work, tmp_path / "whole"))
    settings = ["distill.batch_tokens=1"]  # a shard for each sentence
    expected = distill_corpus(load_recipe(whole, settings), whole, Ranks()).manifest
    command = [sys.executable, "-m", "latentmt", "distill", str(work), "--work", str(work), "--set", *settings]
    rng, shards, killed, parts = random.Random(kills), {}, 0, work / "distilled" / "parts"
    for _ in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        began = len(list(parts.glob("*.npz"))) if parts.exists() else 0
        while process.poll() is None and len(list(parts.glob("*.npz"))) <= began + 1:  # it has begun
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.03))
        process.kill()
        killed += process.wait() == -signal.SIGKILL
        present = {path.name: path.read_bytes() for path in parts.glob("*.npz")} if parts.exists() else shards
        assert all(present[name] == content for name, content in shards.items())
        shards = present
    assert killed == kills  # before the end
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    distilled = Corpus.load(work / "distilled")
    distilled.verify()
    assert distilled.manifest.files == expected.files
    assert sorted(path.name for path in distilled.folder.iterdir()) == sorted(
        ["manifest.json", distilled.manifest.data]
    )


@pytest.mark.parametrize(
    ("arguments", "begun"), [(["prepare", "--data"], LOCK), (["distill"], "distilled/parts/00000.npz")]
)
def test_sigterm_stops_a_long_stage_and_the_exit_code_says_so(work: Path, arguments: list[str], begun: str) -> None:
    if arguments == ["distill"]:
        train(work, "teacher")
    command = [sys.executable, "-m", "latentmt", arguments[0], str(work), "--work", str(work)]
    command += ["--data", str(work), "--set", "data.row_width=65"] if "--data" in arguments else []
    command += ["--set", "distill.batch_tokens=100"]  # many shards, so that it is not done at once
    before = files(work)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (work / begun).exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    assert process.returncode == UNFINISHED, said
    assert said.strip().splitlines()[-1] == "stopped; the same command goes on"
    after = files(work)
    assert {name: after[name] for name in before} == before
    assert all(name.startswith("distilled/parts/") for name in after.keys() - before.keys())


def test_a_signal_is_handled_while_a_function_of_another_language_runs() -> None:
    forever = threading.Event()
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
    with stop_on_signal(), pytest.raises(Stopped):
        _interruptible(forever.wait, timeout=600)
    forever.set()
    with pytest.raises(ZeroDivisionError):
        _interruptible(divmod_by_zero)


def test_a_signal_is_not_lost_where_nothing_can_be_raised() -> None:
    class Dying:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)

    def work() -> None:
        Dying()
        time.sleep(60)

    began = time.monotonic()
    with stop_on_signal(), pytest.raises(Stopped):
        work()
    assert time.monotonic() - began < 30  # it has not slept to the end


def divmod_by_zero() -> None:
    divmod(1, 0)
