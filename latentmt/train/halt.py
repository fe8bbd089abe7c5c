"""When a run should save and leave: after some minutes, or because somebody asked. It stops nothing itself."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Halt:
    """Whether it is time to save and leave: a deadline has passed, or a signal asked."""

    def __init__(self, minutes: float | None = None) -> None:
        self._deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self._patient = False
        self.signal: int | None = None
        """The one that asked, if any."""

    def wanted(self) -> bool:
        return self.signal is not None or (self._deadline is not None and time.monotonic() > self._deadline)

    @contextmanager
    def patience(self) -> Iterator[None]:
        """Here a signal only asks, since there is something to save first; elsewhere it ends the process at once."""
        self._patient = True
        try:
            yield
        finally:
            self._patient = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal; a second Ctrl-C is not patient."""
        if not self._patient or (self.signal is not None and number == signal.SIGINT):
            raise SystemExit(128 + number)  # as a shell names a process that a signal has ended
        self.signal = number


@contextmanager
def halting(minutes: float | None = None) -> Iterator[Halt]:
    """A halt after some minutes, or when SIGTERM or Ctrl-C asks for it."""
    halt = Halt(minutes)
    before = {number: signal.signal(number, halt.ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield halt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
