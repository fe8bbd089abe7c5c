"""Runs the application: listens, starts workers and front processes, and stops when all accepted requests are answered.

SIGTERM and SIGINT stop it, within a bound whatever hangs. SIGHUP loads the models again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from latentmt.display import info
from latentmt.errors import UserError
from latentmt.installed import find_model, installed
from latentmt.serve.admission import Admission, ApiKeys, Limits
from latentmt.serve.app import make_app
from latentmt.serve.broker import Broker
from latentmt.serve.fronts import Fronts, FrontsConfig
from latentmt.serve.gateway import Gateway
from latentmt.serve.languages import language_name
from latentmt.serve.listening import SHUTDOWN_MARGIN, HttpServer, address_of, listen, quiet_logs
from latentmt.serve.metrics import Metrics
from latentmt.serve.origins import Origins
from latentmt.serve.pool import PoolConfig, WorkerError
from latentmt.serve.signals import STOPPING, on_signal
from latentmt.system import cores, inherits_sockets, run_loop

_EXIT_MARGIN = 5.0
"""Seconds beyond those of the last responses after which it ends, whatever hangs."""


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
    front_processes: int = 1
    """Processes that accept HTTP. One is that of the broker."""
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
    if config.front_processes < 1:
        raise UserError(f"front_processes {config.front_processes}: expected at least 1")
    if config.front_processes > 1 and not inherits_sockets():
        raise UserError(f"front_processes {config.front_processes}: on this system there can only be one")
    with listen(config.host, config.port) as listening:
        if not config.verbose:
            quiet_logs()
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
    """Serve until a signal. Then stop listening, drain the connections, and answer the rest."""
    admission, metrics = Admission(config.limits, config.api_keys), Metrics()
    broker = _broker(config, admission, metrics)
    gateway = Gateway(admission, broker, metrics)
    origins = Origins.of(config.host, config.allowed_hosts, config.cors)
    stopped = asyncio.Event()
    app = make_app(gateway, origins, config.verbose)
    http: HttpServer | Fronts = HttpServer(app, config.limits, config.verbose)
    if config.front_processes > 1:
        fronts = FrontsConfig(
            count=config.front_processes, limits=config.limits, origins=origins, verbose=config.verbose
        )
        http = Fronts(fronts, gateway, app)

    async def start() -> None:
        await broker.start()
        await http.start(listening)

    try:
        if not await _unless(stopped, start()):
            return
        _handle_signals(config, stopped, http, broker)
        pairs = (" → ".join(map(language_name, pair)) for pair in gateway.models.pairs)
        info(f"{', '.join(pairs)} at {address_of(listening)}")
        waiting, ended = asyncio.ensure_future(stopped.wait()), asyncio.ensure_future(http.ended.wait())
        await asyncio.wait({waiting, ended}, return_when=asyncio.FIRST_COMPLETED)
        await http.stop()
    finally:
        if isinstance(http, Fronts):
            http.force_stop()
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


def _handle_signals(config: ServerConfig, stopped: asyncio.Event, http: HttpServer | Fronts, broker: Broker) -> None:
    reloads: set[asyncio.Task[None]] = set()

    def stop(name: str) -> None:
        if not stopped.is_set():
            stopped.set()
            _exit_after(config.limits.timeout + SHUTDOWN_MARGIN + _EXIT_MARGIN)
        elif name == "SIGINT":  # Ctrl-C again
            http.force_stop()

    def reload() -> None:
        reloads.add(task := asyncio.ensure_future(_reload(broker, http)))
        task.add_done_callback(reloads.discard)

    for name in STOPPING:
        on_signal(name, partial(stop, name))
    on_signal("SIGHUP", reload)


async def _reload(broker: Broker, http: HttpServer | Fronts) -> None:
    try:
        await broker.reload()
        if isinstance(http, Fronts):
            http.tell_models()
    except (UserError, WorkerError, OSError) as error:
        info(f"the model was not loaded again: {error}")
    else:
        info("the model was loaded again")


def _exit_after(seconds: float) -> None:
    """End the process after some time, even if the event loop hangs."""
    timer = threading.Timer(seconds, os._exit, [1])
    timer.daemon = True
    timer.start()
