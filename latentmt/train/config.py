"""The configuration of a training run, and the run's identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from latentmt.config import Section, added, original_names, to_dict
from latentmt.train.schedule import Schedule

Optimizer = Literal["adam", "muon"]
Share = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Section):
    """How a network is trained. A batch is the same however many ranks share it."""

    aliases: ClassVar[Mapping[str, str]] = {
        "parts": "grad_accumulation",
        "rate": "learning_rate",
        "betas": "adam_betas",
        "epsilon": "adam_epsilon",
        "clip": "max_grad_norm",
        "average": "ema_decay",
    }

    steps: Annotated[int, Field(ge=1)] = 100_000
    """The length of the run, unless a time budget is given on the command line."""
    batch_rows: Annotated[int, Field(ge=1)] = 256
    """Packed rows a step, over all ranks and micro-batches."""
    grad_accumulation: Annotated[int, Field(ge=1)] = 1
    """Each rank splits its share of a batch into this many micro-batches, to save memory."""
    learning_rate: Annotated[float, Field(gt=0)] = 5e-4
    """The peak learning rate."""
    warmup: Annotated[int, Field(ge=1)] = 4000
    """Steps of linear warm-up."""
    optimizer: Annotated[Optimizer, added("adam")] = "adam"
    """Adam for all weights, or Muon for the matrices of the layers (`train/muon.py`) and Adam for the others."""
    schedule: Schedule = "inverse_sqrt"
    """How the learning rate decays after warm-up: `inverse_sqrt`, or `linear` or `cosine` to zero at the last step."""
    adam_betas: tuple[Share, Share] = (0.9, 0.98)
    adam_epsilon: Annotated[float, Field(gt=0)] = 1e-9
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """Gradients with a larger norm are clipped to it."""
    ema_decay: Share = 0.999
    """The decay of the exponential moving average of the weights. The averaged weights are the result of a run."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    report_every: Annotated[int, Field(ge=1)] = 100
    """Steps between log lines."""
    validate_every: Annotated[int, Field(ge=1)] = 2000
    """Steps between validations."""
    save_every: Annotated[int, Field(ge=1)] = 1000
    """Steps between checkpoints."""


def identity_settings(config: TrainConfig) -> dict[str, Any]:
    """The settings that affect a run's result. How often it is logged and saved does not."""
    without_effect = ("grad_accumulation", "report_every", "validate_every", "save_every")
    return {key: value for key, value in to_dict(config).items() if key not in without_effect}


def run_identity(name: str, config: TrainConfig, identity: Mapping[str, Any]) -> str:
    """A hash of everything that affects a run's result."""
    whole = {**identity, "name": name, "train": original_names(identity_settings(config), TrainConfig)}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
