"""A running server process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Running:
    """A server in its own process."""

    address: str
    process: subprocess.Popen[str]
    log: Path

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def workers(self) -> list[int]:
        """The processes of its workers."""
        return [pid for pid in self._children if pid not in self.fronts]

    @property
    def fronts(self) -> list[int]:
        """Its front processes, if it has several."""
        return [pid for pid in self._children if b"serve.front" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    @property
    def _children(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    @property
    def memory(self) -> int:
        """Resident bytes, those of its other processes included."""
        pids = [self.process.pid, *self._children]
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
        return pages * os.sysconf("SC_PAGE_SIZE")


Start = Callable[..., AbstractContextManager[Running]]
