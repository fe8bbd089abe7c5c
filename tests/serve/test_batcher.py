"""Requests that wait are done together, in their turn, and nobody waits for nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from latentmt.engines.backend import CheckCancelled
from latentmt.options import DecodingOptions
from latentmt.serve.batcher import WINDOW, Batcher, BusyError, Do
from latentmt.serve.limits import Limits, work
from latentmt.serve.metrics import Metrics
from latentmt.serve.service import Alternatives, align, translate
from latentmt.serve.tracing import Tracing
from latentmt.translator import Translator

HOW, OTHER = DecodingOptions(), DecodingOptions(steps=2)


class Slow:
    """Repeats texts in capitals, when it is let; and knows what was done together."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.batches: list[list[str]] = []
        self.ended: list[list[str]] = []

    def __call__(
        self, _: Translator, texts: Sequence[str], options: DecodingOptions, check_cancelled: CheckCancelled
    ) -> list[str]:
        self.batches.append(list(texts))
        assert self.let.wait(10)
        check_cancelled()
        self.ended.append(list(texts))
        if "bad" in texts:
            raise ValueError("bad")
        return [text.upper() for text in texts]


@pytest.fixture
def slow() -> Slow:
    return Slow()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def make(translator: Translator, count: int = 1, **limits: int) -> Batcher:
    return Batcher([translator] * count, Limits(**limits), Metrics())


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_a_lone_request_is_started_at_once(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher, took = make(translator), []
        slow.let.set()
        for _ in range(20):
            start = time.perf_counter()
            assert await batcher.run(slow, ["a", "b"], HOW) == ["A", "B"]
            took.append(time.perf_counter() - start)
        assert sorted(took)[10] < WINDOW
        batcher.close()

    run(test())


def test_what_waits_is_done_together_if_it_asks_for_the_same(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator)
        first = asyncio.create_task(batcher.run(slow, ["a"], HOW))
        await until(lambda: slow.batches)
        others = [
            asyncio.create_task(batcher.run(slow, [text, text * 2], options))
            for text, options in (("b", HOW), ("c", OTHER), ("d", HOW))
        ]
        await asyncio.sleep(0.02)
        slow.let.set()
        assert await first == ["A"]
        assert await asyncio.gather(*others) == [["B", "BB"], ["C", "CC"], ["D", "DD"]]
        assert slow.batches == [["a"], ["b", "bb", "d", "dd"], ["c", "cc"]]
        batcher.close()

    run(test())


def test_two_clients_share_batches_instead_of_taking_turns(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator)

        def busy(*_: Any) -> list[str]:
            slow.batches.append(list(_[1]))
            time.sleep(0.01)
            return list(_[1])

        async def client(name: str) -> None:
            for _ in range(10):
                await batcher.run(busy, [name], HOW)

        await asyncio.gather(client("a"), client("b"))
        assert len(slow.batches) <= 14  # 20, if they took turns
        batcher.close()

    run(test())


def test_the_budget_bounds_a_batch_but_never_splits_a_request(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator, batch=10)
        tasks = [
            asyncio.create_task(batcher.run(slow, texts, HOW)) for texts in (["a"], ["b"] * 20, ["c"] * 4, ["d"] * 4)
        ]
        await until(lambda: slow.batches)
        slow.let.set()
        assert [len(found) for found in await asyncio.gather(*tasks)] == [1, 20, 4, 4]
        assert [len(batch) for batch in slow.batches] == [1, 20, 8]
        batcher.close()

    run(test())


def test_more_than_may_wait_is_refused(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator, waiting=2, work=work(["x"] * 10, HOW))
        tasks = [asyncio.create_task(batcher.run(slow, ["a"], HOW))]
        await until(lambda: slow.batches)
        tasks += [asyncio.create_task(batcher.run(slow, ["b"], HOW)) for _ in range(2)]
        await asyncio.sleep(0)
        assert batcher.full
        with pytest.raises(BusyError) as refused:
            await batcher.run(slow, ["c"], HOW)
        assert refused.value.seconds >= 1
        tasks.pop().cancel()
        await asyncio.sleep(0.01)
        assert not batcher.full
        with pytest.raises(BusyError):  # there is room for another request, but not for so much
            await batcher.run(slow, ["c"] * 10, HOW)
        tasks.append(asyncio.create_task(batcher.run(slow, ["d"], HOW)))
        slow.let.set()
        assert await asyncio.gather(*tasks) == [["A"], ["B"], ["D"]]
        batcher.close()

    run(test())


def test_who_has_left_is_not_translated(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator)
        first, gone = (asyncio.create_task(batcher.run(slow, [text], HOW)) for text in "ab")
        await until(lambda: slow.batches)
        gone.cancel()
        first.cancel()  # this one is being worked on, but not to its end
        await asyncio.sleep(0.01)
        slow.let.set()
        assert await batcher.run(slow, ["c"], HOW) == ["C"]
        assert slow.batches == [["a"], ["c"]]
        assert slow.ended == [["c"]]
        batcher.close()

    run(test())


def test_what_somebody_still_waits_for_is_finished(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator)
        first = asyncio.create_task(batcher.run(slow, ["a"], HOW))
        await until(lambda: slow.batches)
        gone, stays = (asyncio.create_task(batcher.run(slow, [text], HOW)) for text in "bc")
        slow.let.set()
        await first
        slow.let.clear()
        await until(lambda: len(slow.batches) == 2)
        gone.cancel()
        await asyncio.sleep(0.01)
        slow.let.set()
        assert await stays == ["C"]
        assert slow.ended == [["a"], ["b", "c"]]
        batcher.close()

    run(test())


@pytest.mark.parametrize("do", [translate, align, Alternatives(2), Tracing()])
def test_work_that_nobody_waits_for_ends_between_batches(translator: Translator, do: Do) -> None:
    asked = 0

    def check_cancelled() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        do(
            translator,
            ["Ein Satz. " * 60],
            DecodingOptions(method="score", lengths=8, samples=8, rerank="decoder"),
            check_cancelled,
        )


def test_nobody_pays_for_anothers_failure(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator)
        first = asyncio.create_task(batcher.run(slow, ["a"], HOW))
        await until(lambda: slow.batches)
        others = [asyncio.create_task(batcher.run(slow, [text], HOW)) for text in ("b", "bad", "c")]
        await asyncio.sleep(0)
        slow.let.set()
        found = await asyncio.gather(first, *others, return_exceptions=True)
        assert found[:2] + found[3:] == [["A"], ["B"], ["C"]]
        assert isinstance(found[2], ValueError)
        batcher.close()

    run(test())


def test_several_translators_work_at_the_same_time(translator: Translator, slow: Slow) -> None:
    async def test() -> None:
        batcher = make(translator, 2)
        tasks = [asyncio.create_task(batcher.run(slow, [text], HOW)) for text in "ab"]
        await until(lambda: len(slow.batches) == 2)
        slow.let.set()
        assert await asyncio.gather(*tasks) == [["A"], ["B"]]
        batcher.close()

    run(test())


def test_work_grows_with_what_is_asked_for() -> None:
    texts = ["a" * 100] * 4
    assert work(texts, DecodingOptions(method="prior")) < work(texts, HOW) < work(texts, OTHER)
    assert work(texts, DecodingOptions(lengths=5, samples=5, rerank="decoder")) > 20 * work(
        texts, DecodingOptions(method="prior")
    )
    assert work(texts, DecodingOptions(method="teacher")) > work(texts, HOW)
    assert work([], HOW) == 0 < work([""], HOW)
    assert work(texts, HOW, traced=True) > 4 * work(texts, HOW)  # a sentence at a time
    assert work(["😀" * 100], DecodingOptions(method="prior")) > 300  # a byte, a token
    assert work(["Schöne Grüße aus Köln, und bis bald!"], HOW) < 1.5 * work(
        ["Schone Grusse aus Koln, und bis bald"], HOW
    )
