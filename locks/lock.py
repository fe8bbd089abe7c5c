"""Writes the lock files: every package that `make` installs, with its version and the hashes of its files.

    demo.txt    what translates: `make demo`
    serve.txt   what serves: `Dockerfile`
    test.txt    what trains, measures, serves and checks, too: `make test`
    docs.txt    `make docs`
    cpu.txt     CPU builds of torch, which are preferred where pip finds them
    cuda.txt    what torch needs beside that if it is not a CPU build; on Linux
    tools.txt   uv, which resolves, and what writes the SBOM

Versions are those of constraints.txt. A lock is for Python 3.11 to 3.13 and every platform that the packages support:
it has the hashes of all files of a version on PyPI. A CPU build of torch is not there, so it has a lock of its own: the
hash of the one that pip finds here, and those that were found elsewhere.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCKS = ROOT / "locks"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CUDA = re.compile(r"(nvidia-|cuda-|triton\b)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
HEADER = "# Written by make lock. Installed with --require-hashes --no-deps.\n"


def compiled(requirements: list[str]) -> dict[str, str]:
    """The locked packages by name, each with its hashes."""
    with tempfile.TemporaryDirectory() as folder:
        source, lock = Path(folder) / "in.txt", Path(folder) / "lock.txt"
        source.write_text("\n".join(requirements))
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11.5"]
        command += ["--generate-hashes", "--no-annotate", "--no-header", "--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([*command, "--output-file", str(lock), str(source)], check=True)
        entries = re.split(r"\n(?=\S)", lock.read_text().strip())
    return {re.split("[= ;]", entry)[0]: entry for entry in entries}


def write(name: str, entries: dict[str, str]) -> None:
    (LOCKS / f"{name}.txt").write_text(HEADER + "".join(f"{entries[package]}\n" for package in sorted(entries)))


def cpu_builds(entry: str) -> str:
    """An entry of torch's CPU builds: that of pip's choice here, and those in the lock so far."""
    requirement, lock = entry.split()[0], LOCKS / "cpu.txt"
    so_far = lock.read_text() if lock.exists() else ""
    hashes = set(HASH.findall(so_far)) if f"{requirement}+cpu " in so_far else set()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, requirement]
        subprocess.run(command, check=True)
        hashes |= {hashlib.sha256(file.read_bytes()).hexdigest() for file in Path(folder).glob("*+cpu*.whl")}
    return f"{requirement}+cpu" + "".join(f" \\\n    --hash=sha256:{one}" for one in sorted(hashes))


def own(requirement: str) -> bool:
    """Whether it is another extra of this project, which is locked with the others."""
    return requirement.startswith(f"{PROJECT['project']['name']}[")


def main() -> None:
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    base = [*project["dependencies"], *PROJECT["build-system"]["requires"]]  # the project is built without isolation
    groups = {
        "demo": base,
        "serve": [*base, *(one for name in ("documents", "serve") for one in extras[name] if not own(one))],
        "test": [*base, *(one for name in extras if name != "docs" for one in extras[name] if not own(one))],
        "docs": [*base, *extras["docs"]],
    }
    locked = {name: compiled(requirements) for name, requirements in groups.items()}
    cuda: dict[str, str] = {}
    for name, requirements in groups.items():
        entries = locked[name]
        direct = {re.split(r"[^\w-]", one)[0] for one in requirements}
        optional = {package for package in entries if CUDA.match(package) and package not in direct}
        cuda |= {package: entries[package] for package in entries if CUDA.match(package)}
        write(name, {package: entry for package, entry in entries.items() if package not in optional})
    write("cuda", cuda)
    write("cpu", {"torch": cpu_builds(locked["test"]["torch"])})
    write("tools", compiled(["cyclonedx-bom", "uv"]))


if __name__ == "__main__":
    main()
