"""Schedules of a training run: pure functions of the step and of the number of steps.

They have no state, so a resumed run needs only its step.
"""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["inverse_sqrt", "linear", "cosine"]


def learning_rate(step: int, total: int, *, peak: float, warmup: int, schedule: Schedule) -> float:
    """The learning rate at a step, counted from 0: linear warm-up to `peak` over `warmup` steps, then decay.

    `inverse_sqrt` decays with the square root of the step (Vaswani et al., 2017), whatever the length of the run.
    `linear` and `cosine` reach zero at its end. A run shorter than twice its warm-up warms up for half of its steps.
    """
    warmup = max(1, min(warmup, total // 2))
    if step < warmup:
        return peak * (step + 1) / warmup
    if schedule == "inverse_sqrt":
        return peak * math.sqrt(warmup / (step + 1))
    left = max(0.0, (total - step) / (total - warmup))
    return peak * (left if schedule == "linear" else 0.5 * (1 - math.cos(math.pi * left)))


def ema_decay(step: int, decay: float) -> float:
    """The decay of the EMA at a step: smaller at first, so that the initial weights lose their influence soon."""
    return min(decay, (1 + step) / (10 + step))


def step_seed(seed: int, step: int, rank: int) -> int:
    """The seed of all noise of a step on a rank. So no generator state has to be saved."""
    return (seed * 1_000_003 + step) * 1_009 + rank
