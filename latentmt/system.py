"""What operating systems do differently: locks, processes, signals, limits. Other files call this one.

Linux and macOS have POSIX. Windows has other calls for some of it, and for the rest nothing is needed there. Signs of
hardware, which not every system has (`/proc/cpuinfo`, `/dev/nvidiactl`), are looked for where they are needed.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

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
_NEW_OBJECTS = 20_000
"""So many may come, before the garbage collector looks at them. By default it is 700, and with hundreds of requests in
flight nearly all of them are in use: finding that out took a quarter of the time of a process that serves HTTP."""
_IN_USE = (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK)
"""What systems say of a file that is locked. POSIX allows each of them, and Windows says the first."""
_LOCKED_BYTE = 1 << 30
"""Windows locks bytes, which nobody can read then: one far behind the content."""


def try_lock(descriptor: int) -> bool:
    """Lock a file until the process ends or closes it. False if another process has; an error if it has no locks."""
    try:
        if WINDOWS:
            here = os.lseek(descriptor, 0, os.SEEK_CUR)
            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            finally:
                os.lseek(descriptor, here, os.SEEK_SET)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _IN_USE:
            raise
        return False
    return True


def close_and_remove(path: Path, close: Callable[[], None]) -> None:
    """Remove a file that we hold a lock of, so that nobody's new file is removed."""
    if WINDOWS:
        close()  # an open file cannot be removed there, by others neither
    try:
        path.unlink()
    except FileNotFoundError:
        pass
    except PermissionError:
        if not WINDOWS:
            raise  # there it is another process's by now
    finally:
        if not WINDOWS:
            close()


def hold_signals(numbers: Sequence[int]) -> Callable[[], None]:
    """Let signals wait until the function that is returned is called. On Windows they do not wait."""
    if not hasattr(signal, "pthread_sigmask"):
        return lambda: None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

    def deliver() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    return deliver


def signal_main_thread(number: int) -> None:
    """Send a signal from any thread, so that it interrupts what the main thread waits for. On Windows nothing can."""
    if hasattr(signal, "pthread_kill"):
        ident = threading.main_thread().ident
        assert ident is not None
        signal.pthread_kill(ident, number)
    else:
        signal.raise_signal(number)


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
    if WINDOWS and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if WINDOWS else os.O_RDONLY)  # Windows syncs only what may be written
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def inherits_sockets() -> bool:
    """Whether a process can be started with a socket of this one."""
    return not WINDOWS


def max_open_files() -> int | None:
    """The most files and connections that this process may have open; None if there is no limit."""
    try:
        import resource
    except ImportError:
        return None
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else files


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ignore_signals(names: Sequence[str]) -> None:
    """Ignore those of the signals that the system has."""
    for name in names:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def end_with_parent() -> None:
    """End if the parent is killed, even while something hangs that cannot be interrupted. Only Linux can."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in the fastest event loop there is. uvloop is not for Windows."""
    gc.freeze()  # what is imported stays
    gc.set_threshold(_NEW_OBJECTS)
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)
