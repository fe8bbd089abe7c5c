"""A job on a cluster that is already there: two nodes, of which one is lost on the way."""

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from processes import below, finish, kill, start, wait_for

from latentmt.data.numbers import Sizes, write_numbers
from latentmt.translator import Translator


@contextlib.contextmanager
def node(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A node of a cluster, with room for one actor."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1", "--disable-usage-stats"]
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        for child in [number for number, _ in below(process.pid)]:
            kill(child)
        kill(process.pid)
        process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


@pytest.mark.long
def test_a_job_goes_on_when_a_node_of_its_cluster_is_lost(tmp_path: Path) -> None:
    write_numbers(tmp_path, Sizes(train=600, dev=1, test=1), seed=1)
    source, out = tmp_path / "train.txt", tmp_path / "out"
    (tmp_path / "train.de").rename(source)
    port, folder = free_port(), tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    address = f"{ray.util.get_node_ip_address()}:{port}"
    with node("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"):
        wait_for(lambda: listens(address))
        with node(f"--address={address}") as second:
            wait_for(lambda: any("/raylet/raylet " in command for _, command in below(second.pid)))
            arguments = ("--address", address, "--actors", "2", "--to", "text", "--rows-per-part", "20")
            with start(source, out, *arguments) as job:
                wait_for(lambda: any("PartWorker" in command for _, command in below(second.pid)))
                wait_for(lambda: len(list(out.glob("part-*"))) >= 3)
                for process in [number for number, _ in below(second.pid)]:
                    kill(process)
                code, said = finish(job)
        assert code == 0, said
    shutil.rmtree(folder, ignore_errors=True)
    written = "".join(path.read_text() for path in sorted(out.glob("part-*")))
    assert written.splitlines() == Translator.load("deen", "cpu").translate(source.read_text().splitlines())
