"""A document, translated undisturbed and killed at half: minutes, memory, and whether the bytes are the same.

`benchmarks/documents.py job` calls it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from latentmt.documents.formats import read_document


def job(file: Path) -> None:
    """Translate a document undisturbed and killed at half of its texts."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / file.name
        shutil.copy(file, copy)
        texts = len(set(read_document(copy.name, copy.read_bytes()).texts))
        whole, killed = Path(folder) / "whole", Path(folder) / "killed"
        outputs = [each.with_suffix(copy.suffix) for each in (whole, killed)]
        seconds, memory = document_process(copy, outputs[0])
        load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
        print(f"{texts} different texts: {seconds / 60:.1f} minutes; load {load}")
        ends = [len(memory) * part // 5 for part in range(6)]
        peaks = [max(memory[start:end], default=0) for start, end in pairwise(ends)]
        print("MB at most in each fifth of the time:", *(f"{peak / 1e6:.0f}" for peak in peaks))
        first, _ = document_process(copy, outputs[1], texts // 2)
        if outputs[1].exists():
            sys.exit("it was done before it could be killed: a longer document is needed")
        second, _ = document_process(copy, outputs[1])
        same = outputs[0].read_bytes() == outputs[1].read_bytes()
        print(f"killed after {first / 60:.1f} minutes, then {second / 60:.1f} minutes more:", end=" ")
        print("the same bytes" if same else "OTHER BYTES")
        others = {path.name for path in Path(folder).iterdir()} - {copy.name, *(output.name for output in outputs)}
        print("left over:", *(sorted(others) or ["nothing"]))


def document_process(source: Path, output: Path, limit: int | None = None) -> tuple[float, list[int]]:
    """Seconds of a command that is killed when so many texts are in its journal, and its resident bytes, sampled."""
    command = [sys.executable, "-m", "latentmt", "document", str(source), "-o", str(output)]
    journal = output.with_name(f".{output.name}.latentmt-partial")
    start, memory = time.monotonic(), []
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        memory.append(resident_bytes(process.pid))
        if limit is not None and journal.exists() and journal.read_bytes().count(b"\n") > limit:
            process.kill()
        time.sleep(0.2)
    if process.returncode not in (0, -signal.SIGKILL):
        sys.exit(f"failed: {' '.join(command)}")
    return time.monotonic() - start, [size for size in memory if size]


def resident_bytes(pid: int) -> int:
    """Of a process and all that it started."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(map(resident_bytes, map(int, children)))
