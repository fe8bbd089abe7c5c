"""A request that is received in one process and answered by the application of another one: ASGI in messages.

The application asks for each part of the body, and waits until each part of its response is taken, as if the client
were its own.

    from the client's process   request (once), received, sent
    from the application's      receive, send, end (once)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from latentmt.serve.messages import Message, message

_FIELDS = ("type", "asgi", "http_version", "server", "client", "scheme", "method", "root_path", "path")
_BYTES = ("raw_path", "query_string")
_DISCONNECTED = {"type": "http.disconnect"}

Sends = Callable[[Message], None]


class Forwarded:
    """A request of a client of this process."""

    def __init__(self, number: int, scope: Scope, receive: Receive, send: Send, tell: Sends) -> None:
        self._number, self._scope, self._tell = number, scope, tell
        self._receive_event, self._send_event = receive, send
        self._asked: asyncio.Queue[Message] = asyncio.Queue()

    def asked(self, what: Message) -> None:
        """The application wants something."""
        self._asked.put_nowait(what)

    async def run(self) -> None:
        """Do what the application wants, until it is done."""
        scope = {name: self._scope[name] for name in _FIELDS if name in self._scope}
        scope |= {name: self._scope[name].decode("latin-1") for name in _BYTES if self._scope.get(name) is not None}
        self._tell(message("request", number=self._number, scope=scope | {"headers": _text(self._scope["headers"])}))
        receiving: asyncio.Future[None] | None = None
        try:
            while (what := await self._asked.get()).kind != "end":
                if what.kind == "receive":
                    receiving = asyncio.ensure_future(self._receive())
                else:
                    await self._send(what)
        except BaseException:
            self._tell(message("left", number=self._number))  # the application waits for us no longer
            raise
        finally:
            if receiving:
                receiving.cancel()

    async def _receive(self) -> None:
        event = dict(await self._receive_event())
        self._tell(message("received", event.pop("body", b""), number=self._number, event=event))

    async def _send(self, what: Message) -> None:
        event = dict(what.header["event"])
        if "headers" in event:
            event["headers"] = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in event["headers"]]
        if event["type"] == "http.response.body":
            event["body"] = what.body
        await self._send_event(event)
        self._tell(message("sent", number=self._number))


class Answering:
    """A request of a client of another process, for an application here."""

    def __init__(self, number: int, tell: Sends) -> None:
        self._number, self._tell = number, tell
        self._received: asyncio.Future[Event] | None = None
        self._sent: asyncio.Future[None] | None = None
        self._gone = False

    async def run(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        """Answer it."""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in scope["headers"]]
        scope |= {name: scope[name].encode("latin-1") for name in _BYTES if name in scope}
        scope |= {name: scope[name] and tuple(scope[name]) for name in ("client", "server") if name in scope}
        try:
            await app(scope | {"headers": headers}, self._receive, self._send)
        finally:
            self._tell(message("end", number=self._number))

    def answered(self, what: Message) -> None:
        """The client's process has done what we wanted."""
        if what.kind == "received" and self._received and not self._received.done():
            self._received.set_result({**what.header["event"], "body": what.body})
        elif what.kind == "sent" and self._sent and not self._sent.done():
            self._sent.set_result(None)

    def lost(self) -> None:
        """The client's process is gone."""
        self._gone = True
        if self._received and not self._received.done():
            self._received.set_result(_DISCONNECTED)
        if self._sent and not self._sent.done():
            self._sent.set_result(None)

    async def _receive(self) -> Event:
        if self._gone:
            return _DISCONNECTED
        if self._received is None:  # or it was asked for, and the one who did was cancelled
            self._received = asyncio.get_running_loop().create_future()
            self._tell(message("receive", number=self._number))
        event = await asyncio.shield(self._received)
        self._received = None
        return event

    async def _send(self, event: Event) -> None:
        if self._gone:
            return
        fields = dict(event)
        body = fields.pop("body", b"")
        if "headers" in fields:
            fields["headers"] = _text(fields["headers"])
        self._sent = asyncio.get_running_loop().create_future()
        self._tell(message("send", body, number=self._number, event=fields))
        await self._sent


def _text(headers: Any) -> list[tuple[str, str]]:
    """Headers as JSON has them."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
