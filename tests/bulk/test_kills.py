"""Jobs whose processes are killed: they go on, and their output ends with the same bytes."""

import json
import random
import shutil
import time
from pathlib import Path

import pytest
from processes import PATIENCE, bulk, files_of, finish, kill, start, victims, wait_for

from latentmt.data.numbers import Sizes, write_numbers
from latentmt.translator import Translator

KINDS = ("actor", "raylet", "driver")


def lines(folder: Path, count: int) -> Path:
    """A file of so many German sentences."""
    write_numbers(folder, Sizes(train=count, dev=1, test=1), seed=1)
    return folder / "train.de"


def parts(out: Path) -> int:
    return len(list(out.glob("part-*")))


def test_a_job_survives_the_death_of_an_actor_of_its_node_and_of_itself(tmp_path: Path) -> None:
    lines(tmp_path, 600).rename(tmp_path / "train.txt")
    out = tmp_path / "out"
    command = (tmp_path / "train.txt", out, "--to", "text", "--actors", "2", "--rows-per-part", "20")
    with start(*command) as job:
        wait_for(lambda: parts(out) >= 2)
        kill(victims(job, "actor")[0])
        wait_for(lambda: parts(out) >= 4)
        for process in victims(job, "raylet") + victims(job, "actor"):  # actors may outlive their node
            kill(process)
        began = parts(out)
        wait_for(lambda: parts(out) >= began + 4)  # Ray was started again
        assert job.poll() is None
        kill(job.pid)
    (out / "part-00000-000000.txt").write_bytes(b"half a")  # as if the disk had lost what was not synced
    bulk(*command)
    sources = (tmp_path / "train.txt").read_text().splitlines()
    written = "".join(path.read_text() for path in sorted(out.glob("part-*")))
    assert written.splitlines() == Translator.load("deen", "cpu").translate(sources)
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["complete"], [facts["rows"] for facts in manifest["parts"].values()]) == (True, [20] * 30)


@pytest.mark.long
def test_twenty_kills_at_random_leave_the_same_bytes(tmp_path: Path) -> None:
    lines(tmp_path, 1500).rename(tmp_path / "train.txt")
    arguments = ("--actors", "2", "--rows-per-part", "50")
    began = time.monotonic()
    bulk(tmp_path / "train.txt", tmp_path / "undisturbed", *arguments)
    duration, wanted = time.monotonic() - began, files_of(tmp_path / "undisturbed")
    chance, hits = random.Random(1), 0
    while hits < 20:
        kind, out = chance.choice(KINDS), tmp_path / f"out{hits}"
        with start(tmp_path / "train.txt", out, *arguments) as job:
            wait_for(lambda: victims(job, kind))  # noqa: B023 (called at once)
            time.sleep(chance.uniform(0, 0.7 * duration))
            found = victims(job, kind) if job.poll() is None else []
            for victim in chance.sample(found, min(len(found), 1)):
                kill(victim)
                hits += 1
            job.communicate(timeout=PATIENCE)
        code, said = finish(start(tmp_path / "train.txt", out, *arguments))
        assert code == 0, said
        assert files_of(out) == wanted, (hits, kind)
        print(kind, "killed" if found else "ended before", flush=True)
        shutil.rmtree(out)
