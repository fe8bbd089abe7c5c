"""When a run should save and leave: after some minutes, or because somebody asked. It stops nothing itself."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Halt:
    """Whether it is time to save and leave: a deadline has passed, or somebody asked."""

    def __init__(self, minutes: float | None = None) -> None:
        self._deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self.asked = threading.Event()

    def wanted(self) -> bool:
        return self.asked.is_set() or (self._deadline is not None and time.monotonic() > self._deadline)


@contextmanager
def halting(minutes: float | None = None) -> Iterator[Halt]:
    """A halt after some minutes, or when SIGTERM or Ctrl-C asks for it; a second Ctrl-C leaves at once."""
    halt = Halt(minutes)

    def ask(number: int, frame: FrameType | None) -> None:
        if halt.asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        halt.asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield halt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
