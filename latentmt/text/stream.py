"""Reads lines in batches of those that are ready, without waiting for more, and writes lines without delay.

So a person who types gets an answer to every line, and a pipe is read in batches with a bounded number of lines in
memory.
"""

from __future__ import annotations

import lzma
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from io import BufferedIOBase
from itertools import tee
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import BinaryIO, Literal

from latentmt.data.text import BadLine, decode_lines, open_text
from latentmt.display import info
from latentmt.errors import UserError

MAX_LINES = 256
"""The maximum number of lines in a batch."""

BadLines = Literal["replace", "skip", "stop"]
"""What becomes of a line that is not UTF-8: its bad bytes are replaced by U+FFFD, it is left out, or it is an error."""

_Queue = Queue[str | Exception | None]
"""Lines, followed by an error, or by None at the end of the file."""


def input_batches(
    texts: Sequence[str] | None, path: Path | None, bad_lines: BadLines = "replace"
) -> Iterator[list[str]]:
    """The input of a command in batches: its arguments, or the lines of a file, or else those of standard input."""
    if texts and path:
        raise UserError("--input: there are sentences on the command line already")
    if texts:
        return iter([[line for text in texts for line in text.split("\n")]])
    if path:
        return ready_lines(_closed_after(open_text(path)), str(path), bad_lines)
    return ready_lines(_standard_input(), "standard input", bad_lines)


def ready_lines(
    file: Iterable[bytes], name: str, bad_lines: BadLines = "replace", max_lines: int = MAX_LINES
) -> Iterator[list[str]]:
    """The lines of a file in batches of those that are ready: at least one, at most `max_lines`.

    `name` names the file in errors. If a line that is not text is an error, it is raised after all lines before it were
    returned. Reading begins with the call, in a thread that runs to the end of the file, or of the process.
    """
    queue: _Queue = Queue(max_lines)
    # A daemon thread, so that the process can end while it waits for a line.
    Thread(target=_read, args=(file, name, bad_lines, queue), name=f"reading {name}", daemon=True).start()
    return _batches(queue, max_lines)


def write_lines(lines: Iterable[str]) -> None:
    """Write lines to standard output in UTF-8, whatever the terminal's encoding is, and flush.

    Lone surrogates, which arguments of a command can have, become question marks.
    """
    if sys.stdout is None:
        raise UserError("standard output is closed")
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def _closed_after(file: BufferedIOBase) -> Iterator[bytes]:
    # Closed by the thread that reads, because closing waits for a pending read, which may never end.
    with file:
        yield from file


def _standard_input() -> BinaryIO:
    """Standard input, through a buffer other than `sys.stdin`'s.

    Python closes that one at exit, which aborts the process if a thread still reads from it.
    """
    if sys.stdin is None:
        raise UserError("standard input is closed")
    return open(sys.stdin.fileno(), "rb", closefd=False)


def _read(file: Iterable[bytes], name: str, bad_lines: BadLines, queue: _Queue) -> None:
    bad = 0
    try:
        for raw, line in _decoded(file, name):
            if isinstance(line, str):
                queue.put(line)
                continue
            if bad_lines == "stop":
                raise UserError(line.message)
            bad += 1
            if bad == 1:
                what = "replaced" if bad_lines == "replace" else "left out"
                info(f"WARNING: {line.message}; such lines are {what} (--bad-lines)")
            if bad_lines == "replace":
                queue.put(_replaced(raw))
        queue.put(None)
    except Exception as error:
        queue.put(error)


def _replaced(raw: bytes) -> str:
    return raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace").removeprefix("\ufeff")


def _decoded(file: Iterable[bytes], name: str) -> Iterator[tuple[bytes, str | BadLine]]:
    """The lines of a file as bytes and as text."""
    # In a corpus a NUL byte means that a file is not text. From a user it is a control character: a space.
    raw_lines, copies = tee(raw.replace(b"\0", b" ") for raw in file)
    try:
        yield from zip(raw_lines, decode_lines(copies, name), strict=True)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{name}: cannot be read ({getattr(error, 'strerror', None) or error})") from None


def _batches(queue: _Queue, max_lines: int) -> Iterator[list[str]]:
    while True:
        items = _ready(queue, max_lines)
        lines = [item for item in items if isinstance(item, str)]
        if lines:
            yield lines
        end = items[-1]
        if isinstance(end, Exception):
            raise end
        if end is None:
            return


def _ready(queue: _Queue, max_lines: int) -> list[str | Exception | None]:
    """The items that are ready. Waits only for the first."""
    items = [queue.get()]
    with suppress(Empty):
        while len(items) < max_lines:
            items.append(queue.get_nowait())
    return items
