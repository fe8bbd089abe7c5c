"""Workers and front processes as processes of their own, and the pipes to them."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

from latentmt.serve.messages import Message, Receiver, Sender

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""How many threads a computation may have. Threads of Python do not inherit what a library was told in another one."""


@runtime_checkable
class Channel(Protocol):
    """The other side, wherever it runs."""

    def send(self, what: Message) -> None:
        """Send a message. It is lost if the other side is gone."""
        ...

    async def receive(self) -> Message:
        """The next message. `MessageError` if there is none, because the other side is gone."""
        ...

    def close(self) -> None:
        """Let it end."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class ProcessChannel:
    """A process, started as a new program, so nothing of ours is copied into it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._input, self._output = process, process.stdin, Receiver(process.stdout)
        self._sender = Sender(self._write)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, what: Message) -> None:
        self._sender.send(what)

    async def receive(self) -> Message:
        return await self._output.receive()

    def close(self) -> None:
        self._sender.flush()
        self._input.close()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    def _write(self, data: bytes) -> None:
        if not self._input.is_closing():
            self._input.write(data)


async def start_process(threads: int) -> ProcessChannel:
    """Start a worker whose batches have so many threads."""
    return await _start("worker", env=os.environ | dict.fromkeys(_THREADS, str(threads)))


async def start_front(listening: socket.socket) -> ProcessChannel:
    """Start a front process that accepts connections at this socket. On Windows it would not have it."""
    descriptor = listening.fileno()
    return await _start("front", str(descriptor), pass_fds=(descriptor,))


async def _start(module: str, *arguments: str, **options: Any) -> ProcessChannel:
    code = f"import sys; sys.path[:] = {sys.path!r}; from latentmt.serve.{module} import main; main()"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", code, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        **options,
    )
    return ProcessChannel(process)
