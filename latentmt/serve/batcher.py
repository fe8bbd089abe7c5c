"""Requests that wait are translated together. It knows asyncio and threads; what is done with texts it is told.

A request that finds a translator idle is started at once. Those that come while all are busy wait, and whoever becomes
free takes all that ask for the same, up to a budget; so the busier it is, the more are done together. When work was
waiting already, the free one gives those who have just been answered a few milliseconds to ask again: two clients then
share every batch instead of taking turns.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from latentmt.engines.backend import CheckCancelled
from latentmt.options import DecodingOptions
from latentmt.serve.limits import Limits, work
from latentmt.serve.metrics import Metrics
from latentmt.translator import Translator

Do = Callable[[Translator, Sequence[str], DecodingOptions, CheckCancelled], Sequence[Any]]
"""What is done with texts: something for each of them. Requests are done together if this and how are equal."""

WINDOW = 0.003
"""Seconds that a free translator waits for company, where requests wait already."""
_CPU_BATCH = 512
"""Tokens translated together, unless the limits say it: more would only make everybody wait longer."""
_GPU_BATCH = 4096
"""The same, where there is a GPU."""
_FORGETS = 0.2
"""How much the newest batch counts in the estimate of the speed."""


class BusyError(Exception):
    """Too much is waiting. `seconds`: when to ask again."""

    def __init__(self, seconds: int) -> None:
        super().__init__("the server is busy: too many requests are waiting")
        self.seconds = seconds


class _GivenUpError(Exception):
    """Nobody waits for this any more."""


@dataclass(eq=False)
class _Job:
    """A request that waits, or is worked on."""

    do: Do
    options: DecodingOptions
    texts: Sequence[str]
    work: int
    result: asyncio.Future[Sequence[Any]]
    since: float = field(default_factory=time.perf_counter)


class Batcher:
    """Translators, a thread for each, and the requests that wait for them. Not for use from other threads."""

    def __init__(self, translators: Sequence[Translator], limits: Limits, metrics: Metrics) -> None:
        self._limits, self._metrics = limits, metrics
        on_gpu = any(translator.device.type == "cuda" for translator in translators)
        self._batch = limits.batch or (_GPU_BATCH if on_gpu else _CPU_BATCH)
        self._idle = list(translators)
        self._threads = ThreadPoolExecutor(len(translators), thread_name_prefix="translating")
        self._waiting: deque[_Job] = deque()
        self._window: asyncio.TimerHandle | None = None
        self._work = 0
        """Of what is waiting."""
        self._speed = 1000.0
        """Work a second, as measured lately."""

    @property
    def full(self) -> bool:
        """Whether another request would be refused."""
        return len(self._waiting) >= self._limits.waiting or self._work >= self._limits.work

    def busy(self) -> BusyError:
        """What to say then."""
        return BusyError(max(1, math.ceil(self._work / self._speed)))

    async def run(self, do: Do, texts: Sequence[str], options: DecodingOptions, traced: bool = False) -> Sequence[Any]:
        """What is done with these texts, in a moment. `traced`: whether that is a trace.

        Cancelled, the request gives up its place; and what is being done is given up where nobody else waits for it.
        """
        if not texts:
            return []
        size = work(texts, options, traced)
        if len(self._waiting) >= self._limits.waiting or (self._waiting and self._work + size > self._limits.work):
            raise self.busy()
        job = _Job(do, options, texts, size, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._metrics.characters.inc(sum(map(len, texts)))
        self._changed(size)
        if self._window is None or self._work >= self._batch:
            self._start()
        try:
            return await job.result
        finally:
            if job in self._waiting:
                self._waiting.remove(job)
                self._changed(-size)

    def close(self) -> None:
        """Finish what has been started, and is still waited for."""
        self._threads.shutdown()

    def _changed(self, size: int) -> None:
        self._work += size
        self._metrics.waiting.set(len(self._waiting))

    def _start(self) -> None:
        """Give idle translators something to do."""
        if self._window:
            self._window.cancel()
            self._window = None
        while self._idle and self._waiting:
            jobs, translator = self._taken(), self._idle.pop()
            self._metrics.batch.observe(sum(len(job.texts) for job in jobs))
            running = asyncio.get_running_loop().run_in_executor(self._threads, _done, translator, jobs)
            running.add_done_callback(lambda ended, to=translator, of=jobs: self._ended(ended, to, of))  # type: ignore[misc]

    def _taken(self) -> list[_Job]:
        """The request that has waited longest, and all that can be done together with it."""
        first, room = self._waiting[0], float(self._batch)
        taken, left = [], deque[_Job]()
        for job in self._waiting:
            if job is first or (job.do == first.do and job.options == first.options and job.work <= room):
                taken.append(job)
                room -= job.work
            else:
                left.append(job)
        self._waiting = left
        self._changed(-sum(job.work for job in taken))
        now = time.perf_counter()
        for job in taken:
            self._metrics.waited.observe(now - job.since)
        return taken

    def _ended(self, running: asyncio.Future[_Results], translator: Translator, jobs: list[_Job]) -> None:
        results = running.result()
        for job, result in zip(jobs, results.each, strict=True):
            if job.result.done():  # whoever asked has gone
                continue
            if isinstance(result, Exception):
                job.result.set_exception(result)
            else:
                job.result.set_result(result)
        if not any(isinstance(result, _GivenUpError) for result in results.each):
            speed = sum(job.work for job in jobs) / results.seconds
            self._speed += _FORGETS * (speed - self._speed)
        self._idle.append(translator)
        if self._work >= self._batch:
            self._start()
        elif self._waiting and self._window is None:
            self._window = asyncio.get_running_loop().call_later(WINDOW, self._start)


@dataclass(frozen=True)
class _Results:
    """What became of each job, and how long all of them took."""

    each: list[Sequence[Any] | Exception]
    seconds: float


def _done(translator: Translator, jobs: list[_Job]) -> _Results:
    """Do what these jobs ask for, all together; if that fails, one by one, so that nobody pays for another."""
    start = time.perf_counter()
    texts = [text for job in jobs for text in job.texts]
    each: list[Sequence[Any] | Exception]

    def check_cancelled() -> None:
        if all(job.result.done() for job in jobs):
            raise _GivenUpError

    try:
        found = iter(jobs[0].do(translator, texts, jobs[0].options, check_cancelled))
        each = [list(itertools.islice(found, len(job.texts))) for job in jobs]
    except Exception as error:
        each = [error] if len(jobs) == 1 else [_done(translator, [job]).each[0] for job in jobs]
    return _Results(each, max(time.perf_counter() - start, 1e-6))
