"""A trace as the web page draws it: tokens as text, what changed, and latents projected to a plane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class TraceTask:
    """Traces texts. With a sentence and a token, the field around that token is computed, too."""

    sentence: int | None = None
    token: int | None = None

    def __call__(
        self, translator: Translator, texts: Sequence[str], options: DecodingOptions, check_cancelled: CheckCancelled
    ) -> list[list[TraceSentence]]:
        return [
            [
                self._sentence(translator, options, number, trace)
                for number, trace in enumerate(translator.traces(text, options, check_cancelled))
            ]
            for text in texts
        ]

    def _sentence(
        self, translator: Translator, options: DecodingOptions, number: int, trace: SentenceTrace
    ) -> TraceSentence:
        plane = Projection.from_trace(trace)
        has_field = self.token is not None and number == self.sentence and self.token < len(trace.steps[0].ids)
        candidates = _candidates(translator, trace)
        return TraceSentence(
            source=translator.tokenizer.decode([trace.source])[0],
            translation=candidates[0].text,
            dimensions=len(trace.steps[0].z[0]),
            seen=plane.explained,
            steps=[
                _step(translator, plane, step, before)
                for step, before in zip(trace.steps, [None, *trace.steps], strict=False)
            ],
            candidates=candidates,
            field=_field(translator, options, trace, plane, self.token or 0) if has_field else None,
        )


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
    translator: Translator, options: DecodingOptions, trace: SentenceTrace, plane: Projection, token: int
) -> TraceField:
    """The field on a grid around the path of a token."""
    path = plane.project([step.z[token] for step in trace.steps])
    points = grid_around(path, _GRID_SIZE, _GRID_MARGIN).reshape(-1, 2)
    latents = plane.lift(points, trace.steps[-1].z[token])
    moves = plane.project(translator.backend.field_around(trace, options, token, latents.tolist()))
    return TraceField(token=token, points=[(x, y) for x, y in points], moves=[(x, y) for x, y in moves])
