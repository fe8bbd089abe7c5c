"""Runs the application: loads the model, listens, and stops when every accepted request is answered."""

from __future__ import annotations

import asyncio
import logging
import re
import resource
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import uvicorn

from latentmt.display import info
from latentmt.errors import UserError
from latentmt.serve.admission import Admission, Limits
from latentmt.serve.app import make_app
from latentmt.serve.connections import Connections
from latentmt.serve.languages import detect
from latentmt.serve.service import Service
from latentmt.translator import Translator

_SWITCH_INTERVAL = 0.0005
"""Seconds until a translating thread yields to the event loop. Python's default is ten times as long."""
_BACKLOG = 2048
"""Connections that may wait to be accepted."""
_ACCEPT_BATCH = 32
"""Connections accepted in one go, before the event loop does anything else."""
_MAX_CONNECTIONS = 4096
_RESERVED_FILES = 128
"""File descriptors that are not for connections."""
_DRAIN_SECONDS = 0.3
"""How long idle connections are kept when the server stops."""
_SHUTDOWN_MARGIN = 5.0
"""Seconds beyond the timeout of a request that the server waits for the last responses."""


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """What is served, where and to whom."""

    model: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    devices: Sequence[str] = ("cpu",)
    workers: int | None = None
    """Batches translated at the same time. Default: one per core on a CPU, one on a GPU."""
    threads: int | None = None
    """Cores per worker. Default: 1."""
    limits: Limits = Limits()  # noqa: RUF009 (immutable)
    api_keys: Mapping[str, float] | None = None
    """Requests per minute of each key. Default: no key is required."""
    cors: Sequence[str] = ()
    verbose: bool = False
    """Log every request's path, and stack traces."""


def serve(config: ServerConfig) -> None:
    """Serve until SIGTERM or SIGINT, answer the requests accepted before, and return."""
    if config.workers is not None and config.workers < 1:
        raise UserError(f"workers {config.workers}: expected at least 1")
    with _listen(config.host, config.port) as listening:
        service = _load(config)
        if not config.verbose:
            for name in ("uvicorn.error", "asyncio"):
                logging.getLogger(name).addFilter(redact)
        sys.setswitchinterval(_SWITCH_INTERVAL)
        asyncio.run(_run(config, service, listening))


def _load(config: ServerConfig) -> Service:
    """Load the model on every device, and warm it up.

    On a CPU, single-core batches side by side give more throughput than one batch on all cores, and a lone request is
    small.
    """
    threads = 1 if config.threads is None else config.threads
    translators = [Translator.load(config.model, device, threads) for device in config.devices]
    for translator in translators:
        translator.warmup(compiled=False)
        translator.translate("Warm.")
    detect("Warm.")
    on_gpu = any(translator.backend.on_gpu for translator in translators)
    workers = config.workers or (1 if on_gpu else max(1, translators[0].backend.cores // threads))
    return Service(translators * workers, Admission(config.limits, config.api_keys))


async def _run(config: ServerConfig, service: Service, listening: socket.socket) -> None:
    """Run uvicorn until a signal. Then stop listening, drain the connections, and let uvicorn finish the rest."""
    connections = Connections(config.limits.read_timeout, _max_connections())
    server = uvicorn.Server(_uvicorn_config(config, service, connections))
    running = asyncio.create_task(server.serve([listening]))
    while not server.started and not running.done():
        await asyncio.sleep(0.01)
    listening.listen(_BACKLOG)  # asyncio has one number for the backlog and for what it accepts in one go
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def stop(number: int) -> None:
        if not stopped.done():
            stopped.set_result(None)
        elif number == signal.SIGINT:  # Ctrl-C again
            server.force_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):  # instead of uvicorn's handlers: it would not wait for idle clients
        loop.add_signal_handler(number, stop, number)
    info(f"{' → '.join(language.name for language in service.languages())} at {_address(listening)}")
    await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for acceptor in server.servers:
        acceptor.close()
    await connections.drain(_DRAIN_SECONDS)
    server.should_exit = True
    await running


def _uvicorn_config(config: ServerConfig, service: Service, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        connections.wrap(make_app(service, config.cors, config.verbose)),
        http=connections.protocol,  # type: ignore[arg-type] # a callable that makes one
        ws="none",
        log_level="info" if config.verbose else "error",
        access_log=config.verbose,
        backlog=_ACCEPT_BATCH,
        server_header=False,
        timeout_graceful_shutdown=round(config.limits.timeout + _SHUTDOWN_MARGIN),
    )


def _max_connections() -> int:
    """As many as there are file descriptors for."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(1, min(_MAX_CONNECTIONS, files - _RESERVED_FILES))


def redact(record: logging.LogRecord) -> bool:
    """Reduce a log record to its first line, without paths and stack traces."""
    record.msg, record.args = re.split(r"\n| at /", record.getMessage())[0], ()
    record.exc_info = record.exc_text = record.stack_info = None
    return True


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise UserError(f"{host}:{port}: {error.strerror}") from None
    # The protocol is named: without it asyncio does not see that it is TCP, and leaves Nagle's algorithm on.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)  # clients may wait while the model is loaded
    except OSError as error:
        listening.close()
        raise UserError(f"{host}:{port}: {error.strerror}") from None
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
