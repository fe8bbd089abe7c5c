"""The image and the service of systemd: what they name exists. Where docker runs, CI builds the image and asks it."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click
import pytest
import typer.main
import yaml

from latentmt.cli import app
from latentmt.serve.server import ServerConfig

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
UNIT = ROOT / "deploy" / "latentmt.service"


def instructions() -> Iterator[tuple[str, str]]:
    """The instructions of the Dockerfile, each on one line."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    for line in text.splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            yield name, " ".join(rest.split())


INSTRUCTIONS = list(instructions())
LAST = INSTRUCTIONS[max(number for number, (name, _) in enumerate(INSTRUCTIONS) if name == "FROM") :]
"""Those of the image itself; the stages before it are thrown away."""


def only(name: str) -> str:
    (found,) = [rest for other, rest in LAST if other == name]
    return found


def test_every_instruction_is_one() -> None:
    known = {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in INSTRUCTIONS} == known


def test_stages_are_of_one_base_with_its_version() -> None:
    bases = {rest.split()[0] for name, rest in INSTRUCTIONS if name == "FROM"}
    (base,) = bases
    minor, tag = re.fullmatch(r"python:(3\.\d+)\.\d+-(slim-\w+)", base).groups()  # type: ignore[union-attr]
    assert f"Programming Language :: Python :: {minor}" in PROJECT["classifiers"]
    assert tag == "slim-bookworm"


def test_everything_that_is_copied_is_there_and_not_ignored() -> None:
    sources = [
        path for name, rest in INSTRUCTIONS if name == "COPY" and "--from" not in rest for path in rest.split()[:-1]
    ]
    assert "latentmt" in sources
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == set(sources)
    for source in sources:
        assert (ROOT / source).exists(), source
    assert "*" in (ROOT / ".dockerignore").read_text().splitlines()


def test_what_the_project_is_built_of_is_copied() -> None:
    kept = (ROOT / ".dockerignore").read_text()
    assert all(f"!{name}\n" in kept for name in [PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml"])


def test_packages_are_installed_by_their_hashes_and_torch_is_none() -> None:
    installs = re.findall(r"pip install [^&]*", " ".join(rest for name, rest in INSTRUCTIONS if name == "RUN"))
    assert installs
    for install in installs:
        assert "--no-deps" in install
        assert "--require-hashes" in install or "--no-build-isolation ." in install
    lock = (ROOT / "locks" / "serve.txt").read_text()
    assert not re.search(r"^(torch|nvidia|ray)\b", lock, re.MULTILINE)


def test_the_image_runs_without_rights_and_writes_no_bytecode() -> None:
    assert int(only("USER")) > 0
    assert f"--uid {only('USER')} " in only("RUN")
    assert "PYTHONDONTWRITEBYTECODE=1" in only("ENV")


def test_the_command_exists_and_listens_where_health_is_asked() -> None:
    (name,) = json.loads(only("ENTRYPOINT"))
    command, *options = json.loads(only("CMD"))
    assert name in PROJECT["scripts"]
    given = dict(zip(options[::2], options[1::2], strict=True))
    parameters = cast(click.Group, typer.main.get_command(app)).commands[command].params
    assert given.keys() <= {flag for parameter in parameters for flag in parameter.opts}
    assert given == {"--host": "0.0.0.0", "--port": only("EXPOSE")}
    check = json.loads(only("HEALTHCHECK").partition("CMD ")[2])
    assert check[:2] == ["python", "-c"]
    compile(check[2], "HEALTHCHECK", "exec")
    port, path = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)'", check[2]).groups()  # type: ignore[union-attr]
    assert port == only("EXPOSE")
    assert f'"{path}"' in (ROOT / "latentmt" / "serve" / "app.py").read_text()


def test_ci_builds_the_image_and_asks_it() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    steps = "\n".join(step.get("run", "") for step in jobs["image"]["steps"])
    assert "docker build" in steps
    assert "/translate" in steps


@pytest.mark.parametrize("script", PROJECT["scripts"])
def test_commands_can_be_installed_by_themselves(script: str) -> None:
    """As pipx does: a command for each entry point."""
    module, _, function = PROJECT["scripts"][script].partition(":")
    entry = importlib.metadata.EntryPoint(script, f"{module}:{function}", "console_scripts")
    assert callable(entry.load())


def test_the_service_starts_a_command_that_exists_and_waits_for_it() -> None:
    unit = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"\w+=", line))
    program, command, _ = unit["ExecStart"].split()
    assert Path(program).name in PROJECT["scripts"]
    assert command in cast(click.Group, typer.main.get_command(app)).commands
    assert int(unit["TimeoutStopSec"]) > ServerConfig().limits.timeout + 10
    assert (unit["DynamicUser"], unit["ProtectSystem"], unit["NoNewPrivileges"]) == ("yes", "strict", "yes")
    assert "HUP" in unit["ExecReload"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_finds_no_mistake_in_the_service(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE))
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("PrivateTmp=yes", "PrivateTmq=yes"))
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert "PrivateTmq" in result.stderr
