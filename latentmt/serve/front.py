"""A front process: accepts HTTP, and has its requests answered by the process of the broker.

Requests with texts are read, checked and estimated here, so that the broker has little to do for each. All others are
forwarded as they are. Whether a request is accepted, and whose turn it is, is decided there alone.

    from the broker's process   start (once), models, result, refused, receive, send, end, stop
    from the front process      ready (once), admit, submit, cancel, counted, request, received, sent, left
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from latentmt.options import DecodingOptions
from latentmt.serve.admission import Admission, ApiKeys, Client, Limits, RefusedError, client_at
from latentmt.serve.app import make_text_app
from latentmt.serve.broker import Work
from latentmt.serve.facts import ModelFacts
from latentmt.serve.forwarding import Forwarded
from latentmt.serve.gateway import TextGateway
from latentmt.serve.listening import HttpServer, quiet_logs
from latentmt.serve.messages import Message, MessageError, Receiver, Sender, message
from latentmt.serve.models import Models
from latentmt.serve.origins import Origins
from latentmt.serve.signals import STOPPING
from latentmt.system import end_with_parent, ignore_signals, run_loop

COUNT_SECONDS = 0.1
"""After this long, the broker is told what was counted."""

Sends = Callable[[Message], None]


class Counts:
    """What was counted, until the broker is told."""

    def __init__(self, tell: Sends) -> None:
        self._tell = tell
        self._answered: list[tuple[str, int, float]] = []
        self._characters = 0
        self._timer: asyncio.TimerHandle | None = None

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        self._answered.append((endpoint, status, round(seconds, 6)))
        self._start_timer()

    def accepted(self, characters: int) -> None:
        self._characters += characters
        self._start_timer()

    def flush(self) -> None:
        """Tell the broker."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
            self._tell(message("counted", answered=self._answered, characters=self._characters))
            self._answered, self._characters = [], 0

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(COUNT_SECONDS, self.flush)


class Link:
    """The broker, from a front process."""

    def __init__(self, models: Models, requires_key: bool, tell: Sends) -> None:
        self.models, self.tell, self._requires_key = models, tell, requires_key
        self._numbers = itertools.count()
        self._calls: dict[int, asyncio.Future[Message]] = {}
        self._forwarded: dict[int, Forwarded] = {}

    def check_room(self, client: str) -> None:
        """The broker refuses what there is no room for; reading it before costs others nothing."""

    async def admit(self, address: str, key: str) -> Client:
        if not self._requires_key:
            return Client(client_at(address))
        return Client((await self._call("admit", address=address, key=key)).header["client"])

    async def submit(self, work: Work, fields: dict[str, Any]) -> bytes:
        what, body = _what(work.kind, work.model.pair, work.options, work.group), json.dumps(fields).encode()
        return (await self._call("submit", body, what=what, client=work.client.name, seconds=work.seconds)).body

    async def forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a request answered by the application in the broker's process."""
        number = next(self._numbers)
        self._forwarded[number] = forwarded = Forwarded(number, scope, receive, send, self.tell)
        try:
            await forwarded.run()
        finally:
            del self._forwarded[number]

    def received(self, what: Message) -> None:
        """The broker's process says something."""
        match what.kind:
            case "result" | "refused":
                call = self._calls.get(what.header["number"])
                if call and not call.done():
                    call.set_result(what)
            case "models":
                self.models = models_of(what.header["models"])
            case _:
                if forwarded := self._forwarded.get(what.header["number"]):
                    forwarded.asked(what)

    async def _call(self, kind: str, body: bytes = b"", **header: Any) -> Message:
        number = next(self._numbers)
        call: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._calls[number] = call
        self.tell(message(kind, body, number=number, **header))
        try:
            answer = await call
        except asyncio.CancelledError:
            self.tell(message("cancel", number=number))
            raise
        finally:
            del self._calls[number]
        if answer.kind == "refused":
            raise RefusedError(answer.header["status"], answer.header["error"], answer.header["retry_after"])
        return answer


class FrontApp:
    """Answers what has texts here, and forwards the rest."""

    def __init__(self, link: Link, limits: Limits, requires_key: bool, origins: Origins, verbose: bool = False) -> None:
        self.counts = Counts(link.tell)
        admission = Admission(limits, ApiKeys({}) if requires_key else None)  # it has no keys: the broker does
        self._texts = make_text_app(TextGateway(admission, link, self.counts), origins, verbose)
        self._paths = {route.path for route in self._texts.routes if isinstance(route, APIRoute)}
        self._link = link

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_text = scope["type"] != "http" or (scope["method"] == "POST" and scope["path"] in self._paths)
        await (self._texts if is_text else self._link.forward)(scope, receive, send)


def models_of(facts: Iterable[Mapping[str, Any]]) -> Models:
    """Models that were sent as JSON."""
    return Models([ModelFacts.from_dict(each) for each in facts])


@lru_cache(maxsize=256)
def _what(kind: str, pair: tuple[str, str], options: DecodingOptions, group: Any) -> str:
    """What requests that are translated together have in common, as JSON. It is nearly always the same."""
    return json.dumps([kind, pair, vars(options), group])


class _Pipe(asyncio.BaseProtocol):
    """The pipe to the broker's process."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


async def serve(listening: socket.socket) -> None:
    """Be a front process until all is answered after it was told to stop. `MessageError`: the broker is gone."""
    loop = asyncio.get_running_loop()
    reader, output = asyncio.StreamReader(), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever prints does not disturb the messages
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, pipe = await loop.connect_write_pipe(_Pipe, output)
    receiver = Receiver(reader)
    sender = Sender(transport.write)

    config = (await receiver.receive()).header
    limits, verbose, requires_key = Limits(**config["limits"]), config["verbose"], config["requires_key"]
    if not verbose:
        quiet_logs()
    link = Link(models_of(config["models"]), requires_key, sender.send)
    app = FrontApp(link, limits, requires_key, Origins(**config["origins"]), verbose)
    http = HttpServer(app, limits, verbose)
    sender.send(message("ready"))  # before it accepts requests, which are passed on at once
    obeying = asyncio.ensure_future(_obey(receiver, link, http))
    await http.start(listening)
    ended = asyncio.ensure_future(http.ended.wait())
    await asyncio.wait({obeying, ended}, return_when=asyncio.FIRST_COMPLETED)
    if obeying.done():
        obeying.result()
    app.counts.flush()
    sender.flush()
    transport.close()
    await pipe.closed.wait()


async def _obey(receiver: Receiver, link: Link, http: HttpServer) -> None:
    stopping: list[asyncio.Future[None]] = []
    while True:
        what = await receiver.receive()
        if what.kind == "stop":
            stopping.append(asyncio.ensure_future(http.stop()))
        else:
            link.received(what)


def main() -> None:
    """A front process. Its argument is the number of the listening socket."""
    ignore_signals((*STOPPING, "SIGHUP"))  # for the broker's process, which tells us when to stop
    end_with_parent()
    try:
        run_loop(serve(socket.socket(fileno=int(sys.argv[1]))))
    except MessageError:  # the broker's process is gone
        pass
    except Exception as error:  # a stack trace may quote texts
        print(f"error: {type(error).__name__} in a front process", file=sys.stderr)
    os._exit(0)
