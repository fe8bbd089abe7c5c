"""Ray: joins a running cluster, or starts one on this machine that ends with the job.

What runs here starts without Ray's dashboard and reports nothing to its makers. This file knows Ray, but not what
is computed on it.
"""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"} | dict(os.environ)

import ray
from ray.exceptions import RayError

from latentmt.cluster.config import ClusterConfig
from latentmt.display import info
from latentmt.errors import UserError

_OBJECT_STORE = 512 << 20
"""Bytes of shared memory for what is under way between processes of this machine. Pages are taken as they are used."""
_SYSTEM = {"enable_metrics_collection": False, "health_check_period_ms": 1000}
"""Nobody collects metrics here. A node that was killed is known to be dead after 5 s instead of 15."""
_SHORT_ENOUGH = 40
"""Characters of a temporary folder. Sockets lie deep in it, and their paths are limited to 107."""


class Cluster:
    """A connection to Ray, for the time of a job."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Cluster:
        if self.config.address is None:
            base = tempfile.gettempdir()
            self._folder = tempfile.TemporaryDirectory(
                prefix="latentmt-", dir=base if len(base) < _SHORT_ENOUGH else "/tmp", ignore_cleanup_errors=True
            )
        self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ray.shutdown()
        if self._folder:
            self._folder.cleanup()

    @property
    def actors(self) -> int:
        """The number of actors: the given one, or as many as there is room for."""
        if self.config.actors:
            return self.config.actors
        found = ray.cluster_resources()
        room = found.get("CPU", 0.0)
        if self.config.gpus_per_actor:
            room = min(room, found.get("GPU", 0.0) / self.config.gpus_per_actor)
        return max(1, int(room))

    def options(self) -> dict[str, Any]:
        """What each actor asks of Ray. Lost actors are replaced by the pool, not by Ray."""
        return {"num_cpus": 1, "num_gpus": self.config.gpus_per_actor, "max_restarts": 0, "max_task_retries": 0}

    def lost(self) -> bool:
        """Whether no node is left, so that nothing that was started will ever answer."""
        try:
            return not any(node["Alive"] for node in ray.nodes())
        except Exception:  # whatever Ray raises when its head does not answer
            return True

    def restart(self) -> None:
        """Start Ray again after it was lost. A cluster that was not started here is not ours to start."""
        ray.shutdown()
        if self.config.address is not None:
            raise UserError(f"--address {self.config.address}: the cluster is lost; run the same command to go on")
        info("Ray's node has died; it is started again")
        self._connect()

    def _connect(self) -> None:
        config = self.config
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if config.address is not None:
                ray.init(address=config.address, **quiet)
                return
            assert self._folder is not None
            folder = Path(self._folder.name) / str(time.monotonic_ns())  # a node's own: an old one may still end
            folder.mkdir(parents=True)
            # Ray would save a token in the user's home, and clusters that are started later would ask for it.
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            ray.init(
                num_cpus=config.actors,
                num_gpus=int(config.gpus_per_actor * (config.actors or 0)) or None,
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE,
                _temp_dir=str(folder),
                _system_config=_SYSTEM,
                **quiet,
            )
        except (OSError, RayError, RuntimeError, ValueError) as error:
            where = "Ray cannot be started here" if config.address is None else f"--address {config.address}"
            raise UserError(f"{where}: {str(error).splitlines()[0]}") from None
