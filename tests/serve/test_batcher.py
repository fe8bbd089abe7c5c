"""Requests that wait are translated together, in order, and cancelled ones are not translated."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from latentmt.engines.backend import CheckCancelled
from latentmt.options import DecodingOptions
from latentmt.serve.admission import Admission, Limits, RefusedError, estimate_tokens
from latentmt.serve.batcher import WINDOW, Batcher, Task
from latentmt.serve.metrics import Metrics
from latentmt.serve.service import TranslateTask
from latentmt.serve.tracing import TraceTask
from latentmt.translator import Translator

OPTIONS, MORE_STEPS = DecodingOptions(), DecodingOptions(steps=2)


class Slow:
    """A task that returns texts in capitals once it is released, and records its batches."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.batches: list[list[str]] = []
        self.finished: list[list[str]] = []

    def __call__(
        self, _: Translator, texts: Sequence[str], options: DecodingOptions, check_cancelled: CheckCancelled
    ) -> list[str]:
        self.batches.append(list(texts))
        assert self.released.wait(10)
        check_cancelled()
        self.finished.append(list(texts))
        if "bad" in texts:
            raise ValueError("bad")
        return [text.upper() for text in texts]


@pytest.fixture
def slow() -> Slow:
    return Slow()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def make(translator: Translator, count: int = 1, admission: Admission | None = None) -> Batcher:
    return Batcher([translator] * count, admission or Admission(Limits()), Metrics())


async def submit(batcher: Batcher, task: Task, texts: Sequence[str], options: DecodingOptions = OPTIONS) -> Any:
    return await batcher.run(task, texts, options, estimate_tokens(texts, options))


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_a_lone_request_starts_at_once(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher, took = make(translator), []
        slow.released.set()
        for _ in range(20):
            start = time.perf_counter()
            assert await submit(batcher, slow, ["a", "b"]) == ["A", "B"]
            took.append(time.perf_counter() - start)
        assert sorted(took)[10] < WINDOW
        batcher.close()

    run(test())


def test_waiting_requests_with_equal_options_share_a_batch(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator)
        first = asyncio.create_task(submit(batcher, slow, ["a"]))
        await until(lambda: slow.batches)
        others = [
            asyncio.create_task(submit(batcher, slow, [text, text * 2], options))
            for text, options in (("b", OPTIONS), ("c", MORE_STEPS), ("d", OPTIONS))
        ]
        await asyncio.sleep(0.02)
        slow.released.set()
        assert await first == ["A"]
        assert await asyncio.gather(*others) == [["B", "BB"], ["C", "CC"], ["D", "DD"]]
        assert slow.batches == [["a"], ["b", "bb", "d", "dd"], ["c", "cc"]]
        batcher.close()

    run(test())


def test_two_clients_share_batches_instead_of_alternating(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator)

        def busy(*_: Any) -> list[str]:
            slow.batches.append(list(_[1]))
            time.sleep(0.01)
            return list(_[1])

        async def client(name: str) -> None:
            for _ in range(10):
                await submit(batcher, busy, [name])

        await asyncio.gather(client("a"), client("b"))
        assert len(slow.batches) <= 14  # 20, if they alternated
        batcher.close()

    run(test())


def test_batch_tokens_bound_a_batch_but_never_split_a_request(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator, admission=Admission(Limits(batch_tokens=10)))
        tasks = [
            asyncio.create_task(submit(batcher, slow, texts)) for texts in (["a"], ["b"] * 20, ["c"] * 4, ["d"] * 4)
        ]
        await until(lambda: slow.batches)
        slow.released.set()
        assert [len(results) for results in await asyncio.gather(*tasks)] == [1, 20, 4, 4]
        assert [len(batch) for batch in slow.batches] == [1, 20, 8]
        batcher.close()

    run(test())


def test_a_full_queue_refuses_requests(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        admission = Admission(Limits(max_waiting=2, max_waiting_tokens=estimate_tokens(["x"] * 10, OPTIONS)))
        batcher = make(translator, admission=admission)
        tasks = [asyncio.create_task(submit(batcher, slow, ["a"]))]
        await until(lambda: slow.batches)
        tasks += [asyncio.create_task(submit(batcher, slow, ["b"])) for _ in range(2)]
        await asyncio.sleep(0)
        assert admission.queue_full
        with pytest.raises(RefusedError) as refused:
            await submit(batcher, slow, ["c"])
        assert refused.value.status == 429
        assert int(refused.value.headers["Retry-After"]) >= 1
        tasks.pop().cancel()
        await asyncio.sleep(0.01)
        assert not admission.queue_full
        with pytest.raises(RefusedError):  # there is room for another request, but not for so much
            await submit(batcher, slow, ["c"] * 10)
        tasks.append(asyncio.create_task(submit(batcher, slow, ["d"])))
        slow.released.set()
        assert await asyncio.gather(*tasks) == [["A"], ["B"], ["D"]]
        batcher.close()

    run(test())


def test_cancelled_requests_are_not_translated(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator)
        first, gone = (asyncio.create_task(submit(batcher, slow, [text])) for text in "ab")
        await until(lambda: slow.batches)
        gone.cancel()
        first.cancel()  # this one is being worked on, but not to its end
        await asyncio.sleep(0.01)
        slow.released.set()
        assert await submit(batcher, slow, ["c"]) == ["C"]
        assert slow.batches == [["a"], ["c"]]
        assert slow.finished == [["c"]]
        batcher.close()

    run(test())


def test_a_batch_with_an_uncancelled_request_is_finished(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator)
        first = asyncio.create_task(submit(batcher, slow, ["a"]))
        await until(lambda: slow.batches)
        gone, stays = (asyncio.create_task(submit(batcher, slow, [text])) for text in "bc")
        slow.released.set()
        await first
        slow.released.clear()
        await until(lambda: len(slow.batches) == 2)
        gone.cancel()
        await asyncio.sleep(0.01)
        slow.released.set()
        assert await stays == ["C"]
        assert slow.finished == [["a"], ["b", "c"]]
        batcher.close()

    run(test())


@pytest.mark.parametrize("task", [TranslateTask(), TranslateTask(alignment=True), TranslateTask(2), TraceTask()])
def test_tasks_check_for_cancellation_between_batches(translator: Translator, task: Task) -> None:
    checks = 0

    def check_cancelled() -> None:
        nonlocal checks
        checks += 1
        if checks == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        task(
            translator,
            ["Ein Satz. " * 60],
            DecodingOptions(method="score", lengths=8, samples=8, rerank="decoder"),
            check_cancelled,
        )


def test_a_failing_request_does_not_fail_its_batch(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator)
        first = asyncio.create_task(submit(batcher, slow, ["a"]))
        await until(lambda: slow.batches)
        others = [asyncio.create_task(submit(batcher, slow, [text])) for text in ("b", "bad", "c")]
        await asyncio.sleep(0)
        slow.released.set()
        results = await asyncio.gather(first, *others, return_exceptions=True)
        assert results[:2] + results[3:] == [["A"], ["B"], ["C"]]
        assert isinstance(results[2], ValueError)
        batcher.close()

    run(test())


def test_several_translators_run_batches_at_the_same_time(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator, 2)
        tasks = [asyncio.create_task(submit(batcher, slow, [text])) for text in "ab"]
        await until(lambda: len(slow.batches) == 2)
        slow.released.set()
        assert await asyncio.gather(*tasks) == [["A"], ["B"]]
        batcher.close()

    run(test())
