"""Where a job runs, and on how many actors. This file does not import Ray."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ClusterConfig:
    """Where a job runs, and on how many actors."""

    address: str | None = None
    """A running cluster: `auto`, or host and port. None: one starts on this machine."""
    actors: int | None = None
    """The number of actors. None: as many as the cluster has room for."""
    gpus_per_actor: float = 0.0
    """GPUs of each actor, or a fraction of one. 0: an actor runs on a CPU core."""

    @property
    def device(self) -> str:
        """The device of an actor. Ray shows it only the GPUs that are its own."""
        return "cuda" if self.gpus_per_actor else "cpu"
