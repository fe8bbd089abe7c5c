"""A trace as a page can draw it: tokens as text, what changed, and latents in a plane."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from latentmt.infer.engine import GoOn
from latentmt.infer.how import How
from latentmt.infer.plane import Plane
from latentmt.infer.trace import SentenceTrace, Step, field_around
from latentmt.infer.translator import Translator
from latentmt.serve.questions import TraceCandidate, TraceField, TraceSentence, TraceStep, TraceToken

_GRID = 9
"""Arrows along each side of a field."""
_MARGIN = 1.6
"""How much larger a field is than the path in it."""


@dataclass(frozen=True)
class Tracing:
    """Traces texts; with a sentence and a token, the field around that token, too."""

    sentence: int | None = None
    token: int | None = None

    def __call__(
        self, translator: Translator, texts: Sequence[str], how: How, go_on: GoOn
    ) -> list[list[TraceSentence]]:
        traces = [translator.traces(text, how, go_on) for text in texts]
        return [[self._sentence(translator, how, number, one) for number, one in enumerate(some)] for some in traces]

    def _sentence(self, translator: Translator, how: How, number: int, trace: SentenceTrace) -> TraceSentence:
        plane = Plane.of(trace)
        wanted = self.token is not None and number == self.sentence and self.token < len(trace.steps[0].ids)
        texts = translator.texts([candidate.readable for candidate in trace.candidates])
        return TraceSentence(
            source=translator.tokenizer.decode([trace.source])[0],
            translation=texts[trace.best],
            dimensions=len(trace.steps[0].z[0]),
            seen=plane.seen,
            steps=[
                _step(translator, plane, step, before)
                for step, before in zip(trace.steps, [None, *trace.steps], strict=False)
            ],
            candidates=_candidates(texts, trace),
            field=_field(translator, how, trace, plane, self.token or 0) if wanted else None,
        )


def _step(translator: Translator, plane: Plane, step: Step, before: Step | None) -> TraceStep:
    (text,) = translator.tokenizer.decode([step.ids])
    ends = [end for _, end in translator.tokenizer.spans(step.ids)]
    places = plane.flat(torch.tensor(step.z, dtype=torch.float64)).tolist()
    changed = _changed(before.ids, step.ids) if before else set()
    tokens = [
        TraceToken(
            text=text[start:end], probability=_probability(log_prob), changed=number in changed, place=tuple(place)
        )
        for number, (start, end, log_prob, place) in enumerate(
            zip([0, *ends], ends, step.log_probs, places, strict=False)
        )
    ]
    mean = sum(step.log_probs) / max(len(step.log_probs), 1)
    return TraceStep(
        number=step.number,
        text=translator.texts([step.ids])[0],
        probability=_probability(mean),
        milliseconds=step.milliseconds,
        tokens=tokens,
    )


def _probability(log_prob: float) -> float:
    return min(1.0, math.exp(log_prob))


def _changed(before: Sequence[int], ids: Sequence[int]) -> set[int]:
    """The places of the tokens that the step before did not have there."""
    changes = difflib.SequenceMatcher(None, before, ids, autojunk=False).get_opcodes()
    return {place for kind, _, _, first, last in changes if kind != "equal" for place in range(first, last)}


def _candidates(texts: Sequence[str], trace: SentenceTrace) -> list[TraceCandidate]:
    """The different candidates, best first, the kept one among them."""
    order = sorted(range(len(texts)), key=lambda number: (number != trace.best, -trace.candidates[number].score))
    first = {texts[number]: number for number in reversed(order)}
    return [
        TraceCandidate(text=texts[number], score=trace.candidates[number].score, kept=number == trace.best)
        for number in sorted(first.values(), key=order.index)
    ]


def _field(translator: Translator, how: How, trace: SentenceTrace, plane: Plane, token: int) -> TraceField:
    """The field on a grid around the way of a token."""
    path = plane.flat(torch.tensor([step.z[token] for step in trace.steps], dtype=torch.float64))
    points = _grid(path)
    around = plane.lifted(points, torch.tensor(trace.steps[-1].z[token], dtype=torch.float64)).float()
    moves = plane.flat(field_around(translator.engine, trace, how, token, around))
    return TraceField(token=token, points=points.tolist(), moves=moves.tolist())


def _grid(path: Float[Tensor, "steps 2"]) -> Float[Tensor, "points 2"]:
    """Points in a square around a path."""
    low, high = path.min(0).values, path.max(0).values
    middle, half = (low + high) / 2, max(float((high - low).max()) / 2 * _MARGIN, 0.1)
    side = torch.linspace(-half, half, _GRID, dtype=torch.float64)
    return middle + torch.cartesian_prod(side, side)
