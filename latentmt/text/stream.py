"""Lines in as they come, lines out at once: what is ready is handed on together, and nothing waits for more.

So a person who types gets an answer to every line, and a pipe is read in batches, with as many lines in memory whether
it brings a thousand or a million. What is done with the lines is not known here.
"""

from __future__ import annotations

import lzma
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import BinaryIO

from latentmt.data.text import BadLine, all_text, decode_lines, open_text
from latentmt.errors import UserError

MOST = 256
"""Lines handed on together."""

_Waiting = Queue[str | Exception | None]
"""Lines, and then what ended them: an error, or None where the file did."""


def batches_of(texts: Sequence[str] | None, path: Path | None) -> Iterator[list[str]]:
    """What a command is to work on: its arguments, or the lines of a file, or else those of standard input."""
    if texts and path:
        raise UserError("--input: there are sentences on the command line already")
    if texts:
        return iter([[line for text in texts for line in text.split("\n")]])
    if path:
        return ready_lines(_closed_after(open_text(path)), str(path))
    return ready_lines(_standard_input(), "standard input")


def ready_lines(file: Iterable[bytes], name: str, most: int = MOST) -> Iterator[list[str]]:
    """The lines of a file, each time those that are there by now: at least one, at most `most`.

    `name` says in errors what is read. A line that is not text is an error, raised when all lines before it have been
    handed out. Reading begins with the call, in a thread that goes on to the end of the file, or of the process.
    """
    waiting: _Waiting = Queue(most)
    # A daemon, so that a process can end although the next line never comes.
    Thread(target=_read, args=(file, name, waiting), name=f"reading {name}", daemon=True).start()
    return _batches(waiting, most)


def write_lines(lines: Iterable[str]) -> None:
    """Write lines to standard output in UTF-8, whatever the terminal's encoding is, for the reader to see at once.

    Halves of characters, which arguments of a command can have, become question marks.
    """
    if sys.stdout is None:
        raise UserError("standard output is closed")
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def _closed_after(file: BufferedIOBase) -> Iterator[bytes]:
    # Closed by the thread that reads: closing waits for a read that is under way, and its line may never come.
    with file:
        yield from file


def _standard_input() -> BinaryIO:
    """Standard input, through a buffer that is not `sys.stdin`'s.

    That one is closed when Python ends, which aborts the process where a thread still reads from it.
    """
    if sys.stdin is None:
        raise UserError("standard input is closed")
    return open(sys.stdin.fileno(), "rb", closefd=False)


def _read(file: Iterable[bytes], name: str, waiting: _Waiting) -> None:
    try:
        for line in all_text(_decoded(file, name)):
            waiting.put(line)
        waiting.put(None)
    except Exception as error:
        waiting.put(error)


def _decoded(file: Iterable[bytes], name: str) -> Iterator[str | BadLine]:
    # In a corpus a NUL byte says that a file is no text; from a user it is a control character like others: a space.
    try:
        yield from decode_lines((raw.replace(b"\0", b" ") for raw in file), name)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{name}: cannot be read ({getattr(error, 'strerror', None) or error})") from None


def _batches(waiting: _Waiting, most: int) -> Iterator[list[str]]:
    while True:
        taken = _taken(waiting, most)
        lines = [item for item in taken if isinstance(item, str)]
        if lines:
            yield lines
        end = taken[-1]
        if isinstance(end, Exception):
            raise end
        if end is None:
            return


def _taken(waiting: _Waiting, most: int) -> list[str | Exception | None]:
    """What is there by now. Only the first is waited for."""
    taken = [waiting.get()]
    with suppress(Empty):
        while len(taken) < most:
            taken.append(waiting.get_nowait())
    return taken
