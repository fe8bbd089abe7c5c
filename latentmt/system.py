"""What operating systems do differently: locks, processes, limits. Nothing else asks on which one it runs.

Linux and macOS have POSIX. Windows has other calls for some of it, and for the rest nothing is needed there.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

try:
    import fcntl
except ImportError:
    import msvcrt

    WINDOWS = True
else:
    WINDOWS = False

BINARY = getattr(os, "O_BINARY", 0)
"""Windows would translate the ends of lines."""
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""Opening a symbolic link fails. Windows cannot tell in the same call."""
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Opening a pipe does not wait for another process."""
_LOCKED_BYTE = 1 << 30
"""Windows locks bytes, which nobody can read then: one far behind the content."""


def try_lock(descriptor: int) -> bool:
    """Lock a file until the process ends or closes it. False if another process has; an error if it has no locks."""
    try:
        if WINDOWS:
            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def close_and_remove(path: Path, descriptor: int) -> None:
    """Remove a file that we hold a lock of, so that nobody's new file is removed."""
    if WINDOWS:
        os.close(descriptor)  # an open file cannot be removed there, by others neither
    try:
        path.unlink()
    except FileNotFoundError:
        pass
    except PermissionError:
        if not WINDOWS:
            raise  # there it is another process's by now
    finally:
        if not WINDOWS:
            os.close(descriptor)


def hold_signals(numbers: Sequence[int]) -> Callable[[], None]:
    """Let signals wait until the function that is returned is called. On Windows they do not wait."""
    if not hasattr(signal, "pthread_sigmask"):
        return lambda: None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def deliver() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    return deliver


def is_alive(pid: int) -> bool:
    """Whether this machine has a process of that number."""
    if sys.platform == "win32":  # where os.kill(pid, 0) would be a Ctrl-C
        return _is_alive_on_windows(pid)
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def _is_alive_on_windows(pid: int) -> bool:
    import ctypes

    synchronize, denied, running = 0x100000, 5, 0x102
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]
    kernel.OpenProcess.restype = ctypes.c_void_p
    handle = kernel.OpenProcess(synchronize, False, pid & 0xFFFFFFFF)
    if not handle:
        return bool(ctypes.get_last_error() == denied)  # type: ignore[attr-defined]
    try:
        return bool(kernel.WaitForSingleObject(ctypes.c_void_p(handle), 0) == running)
    finally:
        kernel.CloseHandle(ctypes.c_void_p(handle))


def sync(path: Path) -> None:
    """Sync a file's content, or a folder's entries, to disk. Windows has no way to sync a folder, and journals it."""
    is_folder = path.is_dir()
    if is_folder and WINDOWS:
        return
    descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def max_open_files() -> int | None:
    """The most files and connections that this process may have open; None if there is no limit."""
    try:
        import resource
    except ImportError:
        return None
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else files
