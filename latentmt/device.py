"""Devices by name: the CPU and the GPUs that torch can use."""

from __future__ import annotations

import torch

from latentmt.errors import UserError

AUTO = "auto"
"""The name that stands for a GPU if there is one, else the CPU."""


def find_device(name: torch.device | str) -> torch.device:
    """The device of that name. An unknown or missing one is an error."""
    if name == AUTO:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, colon, index = str(name).partition(":")
    if kind not in ("cpu", "cuda") or (colon and not index.isdigit()):
        raise UserError(f"device {name}: expected cpu, cuda or cuda:<number>")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise UserError(f"device {name}: this machine has {torch.cuda.device_count()} GPUs that torch can use")
    return torch.device(str(name))
