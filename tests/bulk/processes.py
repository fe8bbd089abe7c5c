"""A bulk job in a process of its own, and the processes that it starts."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PATIENCE = 300
"""Seconds after which a job that does not end is taken to hang."""


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start `latentmt bulk` with these arguments."""
    command = [sys.executable, "-m", "latentmt", "bulk", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(job: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code of a job and what it said."""
    output, _ = job.communicate(timeout=PATIENCE)
    return job.returncode, output


def bulk(*arguments: str | Path) -> str:
    """Run `latentmt bulk` to its end; what it said."""
    code, output = finish(start(*arguments))
    assert code == 0, output
    return output


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its content."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def below(process: int) -> Iterator[tuple[int, str]]:
    """The processes that a process has started, and those that they have started, with their command lines."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            command = status.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, IndexError):  # it has ended
            continue
        if parent == process:
            child = int(status.parent.name)
            yield child, command
            yield from below(child)


def victims(job: subprocess.Popen[str], kind: str) -> list[int]:
    """The processes of a kind: `actor`, `raylet`, or the `driver` itself."""
    if kind == "driver":
        return [job.pid]
    names = {"actor": "ray::PartWorker", "raylet": "/raylet/raylet "}
    return [number for number, command in below(job.pid) if names[kind] in command]


def kill(process: int) -> None:
    """End a process at once, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, 9)


def wait_for(condition: Callable[[], object]) -> None:
    """Return when the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
