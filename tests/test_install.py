"""Pinned versions satisfy the requirements, and each other on the public registry."""

import os
import re
import socket
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
PYTHONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name]
PINS = {
    canonicalize_name(name): Version(pinned)
    for name, pinned in (line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
}


def test_every_requirement_has_a_pin_that_fits() -> None:
    extras = PROJECT["optional-dependencies"].values()
    for requirement in map(Requirement, [*PROJECT["dependencies"], *(one for extra in extras for one in extra)]):
        if requirement.name == PROJECT["name"]:  # another extra
            continue
        assert PINS[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_make_test_installs_every_extra_but_that_of_make_docs() -> None:
    """Without locks; with them, the next test sees that nothing is missing."""
    installed = dict(re.findall(r"^\t\$\(INSTALL\) (\w+) '(.*)'$", (ROOT / "Makefile").read_text(), re.M))
    assert installed.keys() == {"demo", "test", "docs"}
    assert (installed["demo"], installed["docs"]) == ("", "[docs]")
    assert sorted(installed["test"].strip("[]").split(",")) == sorted(EXTRAS.keys() - {"docs"})


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("demo", []),
        ("serve", ["documents", "serve"]),
        ("test", sorted(EXTRAS.keys() - {"docs"})),
        ("docs", ["docs"]),
    ],
)
def test_a_lock_has_everything_with_its_version_and_hashes(lock: str, extras: list[str]) -> None:
    """If this fails after a change of requirements: `make lock`."""
    locked = entries(lock)
    for requirement in map(Requirement, [*PROJECT["dependencies"], *(one for name in extras for one in EXTRAS[name])]):
        if requirement.name != PROJECT["name"]:  # another extra
            assert locked[canonicalize_name(requirement.name)] in requirement.specifier, requirement
    assert all(PINS.get(name, found) == found for name, found in locked.items())
    assert "setuptools" in locked  # which builds the project, without isolation


def entries(lock: str) -> dict[str, Version]:
    """The versions of a lock, each with at least one hash."""
    found = re.split(r"\n(?=\S)", (ROOT / "locks" / f"{lock}.txt").read_text().strip())[1:]
    for entry in found:
        assert re.fullmatch(r"[a-z0-9-]+==\S+( ; .+)?( \\\n    --hash=sha256:[0-9a-f]{64})+", entry), entry
    return {name: Version(pinned) for name, pinned in (entry.split()[0].split("==") for entry in found)}


def test_builds_of_torch_and_what_they_need_are_locked_apart_from_the_rest() -> None:
    cuda, cpu, test = entries("cuda"), entries("cpu"), entries("test")
    assert "nvidia-cublas" in cuda
    assert not {"torch", "nvidia-cublas"} & entries("demo").keys()
    assert "nvidia-cublas" not in test
    assert cpu == {"torch": Version(f"{test['torch']}+cpu")}


def test_the_pins_resolve_on_the_public_registry(tmp_path: Path) -> None:
    """As pip would install torch on a machine that knows no other registry; of packages only metadata are fetched."""
    if Version(version("pip")).major < 26:
        pytest.skip("this pip would download gigabytes; make test installs a newer one")
    try:
        socket.create_connection(("pypi.org", 443), timeout=5).close()
    except OSError as error:
        pytest.skip(f"the registry cannot be reached ({error})")
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--use-feature=fast-deps"]
    command += ["--constraint", str(ROOT / "constraints.txt"), "--only-binary=:all:", "--target", str(tmp_path)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PIP_") or name == "PIP_CERT"}

    def resolved(python: str) -> subprocess.CompletedProcess[str]:
        environment = own | {"PIP_CONFIG_FILE": os.devnull}
        arguments = [*command, "--python-version", python, "torch"]
        return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor() as pool:  # they wait for the network
        for done in pool.map(resolved, PYTHONS):
            assert done.returncode == 0, done.stderr
            assert f"torch-{PINS['torch']}" in done.stdout.splitlines()[-1]
