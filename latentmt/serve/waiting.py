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
    disconnected.add_done_callback(lambda _: working.cancel())
    try:
        async with asyncio.timeout(timeout):
            return Response(await working, media_type="application/json")
    except asyncio.CancelledError:
        if disconnected.done() and not disconnected.cancelled():
            raise ClientDisconnect from None
        raise
    finally:
        disconnected.cancel()
        working.cancel()


async def _disconnected(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass
