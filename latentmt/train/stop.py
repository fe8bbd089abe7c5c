"""A request to stop a run, from a time limit or a signal. The training loop polls it, saves and exits.

Other stages write nothing that a stop could damage, so there a signal stops them at once.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from latentmt.errors import Stopped
from latentmt.system import signal_main_thread

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


class StopRequest:
    """Whether a stop is requested: the deadline has passed, or a signal has arrived."""

    def __init__(self, minutes: float | None = None) -> None:
        self._deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self._graceful = False
        self.signal: int | None = None
        """The signal that requested the stop, if any."""

    def requested(self) -> bool:
        return self.signal is not None or (self._deadline is not None and time.monotonic() > self._deadline)

    @contextmanager
    def graceful(self) -> Iterator[None]:
        """Inside this context a signal only requests a stop. Outside, it stops the work at once."""
        self._graceful = True
        try:
            yield
        finally:
            self._graceful = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal. A second Ctrl-C ends the process at once."""
        if self.signal is not None and number == signal.SIGINT:
            raise SystemExit(128 + number)  # the exit code that a shell gives to a process ended by a signal
        self.signal = number
        if not self._graceful:
            raise Stopped


@contextmanager
def stop_on_signal(minutes: float | None = None) -> Iterator[StopRequest]:
    """Request a stop after some minutes, on SIGTERM or on Ctrl-C."""
    stop, unraisable = StopRequest(minutes), sys.unraisablehook

    def stop_again(lost: UnraisableHookArgs) -> None:
        """A signal that arrives in a callback of C code raises where nothing can be raised. Send it again."""
        if isinstance(lost.exc_value, Stopped):
            threading.Timer(0.01, signal_main_thread, [signal.SIGTERM]).start()
        else:
            unraisable(lost)

    before = {number: signal.signal(number, stop.handle) for number in (signal.SIGTERM, signal.SIGINT)}
    sys.unraisablehook = stop_again
    try:
        yield stop
    finally:
        sys.unraisablehook = unraisable
        for number, handler in before.items():
            signal.signal(number, handler)
