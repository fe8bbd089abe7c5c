"""An HTTP connection that is neither patient for ever nor closed too early. uvicorn's, with some habits changed.

A client that opens a connection has a few seconds to send the head of a request, and as many to go on reading an answer
that is too long to be sent at once. More connections than can be held are closed. What is no HTTP is answered in JSON.
And when the server is asked to stop, an idle connection is kept a moment longer: a request may be on its way.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_GRACE = 0.3
"""Seconds that an idle connection is kept when the server stops."""


class Connection(H11Protocol):
    """A connection; `patience` is for how many seconds a client may be waited for."""

    patience = 10.0
    most = 4096
    """Connections at the same time."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._stopping = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        self._is_read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for the client to read, for a while."""
        super().pause_writing()
        self._reading = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: it has read."""
        super().resume_writing()
        self._is_read()

    def data_received(self, data: bytes) -> None:
        if self._idle and self._head is None:
            self._expect_head()
        try:
            super().data_received(data)
        except h11.ProtocolError:  # more nonsense after it has been answered
            self.transport.abort()
        if not self._idle:
            self._head_is_there()
            if self._stopping:
                self._last_answer()

    def send_400_response(self, msg: str) -> None:
        """Say what is wrong, unless an answer is under way already."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        body = json.dumps({"error": "this is no HTTP request"}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def shutdown(self) -> None:
        """Close as soon as nothing is under way."""
        if self._idle and not self._stopping:
            self.loop.call_later(_GRACE, self.shutdown)
        elif not self._idle:
            self._last_answer()
        elif not self.transport.is_closing():
            super().shutdown()
        self._stopping = True

    def _last_answer(self) -> None:
        """Close after the answer that is under way, and say so in it."""
        if self.cycle.keep_alive:
            self.cycle.keep_alive = False
            self.cycle.default_headers = [*self.cycle.default_headers, (b"connection", b"close")]

    @property
    def _idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _expect_head(self) -> None:
        self._head = self.loop.call_later(self.patience, self._too_late)

    def _head_is_there(self) -> None:
        if self._head:
            self._head.cancel()
            self._head = None

    def _is_read(self) -> None:
        if self._reading:
            self._reading.cancel()
            self._reading = None

    def _too_late(self) -> None:
        self._head = None
        if self._idle:
            self.transport.abort()
