"""Whether one system is significantly better than another on a test set.

Paired bootstrap resampling (Koehn, 2004): draw test sets of the same size from the sentences of this one, with
replacement, and look at the distribution of the difference in BLEU. Test sets of a few dozen sentences are too small.

sacreBLEU has such a test, too. It is not used because it calls a system significantly better than itself (p = 0.001),
gives no interval of the difference, and takes its seed from the environment only. Statistics, smoothing, seed and
number of resamples are the same as there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from latentmt.measure.quality import require_sacrebleu

SAMPLES = 1000
SEED = 12345


@dataclass(frozen=True)
class Comparison:
    """The difference of two systems in BLEU."""

    difference: float
    low: float
    """The lower end of the interval that holds 95% of the resampled differences."""
    high: float
    p: float
    """Two-sided p-value: how likely so large a difference would be if the systems were equal."""
    signature: str


def paired_bootstrap(
    texts: Sequence[str],
    others: Sequence[str],
    references: Sequence[Sequence[str]],
    samples: int = SAMPLES,
    seed: int = SEED,
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Comparison:
    """Compare the BLEU of two systems' outputs for the same sentences; positive if the first is better."""
    require_sacrebleu()
    from sacrebleu import BLEU

    metric = BLEU(lowercase=lowercase, tokenize=tokenize)
    by_sentence = BLEU(lowercase=lowercase, tokenize=tokenize, effective_order=True)  # avoids a warning
    lists = [list(reference) for reference in references]
    first, second = (metric.corpus_score(list(outputs), lists).score for outputs in (texts, others))
    signature = metric.get_signature()
    signature.update("bs", samples)
    signature.update("seed", seed)
    mine, other = (_statistics(outputs, references, by_sentence) for outputs in (texts, others))
    resampled = _differences(mine, other, samples, seed)
    low, high = np.percentile(resampled, [2.5, 97.5]).tolist()
    return Comparison(first - second, low, high, _p_value(resampled, first - second), str(signature))


def _p_value(resampled: Float64[np.ndarray, " s"], difference: float) -> float:
    """Two-sided, by the shift method (Riezler and Maxwell, 2005).

    Resampled differences scatter around the observed one as they would around zero if there were none. “At least”,
    so that equal systems have p = 1; and one is added to both counts, since no finite sample can show p = 0.
    """
    as_large = int((np.abs(resampled - resampled.mean()) >= abs(difference)).sum())
    return (as_large + 1) / (len(resampled) + 1)


def _differences(
    first: Int64[np.ndarray, "n 10"], second: Int64[np.ndarray, "n 10"], samples: int, seed: int
) -> Float64[np.ndarray, " {samples}"]:
    """The difference of the BLEUs on each resampled test set, which is the same one for both systems."""
    random, count = np.random.default_rng(seed), len(first)
    differences = []
    for _ in range(samples):
        times = np.bincount(random.integers(count, size=count), minlength=count)
        differences.append(_bleu(times @ first) - _bleu(times @ second))
    return np.array(differences, dtype=np.float64)


def _statistics(texts: Sequence[str], references: Sequence[Sequence[str]], metric: Any) -> Int64[np.ndarray, "n 10"]:
    """Of each sentence: its length, its reference's, its matching n-grams and all its n-grams. BLEU needs only sums."""
    scores = [metric.sentence_score(text, list(accepted)) for text, *accepted in zip(texts, *references, strict=True)]
    rows = [[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores]
    return np.array(rows, dtype=np.int64)


def _bleu(sums: Int64[np.ndarray, "10"]) -> float:
    from sacrebleu import BLEU

    length, reference_length, *counts = sums.tolist()
    return BLEU.compute_bleu(counts[:4], counts[4:], length, reference_length, smooth_method="exp").score
