"""A trace as the web page draws it: tokens as text, what changed, and latents projected to a plane."""

from __future__ import annotations

import math

from latentmt.engines.backend import CheckCancelled
from latentmt.options import DecodingOptions
from latentmt.projection import Projection, grid_around
from latentmt.results import SentenceTrace, Step, changed
from latentmt.serve.schemas import TraceCandidate, TraceField, TraceSentence, TraceStep, TraceToken
from latentmt.translator import Translator

_GRID_SIZE = 9
"""Arrows along each side of a field."""
_GRID_MARGIN = 0.3
"""Room around the path, as a share of its extent."""


def trace_text(
    translator: Translator,
    text: str,
    options: DecodingOptions,
    check: CheckCancelled,
    sentence: int | None = None,
    token: int | None = None,
) -> list[TraceSentence]:
    """The traces of a text's sentences. With a sentence and a token, also the field around that token."""
    traces = []
    for number, trace in enumerate(translator.traces(text, options, check)):
        check()
        has_field = token is not None and number == sentence and token < len(trace.steps[0].ids)
        plane = Projection.from_trace(trace)
        candidates = _candidates(translator, trace)
        traces.append(
            TraceSentence(
                source=translator.tokenizer.decode([trace.source])[0],
                translation=candidates[0].text,
                dimensions=len(trace.steps[0].z[0]),
                seen=plane.explained,
                steps=[
                    _step(translator, plane, step, before)
                    for step, before in zip(trace.steps, [None, *trace.steps], strict=False)
                ],
                candidates=candidates,
                field=_field(translator, options, trace, plane, token or 0, check) if has_field else None,
            )
        )
    return traces


def _step(translator: Translator, plane: Projection, step: Step, before: Step | None) -> TraceStep:
    (text,) = translator.tokenizer.decode([step.ids])
    ends = [end for _, end in translator.tokenizer.spans(step.ids)]
    points = plane.project(step.z).tolist()
    new = changed(before.ids, step.ids) if before else set()
    tokens = [
        TraceToken(text=text[start:end], probability=_probability(log_prob), changed=number in new, place=tuple(point))
        for number, (start, end, log_prob, point) in enumerate(
            zip([0, *ends], ends, step.log_probs, points, strict=False)
        )
    ]
    return TraceStep(
        number=step.number,
        text=translator.texts([step.ids])[0],
        probability=step.confidence,
        milliseconds=step.milliseconds,
        tokens=tokens,
    )


def _probability(log_prob: float) -> float:
    return min(1.0, math.exp(log_prob))


def _candidates(translator: Translator, trace: SentenceTrace) -> list[TraceCandidate]:
    """The different candidates, the kept one first."""
    texts = translator.texts([candidate.readable for candidate in trace.ranked])
    return [
        TraceCandidate(text=text, score=candidate.score, kept=not number)
        for number, (text, candidate) in enumerate(zip(texts, trace.ranked, strict=True))
    ]


def _field(
    translator: Translator,
    options: DecodingOptions,
    trace: SentenceTrace,
    plane: Projection,
    token: int,
    check: CheckCancelled,
) -> TraceField:
    """The field on a grid around the path of a token, a row of the grid at a time."""
    path = plane.project([step.z[token] for step in trace.steps])
    points = grid_around(path, _GRID_SIZE, _GRID_MARGIN).reshape(-1, 2)
    latents = plane.lift(points, trace.steps[-1].z[token]).tolist()
    field: list[list[float]] = []
    for start in range(0, len(latents), _GRID_SIZE):
        check()
        field += translator.backend.field_around(trace, options, token, latents[start : start + _GRID_SIZE])
    moves = plane.project(field)
    return TraceField(token=token, points=[(x, y) for x, y in points], moves=[(x, y) for x, y in moves])
