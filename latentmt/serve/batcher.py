"""Dynamic batching: requests that wait for a translator are translated together.

A request that finds an idle translator starts at once. While all translators are busy, requests wait in a queue. A
translator that becomes free takes the request that has waited longest and all compatible ones, up to a budget of
tokens, so batches grow with the load. If requests are waiting already, it first waits a few milliseconds more, so that
clients that have just been answered can join the next batch instead of alternating with the others.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from latentmt.engines.backend import CheckCancelled
from latentmt.options import DecodingOptions
from latentmt.serve.admission import Admission
from latentmt.serve.metrics import Metrics
from latentmt.translator import Translator

Task = Callable[[Translator, Sequence[str], DecodingOptions, CheckCancelled], Sequence[Any]]
"""Computes a result for each text. Requests with equal tasks and equal options share a batch."""

WINDOW = 0.003
"""Seconds a free translator waits for more requests if some are waiting already."""
_CPU_BATCH_TOKENS = 512
"""Tokens per batch on a CPU, unless the limits say otherwise. Larger batches only add latency."""
_GPU_BATCH_TOKENS = 4096


class _CancelledError(Exception):
    """All requests of a batch were cancelled."""


@dataclass(eq=False)
class _Job:
    """A request that is waiting or being translated."""

    task: Task
    options: DecodingOptions
    texts: Sequence[str]
    tokens: int
    result: asyncio.Future[Sequence[Any]]
    created: float = field(default_factory=time.perf_counter)


class Batcher:
    """Translators with a thread each, and the queue in front of them. Only for use from the event loop's thread."""

    def __init__(self, translators: Sequence[Translator], admission: Admission, metrics: Metrics) -> None:
        self._admission, self._metrics = admission, metrics
        on_gpu = any(translator.backend.on_gpu for translator in translators)
        self._batch_tokens = admission.limits.batch_tokens or (_GPU_BATCH_TOKENS if on_gpu else _CPU_BATCH_TOKENS)
        self._idle = list(translators)
        self._threads = ThreadPoolExecutor(len(translators), thread_name_prefix="translating")
        self._queue: deque[_Job] = deque()
        self._window: asyncio.TimerHandle | None = None

    async def run(self, task: Task, texts: Sequence[str], options: DecodingOptions, tokens: int) -> Sequence[Any]:
        """The task's result for each text. `tokens`: the estimated work.

        If the caller is cancelled, the request leaves the queue. A batch that is running stops early if all of its
        requests are cancelled.
        """
        if not texts:
            return []
        self._admission.enqueue(tokens)
        job = _Job(task, options, texts, tokens, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        self._metrics.characters.inc(sum(map(len, texts)))
        self._metrics.waiting.set(len(self._queue))
        if self._window is None or self._batch_is_full:
            self._start()
        try:
            return await job.result
        finally:
            if job in self._queue:
                self._queue.remove(job)
                self._dequeued(job)

    def close(self) -> None:
        """Wait for the batches that are running."""
        self._threads.shutdown()

    @property
    def _batch_is_full(self) -> bool:
        return self._admission.waiting_tokens >= self._batch_tokens

    def _dequeued(self, job: _Job) -> None:
        self._admission.dequeue(job.tokens)
        self._metrics.waiting.set(len(self._queue))

    def _start(self) -> None:
        """Start a batch on every idle translator."""
        if self._window:
            self._window.cancel()
            self._window = None
        while self._idle and self._queue:
            jobs, translator = self._next_batch(), self._idle.pop()
            self._metrics.batch.observe(sum(len(job.texts) for job in jobs))
            running = asyncio.get_running_loop().run_in_executor(self._threads, _run_batch, translator, jobs)
            running.add_done_callback(lambda done, to=translator, of=jobs: self._finish(done, to, of))  # type: ignore[misc]

    def _next_batch(self) -> list[_Job]:
        """Dequeue the job that has waited longest and those that fit into a batch with it."""
        first, room = self._queue[0], self._batch_tokens
        batch, rest = [], deque[_Job]()
        for job in self._queue:
            if job is first or (job.task == first.task and job.options == first.options and job.tokens <= room):
                batch.append(job)
                room -= job.tokens
            else:
                rest.append(job)
        self._queue = rest
        now = time.perf_counter()
        for job in batch:
            self._dequeued(job)
            self._metrics.waited.observe(now - job.created)
        return batch

    def _finish(self, running: asyncio.Future[_BatchResult], translator: Translator, jobs: list[_Job]) -> None:
        batch = running.result()
        for job, result in zip(jobs, batch.results, strict=True):
            if job.result.done():  # cancelled
                continue
            if isinstance(result, Exception):
                job.result.set_exception(result)
            else:
                job.result.set_result(result)
        if not any(isinstance(result, _CancelledError) for result in batch.results):
            self._admission.record_speed(sum(job.tokens for job in jobs), batch.seconds)
        self._idle.append(translator)
        if self._batch_is_full:
            self._start()
        elif self._queue and self._window is None:
            self._window = asyncio.get_running_loop().call_later(WINDOW, self._start)


@dataclass(frozen=True)
class _BatchResult:
    """A result or an error for each job, and how long the batch took."""

    results: list[Sequence[Any] | Exception]
    seconds: float


def _run_batch(translator: Translator, jobs: list[_Job]) -> _BatchResult:
    """Run jobs together. If that fails, run them one by one, so that only the job at fault fails."""
    start = time.perf_counter()
    texts = [text for job in jobs for text in job.texts]
    results: list[Sequence[Any] | Exception]

    def check_cancelled() -> None:
        if all(job.result.done() for job in jobs):
            raise _CancelledError

    try:
        outputs = iter(jobs[0].task(translator, texts, jobs[0].options, check_cancelled))
        results = [list(itertools.islice(outputs, len(job.texts))) for job in jobs]
    except Exception as error:
        results = [error] if len(jobs) == 1 else [_run_batch(translator, [job]).results[0] for job in jobs]
    return _BatchResult(results, max(time.perf_counter() - start, 1e-6))
