"""Training on two machines, which are two loopback addresses here: what is lost or frozen is started again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from latentmt.bundle import read_format

PATIENCE = 180
"""Seconds after which a run that does not end is taken to hang."""
STEPS = 1500
RUNNER = """
from datetime import timedelta
from latentmt.cli import main
from latentmt.train import ranks
ranks.TRAINING_PATIENCE = timedelta(seconds=10)
main()
"""


@pytest.fixture
def work(tmp_path: Path, numbers: Path) -> Path:
    folder: Path = shutil.copytree(numbers, tmp_path / "work")
    (folder / "runner.py").write_text(RUNNER)
    return folder


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def machines(work: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """The launchers of two machines, a process each. The second one may be lost: one machine is enough."""
    port = free_port()
    settings = {"steps": STEPS, "save_every": 50, "report_every": 500, "validate_every": STEPS}
    overrides = [
        argument for name, value in settings.items() for argument in ("--set", f"teacher.train.{name}={value}")
    ]
    launchers = []
    for number in (1, 2):
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1"]
        command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=test", "--max-restarts=3"]
        command += [f"--rdzv-conf=is_host={int(number == 1)},last_call_timeout=5", f"--local-addr=127.0.0.{number}"]
        command += [str(work / "runner.py"), "train", str(work), "--work", str(work), "--stage", "teacher"]
        with (work / f"machine{number}.log").open("w") as log:
            command += ["--device", "cpu", *overrides]
            environment = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
            launchers.append(subprocess.Popen(command, stdout=log, stderr=log, text=True, env=environment))
    try:
        yield launchers
    finally:
        for launcher in launchers:
            for process in (*workers(launcher), launcher.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            launcher.wait()


def workers(launcher: subprocess.Popen[str]) -> list[int]:
    """The processes that a launcher has started and that still run."""
    try:
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text()
    except OSError:  # the launcher has ended
        return []
    return [int(child) for child in children.split()]


def wait_for(condition: Callable[[], object], work: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        logs = "".join((work / f"machine{number}.log").read_text()[-3000:] for number in (1, 2))
        assert time.monotonic() < deadline, logs
        time.sleep(0.1)


def saved(work: Path) -> bool:
    return any((work / "training" / "teacher").glob("*.safetensors"))


@pytest.mark.long
@pytest.mark.parametrize("fate", ["killed", "frozen", "machine lost"])
def test_training_goes_on_after(fate: str, work: Path) -> None:
    """A process dies, or hangs, or a whole machine is lost: the others go on from the last save, to the last step."""
    with machines(work) as (first, second):
        wait_for(lambda: saved(work), work)
        (worker,) = workers(second)
        os.kill(worker, signal.SIGSTOP if fate == "frozen" else signal.SIGKILL)
        if fate == "machine lost":
            second.kill()
        wait_for(lambda: first.poll() is not None, work)
        log = (work / "machine1.log").read_text()
        assert first.returncode == 0, log
        assert "resuming at step" in log
    assert read_format(work / "teacher").facts["steps"] == STEPS
