"""Refinement on a terminal: a sentence after every step, with what has changed marked, and how sure the model is."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from latentmt.infer.how import How
from latentmt.infer.trace import SentenceTrace, Step
from latentmt.infer.translator import Translator

CHANGED = "bold green"
SHOWN = 5
"""Candidates that are shown, the best ones."""
_NAME = 10
"""The width of the column of names."""


def show_trace(translator: Translator, how: How, traces: Sequence[SentenceTrace], console: Console) -> None:
    """Print every step of every sentence; words that a step has changed are marked where there are colours."""
    for trace in traces:
        (source,) = translator.tokenizer.decode([trace.source])
        _line(console, "source", Text(source))
        before: list[str] | None = None
        for step in trace.steps:
            words = _read(translator, step).split()
            name = f"{how.method}-{step.number}" if step.number else "L=0"
            _line(console, name, _marked(words, before), f"{100 * _certainty(step):.0f}%")
            before = words
        _line(console, "read as", Text(_kept(translator, trace)))
        for score, candidate in _ranked(translator, trace):
            _line(console, f"{score:.3f}", Text(candidate))
        console.out()


def trace_tree(translator: Translator, text: str, how: How, traces: Sequence[SentenceTrace]) -> dict[str, Any]:
    """The same for programs: all of it, with the pieces of each step as text."""

    def step_tree(step: Step) -> dict[str, Any]:
        return asdict(step) | {"text": _read(translator, step), "pieces": translator.tokenizer.pieces(step.ids)}

    sentences = [
        asdict(trace) | {"steps": [step_tree(step) for step in trace.steps], "translation": _kept(translator, trace)}
        for trace in traces
    ]
    return {"source": text, "how": str(how), "sentences": sentences}


def _line(console: Console, name: str, text: Text, note: str = "") -> None:
    console.print(Text.assemble((f"{name:<{_NAME}}{note:>4}  ", "dim"), text), soft_wrap=True, highlight=False)


def _read(translator: Translator, step: Step) -> str:
    return translator.texts([step.ids])[0]


def _kept(translator: Translator, trace: SentenceTrace) -> str:
    return translator.texts([trace.candidates[trace.best].readable])[0]


def _certainty(step: Step) -> float:
    """The geometric mean of the tokens' probabilities."""
    return math.exp(sum(step.log_probs) / max(len(step.log_probs), 1))


def _marked(words: Sequence[str], before: Sequence[str] | None) -> Text:
    """The words, those marked that the step before did not have there."""
    text = Text()
    changes = difflib.SequenceMatcher(None, before or words, words, autojunk=False).get_opcodes()
    for kind, _, _, first, last in changes:
        for word in words[first:last]:
            text.append(word, CHANGED if kind != "equal" else "")
            text.append(" ")
    text.rstrip()
    return text


def _ranked(translator: Translator, trace: SentenceTrace) -> Iterator[tuple[float, str]]:
    """The best candidates with their scores, where there was a choice; each text once."""
    if len(trace.candidates) == 1:
        return
    ordered = sorted(trace.candidates, key=lambda candidate: -candidate.score)
    scores: dict[str, float] = {}
    for text, candidate in zip(translator.texts([one.readable for one in ordered]), ordered, strict=True):
        scores.setdefault(text, candidate.score)
    yield from ((score, text) for text, score in list(scores.items())[:SHOWN])
