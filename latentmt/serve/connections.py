"""A layer between the sockets and uvicorn: bounds what connections may cost, and drains them at shutdown.

A client has a limited time to send the head of a request, and to read a response that is too long for the socket's
buffers. Connections beyond a maximum are closed. A request that is not HTTP is answered in JSON. uvicorn has no
settings for these. uvicorn's protocol is used only as an `asyncio.Protocol` that calls an ASGI application.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

_log = logging.getLogger("latentmt.serve")

_current: ContextVar[_Connection | None] = ContextVar("connection", default=None)
"""The connection whose data is being handled. The tasks that uvicorn creates for requests inherit it."""


class Connections:
    """All connections of a server.

    `timeout`: seconds for a client to send a request's head, or to go on reading.
    """

    def __init__(self, timeout: float, max_connections: int) -> None:
        self.timeout, self.max_connections = timeout, max_connections
        self.open: set[asyncio.Protocol] = set()
        self._draining = False

    def protocol(self, **options: Any) -> asyncio.Protocol:
        """The protocol of a new connection, for `uvicorn.Config(http=…)`."""
        return _Connection(self, H11Protocol(**options))

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """An application that tells connections when their requests begin and end."""

        async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
            async def send_and_close(message: Message) -> None:
                if self._draining and message["type"] == "http.response.start":
                    message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
                await send(message)

            connection = _current.get()
            if scope["type"] != "http" or connection is None:
                await app(scope, receive, send)
            else:
                with connection.request():
                    await app(scope, receive, send_and_close)

        return wrapped

    async def drain(self, seconds: float) -> None:
        """Close each connection with its next response, and wait: on an idle one, a request may be on its way."""
        self._draining = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self.open and loop.time() < deadline:
            await asyncio.sleep(0.01)


class _Connection(asyncio.Protocol):
    """A connection. `http` is uvicorn's protocol, which reads requests and writes responses."""

    def __init__(self, connections: Connections, http: asyncio.Protocol) -> None:
        self._connections, self._http = connections, http
        self._requests = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._connections.open) >= self._connections.max_connections:
            self._transport.abort()
            return
        self._connections.open.add(self)
        self._http.connection_made(cast(asyncio.Transport, _JSONTransport(self._transport)))
        self._start_timer("head")

    def data_received(self, data: bytes) -> None:
        if not self._requests and "head" not in self._timers:
            self._start_timer("head")
        token = _current.set(self)
        try:
            self._http.data_received(data)
        except Exception as error:  # h11 refuses data that follow an error which was answered
            _log.debug("%s while reading", type(error).__name__)
            self._transport.abort()
        finally:
            _current.reset(token)

    def eof_received(self) -> bool | None:
        return self._http.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer("head")
        self._cancel_timer("write")
        if self in self._connections.open:
            self._connections.open.remove(self)
            self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        """The buffers are full: the client has a limited time to read."""
        self._http.pause_writing()
        self._start_timer("write")

    def resume_writing(self) -> None:
        self._http.resume_writing()
        self._cancel_timer("write")

    @contextmanager
    def request(self) -> Iterator[None]:
        """While the application handles a request, it is in charge of timeouts."""
        self._requests += 1
        self._cancel_timer("head")
        try:
            yield
        finally:
            self._requests -= 1

    def _start_timer(self, name: Literal["head", "write"]) -> None:
        """Abort the connection after the timeout."""
        loop = asyncio.get_running_loop()
        self._timers[name] = loop.call_later(self._connections.timeout, self._transport.abort)

    def _cancel_timer(self, name: Literal["head", "write"]) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()


_BODY = json.dumps({"error": "this is no HTTP request"}).encode()
_NOT_HTTP = b"""HTTP/1.1 400 Bad Request\r
content-type: application/json\r
content-length: %d\r
connection: close\r
\r
""" % len(_BODY)


_LENGTH = b"\r\ncontent-length:"


class _JSONTransport:
    """A transport with JSON in place of the plain text in which uvicorn refuses what is no HTTP request.

    Unlike responses of the application, such as a refused CORS preflight, that text has no content-length.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        head = data.lower()
        if head.startswith(b"http/1.1 400 ") and b"\r\ncontent-type: text/plain" in head and _LENGTH not in head:
            self._transport.write(_NOT_HTTP + _BODY)
            self._transport.close()
        else:
            self._transport.write(data)
