"""How likely the latent model finds what it wrote, step by step: the paper's Figure 2.

log p(ŷ|x) is estimated by importance sampling (`infer.marginal`), each output as a whole, given its length; the same
noise for every output, so that what differs is the output.
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
from latentmt.errors import UserError
from latentmt.infer.marginal import marginal
from latentmt.infer.noise import standard_noise
from latentmt.infer.translator import Translator
from latentmt.measure.tokens import standard_error

SAMPLES = 500
"""Of the posterior, as in the paper."""
_TOGETHER = 256
"""Target tokens judged at a time, padding counted and samples not: progress is shown in between."""


@dataclass(frozen=True)
class Likelihood:
    """The outputs after so many steps; in nats."""

    steps: int
    log_prob: float
    """log p(ŷ|x,T), the mean over sentences."""
    per_token: float
    """The same over all tokens."""
    gain: float
    """What it is more than before the first step, the mean over sentences."""
    gain_error: float
    """The standard error of that mean."""
    elbo: float
    """The bound that the same samples give, the mean over sentences."""
    effective: float
    """Effective sample size (Kish), the median over sentences."""
    effective_low: float
    """The same, of the tenth of the sentences where it is lowest: the most that it is there."""


@dataclass(frozen=True)
class _Judged:
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
    """Judge what `tokens.outputs_along` found; `name` is what progress is shown as."""
    pairs = [(tuple(x), tuple(y)) for targets in outputs.values() for x, y in zip(sentences, targets, strict=True)]
    known = _judge(translator, list(dict.fromkeys(pairs)), samples, seed, name)  # many outputs stay as they are
    judged = {
        steps: [known[tuple(x), tuple(y)] for x, y in zip(sentences, targets, strict=True)]
        for steps, targets in outputs.items()
    }
    return [
        _summary(steps, found, judged[0], sum(map(len, outputs[steps])), samples) for steps, found in judged.items()
    ]


def _summary(steps: int, found: Sequence[_Judged], before: Sequence[_Judged], tokens: int, samples: int) -> Likelihood:
    gains = [after.log_prob - start.log_prob for after, start in zip(found, before, strict=True)]
    effective = sorted(one.effective for one in found)
    assert 0 < effective[0] <= effective[-1] <= samples * 1.001
    return Likelihood(
        steps=steps,
        log_prob=statistics.fmean(one.log_prob for one in found),
        per_token=sum(one.log_prob for one in found) / tokens,
        gain=statistics.fmean(gains),
        gain_error=standard_error(gains),
        elbo=statistics.fmean(one.elbo for one in found),
        effective=statistics.median(effective),
        effective_low=effective[(len(effective) - 1) // 10],
    )


def _judge(
    translator: Translator, pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], samples: int, seed: int, name: str
) -> dict[tuple[tuple[int, ...], tuple[int, ...]], _Judged]:
    """Each pair of source and target, by itself; batches are only for speed."""
    model = translator.latent
    if model is None:
        raise UserError("there is no latent model to ask how likely something is")
    longest = max(len(target) for _, target in pairs)
    noise = standard_noise(samples, longest, model.latent_dim, seed).to(translator.device)
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], _Judged] = {}
    lengths = np.array([len(target) for _, target in pairs], dtype=np.int64)
    with ProgressBar(name, "outputs", len(pairs)) as counting, torch.no_grad():
        for group in padded_batches(lengths, _TOGETHER):
            some = [pairs[index] for index in group]
            source, target = (Tokens.padded(side).to(translator.device) for side in zip(*some, strict=True))
            with translator.engine.lock:
                judged = marginal(model, model.encode(source), target, noise)
                columns = torch.stack((judged.log_prob, judged.elbo, judged.effective), dim=1).double().tolist()
            found |= {pair: _Judged(*row) for pair, row in zip(some, columns, strict=True)}
            counting.advance(len(some))
    return found
