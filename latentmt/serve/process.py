"""A worker as a process of its own, and the pipes to it."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import Protocol, runtime_checkable

from latentmt.serve.messages import Message, receive

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""How many threads a computation may have. Threads of Python do not inherit what a library was told in another one."""


@runtime_checkable
class Channel(Protocol):
    """A worker, wherever it runs."""

    def send(self, what: Message) -> None:
        """Send a message. It is lost if the worker is gone."""
        ...

    async def receive(self) -> Message:
        """The next message. `MessageError` if there is none, because the worker is gone."""
        ...

    def close(self) -> None:
        """Let the worker end."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class ProcessChannel:
    """A process, started as a new program, so nothing of ours is copied into it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._input, self._output = process, process.stdin, process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, what: Message) -> None:
        if not self._input.is_closing():
            self._input.write(bytes(what))

    async def receive(self) -> Message:
        return await receive(self._output)

    def close(self) -> None:
        self._input.close()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()


async def start_process(threads: int) -> ProcessChannel:
    """Start a worker whose batches have so many threads."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from latentmt.serve.worker import main; main()"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", code),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | dict.fromkeys(_THREADS, str(threads)),
    )
    return ProcessChannel(process)
