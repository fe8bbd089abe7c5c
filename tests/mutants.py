"""Mutation tests: applies each mutant of `mutants.yaml` to a copy of the package and runs the tests named there.

    python tests/mutants.py [part of a file's name or of a reason …]

One process at a time is forked from this one, which has imported the slow packages. Tests must pass without a mutant
and fail with it, unless `mutants.yaml` says why it survives.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 600
"""Seconds. A mutant that does not end counts as killed."""


@dataclass(frozen=True)
class Mutant:
    """A mistake in a file, and the tests that should fail."""

    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]
    """Arguments of pytest."""
    survives: str = ""
    """Why no test fails, if none does."""

    def applied(self, root: Path) -> str:
        """The file's text with the mistake in it."""
        text = (root / self.file).read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file}: {text.count(self.old)} times {self.old!r}, expected once")
        return text.replace(self.old, self.new)


def mutants() -> list[Mutant]:
    groups = yaml.safe_load((ROOT / "tests" / "mutants.yaml").read_text())
    return [
        Mutant(group["file"], **{**entry, "tests": tuple(entry.get("tests", group["tests"]))})
        for group in groups
        for entry in group["mutants"]
    ]


def passes(folder: Path, tests: Sequence[str]) -> bool:
    """Whether all tests pass in a folder."""
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            _run_pytest(folder, tests, output.fileno())
        status = os.waitpid(child, 0)[1]
        if status in (0, 1 << 8) or os.WIFSIGNALED(status):  # all passed; one failed; it never ended, or crashed
            return status == 0
        output.seek(0)
        raise ValueError(f"pytest {' '.join(tests)}:\n{output.read().decode()}")


def _run_pytest(folder: Path, tests: Sequence[str], output: int) -> NoReturn:
    code = 3  # of an error within pytest
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(folder)
        sys.path.insert(0, str(folder))
        signal.alarm(TIMEOUT)
        code = pytest.main(["-x", "-p", "no:cacheprovider", "--hypothesis-profile=mutants", *tests])
    finally:
        os._exit(code)


def outcomes(chosen: Sequence[Mutant], folder: Path) -> Iterator[tuple[Mutant, bool]]:
    """Each mutant, and whether it survives, in a folder that holds a copy of everything."""
    for tests in dict.fromkeys(mutant.tests for mutant in chosen):
        if not passes(folder, tests):
            raise ValueError(f"{' '.join(tests)} fails without any mutant")
    for mutant in chosen:
        path = folder / mutant.file
        original = path.read_text()
        path.write_text(mutant.applied(folder))
        yield mutant, passes(folder, mutant.tests)
        path.write_text(original)


def main(names: Sequence[str]) -> int:
    chosen = [
        mutant for mutant in mutants() if not names or any(name in mutant.file or name in mutant.why for name in names)
    ]
    if not chosen:
        print(f"no mutant matches {' '.join(names)}", file=sys.stderr)
        return 2
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True  # a copy that was compiled before a mutation must not be taken for it
    for slow in ("torch", "beartype", "pydantic", "sentencepiece"):
        __import__(slow)
    began, killed, wrong = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "copy"
        skipped = shutil.ignore_patterns("__pycache__", ".*", "runs", "pretrained")
        shutil.copytree(ROOT, folder, ignore=skipped)
        (folder / "latentmt" / "pretrained").symlink_to(ROOT / "latentmt" / "pretrained")
        for mutant, survived in outcomes(chosen, folder):
            killed += not survived
            wrong += survived != bool(mutant.survives)
            print(f"{'SURVIVED' if survived else 'killed  '}  {mutant.file}: {mutant.why}", flush=True)
    print(f"{killed} of {len(chosen)} mutants killed in {(time.monotonic() - began) / 60:.1f} minutes")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
