"""Which GPU a rank takes."""

from __future__ import annotations

import pytest
import torch

from latentmt.errors import UserError
from latentmt.train.ranks import pick_device


@pytest.mark.parametrize(
    ("ranks", "gpus", "taken"), [(1, 1, [0]), (4, 1, [0, 0, 0, 0]), (3, 2, [0, 1, 0]), (2, 4, [0, 1])]
)
def test_ranks_share_gpus_only_if_there_are_more_of_them(
    monkeypatch: pytest.MonkeyPatch, ranks: int, gpus: int, taken: list[int]
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert [pick_device("cuda", rank).index for rank in range(ranks)] == taken


def test_without_a_gpu_there_is_none_to_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match="0 GPUs"):
        pick_device("cuda", 1)
