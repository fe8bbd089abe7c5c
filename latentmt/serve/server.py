"""Runs the application: starts the workers, listens, and stops when every accepted request is answered.

SIGTERM and SIGINT stop it, within a bound whatever hangs. SIGHUP loads the models again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn

from latentmt.display import info
from latentmt.errors import UserError
from latentmt.installed import find_model, installed
from latentmt.serve.admission import Admission, ApiKeys, Limits
from latentmt.serve.app import make_app
from latentmt.serve.broker import Broker
from latentmt.serve.connections import Connections
from latentmt.serve.gateway import Gateway
from latentmt.serve.languages import language_name
from latentmt.serve.metrics import Metrics
from latentmt.serve.origins import Origins
from latentmt.serve.pool import PoolConfig, WorkerError
from latentmt.serve.signals import STOPPING, on_signal
from latentmt.system import WINDOWS, cores, max_open_files, run_loop

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
_EXIT_MARGIN = 5.0
"""Seconds beyond that after which it ends, whatever hangs."""


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """What is served, where and to whom."""

    models: Sequence[str] = ()
    """Names of installed models, or folders, each for other languages. Default: all that are installed."""
    host: str = "127.0.0.1"
    port: int = 8000
    devices: Sequence[str] = ("cpu",)
    engine: str = "auto"
    """See `Translator.load`."""
    workers: int | None = None
    """Engine processes for each device. Default: one per core on a CPU, one on a GPU."""
    threads: int | None = None
    """Cores per worker. Default: 1. Single-core batches side by side give more throughput than one on all cores."""
    limits: Limits = Limits()  # noqa: RUF009 (immutable)
    api_keys: ApiKeys | None = None
    """Default: no key is required."""
    allowed_hosts: Sequence[str] = ()
    """The names under which it answers. Default: see `Origins.of`."""
    cors: Sequence[str] = ()
    verbose: bool = False
    """Log every request's path, and stack traces."""


def serve(config: ServerConfig) -> None:
    """Serve until SIGTERM or SIGINT, answer the requests accepted before, and return."""
    if config.workers is not None and config.workers < 1:
        raise UserError(f"workers {config.workers}: expected at least 1")
    if config.threads is not None and config.threads < 1:
        raise UserError(f"threads {config.threads}: expected at least 1")
    with _listen(config.host, config.port) as listening:
        if not config.verbose:
            for name in ("uvicorn.error", "asyncio"):
                logging.getLogger(name).addFilter(redact)
        run_loop(_run(config, listening))


def _broker(config: ServerConfig, admission: Admission, metrics: Metrics) -> Broker:
    pool = PoolConfig(
        models=config.models or _installed(),
        devices=config.devices,
        engine=config.engine,
        workers=config.workers,
        threads=config.threads or 1,
        cores=cores(),
        limits=config.limits,
        verbose=config.verbose,
    )
    return Broker(admission, metrics, pool)


def _installed() -> list[str]:
    """The names of all installed models, of which there has to be one."""
    find_model()
    return list(installed())


async def _run(config: ServerConfig, listening: socket.socket) -> None:
    """Run uvicorn until a signal. Then stop listening, drain the connections, and let uvicorn finish the rest."""
    admission, metrics = Admission(config.limits, config.api_keys), Metrics()
    broker = _broker(config, admission, metrics)
    stopped, gateway = asyncio.Event(), None
    try:
        if not await _unless(stopped, broker.start()):
            return
        connections = Connections(config.limits.read_timeout, _max_connections())
        gateway = Gateway(admission, broker, metrics)
        server = uvicorn.Server(_uvicorn_config(config, gateway, connections))
        running = asyncio.create_task(server.serve([listening]))
        while not server.started and not running.done():
            await asyncio.sleep(0.01)
        listening.listen(_BACKLOG)  # asyncio has one number for the backlog and for what it accepts in one go
        _handle_signals(config, stopped, server, broker)  # instead of uvicorn's: it would not wait for idle clients
        pairs = (" → ".join(map(language_name, pair)) for pair in gateway.models.pairs)
        info(f"{', '.join(pairs)} at {_address(listening)}")
        waiting = asyncio.ensure_future(stopped.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        for acceptor in server.servers:
            acceptor.close()
        await connections.drain(_DRAIN_SECONDS)
        server.should_exit = True
        await running
    finally:
        if gateway:
            gateway.documents.close()
        broker.close()


async def _unless(stopped: asyncio.Event, starting: Coroutine[Any, Any, None]) -> bool:
    """Wait until the workers are started. False if a signal came first."""
    task = asyncio.ensure_future(starting)
    on_signal("SIGHUP", lambda: None)  # the models are being loaded
    for name in STOPPING:
        on_signal(name, stopped.set)
    waiting = asyncio.ensure_future(stopped.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return False
    try:
        task.result()
    except WorkerError as error:
        raise UserError(str(error)) from None
    return True


def _handle_signals(config: ServerConfig, stopped: asyncio.Event, server: uvicorn.Server, broker: Broker) -> None:
    reloads: set[asyncio.Task[None]] = set()

    def stop(name: str) -> None:
        if not stopped.is_set():
            stopped.set()
            _exit_after(config.limits.timeout + _SHUTDOWN_MARGIN + _EXIT_MARGIN)
        elif name == "SIGINT":  # Ctrl-C again
            server.force_exit = True

    def reload() -> None:
        reloads.add(task := asyncio.ensure_future(_reload(broker)))
        task.add_done_callback(reloads.discard)

    for name in STOPPING:
        on_signal(name, partial(stop, name))
    on_signal("SIGHUP", reload)


async def _reload(broker: Broker) -> None:
    try:
        await broker.reload()
    except (UserError, WorkerError, OSError) as error:
        info(f"the model was not loaded again: {error}")
    else:
        info("the model was loaded again")


def _exit_after(seconds: float) -> None:
    """End the process after some time, even if the event loop hangs."""
    timer = threading.Timer(seconds, os._exit, [1])
    timer.daemon = True
    timer.start()


def _uvicorn_config(config: ServerConfig, gateway: Gateway, connections: Connections) -> uvicorn.Config:
    origins = Origins.of(config.host, config.allowed_hosts, config.cors)
    return uvicorn.Config(
        make_app(gateway, origins, config.verbose),
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
    files = max_open_files()
    return _MAX_CONNECTIONS if files is None else max(1, min(_MAX_CONNECTIONS, files - _RESERVED_FILES))


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
        if not WINDOWS:  # where it would let two servers listen at one port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)  # clients may wait while models are loaded
    except OSError as error:
        listening.close()
        raise UserError(f"{host}:{port}: {error.strerror}") from None
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
