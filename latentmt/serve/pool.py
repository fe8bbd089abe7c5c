"""The workers: starts them, replaces those that end, and exchanges all of them for others with new models.

What they do is the broker's business, which is told when a worker is ready, what it says, and when it is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

from latentmt.errors import UserError
from latentmt.serve.admission import Limits
from latentmt.serve.costs import Costs
from latentmt.serve.facts import ModelFacts
from latentmt.serve.messages import Message, MessageError, message
from latentmt.serve.models import Models
from latentmt.serve.process import Channel, start_process

START_SECONDS = 300.0
"""A worker that is not ready after this long is killed."""
RESTART_SECONDS, MAX_RESTART_SECONDS = 0.5, 60.0
"""Seconds until a worker that could not be started is started again. They double each time."""
CLOSE_SECONDS = 5.0
"""Seconds that a worker has to end when it may, before it is killed."""

_log = logging.getLogger("latentmt.serve")


@dataclass(frozen=True, kw_only=True)
class PoolConfig:
    """What workers load, and how many there are."""

    models: Sequence[str]
    """Names of installed models, or folders."""
    devices: Sequence[str] = ("cpu",)
    engine: str = "auto"
    workers: int | None = None
    """For each device. Default: one per core on a CPU, one on a GPU."""
    threads: int = 1
    """Cores per worker."""
    cores: int = 1
    """Of this machine."""
    limits: Limits = Limits()  # noqa: RUF009 (immutable)
    costs: Sequence[Costs] | None = None
    """How long things take with each model. Default: the first worker measures it."""
    verbose: bool = False


class WorkerError(Exception):
    """A worker could not be started."""


@dataclass(eq=False)
class Worker:
    """A worker that was ready."""

    channel: Channel
    device: str
    models: Models
    retired: bool = False
    """It gets no new requests, and is not replaced."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def close(self) -> None:
        """Let it end, or end it."""
        self.channel.close()
        try:
            await asyncio.wait_for(self.gone.wait(), CLOSE_SECONDS)
        except TimeoutError:
            self.channel.kill()


@runtime_checkable
class Events(Protocol):
    """What the broker is told."""

    def ready(self, worker: Worker) -> None: ...

    def received(self, worker: Worker, what: Message) -> None: ...

    def lost(self, worker: Worker) -> None: ...


class Pool:
    """All workers. `start` starts one."""

    def __init__(
        self, config: PoolConfig, events: Events, start: Callable[[int], Awaitable[Channel]] = start_process
    ) -> None:
        self._config, self._events, self._start_channel = config, events, start
        self.workers: list[Worker] = []
        """Those that are ready."""
        self.size = 0
        """How many there should be."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._reloading = False
        self._generation = 0
        """How often the models were loaded."""

    @property
    def models(self) -> Models:
        """The models, as the workers that were started last have them."""
        return self._models

    async def start(self) -> None:
        """Start all workers. What is wrong with a model is a `UserError`."""
        self._adopt(await self._start_all())

    async def reload(self) -> list[Worker]:
        """Start other workers, with the models as they are now on disk. Returns those that they replace.

        If that fails, nothing changes.
        """
        if self._reloading:
            raise UserError("the models are being loaded already")
        self._reloading = True
        try:
            new = await self._start_all()
        finally:
            self._reloading = False
        old = list(self.workers)
        for worker in old:
            worker.retired = True
        self._adopt(new)
        return old

    def close(self) -> None:
        """End all workers at once."""
        for task in self._tasks:
            task.cancel()
        for worker in self.workers:
            worker.retired = True
            worker.channel.kill()

    def _adopt(self, workers: Sequence[Worker]) -> None:
        self._models, self.size = workers[0].models, len(workers)
        self._generation += 1
        for worker in workers:
            self._keep(self._supervise(worker, self._generation))

    async def _start_all(self) -> list[Worker]:
        """The first one tells how many there are to be, and what things cost."""
        config = self._config
        first = await self._start(config.devices[0], config.costs)
        each = config.workers or (1 if first.models.default.on_gpu else max(1, config.cores // config.threads))
        others = [device for device in config.devices for _ in range(each)][1:]
        started = await asyncio.gather(
            *(self._start(device, first.models.costs) for device in others), return_exceptions=True
        )
        workers = [first, *(worker for worker in started if isinstance(worker, Worker))]
        if errors := [error for error in started if isinstance(error, BaseException)]:
            for worker in workers:
                worker.channel.kill()
            raise errors[0]
        return workers

    async def _start(self, device: str, costs: Sequence[Costs] | None) -> Worker:
        config = self._config
        channel = await self._start_channel(config.threads)
        channel.send(
            message(
                "start",
                models=list(config.models),
                load={"device": device, "threads": config.threads, "engine": config.engine},
                costs=[asdict(each) for each in costs] if costs else None,
                limits=asdict(config.limits),
                verbose=config.verbose,
            )
        )
        try:
            answer = await asyncio.wait_for(channel.receive(), START_SECONDS)
        except BaseException as error:
            channel.kill()
            if isinstance(error, MessageError | TimeoutError):
                raise WorkerError("a worker ended while it was started") from None
            raise
        if answer.kind == "failed":
            channel.kill()
            raise UserError(answer.header["error"])
        return Worker(channel, device, Models([ModelFacts.from_dict(facts) for facts in answer.header["models"]]))

    async def _supervise(self, worker: Worker, generation: int) -> None:
        """Pass on what a worker says. When it is gone, start another one, unless it is retired."""
        while True:
            self.workers.append(worker)
            self._events.ready(worker)
            try:
                while True:
                    self._events.received(worker, await worker.channel.receive())
            except MessageError:
                pass
            except Exception as error:  # a defect of ours costs one worker, not the server
                _log.error("%s while listening to a worker", type(error).__name__)
            finally:
                worker.channel.kill()  # it may have closed its output only
                worker.gone.set()
                self.workers.remove(worker)
                self._events.lost(worker)
            if worker.retired:
                return
            worker = await self._replacement(worker)
            if generation != self._generation:  # others were started meanwhile, with other models
                worker.channel.kill()
                return

    async def _replacement(self, worker: Worker) -> Worker:
        delay = RESTART_SECONDS
        while True:
            try:
                return await self._start(worker.device, worker.models.costs)
            except (UserError, WorkerError, OSError) as error:
                _log.error("a worker could not be started again: %s", error)
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_RESTART_SECONDS)

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
