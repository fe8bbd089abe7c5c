"""Signals as events of an asyncio loop, on every system."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

STOPPING = ("SIGTERM", "SIGINT", "SIGBREAK")
"""What ends a server. The last one is Ctrl-Break, on Windows."""


def on_signal(name: str, handler: Callable[[], object]) -> None:
    """Call a function in the running loop at every signal of that name, if the system has it."""
    number = getattr(signal, name, None)
    if number is None:
        return
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(number, handler)
    except NotImplementedError:  # on Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(handler))
