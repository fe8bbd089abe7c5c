"""An application without sockets, whose workers are threads of this process with translators that are loaded already.

Workers say and hear the same as those that are processes.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import httpx
from starlette.types import ASGIApp

from latentmt.serve.admission import Admission, ApiKeys, Limits
from latentmt.serve.app import make_app
from latentmt.serve.broker import Broker
from latentmt.serve.costs import Costs
from latentmt.serve.front import FrontApp, Link
from latentmt.serve.fronts import Front
from latentmt.serve.gateway import Gateway
from latentmt.serve.messages import Message, Receiver
from latentmt.serve.metrics import Metrics
from latentmt.serve.origins import Origins
from latentmt.serve.pool import PoolConfig
from latentmt.serve.process import Channel
from latentmt.serve.worker import run
from latentmt.translator import Translator


class ThreadChannel:
    """A worker in a thread."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._receiver, self._writer = Receiver(reader), writer

    def send(self, what: Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(bytes(what))

    async def receive(self) -> Message:
        return await self._receiver.receive()

    def close(self) -> None:
        self._writer.close()

    def kill(self) -> None:
        self._writer.transport.abort()


def in_thread(*loads: Callable[[], Translator]) -> Callable[[int], Awaitable[Channel]]:
    """Starts workers whose translators are loaded by these functions."""

    async def start(_: int) -> Channel:
        ours, theirs = socket.socketpair()

        def work() -> None:
            with suppress(OSError), theirs, theirs.makefile("rb") as source, theirs.makefile("wb") as output:
                run(source, output, lambda name, **_: loads[int(name)]())  # an error of the system: it was killed

        threading.Thread(target=work, daemon=True).start()
        return ThreadChannel(*await asyncio.open_connection(sock=ours))

    return start


class MessageChannel:
    """A front process that is none."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.link: Link | None = None

    def send(self, what: Message) -> None:
        assert self.link
        self._loop.call_soon(self.link.received, copied(what))

    async def receive(self) -> Message:
        raise AssertionError

    def close(self) -> None: ...

    def kill(self) -> None: ...


def copied(what: Message) -> Message:
    """A message as the other side reads it."""
    return Message(what.kind, json.loads(json.dumps(dict(what.header))), what.body)


def front_of(
    app: ASGIApp, gateway: Gateway, limits: Limits, origins: Origins, loop: asyncio.AbstractEventLoop
) -> FrontApp:
    """The application of a front process."""
    channel = MessageChannel(loop)
    front = Front(channel, gateway, app)
    keys = gateway.admission.requires_key
    channel.link = Link(gateway.models, keys, lambda what: loop.call_soon(front.received, copied(what)))
    return FrontApp(channel.link, limits, keys, origins)


class Client:
    """Sends requests to an application, one after another."""

    def __init__(self, runner: asyncio.Runner, app: Any, gateway: Gateway) -> None:
        self.runner, self.gateway = runner, gateway
        self._app = app

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.runner.run(self.send(method, path, **options))

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        address = options.pop("address", "10.0.0.1")
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **options)

    def get(self, path: str) -> Any:
        response = self.request("GET", path)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, **body: Any) -> Any:
        response = self.request("POST", path, json=body)
        assert response.status_code == 200, response.text
        return response.json()

    def refused(self, path: str, status: int, **body: Any) -> str:
        response = self.request("POST", path, json=body)
        assert response.status_code == status, response.text
        assert list(response.json()) == ["error"]
        return str(response.json()["error"])


@contextmanager
def serving(
    *loads: Callable[[], Translator],
    limits: Limits = Limits(),  # noqa: B008 (immutable)
    keys: ApiKeys | None = None,
    workers: int = 1,
    costs: Costs | Sequence[Costs] = Costs(),  # noqa: B008 (immutable)
    origins: Origins = Origins(),  # noqa: B008 (immutable)
    through_front: bool = False,
) -> Iterator[Client]:
    """A client of an application, in which functions may run, too, that share its event loop.

    `through_front`: the application of a front process receives the requests, and tells the other one by messages.
    """
    with asyncio.Runner() as runner:
        admission, metrics = Admission(limits, keys), Metrics()
        models = [str(number) for number in range(len(loads))]
        each = [costs] * len(loads) if isinstance(costs, Costs) else costs  # measuring takes seconds
        config = PoolConfig(models=models, limits=limits, workers=workers, costs=each)
        broker = Broker(admission, metrics, config, in_thread(*loads))
        runner.run(broker.start())
        gateway = Gateway(admission, broker, metrics)
        try:
            app: ASGIApp = make_app(gateway, origins)
            if through_front:
                app = front_of(app, gateway, limits, origins, runner.get_loop())
            yield Client(runner, app, gateway)
        finally:
            broker.close()
            runner.run(asyncio.sleep(0))


Serving = Callable[..., AbstractContextManager[Client]]
