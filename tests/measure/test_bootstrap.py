"""Paired bootstrap resampling, against what must come out and against a slow version that draws texts, not sums."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest
from sacrebleu import BLEU

from latentmt.errors import UserError
from latentmt.measure import bootstrap as module
from latentmt.measure.bootstrap import Comparison, paired_bootstrap

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def sentences(count: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(4, 12))) for _ in range(count)]


def spoilt(texts: list[str], which: range, words: int = 2) -> list[str]:
    """Some of the texts with their first words replaced."""
    wrong = " ".join(["x"] * words)
    return [f"{wrong} {' '.join(t.split()[words:])}" if i in which else t for i, t in enumerate(texts)]


REFERENCE = sentences(60)
WORSE = spoilt(REFERENCE, range(0, 60, 2))
BETTER = spoilt(REFERENCE, range(0, 60, 6))


def test_a_system_is_not_better_than_itself() -> None:
    found = paired_bootstrap(WORSE, WORSE, [REFERENCE])
    assert found == Comparison(0.0, 0.0, 0.0, 1.0, found.signature)


def test_a_clearly_better_system() -> None:
    found = paired_bootstrap(BETTER, WORSE, [REFERENCE])
    first, second = (BLEU().corpus_score(texts, [REFERENCE]).score for texts in (BETTER, WORSE))
    assert found.difference == first - second > 5
    assert 0 < found.low < found.difference < found.high
    assert found.p < 0.05


def test_options_of_bleu_are_used_throughout() -> None:
    """Lower-cased and tokenized otherwise: in the difference, in what is resampled, and in the signature."""
    shouted = [text.upper() for text in BETTER]
    kept = paired_bootstrap(BETTER, WORSE, [REFERENCE], 200, lowercase=True, tokenize="intl")
    found = paired_bootstrap(shouted, WORSE, [REFERENCE], 200, lowercase=True, tokenize="intl")
    assert found == kept
    assert "case:lc" in found.signature
    assert "tok:intl" in found.signature
    assert paired_bootstrap(shouted, WORSE, [REFERENCE], 200).high < 0


def test_the_other_way_round_the_sign_flips() -> None:
    found, turned = paired_bootstrap(BETTER, WORSE, [REFERENCE]), paired_bootstrap(WORSE, BETTER, [REFERENCE])
    assert turned.difference == -found.difference
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))
    assert turned.p == found.p


def test_systems_that_err_equally_often_are_not_told_apart() -> None:
    found = paired_bootstrap(
        spoilt(REFERENCE, range(0, 60, 2)), spoilt(REFERENCE, range(1, 60, 2)), [REFERENCE], samples=300
    )
    assert found.difference != 0
    assert found.low < 0 < found.high
    assert found.p > 0.05


def test_pairing_detects_small_differences() -> None:
    """One word less in every third sentence: far smaller than what the choice of sentences does to either BLEU."""
    hard = spoilt(REFERENCE, range(0, 60, 2), words=4)
    a_little_worse = spoilt(hard, range(1, 60, 6), words=1)
    found = paired_bootstrap(hard, a_little_worse, [REFERENCE], samples=300)
    drawn = [np.random.default_rng(seed).integers(60, size=60) for seed in range(50)]
    scores = [BLEU().corpus_score([hard[i] for i in one], [[REFERENCE[i] for i in one]]).score for one in drawn]
    assert max(scores) - min(scores) > 2 * found.difference
    assert found.p < 0.05


def test_the_seed_determines_the_result() -> None:
    options = {"samples": 50}
    found = paired_bootstrap(BETTER, WORSE, [REFERENCE], seed=7, **options)
    assert paired_bootstrap(BETTER, WORSE, [REFERENCE], seed=7, **options) == found
    other = paired_bootstrap(BETTER, WORSE, [REFERENCE], seed=8, **options)
    assert (other.low, other.high) != (found.low, found.high)
    assert other.difference == found.difference
    assert "|bs:50|seed:7|" in found.signature
    assert "|bs:50|seed:8|" in other.signature


def test_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    found = paired_bootstrap(BETTER, WORSE, [REFERENCE], samples=20)
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    assert paired_bootstrap(BETTER, WORSE, [REFERENCE], samples=20) == found
    assert found.signature.startswith("nrefs:1|bs:20|seed:12345|case:mixed|eff:no|tok:13a|")


def test_bleu_of_summed_statistics_equals_sacrebleus() -> None:
    """Empty lines and a second reference included."""
    references = [[*REFERENCE[:10], "", "one"], [*sentences(10, seed=2), "", ""]]
    first, second = [*WORSE[:10], "", ""], [*BETTER[:10], "nothing", "one"]
    found = paired_bootstrap(first, second, references, samples=20, seed=3)
    rng, differences = np.random.default_rng(3), []
    for _ in range(20):
        drawn = rng.integers(12, size=12)
        lists = [[reference[i] for i in drawn] for reference in references]
        scores = [BLEU().corpus_score([texts[i] for i in drawn], lists).score for texts in (first, second)]
        differences.append(scores[0] - scores[1])
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(differences, [2.5, 97.5])))
    centred = np.abs(np.array(differences) - np.mean(differences))
    assert found.p == (1 + int((centred >= abs(found.difference)).sum())) / 21


def test_p_values_of_a_small_example() -> None:
    resampled = np.array([1.0, 2.0, 3.0, 4.0, 5.0])  # around 3: by 2, 1, 0, 1, 2
    assert module._p_value(resampled, 3.0) == pytest.approx(1 / 6)
    assert module._p_value(resampled, -2.0) == pytest.approx(3 / 6)
    assert module._p_value(resampled, 0.5) == pytest.approx(5 / 6)
    assert module._p_value(resampled, 0.0) == 1.0


def test_measuring_needs_sacrebleu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(UserError, match=r"measuring needs sacrebleu: pip install 'latentmt\[train\]'"):
        paired_bootstrap(BETTER, WORSE, [REFERENCE])
