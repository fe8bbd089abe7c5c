"""Runs the application: loads the model on its devices, listens, and stops only when all it took on is answered."""

from __future__ import annotations

import logging
import re
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import uvicorn

from latentmt.display import info
from latentmt.errors import UserError
from latentmt.serve.app import make_app
from latentmt.serve.connection import Connection
from latentmt.serve.keys import Keys
from latentmt.serve.languages import detect
from latentmt.serve.limits import Limits
from latentmt.serve.service import Service
from latentmt.translator import Translator

_SWITCH = 0.0005
"""Seconds for which a thread that translates may keep waiting the one that listens; Python's choice is ten times it."""
_BACKLOG = 2048
"""Connections that may wait to be accepted, …"""
_ACCEPTED = 32
"""… and how many are accepted before others are heard again."""
_FILES = 128
"""Files that may be open beside connections."""
_LEAVE = 5.0
"""Seconds beyond a request's own that the server waits for the last answers."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What is served, where and to whom."""

    model: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    devices: Sequence[torch.device] = (torch.device("cpu"),)
    workers: int | None = None
    """Batches translated at the same time: on a CPU as many as there are cores, unless it is said; on a GPU one."""
    threads: int | None = None
    """Cores that each of them may use; one, unless it is said."""
    limits: Limits = Limits()  # noqa: RUF009 (immutable)
    keys: Keys | None = None
    cors: Sequence[str] = ()
    verbose: bool = False
    """Log every request's path, and stack traces."""


def serve(serving: Serving) -> None:
    """Serve until SIGTERM or SIGINT; answer what was accepted before; then return."""
    if serving.workers is not None and serving.workers < 1:
        raise UserError(f"workers {serving.workers}: expected at least 1")
    with _listen(serving.host, serving.port) as listening:
        _serve(serving, listening)


def _serve(serving: Serving, listening: socket.socket) -> None:
    workers, threads = _shares(serving)
    translators = [Translator.load(serving.model, device, threads) for device in serving.devices]
    for translator in translators:
        translator.warmup(compiled=False)
        translator.translate("Warm.")
    detect("Warm.")
    limits = serving.limits
    service = Service(translators * workers, limits, serving.keys)
    app = make_app(service, serving.cors, serving.verbose)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = Connection.most if files == resource.RLIM_INFINITY else max(1, min(Connection.most, files - _FILES))
    protocol = type("ImpatientConnection", (Connection,), {"patience": limits.reading, "most": most})
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        log_level="info" if serving.verbose else "error",
        access_log=serving.verbose,
        backlog=_ACCEPTED,
        server_header=False,
        timeout_graceful_shutdown=round(limits.seconds + _LEAVE),
    )
    if not serving.verbose:
        for name in ("uvicorn.error", "asyncio"):
            logging.getLogger(name).addFilter(discreet)
    languages = " → ".join(language.name for language in service.languages())
    sys.setswitchinterval(_SWITCH)
    # When all is done, uvicorn repeats the signal that stopped it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    _Announced(config, f"{languages} at {_address(listening)}").run([listening])


def _shares(serving: Serving) -> tuple[int, int | None]:
    """How many workers there are on each device, and the cores of each.

    Batches side by side on a core each make more of a CPU than one after another on all of them, and a lone request is
    small.
    """
    if any(device.type == "cuda" for device in serving.devices):
        return serving.workers or 1, serving.threads
    threads = 1 if serving.threads is None else serving.threads
    return serving.workers or max(1, torch.get_num_threads() // max(1, threads)), threads


def discreet(record: logging.LogRecord) -> bool:
    """Leave only the first line of what is logged, without paths; and no stack trace."""
    record.msg, record.args = re.split(r"\n| at /", record.getMessage())[0], ()
    record.exc_info = record.exc_text = record.stack_info = None
    return True


class _Announced(uvicorn.Server):
    """Says something once it listens, and lets more connections wait than it accepts at a time."""

    def __init__(self, config: uvicorn.Config, message: str) -> None:
        super().__init__(config)
        self._message = message

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_BACKLOG)  # asyncio takes one number for both
        info(self._message)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise UserError(f"{host}:{port}: {error.strerror}") from None
    # The protocol is named, or asyncio would not know it for TCP, and leave answers waiting for acknowledgements.
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
