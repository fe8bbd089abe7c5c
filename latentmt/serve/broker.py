"""The broker: gives the requests of all clients to the workers, in fair shares.

A request is queued with its model, and a batch has one model. A worker runs one batch at a time, for a time slice. Then
the broker decides who goes on: that batch, another one that is paused there, or requests that wait. A worker that takes
much longer than a batch should is killed. Requests of a worker that ends are given to another one, once; a second time
they are answered with 503.

It does not know HTTP. Only for use from the event loop's thread.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from latentmt.options import DecodingOptions
from latentmt.serve.admission import Admission, Client, RefusedError
from latentmt.serve.facts import ModelFacts
from latentmt.serve.fairness import PATIENCE, FairQueue, QueueFullError, Waiting
from latentmt.serve.messages import Message, message
from latentmt.serve.metrics import Metrics
from latentmt.serve.models import Models
from latentmt.serve.pool import Pool, PoolConfig, Worker
from latentmt.serve.process import Channel, start_process
from latentmt.serve.worker import SLICE_SECONDS

WINDOW = 0.003
"""Seconds a free worker waits for more requests if some are waiting already, where it translates them together."""
MAX_PAUSED = 8
"""Batches paused in a worker. With so many, only short requests are started there."""
GRACE_SECONDS, GRACE_FACTOR = 10.0, 5.0
"""A worker is killed if a batch takes so many seconds more than so many times its estimate."""
MAX_FAILURES = 2
"""A request is given up when so many workers have ended while they ran it."""

_log = logging.getLogger("latentmt.serve")


@dataclass(frozen=True)
class Work:
    """What a request asks for."""

    kind: str
    model: ModelFacts
    options: DecodingOptions
    client: Client
    seconds: float
    """How long it will take."""
    group: Any = None
    """What else requests have in common that may be translated together."""


@dataclass(eq=False, kw_only=True)
class Job(Waiting):
    """A request, until it is answered."""

    number: int
    work: Work
    fields: bytes
    """The request as JSON."""
    result: asyncio.Future[bytes]
    batch: Batch | None = None
    used: float = 0.0
    """Seconds of work so far."""
    failures: int = 0
    """How many workers have ended while they ran it."""


@dataclass(eq=False)
class Batch:
    """Jobs that are translated together."""

    number: int
    worker: Worker
    jobs: dict[int, Job]
    """By their numbers."""
    shares: dict[int, float]
    """What each job is expected to take, by its number; known better once it is planned."""
    used: float = 0.0
    """Seconds of work so far."""
    resumed: float = 0.0
    """When the present slice began."""

    @property
    def clients(self) -> set[str]:
        return {job.client for job in self.jobs.values()}

    @property
    def rank(self) -> float:
        """As that of a request: the lowest comes first. What takes longer than expected is not short."""
        return min(job.created + PATIENCE * max(job.seconds, self.used) for job in self.jobs.values())


@dataclass
class _Load:
    """What a worker does."""

    running: Batch | None = None
    paused: dict[int, Batch] = field(default_factory=dict)
    deadline: asyncio.TimerHandle | None = None


class Broker:
    """Workers, and the queue in front of them."""

    def __init__(
        self,
        admission: Admission,
        metrics: Metrics,
        config: PoolConfig,
        start: Callable[[int], Awaitable[Channel]] = start_process,
    ) -> None:
        self._admission, self._metrics = admission, metrics
        self.pool = Pool(config, self, start)
        self._queue = FairQueue[Job](config.limits.max_waiting, math.inf)
        self._loads: dict[Worker, _Load] = {}
        self._numbers = itertools.count()
        self._batches: dict[int, Batch] = {}
        self._window: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Future[None]] = set()

    @property
    def models(self) -> Models:
        return self.pool.models

    async def start(self) -> None:
        """Start the workers. What is wrong with a model is a `UserError`."""
        await self.pool.start()
        # As much as can be done within the timeout may wait.
        self._queue.max_seconds = self._admission.limits.timeout * self.pool.size

    async def reload(self) -> None:
        """Exchange the workers for others, with the models as they are on disk. Requests go on meanwhile."""
        for worker in await self.pool.reload():
            self._retire(worker)
        self._dispatch()

    def close(self) -> None:
        """End all workers."""
        self.pool.close()

    def check_room(self, client: str) -> None:
        """Refuse a request, however small, if the queue has no room for it (429)."""
        if not self._queue.has_room(client):
            raise self._busy(self._queue.seconds)

    async def admit(self, address: str, key: str) -> Client:
        """The client that sends a request, see `Admission.client`."""
        return self._admission.client(address, key)

    async def submit(self, work: Work, fields: dict[str, Any]) -> bytes:
        """The response to a request, as JSON. If the caller is cancelled, so is the request."""
        job = self.queue(work, json.dumps(fields).encode())
        try:
            return await job.result
        finally:
            self._leave(job)

    def queue(self, work: Work, fields: bytes) -> Job:
        """Queue a request, whose response will be the job's result."""
        job = Job(
            client=work.client.name,
            seconds=work.seconds,
            created=time.monotonic(),
            group=(work.kind, work.model.pair, work.options, work.group),
            number=next(self._numbers),
            work=work,
            fields=fields,
            result=asyncio.get_running_loop().create_future(),
        )
        try:
            refused = self._queue.add(job)
        except QueueFullError as full:
            raise self._busy(full.seconds) from None
        for other in refused:
            other.result.set_exception(self._busy(self._queue.seconds))
        self._metrics.waiting.set(len(self._queue))
        if self._window is None or self._queue.seconds >= work.model.costs.batch_seconds:
            self._dispatch()
        return job

    def cancel(self, job: Job) -> None:
        """Nobody waits for a request any more: it leaves the queue. A batch that is running stops early if all of its
        requests are cancelled."""
        job.result.cancel()
        self._leave(job)

    # What workers do.

    def ready(self, worker: Worker) -> None:
        self._loads[worker] = _Load()
        self._metrics.workers.set(len(self.pool.workers))
        self._dispatch()

    def received(self, worker: Worker, what: Message) -> None:
        load, batch = self._loads[worker], self._batches.get(what.header.get("batch", -1))
        match what.kind:
            case "result":
                self._answer(what)
            case "planned" if batch:
                batch.shares = {int(number): seconds for number, seconds in what.header["seconds"].items()}
                if load.running is batch:
                    self._watch(load, batch)
            case "yielded" if batch:
                self._account(batch, what.header["seconds"])
                self._pause(load, batch)
                self._next(worker)
            case "done" if batch:
                self._account(batch, what.header["seconds"])
                self._finish(load, batch)
                costs = next(iter(batch.jobs.values())).work.model.costs
                if costs.batch_tokens > 1 and 0 < self._queue.seconds < costs.batch_seconds:
                    self._wait_for_more()
                else:
                    self._dispatch()

    def lost(self, worker: Worker) -> None:
        """A worker has ended: its requests are given to others, if it may not have been them."""
        load = self._loads.pop(worker)
        self._metrics.workers.set(len(self.pool.workers))
        if not worker.retired:
            self._metrics.lost.inc()
            _log.error("a worker has ended and is replaced")
        if load.deadline:
            load.deadline.cancel()
        running = load.running
        if running:
            self._account(running, time.monotonic() - running.resumed)
        for batch in [*load.paused.values(), *([running] if running else [])]:
            del self._batches[batch.number]
            self._queue.finish(batch.clients)
            for job in batch.jobs.values():
                if not job.result.done():
                    self._retry(job, was_running=batch is running)
        self._metrics.waiting.set(len(self._queue))
        self._dispatch()

    def _retry(self, job: Job, was_running: bool) -> None:
        job.batch, job.failures = None, job.failures + was_running
        if job.failures >= MAX_FAILURES:
            self._admission.charge(job.work.client, job.used)
            job.result.set_exception(RefusedError(503, "this could not be translated", 1))
            return
        job.alone |= was_running  # if it was this one, it is the only one to suffer next time
        self._queue.requeue(job)

    def _answer(self, what: Message) -> None:
        batch = self._batches.get(what.header["batch"])
        job = batch.jobs.get(what.header["job"]) if batch else None
        if job is None or job.result.done():
            return
        if (status := what.header.get("status", 200)) == 200:
            job.result.set_result(what.body)
        else:
            job.result.set_exception(RefusedError(status, what.header["error"]))

    # Who is next.

    def _dispatch(self) -> None:
        """Give every free worker something to do, those with the fewest paused batches first."""
        if self._window:
            self._window.cancel()
            self._window = None
        free = [worker for worker, load in self._loads.items() if load.running is None]
        for worker in sorted(free, key=lambda worker: len(self._loads[worker].paused)):
            self._next(worker)

    def _wait_for_more(self) -> None:
        if self._window is None:
            self._window = asyncio.get_running_loop().call_later(WINDOW, self._dispatch)

    def _next(self, worker: Worker) -> None:
        """Resume the batch that comes next in a free worker, or start another one."""
        load, queue, started = self._loads[worker], self._queue, 2 * self.pool.size

        def order(batch: Batch) -> tuple[float, float]:
            return queue.priority(batch.clients), batch.rank

        paused = min(load.paused.values(), key=order, default=None)
        longest = math.inf if len(load.paused) < MAX_PAUSED else SLICE_SECONDS
        first = None if worker.retired else queue.next(started, longest)
        if first and (paused is None or (queue.priority([first.client]), first.rank) < order(paused)):
            self._run(worker, queue.take(first, first.work.model.costs.batch_seconds, started))
        elif paused:
            del load.paused[paused.number]
            worker.channel.send(message("resume", batch=paused.number))
            self._began(load, paused)
        elif worker.retired:
            self._retire(worker)

    def _run(self, worker: Worker, jobs: list[Job]) -> None:
        batch = Batch(
            next(self._numbers), worker, {job.number: job for job in jobs}, {job.number: job.seconds for job in jobs}
        )
        self._batches[batch.number] = batch
        self._queue.start(batch.clients)
        now = time.monotonic()
        for job in jobs:
            job.batch = batch
            self._metrics.waited.observe(now - job.created)
        self._metrics.waiting.set(len(self._queue))
        self._metrics.batch.observe(len(jobs))
        parts = [
            b'{"number":%d,"kind":"%s","fields":%s}' % (job.number, job.work.kind.encode(), job.fields) for job in jobs
        ]
        pair, options = jobs[0].work.model.pair, vars(jobs[0].work.options)
        worker.channel.send(message("run", b"[%s]" % b",".join(parts), batch=batch.number, pair=pair, options=options))
        self._began(self._loads[worker], batch)

    def _began(self, load: _Load, batch: Batch) -> None:
        load.running, batch.resumed = batch, time.monotonic()
        self._watch(load, batch)

    def _watch(self, load: _Load, batch: Batch) -> None:
        """Kill the worker if the batch takes too long."""
        if load.deadline:
            load.deadline.cancel()
        limit = GRACE_SECONDS + GRACE_FACTOR * sum(batch.shares.values())
        left = limit - batch.used - (time.monotonic() - batch.resumed)
        load.deadline = asyncio.get_running_loop().call_later(max(left, 0.0), self._expire, batch)

    def _expire(self, batch: Batch) -> None:
        _log.error("a worker takes too long")
        batch.worker.channel.kill()

    def _pause(self, load: _Load, batch: Batch) -> None:
        self._stop_watching(load, batch)
        load.paused[batch.number] = batch

    def _finish(self, load: _Load, batch: Batch) -> None:
        self._stop_watching(load, batch)
        load.paused.pop(batch.number, None)
        del self._batches[batch.number]
        self._queue.finish(batch.clients)
        for job in batch.jobs.values():
            self._admission.charge(job.work.client, job.used)
            if not job.result.done():
                job.result.set_exception(RefusedError(500, "something went wrong in the server"))

    def _stop_watching(self, load: _Load, batch: Batch) -> None:
        if load.running is batch:
            load.running = None
            if load.deadline:
                load.deadline.cancel()

    def _account(self, batch: Batch, seconds: float) -> None:
        """Charge the clients of a batch for its time, by what each of their requests is expected to take."""
        batch.used += seconds
        self._metrics.worked.inc(seconds)
        total = sum(batch.shares.values())
        for job in batch.jobs.values():
            share = batch.shares.get(job.number, 0.0) / total if total else 1 / len(batch.jobs)
            job.used += seconds * share
            self._queue.charge(job.client, seconds * share)

    def _leave(self, job: Job) -> None:
        """The caller waits no longer: a request that waits leaves the queue, one that runs is cancelled."""
        if job.batch is None:
            if job in self._queue:
                self._queue.remove(job)
                self._metrics.waiting.set(len(self._queue))
        elif job.batch.number in self._batches and job.result.cancelled():
            job.batch.worker.channel.send(message("cancel", batch=job.batch.number, job=job.number))

    def _retire(self, worker: Worker) -> None:
        """Let a worker end that is not needed any more, if it has nothing to do."""
        load = self._loads.get(worker)
        if load and load.running is None and not load.paused:
            closing = asyncio.ensure_future(worker.close())
            self._closing.add(closing)  # the event loop alone would forget it
            closing.add_done_callback(self._closing.discard)

    def _busy(self, seconds: float) -> RefusedError:
        wait = max(1, math.ceil(seconds / max(1, self.pool.size)))
        return RefusedError(429, "the server is busy: too many requests are waiting", wait)
