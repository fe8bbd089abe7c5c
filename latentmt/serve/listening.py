"""The socket a server listens at, and HTTP for an application there, until it is told to stop.

It knows neither what the application does nor signals.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from latentmt.errors import UserError
from latentmt.serve.admission import Limits
from latentmt.serve.connections import Connections
from latentmt.system import WINDOWS, max_open_files

_BACKLOG = 2048
"""Connections that may wait to be accepted."""
_ACCEPT_BATCH = 32
"""Connections accepted in one go, before the event loop does anything else."""
_MAX_CONNECTIONS = 4096
_RESERVED_FILES = 128
"""File descriptors that are not for connections."""
_DRAIN_SECONDS = 0.3
"""How long idle connections are kept when the server stops."""
SHUTDOWN_MARGIN = 5.0
"""Seconds beyond the timeout of a request that the server waits for the last responses."""


class _Server(uvicorn.Server):
    """uvicorn's, without its signal handlers: they would not wait for idle clients."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves an application."""

    def __init__(self, app: ASGIApp, limits: Limits, verbose: bool = False) -> None:
        self._connections = Connections(limits.read_timeout, _max_connections())
        self._server = _Server(
            uvicorn.Config(
                app,
                http=self._connections.protocol,  # type: ignore[arg-type] # a callable that makes one
                ws="none",
                log_level="info" if verbose else "error",
                access_log=verbose,
                backlog=_ACCEPT_BATCH,
                server_header=False,
                timeout_graceful_shutdown=round(limits.timeout + SHUTDOWN_MARGIN),
            )
        )
        self._started, self.ended = asyncio.Event(), asyncio.Event()

    async def start(self, listening: socket.socket) -> None:
        """Accept connections."""
        self._running = asyncio.ensure_future(self._server.serve([listening]))
        self._running.add_done_callback(lambda _: self.ended.set())
        while not self._server.started and not self._running.done():
            await asyncio.sleep(0.01)
        listening.listen(_BACKLOG)  # asyncio has one number for the backlog and for what it accepts in one go
        self._started.set()

    async def stop(self) -> None:
        """Stop listening, drain the connections, and answer what was accepted."""
        await self._started.wait()
        for acceptor in self._server.servers:
            acceptor.close()
        await self._connections.drain(_DRAIN_SECONDS)
        self._server.should_exit = True
        await self._running

    def force_stop(self) -> None:
        """Answer nothing more."""
        self._server.force_exit = True


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Clients may wait from now on."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise UserError(f"{host}:{port}: {error.strerror}") from None
    # The protocol is named: without it asyncio does not see that it is TCP, and leaves Nagle's algorithm on.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if not WINDOWS:  # where it would let two servers listen at one port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise UserError(f"{host}:{port}: {error.strerror}") from None
    return listening


def address_of(listening: socket.socket) -> str:
    """Its address, for a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def quiet_logs() -> None:
    """Let libraries log nothing that could be of a client."""
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(redact)


def redact(record: logging.LogRecord) -> bool:
    """Reduce a log record to its first line, without paths and stack traces."""
    record.msg, record.args = re.split(r"\n| at /", record.getMessage())[0], ()
    record.exc_info = record.exc_text = record.stack_info = None
    return True


def _max_connections() -> int:
    """As many as there are file descriptors for."""
    files = max_open_files()
    return _MAX_CONNECTIONS if files is None else max(1, min(_MAX_CONNECTIONS, files - _RESERVED_FILES))
