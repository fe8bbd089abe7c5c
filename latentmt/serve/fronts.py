"""The front processes, from the broker's: starts them, replaces those that end, and answers their requests.

A front process that ends has lost its connections, and nothing else: its requests are cancelled, and clients that
connect meanwhile wait at the listening socket, which this process has open, too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

from starlette.types import ASGIApp

from latentmt.options import DecodingOptions
from latentmt.serve.admission import Limits, RefusedError
from latentmt.serve.broker import Job, Work
from latentmt.serve.facts import Pair
from latentmt.serve.forwarding import Answering
from latentmt.serve.gateway import Gateway
from latentmt.serve.listening import SHUTDOWN_MARGIN
from latentmt.serve.messages import Message, MessageError, message
from latentmt.serve.origins import Origins
from latentmt.serve.pool import MAX_RESTART_SECONDS, RESTART_SECONDS, WorkerError
from latentmt.serve.process import Channel, start_front

START_SECONDS = 60.0
"""A front process that is not ready after this long is killed."""

_log = logging.getLogger("latentmt.serve")


@dataclass(frozen=True, kw_only=True)
class FrontsConfig:
    """How many front processes there are, and what they know."""

    count: int
    limits: Limits
    origins: Origins
    verbose: bool = False


class Front:
    """A front process. `app` answers what it forwards."""

    def __init__(self, channel: Channel, gateway: Gateway, app: ASGIApp) -> None:
        self.channel, self._gateway, self._app = channel, gateway, app
        self._jobs: dict[int, Job] = {}
        self._forwarded: dict[int, Answering] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def received(self, what: Message) -> None:
        """It says something."""
        match what.kind:
            case "submit":
                self._attempt(self._submit, what)
            case "cancel":
                if job := self._jobs.get(what.header["number"]):
                    self._gateway.broker.cancel(job)
            case "admit":
                self._attempt(self._admit, what)
            case "counted":
                for endpoint, status, seconds in what.header["answered"]:
                    self._gateway.metrics.answered(endpoint, status, seconds)
                self._gateway.metrics.accepted(what.header["characters"])
            case "request":
                number = what.header["number"]
                self._forwarded[number] = answering = Answering(number, self.channel.send)
                task = asyncio.ensure_future(self._answer(number, answering, what.header["scope"]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case "received" | "sent":
                if forwarded := self._forwarded.get(what.header["number"]):
                    forwarded.answered(what)
            case "left":
                if forwarded := self._forwarded.get(what.header["number"]):
                    forwarded.lost()

    def lost(self) -> None:
        """It has ended, and nobody waits for its requests any more."""
        for job in list(self._jobs.values()):
            self._gateway.broker.cancel(job)
        for forwarded in self._forwarded.values():
            forwarded.lost()

    def _attempt(self, do: Callable[[Message], None], what: Message) -> None:
        try:
            do(what)
        except RefusedError as error:
            self._refuse(what.header["number"], error)

    def _admit(self, what: Message) -> None:
        client = self._gateway.admission.client(what.header["address"], what.header["key"])
        self.channel.send(message("result", number=what.header["number"], client=client.name))

    def _submit(self, what: Message) -> None:
        header, broker = what.header, self._gateway.broker
        kind, pair, options = _read(header["what"])
        if pair not in broker.models.pairs:  # it was accepted for a model that is there no longer
            raise RefusedError(503, "the models of this server have changed")
        model, client = broker.models.find(*pair), self._gateway.admission.known(header["client"])
        job = broker.queue(Work(kind, model, options, client, header["seconds"], header["what"]), what.body)
        self._jobs[header["number"]] = job
        job.result.add_done_callback(partial(self._done, header["number"]))

    def _done(self, number: int, result: asyncio.Future[bytes]) -> None:
        del self._jobs[number]
        if result.cancelled():
            return
        error = result.exception()
        if error is None:
            self.channel.send(message("result", result.result(), number=number))
        else:
            assert isinstance(error, RefusedError)
            self._refuse(number, error)

    def _refuse(self, number: int, error: RefusedError) -> None:
        self.channel.send(
            message("refused", number=number, status=error.status, error=str(error), retry_after=error.retry_after)
        )

    async def _answer(self, number: int, answering: Answering, scope: dict[str, Any]) -> None:
        try:
            await answering.run(self._app, scope)
        finally:
            del self._forwarded[number]


class Fronts:
    """All front processes. `start` starts one."""

    def __init__(
        self,
        config: FrontsConfig,
        gateway: Gateway,
        app: ASGIApp,
        start: Callable[[socket.socket], Awaitable[Channel]] = start_front,
    ) -> None:
        self._config, self._gateway, self._app, self._start_channel = config, gateway, app, start
        self._fronts: set[Front] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._replacing: set[asyncio.Task[Any]] = set()
        """Those of the tasks whose front process has ended."""
        self._stopping = False
        self.ended = asyncio.Event()
        """Never set: those that end are replaced."""

    async def start(self, listening: socket.socket) -> None:
        """Start all of them."""
        self._listening = listening
        started = await asyncio.gather(*(self._start() for _ in range(self._config.count)), return_exceptions=True)
        self._fronts = {front for front in started if isinstance(front, Front)}
        if errors := [error for error in started if isinstance(error, BaseException)]:
            self.force_stop()
            raise errors[0]
        self._tasks = [asyncio.ensure_future(self._supervise(front)) for front in list(self._fronts)]

    def tell_models(self) -> None:
        """The models are others now."""
        for front in self._fronts:
            front.channel.send(message("models", models=self._models()))

    async def stop(self) -> None:
        """Stop listening, and let all of them answer what they have accepted, as long as that may take."""
        self._stopping = True
        self._listening.close()
        for task in self._replacing:
            task.cancel()
        for front in self._fronts:
            front.channel.send(message("stop"))
        await asyncio.wait(self._tasks, timeout=self._config.limits.timeout + SHUTDOWN_MARGIN + 1)

    def force_stop(self) -> None:
        """Answer nothing more."""
        self._stopping = True
        for front in self._fronts:
            front.channel.kill()

    def _models(self) -> list[dict[str, Any]]:
        return [facts.to_dict() for facts in self._gateway.models.all]

    async def _start(self) -> Front:
        config = self._config
        channel = await self._start_channel(self._listening)
        channel.send(
            message(
                "start",
                models=self._models(),
                limits=asdict(config.limits),
                origins=asdict(config.origins),
                requires_key=self._gateway.admission.requires_key,
                verbose=config.verbose,
            )
        )
        try:
            await asyncio.wait_for(channel.receive(), START_SECONDS)
        except BaseException as error:
            channel.kill()
            if isinstance(error, MessageError | TimeoutError):
                raise WorkerError("a front process ended while it was started") from None
            raise
        return Front(channel, self._gateway, self._app)

    async def _supervise(self, front: Front) -> None:
        """Do what a front process says. When it is gone, start another one."""
        while True:
            try:
                while True:
                    front.received(await front.channel.receive())
            except MessageError:
                pass
            except Exception as error:  # a defect of ours costs one front process, not the server
                _log.error("%s while listening to a front process", type(error).__name__)
            front.channel.kill()
            front.lost()
            self._fronts.remove(front)
            if self._stopping:
                return
            self._gateway.metrics.fronts_lost.inc()
            _log.error("a front process has ended and is replaced")
            front = await self._replacement()
            self._fronts.add(front)

    async def _replacement(self) -> Front:
        task, delay = asyncio.current_task(), RESTART_SECONDS
        assert task
        self._replacing.add(task)
        try:
            while True:
                models = self._gateway.models
                try:
                    front = await self._start()
                except (WorkerError, OSError) as error:
                    _log.error("a front process could not be started again: %s", error)
                else:
                    if models is not self._gateway.models:  # they were loaded again meanwhile
                        front.channel.send(message("models", models=self._models()))
                    return front
                await asyncio.sleep(delay)
                delay = min(2 * delay, MAX_RESTART_SECONDS)
        finally:
            self._replacing.discard(task)


@lru_cache(maxsize=256)
def _read(what: str) -> tuple[str, Pair, DecodingOptions]:
    """What a request asks for. It is nearly always the same."""
    kind, pair, options, _ = json.loads(what)
    return kind, (pair[0], pair[1]), DecodingOptions(**options)
