"""A trace as the web page draws it: tokens as text, what changed, and latents projected to a plane."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from latentmt.infer.engine import CheckCancelled
from latentmt.infer.plane import Plane, square
from latentmt.infer.trace import SentenceTrace, Step, changed
from latentmt.infer.translator import Translator
from latentmt.options import DecodingOptions
from latentmt.serve.schemas import TraceCandidate, TraceField, TraceSentence, TraceStep, TraceToken

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
        plane = Plane.of(trace)
        has_field = self.token is not None and number == self.sentence and self.token < len(trace.steps[0].ids)
        candidates = _candidates(translator, trace)
        return TraceSentence(
            source=translator.tokenizer.decode([trace.source])[0],
            translation=candidates[0].text,
            dimensions=len(trace.steps[0].z[0]),
            seen=plane.seen,
            steps=[
                _step(translator, plane, step, before)
                for step, before in zip(trace.steps, [None, *trace.steps], strict=False)
            ],
            candidates=candidates,
            field=_field(translator, options, trace, plane, self.token or 0) if has_field else None,
        )


def _step(translator: Translator, plane: Plane, step: Step, before: Step | None) -> TraceStep:
    (text,) = translator.tokenizer.decode([step.ids])
    ends = [end for _, end in translator.tokenizer.spans(step.ids)]
    points = plane.flat(torch.tensor(step.z, dtype=torch.float64)).tolist()
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
        probability=step.certainty,
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
    translator: Translator, options: DecodingOptions, trace: SentenceTrace, plane: Plane, token: int
) -> TraceField:
    """The field on a grid around the path of a token."""
    path = plane.flat(torch.tensor([step.z[token] for step in trace.steps], dtype=torch.float64))
    points = square(path, _GRID_SIZE, _GRID_MARGIN).flatten(0, 1)
    latents = plane.lifted(points, torch.tensor(trace.steps[-1].z[token], dtype=torch.float64)).float()
    moves = plane.flat(translator.field_around(trace, options, token, latents))
    return TraceField(token=token, points=points.tolist(), moves=moves.tolist())
