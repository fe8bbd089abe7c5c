"""Jobs on a running cluster of two nodes: the same output, also if a node dies. The cluster is not the job's to end."""

import re
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import below, bulk, files_of, finish, kill, start, wait_for

from latentmt.data.numbers import Sizes, write_numbers

NODES = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
print(sorted(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]))
"""
ARGUMENTS = ("--actors", "2", "--rows-per-part", "20")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


def ray_start(*arguments: str) -> subprocess.Popen[bytes]:
    """A node, with a process that waits for its end."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--object-store-memory=100000000"]
    return subprocess.Popen([*command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def alive(address: str) -> str:
    """The CPUs of each node that is alive."""
    command = [sys.executable, "-c", NODES, address]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def processes(node: subprocess.Popen[bytes], name: str = "") -> list[int]:
    return [number for number, command in below(node.pid) if name in command]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a cluster of two nodes with one CPU each, and the second of them."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    settings = {"enable_metrics_collection": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 2}
    for name, value in settings.items():
        monkeypatch.setenv(f"RAY_{name}", str(value))
    address = f"{socket.gethostbyname(socket.gethostname())}:{free_port()}"
    folder = f"/tmp/latentmt-{secrets.token_hex(4)}"  # paths of sockets are limited to 107 characters
    head = ray_start(
        "--head", f"--port={address.rpartition(':')[2]}", "--num-cpus=1", "--include-dashboard=false",
        f"--temp-dir={folder}", f"--ray-client-server-port={free_port()}",
    )  # fmt: skip
    nodes = [head]
    try:
        wait_for(lambda: processes(head, "/raylet/raylet "))
        nodes.append(ray_start(f"--address={address}", "--num-cpus=1"))
        wait_for(lambda: alive(address) == "[1.0, 1.0]")
        yield address, nodes[1]
    finally:
        for node in nodes:
            for process in [*processes(node), node.pid]:
                kill(process)
            node.wait()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_job_joins_a_cluster_and_survives_the_death_of_a_node(
    tmp_path: Path, cluster: tuple[str, subprocess.Popen[bytes]]
) -> None:
    address, node = cluster
    write_numbers(tmp_path, Sizes(train=600, dev=1, test=1), seed=1)
    source, out = (tmp_path / "train.de").rename(tmp_path / "train.txt"), tmp_path / "joined"
    with start(source, out, *ARGUMENTS, "--address", address) as job:
        wait_for(lambda: processes(node, "ray::PartWorker.run"))
        assert not list(below(job.pid))  # its actors belong to the cluster
        for process in processes(node):  # the raylet and, since they may outlive it, its actors
            kill(process)
        code, said = finish(job)
    assert code == 0, said
    assert re.search(r"actors lost\W+[1-9]", said), said
    wait_for(lambda: alive(address) == "[1.0]")  # the cluster goes on
    bulk(source, tmp_path / "alone", *ARGUMENTS)
    assert files_of(out) == files_of(tmp_path / "alone")
