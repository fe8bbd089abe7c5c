"""Checkpoints: names of tensors, and files that are hostile or damaged."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from latentmt.errors import UserError
from latentmt.train.checkpoint import CHECKPOINT, Progress, load_checkpoint, save_checkpoint


@pytest.mark.parametrize(
    ("stored", "current"),
    [
        ("average.prior_stack.norm.weight", "average.prior.stack.norm.weight"),
        ("exp_avg.prior_head.bias", "exp_avg.prior.head.bias"),
        ("weight.length_head.weight", "weight.output.length_head.weight"),
        ("weight.decoder_stack.norm.weight", "weight.decoder_stack.norm.weight"),
        ("weight.length_scale", "weight.length_scale"),  # of a user's field
    ],
)
def test_tensors_load_under_present_names_and_those_of_version_0_1(tmp_path: Path, stored: str, current: str) -> None:
    path = tmp_path / "state.safetensors"
    progress = Progress(run="run", total=10, step=3)
    save_checkpoint(path, progress, {stored: torch.arange(4.0)})
    tensor = torch.zeros(4)
    assert load_checkpoint(path, "run", {current: tensor}) == progress
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0]


TENSORS = {"weight": torch.arange(4.0)}


def raw(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def header(text: bytes) -> Callable[[Path], object]:
    return raw(struct.pack("<Q", len(text)) + text)


def metadata(progress: object, **tensors: torch.Tensor) -> Callable[[Path], object]:
    """A safetensors file with another progress, without a hash, as version 0.1 wrote it."""
    return raw(save(tensors or TENSORS, {"progress": progress if isinstance(progress, str) else json.dumps(progress)}))


RUN = {"run": "run", "total": 10, "step": 3}
ATTACKS: dict[str, Callable[[Path], object]] = {
    "empty": raw(b""),
    "text": raw(b"not a checkpoint, and long enough to have a length"),
    "pickle": raw(b"\x80\x04\x95" + bytes(100)),
    "header of 2⁶³ bytes": raw(struct.pack("<Q", 1 << 63) + bytes(100)),
    "header of 0 bytes": raw(struct.pack("<Q", 0) + bytes(100)),
    "header not JSON": header(b"{{{{{{{{"),
    "header a list": header(b"[]"),
    "header deep": header(b"[" * 100_000),
    "header without metadata": header(b"{}"),
    "metadata a list": header(b'{"__metadata__": [1]}'),
    "offsets a text": header(b'{"__metadata__": {"progress": "{}"}, "a": {"data_offsets": "ab"}}'),
    "progress missing": raw(save(TENSORS)),
    "progress not JSON": metadata("{"),
    "progress a list": metadata([1]),
    "progress deep": metadata("[" * 100_000),
    "progress unknown key": metadata(RUN | {"pickle": "x"}),
    "progress a float": metadata(RUN | {"step": 1.5}),
    "progress negative": metadata(RUN | {"step": -1}),
    "another run": metadata(RUN | {"run": "other"}),
    "another tensor": metadata(RUN, other=torch.zeros(4)),
    "another shape": metadata(RUN, weight=torch.zeros(2, 2)),
    "one tensor more": metadata(RUN, weight=torch.zeros(4), more=torch.zeros(1)),
    "a link": lambda path: [path.rename(path.with_name("x")), path.symlink_to(path.with_name("x"))],
    "a pipe": lambda path: [path.unlink(), os.mkfifo(path)],
    "a folder": lambda path: [path.unlink(), path.mkdir()],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_in_one_line_and_nothing_starts_anew(tmp_path: Path, attack: str) -> None:
    path, tensor = tmp_path / CHECKPOINT, torch.zeros(4)
    save_checkpoint(path, Progress(run="run", total=10, step=3), TENSORS)
    assert load_checkpoint(path, "run", {"weight": tensor})
    ATTACKS[attack](path)
    with pytest.raises(UserError, match=rf"^{path}: ") as refused:
        load_checkpoint(path, "run", {"weight": tensor})
    assert len(str(refused.value)) < 500
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0]  # nothing was loaded
