"""What changes along a training run, each as a function of the step and of the run's length alone.

Nothing here has a memory, so a resumed run needs only its step to go on exactly as it would have.
"""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["inverse_sqrt", "linear", "cosine"]


def learning_rate(step: int, total: int, *, peak: float, warmup: int, schedule: Schedule) -> float:
    """The rate at a step counted from 0: linear up to `peak` over `warmup` steps, then down as the schedule says.

    `inverse_sqrt` falls with the root of the step (Vaswani et al., 2017), whatever the length of the run; `linear` and
    `cosine` reach zero at its end. A run shorter than twice its warm-up warms up for half of it.
    """
    warmup = max(1, min(warmup, total // 2))
    if step < warmup:
        return peak * (step + 1) / warmup
    if schedule == "inverse_sqrt":
        return peak * math.sqrt(warmup / (step + 1))
    left = max(0.0, (total - step) / (total - warmup))
    return peak * (left if schedule == "linear" else 0.5 * (1 - math.cos(math.pi * left)))


def ema_decay(step: int, decay: float) -> float:
    """How much of the average is kept at a step: less at first, so that the initial weights are soon forgotten."""
    return min(decay, (1 + step) / (10 + step))


def step_seed(seed: int, step: int, rank: int) -> int:
    """The seed of all noise of a step on a rank: dropout and latents need no state to be saved."""
    return (seed * 1_000_003 + step) * 1_009 + rank
