"""A layer between the sockets and uvicorn: bounds what connections may cost, and drains them at shutdown.

A client has a limited time to send the head of a request, and to read a response that is too long for the socket's
buffers. A head has a limited size. Connections beyond a maximum are closed. Of requests that are sent without waiting
for responses (pipelining), only a few are parsed ahead. What is not HTTP is answered in JSON, after the requests
before it. uvicorn has no settings for these.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any, Literal, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_MAX_HEAD = 64 * 1024
"""Bytes of a request's head, or between parts of a body."""
_PIECE = 1024
"""Bytes that are parsed at once. Requests in them are parsed before the first is answered."""


class Connections:
    """All connections of a server.

    `timeout`: seconds for a client to send a request's head, or to go on reading.
    """

    def __init__(self, timeout: float, max_connections: int) -> None:
        self.timeout, self.max_connections = timeout, max_connections
        self.open: set[_Connection] = set()
        self.draining = False

    def protocol(self, **options: Any) -> asyncio.Protocol:
        """The protocol of a new connection, for `uvicorn.Config(http=…)`."""
        return _Connection(self, **options)

    async def drain(self, seconds: float) -> None:
        """Close each connection with its next response, and wait: on an idle one, a request may be on its way."""
        self.draining = True
        for connection in self.open:
            connection.close_after_response()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self.open and loop.time() < deadline:
            await asyncio.sleep(0.01)


class _Connection(HttpToolsProtocol):
    """A connection: uvicorn's protocol, with bounds."""

    def __init__(self, connections: Connections, **options: Any) -> None:
        super().__init__(**options)
        self._all = connections
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._received = bytearray()
        """What is not parsed yet."""
        self._unread = 0
        """Bytes that were parsed since a head or a part of a body was complete."""
        self._invalid = False
        """Whether something that is no HTTP follows the requests so far."""
        self._unanswered: deque[RequestResponseCycle] = deque()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self._all.open) >= self._all.max_connections:
            transport.abort()
            return
        self._all.open.add(self)
        super().connection_made(cast(asyncio.Transport, _Transport(transport)))
        self._start_timer("head")

    def data_received(self, data: bytes) -> None:
        if self._invalid:
            return
        self._received += data
        self._parse()
        if self._received:
            self.flow.pause_reading()
        if self._is_idle and "head" not in self._timers:
            self._start_timer("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer("head")
        self._cancel_timer("write")
        if self in self._all.open:
            self._all.open.remove(self)
            self._received.clear()
            super().connection_lost(exc)
            for request in self._unanswered:  # uvicorn tells only the last one
                request.disconnected = True
                request.message_event.set()

    def pause_writing(self) -> None:
        """The buffers are full: the client has a limited time to read."""
        super().pause_writing()
        self._start_timer("write")

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_timer("write")

    def on_headers_complete(self) -> None:
        """A request begins. From now on the application is in charge of timeouts."""
        super().on_headers_complete()
        self._unanswered.append(self.cycle)
        self._unread = 0
        self._cancel_timer("head")
        if self._all.draining:
            self.close_after_response()

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        self._unanswered.popleft()
        super().on_response_complete()
        if self._is_idle and self._invalid:
            self._refuse()
        else:
            self._parse()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, as soon as the requests before it are answered."""
        self._received.clear()
        self._invalid = True
        if self._is_idle or (self.cycle.more_body and len(self._unanswered) == 1 and not self.cycle.response_started):
            self._refuse()

    def close_after_response(self) -> None:
        """Close the connection when the requests that were received are answered."""
        if self._unanswered:
            self._unanswered[-1].keep_alive = False

    @property
    def _is_idle(self) -> bool:
        """Whether all requests whose heads were received are answered."""
        return not self._unanswered

    def _parse(self) -> None:
        """Parse what was received, unless a request waits already for the response to another one."""
        while self._received and not self.pipeline and not self.transport.is_closing():
            piece = bytes(self._received[:_PIECE])
            del self._received[:_PIECE]
            self._unread += len(piece)
            super().data_received(piece)
            if self._unread > _MAX_HEAD and not self._invalid:
                self.send_400_response("")

    def _refuse(self) -> None:
        self.transport.write(_NOT_HTTP)
        self.transport.close()

    def _start_timer(self, name: Literal["head", "write"]) -> None:
        """Abort the connection after the timeout."""
        self._timers[name] = self.loop.call_later(self._all.timeout, self.transport.abort)

    def _cancel_timer(self, name: Literal["head", "write"]) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()


class _Transport:
    """A transport that ignores what is written after it was closed, where uvloop's fails."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)


_BODY = json.dumps({"error": "this is no HTTP request"}).encode()
_NOT_HTTP = (
    b"""HTTP/1.1 400 Bad Request\r
content-type: application/json\r
content-length: %d\r
connection: close\r
\r
"""
    % len(_BODY)
    + _BODY
)
