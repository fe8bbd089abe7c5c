"""The examples of docs/cluster.md: Ray's own schema, a shell's syntax, and what KubeRay needs."""

import json
import re
import shlex
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import jsonschema
import ray
import typer.main
import yaml

from latentmt.cli import app

PAGE = (Path(__file__).parent.parent.parent / "docs" / "cluster.md").read_text()


def examples(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


CLUSTER, JOB = (yaml.safe_load(text) for text in examples("yaml"))


def parsed(command: list[str]) -> dict[str, Any]:
    """The arguments of a `latentmt` command, if it has no mistake."""
    group = cast(Any, typer.main.get_command(app))
    assert command[0] == "latentmt"
    return dict(group.commands[command[1]].make_context(command[1], command[2:]).params)


def test_the_cluster_file_follows_rays_schema() -> None:
    schema = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    jsonschema.validate(CLUSTER, json.loads(schema.read_text()))
    assert CLUSTER["max_workers"] == len(CLUSTER["provider"]["worker_ips"])


def test_the_slurm_script_is_a_shell_script() -> None:
    (script,) = examples("bash")
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    directives = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", script, re.M))
    assert len(directives) == script.count("#SBATCH")
    assert {"nodes", "ntasks-per-node", "cpus-per-task", "requeue"} <= directives.keys()
    (command,) = re.findall(r"^latentmt .*$", script, re.M)
    numbers = re.sub(r"\$\(\(.*?\)\)", "256", command)
    assert parsed(shlex.split(numbers))["actors"] == 256


def test_the_kubernetes_job_has_what_kuberay_needs() -> None:
    assert (JOB["apiVersion"], JOB["kind"]) == ("ray.io/v1", "RayJob")
    spec = JOB["spec"]["rayClusterSpec"]
    assert spec["rayVersion"] == version("ray")
    groups = spec["workerGroupSpecs"]
    for group in (spec["headGroupSpec"], *groups):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        for container in group["template"]["spec"]["containers"]:
            assert {"name", "image", "resources"} <= container.keys()
            assert all(isinstance(value, str) for value in container["resources"]["requests"].values())
    cores = sum(
        group["replicas"] * int(container["resources"]["requests"]["cpu"])
        for group in groups
        for container in group["template"]["spec"]["containers"]
    )
    command = parsed(shlex.split(JOB["spec"]["entrypoint"]))
    assert (command["actors"], command["address"]) == (cores, "auto")
