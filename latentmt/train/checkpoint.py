"""The checkpoint of a training run: every tensor and number that the next step depends on, in one file.

The file is written beside the old one and renamed, so the last complete checkpoint always exists. A trained model is
written as a bundle, not as a checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from latentmt.config import Section, from_dict, to_dict
from latentmt.data.batches import Cursor
from latentmt.errors import UserError
from latentmt.files import make_folder, write_atomically
from latentmt.models.latent import current_weight_name

FORMAT = 1
CHECKPOINT = "state.safetensors"
"""The file's name in the folder of a run."""


@dataclass(frozen=True, kw_only=True)
class Progress(Section):
    """The progress of a run."""

    run: str
    """A hash of everything that affects the result. The checkpoint of another run is refused."""
    total: int
    """The number of steps, fixed when the run started."""
    step: int = 0
    """Steps taken."""
    cursor: Cursor = field(default_factory=Cursor)
    """The next batch."""
    tokens: int = 0
    """Target tokens seen."""
    seconds: float = 0.0
    """Time spent in steps."""
    skipped: int = 0
    """Steps skipped because their gradient was not finite."""
    format: int = FORMAT


def save_checkpoint(path: Path, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
    """Write a checkpoint. The old one stays until the new one is complete."""
    make_folder(path.parent)
    copies = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(copies, {"progress": json.dumps(to_dict(progress))}))


def load_checkpoint(path: Path, run: str, tensors: Mapping[str, Tensor]) -> Progress | None:
    """Fill the tensors from a checkpoint and return its progress; None if there is none to resume from.

    The checkpoint of another run is refused if that run is unfinished, and ignored if it is finished.
    """
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            progress = _progress(file.metadata(), path)
            if progress.run != run and progress.step >= progress.total:
                return None
            if progress.format != FORMAT or progress.run != run:
                raise UserError(
                    f"{path}: belongs to a run with other settings; remove it to start anew, or restore the settings"
                )
            names = file.keys()
            stored = {name if name in tensors else _current(name): name for name in names}
            if stored.keys() != tensors.keys():
                raise UserError(f"{path}: does not hold what this network needs; remove it to start anew")
            with torch.no_grad():
                for name, tensor in tensors.items():
                    tensor.copy_(file.get_tensor(stored[name]))
    except SafetensorError as error:
        raise UserError(f"{path}: damaged ({error}); remove it to start anew") from None
    return progress


def read_progress(path: Path) -> Progress | None:
    """The progress of a run; None if there is no readable checkpoint."""
    try:
        with safe_open(path, framework="pt") as file:
            return _progress(file.metadata(), path)
    except (OSError, SafetensorError, UserError):
        return None


def _current(name: str) -> str:
    """The name of a tensor, also where version 0.1 named its weight."""
    kind, _, weight = name.partition(".")
    return f"{kind}.{current_weight_name(weight)}"


def _progress(metadata: Mapping[str, str] | None, path: Path) -> Progress:
    return from_dict(json.loads((metadata or {}).get("progress", "{}")), Progress, str(path))
