"""The processes of one training run: a thin layer over torch.distributed that does not know what is trained.

`torchrun` starts the same command several times and sets environment variables. Without it there is one rank and no
communication.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from latentmt.device import AUTO, find_device
from latentmt.errors import UserError

PATIENCE = timedelta(days=1)
"""Ranks may wait for hours: while rank 0 prepares a corpus, or while the slowest one distils its share."""
TRAINING_PATIENCE = timedelta(minutes=10)
"""Steps take less than a second, and validation minutes. A rank that is silent for longer is lost or frozen."""


@dataclass(frozen=True)
class Ranks:
    """This process's rank, the number of ranks, and its device."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (immutable)
    group: Any = None
    """The process group of its messages. None: that of all ranks, which is patient."""

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes files and logs."""
        return self.rank == 0

    def all_reduce_(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks, in one message. All have the same dtype."""
        tensors = list(tensors)
        if self.world_size == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat, group=self.group)
        for tensor, total in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank. All ranks get the same answer."""
        if self.world_size == 1:
            return flag
        answer = torch.tensor([int(flag)], device=self.device)
        dist.all_reduce(answer, dist.ReduceOp.MAX, group=self.group)
        return bool(answer.item())

    def broadcast(self, value: int) -> int:
        """The value of rank 0, on all ranks."""
        if self.world_size == 1:
            return value
        agreed = torch.tensor([value], device=self.device)
        dist.broadcast(agreed, 0, group=self.group)
        return int(agreed.item())

    def barrier(self) -> None:
        """Wait until all ranks have reached this call."""
        if self.world_size > 1:
            dist.barrier(group=self.group)

    @contextmanager
    def training(self) -> Iterator[Ranks]:
        """The same ranks, but a message that waits for minutes is an error, which ends the process.

        `torchrun` then starts all processes again, and training goes on from the last save.
        """
        if self.world_size == 1:
            yield self
            return
        self.barrier()  # patiently: from here on all ranks train
        group = dist.new_group(timeout=TRAINING_PATIENCE)
        yield replace(self, group=group)
        dist.destroy_process_group(group)


@contextmanager
def init_distributed(name: str = AUTO) -> Iterator[Ranks]:
    """Join the process group that `torchrun` started; a single rank without it."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = pick_device(name, local)
    if "WORLD_SIZE" not in os.environ:
        yield Ranks(device=device)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    alone = device.type == "cuda" and _ranks_here() <= torch.cuda.device_count()
    dist.init_process_group("nccl" if alone else "gloo", timeout=PATIENCE)  # NCCL wants a GPU for each rank
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size(), device)
    finally:
        dist.destroy_process_group()


def pick_device(name: str = AUTO, local: int = 0) -> torch.device:
    """The device of that name; with `auto` a GPU if there is one. `local` is the rank on this machine.

    If there are more ranks than GPUs, they share them: distillation does not fill a GPU by itself.
    """
    if name == AUTO:
        name = find_device(name).type
    if name.startswith("cuda:") and "WORLD_SIZE" in os.environ:
        raise UserError(f"device {name}: under torchrun every process takes a GPU of its own; say cuda")
    if name == "cuda" and _ranks_here() > (gpus := torch.cuda.device_count()) > 0:
        local %= gpus
    return find_device(f"cuda:{local}" if name == "cuda" else name)


def _ranks_here() -> int:
    """The number of ranks on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
