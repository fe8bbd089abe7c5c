"""Stands before the application: large, slow or broken requests, errors nobody foresaw, counting. Plain ASGI.

Whatever goes wrong is answered as {"error": …}. What is logged has neither text nor addresses nor stack traces in it,
unless it is asked for.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from latentmt.serve.batcher import Batcher
from latentmt.serve.limits import Limits
from latentmt.serve.metrics import Metrics

_log = logging.getLogger("latentmt.serve")

_WORK = ("/translate", "/trace")
"""Where there is something to do."""
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'"),
]


class Guard:
    """An application, guarded."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics, batcher: Batcher, verbose: bool = False) -> None:
        self._app, self._limits, self._metrics, self._batcher, self._verbose = app, limits, metrics, batcher, verbose

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, body = time.perf_counter(), 0, _Body(receive, self._limits)

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *_HEADERS]
                if status in (400, 408, 413) and not body.whole:  # the rest of it is not wanted
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            if scope["path"] in _WORK and self._batcher.full:  # said at once: there is no time to read what is asked
                busy = self._batcher.busy()
                await _refuse(sent, 429, str(busy), [(b"retry-after", b"%d" % busy.seconds)])
            else:
                await self._app(scope, body.receive, sent)
        except Exception as error:
            _log.error("%s while answering", type(error).__name__, exc_info=error if self._verbose else None)
            if not status:
                await _refuse(sent, 500, "something went wrong in the server")
        path = scope["path"] if scope["path"] in _WORK else None
        endpoint = getattr(scope.get("route"), "path", path) or "other"
        self._metrics.requests.labels(endpoint, status).inc()
        self._metrics.seconds.labels(endpoint).observe(time.perf_counter() - start)


class _Body:
    """A request's body, which must not be too long, nor take too long."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._bytes = 0
        self._until = time.monotonic() + limits.reading
        self.whole = False
        """Whether all of it is there."""

    async def receive(self) -> Message:
        if self.whole:
            return await self._receive()
        try:
            async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, "the request took too long to arrive") from None
        self._bytes += len(message.get("body", b""))
        self.whole = not message.get("more_body", False)
        if self._bytes > self._limits.bytes:
            raise HTTPException(413, f"the request is larger than {self._limits.bytes:,} bytes")
        return message


async def _refuse(send: Send, status: int, message: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    body = json.dumps({"error": message}).encode()
    always = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*always, *headers]})
    await send({"type": "http.response.body", "body": body})
