"""The processes that train together. It knows torch.distributed, and nothing of what is trained.

`torchrun` starts the same command several times and says so in the environment; without it there is one rank and
nothing is communicated.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from latentmt.device import find_device
from latentmt.errors import UserError


@dataclass(frozen=True)
class Ranks:
    """This process's place among those that train together."""

    rank: int = 0
    count: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (immutable)

    @property
    def first(self) -> bool:
        """Whether this process writes and reports."""
        return self.rank == 0

    def sum_(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks, in one message; they are of one type."""
        tensors = list(tensors)
        if self.count == 1 or not tensors:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat)
        for tensor, total in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank; all ranks get the same answer."""
        if self.count == 1:
            return flag
        answer = torch.tensor([int(flag)], device=self.device)
        dist.all_reduce(answer, dist.ReduceOp.MAX)
        return bool(answer.item())

    def agree(self, value: int) -> int:
        """The first rank's value, on all ranks."""
        if self.count == 1:
            return value
        agreed = torch.tensor([value], device=self.device)
        dist.broadcast(agreed, 0)
        return int(agreed.item())

    def wait(self) -> None:
        """Go on when all ranks have come here."""
        if self.count > 1:
            dist.barrier()


@contextmanager
def joined(device: str | None = None) -> Iterator[Ranks]:
    """Join the ranks that `torchrun` started; alone if it started none."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = pick_device(device, local)
    if "WORLD_SIZE" not in os.environ:
        yield Ranks(device=chosen)
        return
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    # The others may wait for hours while the first one prepares a corpus, or the slowest one distils its share.
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", timeout=timedelta(days=1))
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size(), chosen)
    finally:
        dist.destroy_process_group()


def pick_device(name: str | None, local: int = 0) -> torch.device:
    """The CPU or GPU of that name; without one, a GPU if there is any. `local` numbers this machine's processes."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda:") and "WORLD_SIZE" in os.environ:
        raise UserError(f"device {name}: under torchrun every process takes a GPU of its own; say cuda")
    return find_device(f"cuda:{local}" if name == "cuda" else name)
