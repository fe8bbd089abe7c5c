"""The marginal log-likelihood of the model's own outputs, step by step: the paper's Figure 2.

log p(ŷ|x) is estimated by importance sampling (`infer.marginal`), each output as a whole, given its number of places.
The noise is the same for every output, so that only the outputs differ.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from latentmt.data.batches import padded_batches
from latentmt.data.tokens import Tokens
from latentmt.display import ProgressBar
from latentmt.engines.torch_engine import torch_engine
from latentmt.infer.marginal import marginal
from latentmt.infer.noise import standard_noise
from latentmt.measure.methods import require_latent
from latentmt.measure.tokens import standard_error
from latentmt.options import MAX_POSITIONS
from latentmt.translator import Translator

SAMPLES = 500
"""Of the posterior, as in the paper."""
_BATCH_TOKENS = 256
"""Target tokens of a batch, padding counted and samples not: progress is shown in between."""
Pair = tuple[tuple[int, ...], tuple[int, ...]]
"""The ids of a source and of its target."""


@dataclass(frozen=True)
class Likelihood:
    """The outputs after a number of steps; in nats."""

    steps: int
    log_prob: float
    """log p(ŷ|x), given the number of places; the mean over sentences."""
    per_token: float
    """The same over all tokens."""
    gain: float
    """The increase over L=0, the mean over sentences."""
    gain_error: float
    """The standard error of that mean."""
    elbo: float
    """The lower bound from the same samples, the mean over sentences."""
    effective: float
    """Effective sample size (Kish), the median over sentences."""
    effective_low: float
    """The same, the first decile over sentences."""


@dataclass(frozen=True)
class _Estimate:
    log_prob: float
    elbo: float
    effective: float


def likelihoods(
    translator: Translator,
    sentences: Sequence[Sequence[int]],
    outputs: Mapping[int, Sequence[Sequence[int]]],
    samples: int = SAMPLES,
    seed: int = 1,
    name: str = "log p(ŷ|x)",
) -> list[Likelihood]:
    """The likelihoods of the outputs of `tokens.outputs_along`; progress is shown under this name."""
    pairs = {
        steps: [(tuple(x), tuple(y)) for x, y in zip(sentences, targets, strict=True)]
        for steps, targets in outputs.items()
    }
    unique = list(dict.fromkeys(pair for of_steps in pairs.values() for pair in of_steps))  # many outputs do not change
    known = _estimate(translator, unique, samples, seed, name)
    estimates = {steps: [known[pair] for pair in of_steps] for steps, of_steps in pairs.items()}
    return [
        _summary(steps, after, estimates[0], sum(map(len, outputs[steps])), samples)
        for steps, after in estimates.items()
    ]


def _summary(
    steps: int, estimates: Sequence[_Estimate], before: Sequence[_Estimate], tokens: int, samples: int
) -> Likelihood:
    gains = [after.log_prob - start.log_prob for after, start in zip(estimates, before, strict=True)]
    effective = sorted(estimate.effective for estimate in estimates)
    assert 0 < effective[0] <= effective[-1] <= samples * 1.001
    return Likelihood(
        steps=steps,
        log_prob=statistics.fmean(estimate.log_prob for estimate in estimates),
        per_token=sum(estimate.log_prob for estimate in estimates) / tokens,
        gain=statistics.fmean(gains),
        gain_error=standard_error(gains),
        elbo=statistics.fmean(estimate.elbo for estimate in estimates),
        effective=statistics.median(effective),
        effective_low=effective[(len(effective) - 1) // 10],
    )


def _estimate(
    translator: Translator, pairs: Sequence[Pair], samples: int, seed: int, name: str
) -> dict[Pair, _Estimate]:
    """Estimate each pair by itself; batches are only for speed."""
    model = require_latent(translator)
    engine = torch_engine(translator.backend)
    noise = standard_noise(samples, MAX_POSITIONS, model.latent_dim, seed).to(engine.device)
    estimates: dict[Pair, _Estimate] = {}
    lengths = np.array([len(target) for _, target in pairs], dtype=np.int64)
    with ProgressBar(name, "outputs", len(pairs)) as counting, torch.no_grad():
        for group in padded_batches(lengths, _BATCH_TOKENS):
            batch = [pairs[index] for index in group]
            source, target = (Tokens.padded(side).to(engine.device) for side in zip(*batch, strict=True))
            with engine.lock:
                result = marginal(model, model.encode(source), target, noise)
                columns = torch.stack((result.log_prob, result.elbo, result.effective), dim=1).double().tolist()
            estimates |= {pair: _Estimate(*row) for pair, row in zip(batch, columns, strict=True)}
            counting.advance(len(batch))
    return estimates
