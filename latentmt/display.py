"""Messages, progress and tables: a progress bar on a terminal, plain lines elsewhere.

Messages and progress go to standard error. Commands write their results to standard output.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

_LINE_INTERVAL = 10.0
"""Seconds between plain progress lines."""


def info(message: str) -> None:
    """Print one line to standard error."""
    print(message, file=sys.stderr, flush=True)


class ProgressBar:
    """The progress of a task that counts units of work.

    with ProgressBar("reading", "pairs", total=None) as progress:
        progress.advance(1000)
    """

    def __init__(self, what: str, unit: str, total: int | None = None) -> None:
        self._what, self._unit, self._total = what, unit, total
        self._start = time.monotonic()
        self.done = 0
        self._note = ""
        self._last_line = self._start
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            columns = [
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[count]}"),
            ]
            self._bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(what, total=total, count="")

    def __enter__(self) -> ProgressBar:
        if self._bar:
            self._bar.start()
        return self

    def advance(self, count: int, note: str = "") -> None:
        """Count more units. The note is shown after them."""
        self.done += count
        self._note = f", {note}" if note else ""
        if self._bar:
            self._bar.update(self._task, completed=self.done, count=self._status())
        elif time.monotonic() - self._last_line > _LINE_INTERVAL:
            self._last_line = time.monotonic()
            info(f"{self._what}: {self._status()}")

    def reached(self, done: int, total: int) -> None:
        """Say how many units of how many are done."""
        self._total = total
        if self._bar:
            self._bar.update(self._task, total=total)
        self.advance(done - self.done)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()
        if error is None:
            info(f"{self._what}: {self._status()} in {time.monotonic() - self._start:.1f} s")

    def _status(self) -> str:
        total = f" of {self._total:,}" if self._total else ""
        rate = self.done / max(time.monotonic() - self._start, 1e-9)
        return f"{self.done:,}{total} {self._unit} ({rate:,.0f}/s){self._note}"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table with text in the first column and numbers in the others."""
    result = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        result.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        result.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    return result


def output() -> Console:
    """The console for results, wide enough for a table if standard output is a file."""
    return Console() if sys.stdout.isatty() else Console(width=110)
