"""Translates rows one by one in a process of its own, for parts that end the process that translates them.

The process reads one text a line and answers each, as JSON. So the row that ends it, or that takes too long, is known.
Such a row gets a second chance in a new process, and keeps its text if it fails again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from types import TracebackType

from latentmt.bulk.choice import ModelChoice
from latentmt.bulk.rows import Row
from latentmt.bulk.translating import KILLED, SLOW, RowError, describe, translate_rows
from latentmt.bulk.writing import TranslatedRow
from latentmt.errors import UserError

_ROW_SECONDS = 300.0
"""The most time for one row."""
_LOADING_SECONDS = 600.0
_LOADED = b"loaded\n"
"""What the process says first."""
_CHANCES = 2


def isolated_translate(
    rows: Sequence[Row], choice: ModelChoice, max_chars: int, row_seconds: float = _ROW_SECONDS
) -> list[TranslatedRow]:
    """As `translate_rows`, with every row that ends the process passed over."""
    with _Process(choice, row_seconds) as process:
        return [done for row in rows for done in _translate(row, process, max_chars)]


def _translate(row: Row, process: _Process, max_chars: int) -> list[TranslatedRow]:
    why = ""
    for _ in range(_CHANCES):
        process.start()  # if it cannot be, that is no fault of the row
        try:
            return translate_rows([row], process.translate, max_chars)
        except _Ended as ended:
            why = str(ended)
    return [TranslatedRow(row.text, why)]


class _Ended(BaseException):
    """The process has ended, or was ended, while it translated. Not an `Exception`: no row is to blame alone."""


class _Process:
    """The process that translates."""

    def __init__(self, choice: ModelChoice, seconds: float) -> None:
        self._choice, self._seconds = choice, seconds
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def start(self) -> None:
        """Start the process unless it runs."""
        if self._process:
            return
        command = [sys.executable, "-m", __name__, json.dumps(asdict(self._choice))]
        self._process = process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._line(process, _LOADING_SECONDS) != _LOADED:
            self._end()
            raise UserError("a process that translates row by row could not load the model: is there memory for it?")

    def translate(self, texts: Sequence[str]) -> list[str]:
        return [self._answer(text) for text in texts]

    def _answer(self, text: str) -> str:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(text).encode() + b"\n")
            process.stdin.flush()
            line = self._line(process, self._seconds)
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            self._end()
            raise _Ended(KILLED)
        answer = json.loads(line)
        if "error" in answer:
            raise RowError(answer["error"])
        translation: str = answer["translation"]
        return translation

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        assert process.stdout is not None
        slow = threading.Event()

        def kill() -> None:
            slow.set()
            process.kill()

        timer = threading.Timer(seconds, kill)  # not select, which Windows has for sockets only
        timer.start()
        try:
            line = process.stdout.readline()
        finally:
            timer.cancel()
        if slow.is_set():
            self._end()
            raise _Ended(SLOW)
        return line

    def _end(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _main(argument: str) -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is not an answer
    translator, options = ModelChoice(**json.loads(argument)).load()
    answers.write(_LOADED)
    answers.flush()
    for line in sys.stdin.buffer:
        try:
            answer = {"translation": translator.translations([json.loads(line)], options)[0].text}
        except Exception as error:
            answer = {"error": describe(error)}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    _main(sys.argv[1])
