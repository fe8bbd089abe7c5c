"""The checkpoint of a training run: every tensor and number that the next step depends on, in one file.

The file is written beside the old one and renamed, so the last complete checkpoint always exists. It is a safetensors
file. Its metadata have the progress of the run, and the hash of the whole file: one flipped bit is noticed. A damaged
checkpoint is refused, so that a run does not silently start anew. A trained model is written as a bundle, not as a
checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from latentmt.config import Section, check_json, from_dict, to_json
from latentmt.data.batches import Cursor
from latentmt.errors import UserError
from latentmt.files import make_folder, open_plain, write_atomically
from latentmt.models.latent import current_weight_name

FORMAT = 1
CHECKPOINT = "state.safetensors"
"""The file's name in the folder of a run."""

_BLANK = b"0" * 64
"""In the place of the hash while it is computed."""


@dataclass(frozen=True, kw_only=True)
class Progress(Section):
    """The progress of a run."""

    run: str
    """A hash of everything that affects the result. The checkpoint of another run is refused."""
    total: Annotated[int, Field(ge=1)]
    """The number of steps, fixed when the run started."""
    step: Annotated[int, Field(ge=0)] = 0
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
    checksum: str = field(default="", compare=False)
    """Of these numbers. Version 0.1 wrote none."""


def save_checkpoint(path: Path, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
    """Write a checkpoint. The old one stays until the new one is complete."""
    make_folder(path.parent)
    copies = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content = memoryview(save(copies, {"progress": to_json(progress), "sha256": _BLANK.decode()}))
    length, digest = _header_length(bytes(content[:8]), len(content)), hashlib.sha256(content).hexdigest()
    write_atomically(path, bytes(content[:length]).replace(_BLANK, digest.encode(), 1), content[length:])


def load_checkpoint(path: Path, run: str, tensors: Mapping[str, Tensor]) -> Progress | None:
    """Fill the tensors from a checkpoint and return its progress; None if there is none to resume from.

    The checkpoint of another run is refused if that run is unfinished, and ignored if it is finished.
    """
    progress = read_progress(path)
    if progress is None or (progress.run != run and progress.step >= progress.total):
        return None
    if progress.format != FORMAT or progress.run != run:
        raise UserError(
            f"{path}: belongs to a run with other settings; remove it to start anew, or restore the settings"
        )
    with _damage_named(path), open_plain(path) as file:
        content = file.read()
        progress = _verified(content, path)
        stored = load(content)
    names = {name if name in tensors else _current(name): name for name in stored}
    if names.keys() != tensors.keys() or any(t.shape != stored[names[name]].shape for name, t in tensors.items()):
        raise UserError(f"{path}: does not hold what this network needs; remove it to start anew")
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(stored.pop(names[name]))
    return progress


def read_progress(path: Path) -> Progress | None:
    """The progress of a run; None if there is no checkpoint."""
    if not path.exists():
        return None
    with _damage_named(path), open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = _header_length(file.read(8), size)
        header = file.read(length - 8)
        ends = [entry["data_offsets"][1] for name, entry in json.loads(header).items() if name != "__metadata__"]
        if length + max(ends, default=0) != size:
            raise ValueError("truncated")
        return _progress(header, path)


def _header_length(start: bytes, size: int) -> int:
    """The bytes before the tensors of a safetensors file: the length of its header, and the header, which is JSON."""
    length = 8 + int.from_bytes(start[:8], "little")
    if not 8 < length <= size:
        raise ValueError("no header")
    return length


def _verified(content: bytes, path: Path) -> Progress:
    """The progress in a checkpoint that was compared with its hash. Version 0.1 stored neither hash nor checksum."""
    length = _header_length(content, len(content))
    header = content[8:length]
    progress, stored = _progress(header, path), str(_metadata(header).get("sha256") or "")
    if stored or progress.checksum:
        digest = hashlib.sha256(content[:8] + header.replace(stored.encode(), _BLANK, 1))
        digest.update(memoryview(content)[length:])
        if digest.hexdigest() != stored:
            raise ValueError("altered since it was written")
    return progress


def _metadata(header: bytes) -> Mapping[str, Any]:
    metadata: Mapping[str, Any] = json.loads(header)["__metadata__"]
    return metadata


def _progress(header: bytes, path: Path) -> Progress:
    text = _metadata(header)["progress"]
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("no progress")
    check_json(text.encode(), values, str(path))
    return from_dict(values, Progress, str(path))


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """What may be wrong with a file that something else has written over, as one line."""
    try:
        yield
    except (OSError, SafetensorError, LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: damaged ({error}); remove it to start anew") from None


def _current(name: str) -> str:
    """The name of a tensor, also where version 0.1 named its weight."""
    kind, _, weight = name.partition(".")
    return f"{kind}.{current_weight_name(weight)}"
