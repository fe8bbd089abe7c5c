"""ASGI middleware around the application: origins, body limits, headers, unexpected errors and metrics.

Every error is answered as {"error": message}. Log messages contain no texts, addresses or stack traces, unless the
server is verbose.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from latentmt.serve.admission import Admission
from latentmt.serve.metrics import Counting
from latentmt.serve.origins import Origins

_log = logging.getLogger("latentmt.serve")

_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'"),
]


UPLOADS = ("/translate_file", "/v2/document")
"""Paths to which documents are sent."""
_UPLOAD_PATIENCE = 6
"""A document may take so many times as long to arrive."""


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None, path: str = "") -> JSONResponse:
    """An error as every client gets it. The message is one line: it may quote what the client sent."""
    name = "message" if path.startswith("/v2/") else "error"  # as DeepL's clients expect it
    return JSONResponse({name: " ".join(message.split())}, status, headers)


class Middleware:
    """Wraps the application."""

    def __init__(
        self, app: ASGIApp, admission: Admission, metrics: Counting, origins: Origins, verbose: bool = False
    ) -> None:
        self._app, self._admission, self._metrics = app, admission, metrics
        self._origins, self._verbose = origins, verbose

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status, body = time.perf_counter(), 0, _Body(receive, self._admission, scope["path"] in UPLOADS)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*map(_relative, message.get("headers", [])), *_HEADERS]
                if status in (400, 408, 413) and not body.complete:  # the rest of it is not read
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            refusal = self._origins.refusal(scope["method"], Headers(scope=scope))
            app = error_response(403, refusal, path=scope["path"]) if refusal else self._app
            await app(scope, body.receive, send_with_headers)
        except Exception as error:
            _log.error("%s while answering", type(error).__name__, exc_info=error if self._verbose else None)
            if not status:
                response = error_response(500, "something went wrong in the server", path=scope["path"])
                await response(scope, receive, send_with_headers)
        endpoint = getattr(scope.get("route"), "path", "other")
        self._metrics.answered(endpoint, status, time.perf_counter() - start)


def _relative(header: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """A redirect as a path on this server, whatever name the request had for it."""
    name, value = header
    if name.lower() != b"location":
        return header
    parts = urlsplit(value)
    return name, urlunsplit((b"", b"", b"/" + parts.path.lstrip(b"/"), parts.query, parts.fragment))


class _Body:
    """A request's body, limited in size and in the time it may take."""

    def __init__(self, receive: Receive, admission: Admission, is_upload: bool = False) -> None:
        self._receive, self._admission, self._is_upload = receive, admission, is_upload
        self._bytes = 0
        self._deadline = time.monotonic() + admission.limits.read_timeout * (_UPLOAD_PATIENCE if is_upload else 1)
        self.complete = False
        """Whether all of it has been received."""

    async def receive(self) -> Message:
        if self.complete:
            return await self._receive()
        try:
            async with asyncio.timeout(max(0.0, self._deadline - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, "the request took too long to arrive") from None
        self._bytes += len(message.get("body", b""))
        self.complete = not message.get("more_body", False)
        self._admission.check_body(self._bytes, self._is_upload)
        return message
