"""What operating systems do differently, and that nothing else needs POSIX."""

from __future__ import annotations

import ast
import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from latentmt import Translator, system
from latentmt.system import close_and_remove, cores, is_alive, sync, try_lock

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "latentmt").rglob("*.py"))
OF_SYSTEMS = {"system.py", "signals.py"}

MODULES = {"fcntl", "grp", "multiprocessing", "pwd", "resource", "select", "termios", "tty", "uvloop"}
"""Modules that Windows lacks, or that do something else there: a forked process has what a spawned one has not."""
FUNCTIONS = {
    "os": [
        "fork",
        "forkpty",
        "register_at_fork",
        "sched_getaffinity",
        "sched_setaffinity",
        "pread",
        "pwrite",
        "killpg",
        "getpgid",
        "setsid",
        "getuid",
        "geteuid",
        "getgid",
        "getloadavg",
        "mkfifo",
        "statvfs",
        "uname",
        "nice",
        "sysconf",
        "fchmod",
        "fchown",
        "chown",
        "wait3",
        "wait4",
        "posix_fadvise",
        "posix_fallocate",
        "O_NOFOLLOW",
        "O_NONBLOCK",
        "O_CLOEXEC",
        "O_DIRECTORY",
    ],
    "signal": [
        "SIGHUP",
        "SIGKILL",
        "SIGUSR1",
        "SIGUSR2",
        "SIGALRM",
        "SIGCHLD",
        "SIGPIPE",
        "SIGQUIT",
        "alarm",
        "setitimer",
        "pause",
        "sigwait",
        "pthread_sigmask",
        "pthread_kill",
    ],
    "socket": ["AF_UNIX", "SO_REUSEPORT", "socketpair"],
}

BLOCKED = f"""
import asyncio, ctypes, importlib, os, signal, socket, subprocess, sys, types
import fastapi, lxml.etree, markdown_it, numpy, onnxruntime, prometheus_client, pydantic, py3langid, rich.console
import fsspec, matplotlib.pyplot, pyarrow.parquet, ray, zstandard
import sentencepiece, selectolax.lexbor, typer, uvicorn, yaml, jaxtyping, safetensors, fcntl

def locking(descriptor, mode, count, lockf=fcntl.lockf, flags=fcntl.LOCK_EX | fcntl.LOCK_NB):
    lockf(descriptor, flags, count, 0, os.SEEK_CUR)

sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
for name in {sorted(MODULES - {"multiprocessing", "select"})!r}:
    sys.modules[name] = None
for module, names in {FUNCTIONS!r}.items():
    for name in names:
        if module != "socket":
            vars(sys.modules[module]).pop(name, None)
sys.modules["torch"] = None
sys.platform = "win32"
"""
"""Take away what Windows lacks, once the libraries are loaded, which have their own ways there."""


def without_posix(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCKED + code, *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False, cwd=ROOT)


def test_the_command_runs_without_posix(tmp_path: Path) -> None:
    """On Linux, with what Windows lacks taken away. Windows' own calls and paths are not tested by this."""
    source = tmp_path / "brief.txt"
    source.write_text("Guten Morgen!\n", encoding="utf-8")
    code = """
from latentmt.cli import main
from latentmt.system import WINDOWS
assert WINDOWS
for arguments in (["translate", "Guten Morgen!"], ["--help"], ["document", sys.argv[1], "--output", sys.argv[2]]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        assert not end.code, (arguments, end.code)
"""
    code = code.replace(
        'sys.argv[1], "--output", sys.argv[2]', f'{str(source)!r}, "--output", {str(tmp_path / "letter.txt")!r}'
    )
    done = without_posix(code)
    assert done.returncode == 0, done.stderr
    expected = Translator.load("deen").translate("Guten Morgen!")
    assert done.stdout.splitlines()[0] == expected
    assert "Usage" in done.stdout
    assert (tmp_path / "letter.txt").read_text(encoding="utf-8") == f"{expected}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["brief.txt", "letter.txt"]


def test_every_module_that_needs_no_torch_is_imported_without_posix() -> None:
    done = without_posix("""
from pathlib import Path
torch = set()
for path in sorted(Path("latentmt").rglob("*.py")):
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    if name.endswith("__main__"):
        continue
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name in ("torch", "triton"), (name, error)
        torch.add(name)
print(*torch)
""")
    assert done.returncode == 0, done.stderr
    needs_torch = done.stdout.split()
    for name in ("cli", "serve.server", "serve.worker", "documents.job", "bulk.isolated", "lock", "translator"):
        assert f"latentmt.{name}" not in needs_torch


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_files_of_systems_name_what_not_every_system_has(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            used = {name.split(".")[0] for name in names} & MODULES
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used = {node.attr} & {*FUNCTIONS.get(node.value.id, ()), *(["platform"] if node.value.id == "sys" else [])}
        else:
            continue
        assert not used or path.name in OF_SYSTEMS, f"line {node.lineno}: {used}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_text_files_are_opened_with_an_encoding(path: Path) -> None:
    """Else it is that of the system: cp1252 on many a Windows."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call) and (name := getattr(node.func, "attr", getattr(node.func, "id", ""))):
            given = {keyword.arg for keyword in node.keywords}
            modes = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if name in ("read_text", "write_text") or (
                name in ("open", "fdopen") and set(modes) & {"r", "w", "a", "x"}
            ):
                assert "encoding" in given, f"line {node.lineno}: {ast.unparse(node)}"


def test_a_file_and_a_folder_that_may_only_be_read_are_synced(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    file.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        sync(file)
        sync(tmp_path)
    finally:
        tmp_path.chmod(0o700)
    assert file.read_bytes() == b"content"


def test_a_file_is_opened_for_reading_only_when_it_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions do not stop root, so the flags are looked at, too."""
    opened: list[int] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, flags: opened.append(flags) or real(path, flags))
    sync(tmp_path)
    assert opened == [os.O_RDONLY]


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert try_lock(first)
    assert not try_lock(second)
    close_and_remove(path, lambda: os.close(first))
    assert try_lock(second)
    assert not path.exists()
    os.close(second)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EAGAIN])
def test_a_lock_of_another_process(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with (tmp_path / "lock").open("wb") as file:
        assert not try_lock(file.fileno())


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOLCK, errno.EBADF])
def test_other_errors_of_a_lock_do_not_say_that_it_is_in_use(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with (tmp_path / "lock").open("wb") as file, pytest.raises(OSError, match=os.strerror(number)):
        try_lock(file.fileno())


def test_processes_and_cores() -> None:
    assert is_alive(os.getpid())
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert not is_alive(child.pid)
    assert cores() == len(os.sched_getaffinity(0))
    assert not system.WINDOWS
