"""Traces of a search: every step of one sentence, and the field around a token (`infer/trace.py`)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import numpy as np

from latentmt.engines.onnx.latent import Latents, Layout, OnnxLatent, Source
from latentmt.engines.onnx.postprocess import Postprocessor
from latentmt.engines.onnx.search import search
from latentmt.engines.onnx.teacher import OnnxTeacher
from latentmt.options import DecodingOptions
from latentmt.results import SentenceTrace, Step


def trace_sentence(
    model: OnnxLatent,
    teacher: OnnxTeacher | None,
    postprocessor: Postprocessor,
    sentence: list[int],
    options: DecodingOptions,
) -> SentenceTrace:
    """Translate a sentence with the latent model and record every step."""
    latents: list[Latents] = []
    times = [time.perf_counter()]

    def on_step(_: int, z: Latents) -> None:
        latents.append(z)
        times.append(time.perf_counter())

    source = model.encode(sentence)
    result = search(model, teacher, postprocessor, source, options, on_step)
    best, length = result.candidates.best, int(result.layout.lengths[result.candidates.best])
    milliseconds = [1e3 * (end - begin) for begin, end in itertools.pairwise(times)]
    steps = [
        _step(model, source, number, z[best : best + 1, :length], milliseconds[number])
        for number, z in enumerate(latents)
    ]
    return SentenceTrace(sentence, steps, result.candidates.all, best)


def field_around(
    model: OnnxLatent,
    trace: SentenceTrace,
    options: DecodingOptions,
    position: int,
    points: Sequence[Sequence[float]],
) -> list[list[float]]:
    """The field at these latents of one token, the others being at their final latents. Zero without refinement."""
    at = np.array(points, dtype=np.float32).reshape(-1, model.latent_dim)
    if not options.refines or not len(at):
        return np.zeros_like(at).tolist()
    z = np.tile(np.array(trace.steps[-1].z, dtype=np.float32), (len(at), 1, 1))
    z[:, position] = at
    layout = Layout.from_lengths(np.full(len(z), z.shape[1]))
    field = model.field(options.method, model.encode(trace.source), layout)
    return field(z)[:, position].tolist()


def _step(model: OnnxLatent, source: Source, number: int, z: Latents, milliseconds: float) -> Step:
    z = np.ascontiguousarray(z)
    layout = Layout.from_lengths(np.array([z.shape[1]]))
    ids = model.read(z, layout, source)
    log_probs = model.log_prob(z, ids, layout, source)[0]
    return Step(number, z[0].tolist(), ids[0].tolist(), log_probs.tolist(), milliseconds)
