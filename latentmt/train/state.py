"""A training run on disk: every tensor and number that the next step depends on, in one file.

The file is written beside and renamed, so there is always the last good one. It is no model: that is a bundle.
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

from latentmt.config import Section, from_tree, to_tree
from latentmt.data.batches import Cursor
from latentmt.errors import UserError
from latentmt.files import make_folder, write_atomically

FORMAT = 1
STATE = "state.safetensors"
"""Its name in the folder of a run."""


@dataclass(frozen=True, kw_only=True)
class Progress(Section):
    """How far a run has come."""

    run: str
    """A hash of everything that decides the run; a state of another run is refused."""
    total: int
    """The run's length in steps, settled when it began."""
    step: int = 0
    """Steps taken."""
    cursor: Cursor = field(default_factory=Cursor)
    """The next batch."""
    tokens: int = 0
    """Target tokens learnt from."""
    seconds: float = 0.0
    """Time spent in steps."""
    skipped: int = 0
    """Steps not taken because their gradient was not finite."""
    format: int = FORMAT


def save_state(path: Path, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
    """Write the state; until that is done, the old one stays."""
    make_folder(path.parent)
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(held, {"progress": json.dumps(to_tree(progress))}))


def load_state(path: Path, run: str, tensors: Mapping[str, Tensor]) -> Progress | None:
    """Fill the tensors from the state and say how far it had come; None if there is no state to go on with.

    The state of another run is refused while that is unfinished; once it has ended, nothing is lost by a new one.
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
            if set(file.keys()) != set(tensors):
                raise UserError(f"{path}: does not hold what this network needs; remove it to start anew")
            with torch.no_grad():
                for name, tensor in tensors.items():
                    tensor.copy_(file.get_tensor(name))
    except SafetensorError as error:
        raise UserError(f"{path}: damaged ({error}); remove it to start anew") from None
    return progress


def read_progress(path: Path) -> Progress | None:
    """How far a run had come; None if there is no state that can be read."""
    try:
        with safe_open(path, framework="pt") as file:
            return _progress(file.metadata(), path)
    except (OSError, SafetensorError, UserError):
        return None


def _progress(metadata: Mapping[str, str] | None, path: Path) -> Progress:
    return from_tree(json.loads((metadata or {}).get("progress", "{}")), Progress, str(path))
