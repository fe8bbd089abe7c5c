"""Who sent a request, and work that is cancelled when they disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from fastapi import Request, Response
from starlette.requests import ClientDisconnect


def address(http: Request) -> str:
    """The address of the client."""
    return http.client.host if http.client else ""


async def while_connected(http: Request, work: Coroutine[Any, Any, bytes], timeout: float) -> Response:
    """The result of some work, as JSON. If the client disconnects, or it takes too long, the work is cancelled."""
    working = asyncio.ensure_future(work)
    disconnected = asyncio.ensure_future(_disconnected(http))
    try:
        await asyncio.wait({working, disconnected}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return Response(working.result(), media_type="application/json")
        raise ClientDisconnect if disconnected.done() else TimeoutError
    finally:
        disconnected.cancel()
        working.cancel()


async def _disconnected(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass
