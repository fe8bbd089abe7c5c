"""Distillation on Ray: actors search with the teacher, this process reads the corpus and writes the shards.

So actors need neither the work folder nor a shared disk: the teacher and the sources are sent to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from latentmt.cluster.config import ClusterConfig
from latentmt.cluster.pool import Pool
from latentmt.cluster.session import Cluster
from latentmt.distill import DistillConfig, Shard, ShardTask, TeacherSearch
from latentmt.models.teacher import Teacher


class ShardWorker:
    """The actor."""

    def __init__(self, teacher: Teacher, row_width: int, config: DistillConfig, device: str) -> None:
        self._arguments = teacher, row_width, config, torch.device(device)
        self._search: TeacherSearch | None = None

    def ready(self) -> None:
        """Move the teacher to the actor's device."""
        self._search = TeacherSearch(*self._arguments)

    def run(self, task: ShardTask, losses: int) -> Shard:
        """Translate a shard."""
        assert self._search is not None
        return self._search(task)


class ClusterSearch:
    """Translates shards by actors."""

    def __init__(self, cluster: ClusterConfig, teacher: Teacher, row_width: int, config: DistillConfig) -> None:
        self._cluster = cluster
        self._arguments = teacher.cpu(), row_width, config, cluster.device

    def __call__(self, tasks: Iterable[ShardTask]) -> Iterator[tuple[ShardTask, Shard]]:
        with Cluster(self._cluster) as cluster:
            pool: Pool[ShardTask, Shard] = Pool(cluster, ShardWorker, *self._arguments)
            yield from pool.run(tasks)
