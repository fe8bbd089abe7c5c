import math

import pytest

from latentmt.train.schedule import ema_decay, learning_rate, step_seed


def rate(step: int, schedule: str, total: int = 1000) -> float:
    return learning_rate(step, total, peak=0.5, warmup=100, schedule=schedule)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "linear", "cosine"])
def test_warm_up_is_linear_to_the_peak(schedule: str) -> None:
    assert [rate(step, schedule) for step in (0, 49, 99)] == pytest.approx([0.005, 0.25, 0.5])
    assert max(rate(step, schedule) for step in range(1000)) == pytest.approx(0.5)


def test_decay_after_warm_up() -> None:
    assert rate(399, "inverse_sqrt") == pytest.approx(0.25)
    assert rate(550, "linear") == pytest.approx(0.25)
    assert rate(550, "cosine") == pytest.approx(0.25)
    assert rate(325, "cosine") == pytest.approx(0.25 * (1 + math.cos(math.pi / 4)))
    assert rate(1000, "linear") == rate(1000, "cosine") == 0


def test_a_short_run_warms_up_for_half_of_it() -> None:
    assert rate(4, "linear", total=10) == pytest.approx(0.5)
    assert rate(9, "linear", total=10) == pytest.approx(0.1)


def test_the_ema_decay_is_smaller_at_first() -> None:
    assert ema_decay(0, 0.999) == pytest.approx(0.1)
    assert ema_decay(10**6, 0.999) == 0.999


def test_no_two_steps_or_ranks_share_noise() -> None:
    seeds = {step_seed(seed, step, rank) for seed in (1, 2) for step in range(500) for rank in range(16)}
    assert len(seeds) == 2 * 500 * 16
