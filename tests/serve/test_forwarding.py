"""Forwarded requests end on both sides, whichever side ends first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from latentmt.serve.forwarding import Forwarded
from latentmt.serve.fronts import Front
from latentmt.serve.gateway import Gateway
from latentmt.serve.messages import Message, message
from latentmt.serve.process import Channel

SCOPE = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """An application."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"all"})


async def receive_nothing() -> Any:
    await asyncio.Event().wait()


class Recorded(Channel):
    """Keeps what is sent."""

    def __init__(self, sent: list[Message]) -> None:
        self._sent = sent

    def send(self, what: Message) -> None:
        self._sent.append(what)


def front_of(sent: list[Message]) -> Front:
    """What the broker's process has of a front process."""
    return Front(Recorded(sent), object.__new__(Gateway), answer)  # no request here needs the gateway


async def ended(front: Front) -> bool:
    """Whether the application has no request left, after some turns."""
    for _ in range(20):
        await asyncio.sleep(0)
    return not front._tasks and not front._forwarded


def test_a_request_ends_if_its_front_process_ends_in_the_same_turn() -> None:
    async def run() -> bool:
        front = front_of([])
        front.received(message("request", number=1, scope={**SCOPE, "query_string": ""}))
        front.lost()
        return await ended(front)

    assert asyncio.run(run())


@pytest.mark.parametrize("error", [RuntimeError("longer than Content-Length"), asyncio.CancelledError()])
def test_a_request_that_cannot_be_answered_ends_in_the_broker_too(error: BaseException) -> None:
    async def fail(event: Any) -> None:
        raise error

    async def run() -> bool:
        asked: list[Message] = []
        front, told = front_of(asked), list[Message]()
        forwarded = Forwarded(1, SCOPE, receive_nothing, fail, told.append)
        running = asyncio.ensure_future(forwarded.run())
        for _ in range(20):
            await asyncio.sleep(0)
            for what in told:
                front.received(what)
            for what in asked:
                forwarded.asked(what)
            told.clear()
            asked.clear()
        with pytest.raises(type(error)):
            await running
        return await ended(front)

    assert asyncio.run(run())
