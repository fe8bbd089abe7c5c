"""Traces of a search: every step of one sentence, and the field around a token (`infer/trace.py`)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import numpy as np

from latentmt.data.tokenizer import BLANK
from latentmt.engines.onnx.latent import Latents, OnnxLatent, Source
from latentmt.engines.onnx.postprocess import Postprocessor
from latentmt.engines.onnx.search import search
from latentmt.engines.onnx.teacher import OnnxTeacher
from latentmt.engines.onnx.tokens import Layout
from latentmt.ngrams.fusion import Fusion, fusion_of
from latentmt.ngrams.model import NgramModel
from latentmt.options import DecodingOptions
from latentmt.results import SentenceTrace, Step


def trace_sentence(
    model: OnnxLatent,
    teacher: OnnxTeacher | None,
    language_model: NgramModel | None,
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

    source, fusion = model.encode(sentence), fusion_of(language_model, options)
    result = search(model, teacher, language_model, postprocessor, source, options, on_step)
    best, length = result.candidates.best, int(result.places.lengths[result.candidates.best])
    milliseconds = [1e3 * (end - begin) for begin, end in itertools.pairwise(times)]
    steps = [
        _step(model, source, fusion, number, z[best : best + 1, :length], milliseconds[number])
        for number, z in enumerate(latents)
    ]
    return SentenceTrace(sentence, steps, result.candidates.all, best)


def field_around(
    model: OnnxLatent,
    language_model: NgramModel | None,
    trace: SentenceTrace,
    options: DecodingOptions,
    position: int,
    points: Sequence[Sequence[float]],
) -> list[list[float]]:
    """The field at these latents of one place, the others being at their final latents. Zero without refinement."""
    at = np.array(points, dtype=np.float32).reshape(-1, model.latent_dim)
    if not options.refines or not len(at):
        return np.zeros_like(at).tolist()
    z = np.tile(np.array(trace.steps[-1].z, dtype=np.float32), (len(at), 1, 1))
    z[:, position] = at
    layout = Layout(np.full(len(z), z.shape[1]))
    field = model.field(options.method, model.encode(trace.source), layout, fusion_of(language_model, options))
    return field(z)[:, position].tolist()


def _step(
    model: OnnxLatent, source: Source, fusion: Fusion[NgramModel] | None, number: int, z: Latents, milliseconds: float
) -> Step:
    z = np.ascontiguousarray(z)
    places, output = Layout(np.array([z.shape[1]])), model.output
    read, logits = model.shortlisted(z, places, source), model.logits(z, places, source)
    target = output.read(read, places, fusion) if fusion else None
    labels = output.labels_of(logits, places, target) if target else output.labels(read, places)
    ids = np.where(output.written(labels, places), labels, BLANK)
    certainty = logits.log_probs(labels[..., None])[..., 0]
    return Step(number, z[0].tolist(), ids[0].tolist(), certainty[0].tolist(), milliseconds)
