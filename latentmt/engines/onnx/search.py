"""Search with the latent model, one sentence at a time: `infer/search.py`, refinement and reranking, in numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from latentmt.data.noise import standard_noise
from latentmt.engines.onnx.latent import Direction, Gaussian, Latents, OnnxLatent, Source
from latentmt.engines.onnx.postprocess import Postprocessor
from latentmt.engines.onnx.teacher import OnnxTeacher
from latentmt.engines.onnx.tokens import Layout, Tokens
from latentmt.ngrams.fusion import fusion_of
from latentmt.ngrams.model import NgramModel
from latentmt.options import MARGINAL_SAMPLES, MAX_POSITIONS, STOP_RATIO, DecodingOptions
from latentmt.results import Candidate, Candidates, without_special

OnStep = Callable[[int, Latents], None]
"""Called with the number of each step, 0 for the start, and the latents after it."""


@dataclass(frozen=True)
class SearchResult:
    """The candidates of a sentence."""

    candidates: Candidates
    source: Source
    places: Layout
    """Those of the candidates' latents."""


def search(
    model: OnnxLatent,
    teacher: OnnxTeacher | None,
    language_model: NgramModel | None,
    postprocessor: Postprocessor,
    source: Source,
    options: DecodingOptions,
    on_step: OnStep | None = None,
) -> SearchResult:
    """Predict lengths, start latents, refine them, decode tokens, and keep the best candidate."""
    lengths = Layout(model.predict_lengths(source, options.lengths, options.length_bias))
    places, fusion = lengths.repeat(options.samples), fusion_of(language_model, options)
    prior = model.prior(lengths, source).repeat(options.samples)
    noise = standard_noise(max(options.samples, MARGINAL_SAMPLES), MAX_POSITIONS, model.latent_dim, options.seed)[
        :, : places.real.shape[1]
    ]
    z = _start(prior, noise, options)
    if on_step:
        on_step(0, z)
    if options.refines:
        field = model.field(options.method, source, places, fusion)
        z = refine(z, field, options.steps, options.adaptive, on_step)
    decoded = model.read(z, places, source, fusion)
    read = [postprocessor.readable(row, options.remove_repeats, source.ids) for row in decoded.rows]
    score = _score(model, teacher, options, source, prior, z, places, decoded, read, noise)
    blank = np.array([postprocessor.is_blank(row) for row in read])
    best = int(np.where(blank, -np.inf, score).argmax())  # if all are blank, the first one
    candidates = [
        Candidate(without_special(row), text, float(value))
        for row, text, value in zip(decoded.rows, read, score, strict=True)
    ]
    return SearchResult(Candidates(candidates, best), source, places)


def refine(z: Latents, field: Direction, steps: int, adaptive: bool, on_step: OnStep | None = None) -> Latents:
    """z ← z + field(z): see `fields/refine.py`."""
    moving, threshold = np.ones(len(z), dtype=bool), None
    for step in range(1, steps + 1):
        move = field(z)
        z = np.where(moving[:, None, None], z + move, z)
        if on_step:
            on_step(step, z)
        if adaptive:
            length = np.sqrt(np.square(move).sum((1, 2)))
            threshold = STOP_RATIO * length if threshold is None else threshold
            moving = moving & (length > threshold)
            if not moving.any():
                break
    return z


def _start(prior: Gaussian, noise: Float[np.ndarray, "samples t D"], options: DecodingOptions) -> Latents:
    """For each length the prior's mode, then samples."""
    drawn = prior.mean + prior.std * np.tile(noise[: options.samples], (options.lengths, 1, 1))
    drawn[:: options.samples] = prior.mean[:: options.samples]
    return drawn


def _score(
    model: OnnxLatent,
    teacher: OnnxTeacher | None,
    options: DecodingOptions,
    source: Source,
    prior: Gaussian,
    z: Latents,
    places: Layout,
    target: Tokens,
    read: list[list[int]],
    noise: Float[np.ndarray, "samples t D"],
) -> Float[np.ndarray, " n"]:
    """The score of each candidate, per token: see `infer/rerank.py`."""
    match options.rerank:
        case "teacher":
            assert teacher is not None
            return teacher.score(source.ids, read)
        case "decoder":
            return _per_token(model.log_prob(z, places, target, source).sum(1), target)
        case "elbo":
            posterior = model.posterior(target, places, model.posterior_memory(source))
            kl = np.where(places.real, posterior.kl(prior).sum(-1), 0.0).sum(1)
            return _per_token(model.log_prob(posterior.mean, places, target, source).sum(1) - kl, target)
        case "marginal":
            posterior = model.posterior(target, places, model.posterior_memory(source))
            weights = np.stack(
                [_log_weight(model, prior, posterior, places, target, source, eps) for eps in noise[:MARGINAL_SAMPLES]]
            )
            highest = weights.max(0)
            return _per_token(highest + np.log(np.exp(weights - highest).mean(0)), target)
    return np.zeros(len(z))


def _log_weight(
    model: OnnxLatent,
    prior: Gaussian,
    posterior: Gaussian,
    places: Layout,
    target: Tokens,
    source: Source,
    noise: Float[np.ndarray, "t D"],
) -> Float[np.ndarray, " n"]:
    """log p(y|z,x) p(z|x) / q(z|y,x) at a sample of the posterior (`infer/marginal.py`)."""
    z = posterior.mean + posterior.std * noise
    ratio = np.where(places.real, (prior.log_prob(z) - posterior.log_prob(z)).sum(-1), 0.0)
    return model.log_prob(z, places, target, source).sum(1) + ratio.sum(1)


def _per_token(total: Float[np.ndarray, " n"], target: Tokens) -> Float[np.ndarray, " n"]:
    return total / target.layout.lengths
