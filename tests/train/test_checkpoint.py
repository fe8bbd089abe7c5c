"""Checkpoints: tensors are found under their present names and under those of version 0.1."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from latentmt.train.checkpoint import Progress, load_checkpoint, save_checkpoint


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
