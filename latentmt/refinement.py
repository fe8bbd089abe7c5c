"""Refinement on a terminal: a sentence after every step, with changed words marked, and the model's confidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from latentmt.options import DecodingOptions
from latentmt.results import SentenceTrace, Step, changed
from latentmt.translator import Translator

CHANGED = "bold green"
MAX_CANDIDATES = 5
"""The number of candidates that are shown, best first."""
_NAME_WIDTH = 10
"""The width of the column of names."""


def show_trace(
    translator: Translator, options: DecodingOptions, traces: Sequence[SentenceTrace], console: Console
) -> None:
    """Print every step of every sentence; words that a step has changed are coloured on a terminal."""
    for trace in traces:
        (source,) = translator.tokenizer.decode([trace.source])
        _line(console, "source", Text(source))
        before: list[str] | None = None
        for step in trace.steps:
            words = _step_text(translator, step).split()
            name = f"{options.method}-{step.number}" if step.number else "L=0"
            _line(console, name, _marked(words, before), f"{100 * step.confidence:.0f}%")
            before = words
        _line(console, "read as", Text(_translation(translator, trace)))
        for score, candidate in _ranked(translator, trace):
            _line(console, f"{score:.3f}", Text(candidate))
        console.out()


def trace_to_dict(
    translator: Translator, text: str, options: DecodingOptions, traces: Sequence[SentenceTrace]
) -> dict[str, Any]:
    """A trace ready for JSON, with the pieces of each step as text."""

    def step_to_dict(step: Step) -> dict[str, Any]:
        return asdict(step) | {"text": _step_text(translator, step), "pieces": translator.tokenizer.pieces(step.ids)}

    sentences = [
        asdict(trace)
        | {"steps": [step_to_dict(step) for step in trace.steps], "translation": _translation(translator, trace)}
        for trace in traces
    ]
    return {"source": text, "options": str(options), "sentences": sentences}


def _line(console: Console, name: str, text: Text, note: str = "") -> None:
    console.print(Text.assemble((f"{name:<{_NAME_WIDTH}}{note:>4}  ", "dim"), text), soft_wrap=True, highlight=False)


def _step_text(translator: Translator, step: Step) -> str:
    return translator.texts([step.ids])[0]


def _translation(translator: Translator, trace: SentenceTrace) -> str:
    return translator.texts([trace.candidates[trace.best].readable])[0]


def _marked(words: Sequence[str], before: Sequence[str] | None) -> Text:
    """The words, with those marked that the previous step did not have there."""
    new = changed(before or words, words)
    return Text(" ").join(Text(word, CHANGED if position in new else "") for position, word in enumerate(words))


def _ranked(translator: Translator, trace: SentenceTrace) -> Iterator[tuple[float, str]]:
    """The best candidates with their scores, where there are several."""
    if len(trace.candidates) == 1:
        return
    shown = sorted(trace.ranked, key=lambda candidate: -candidate.score)[:MAX_CANDIDATES]
    texts = translator.texts([candidate.readable for candidate in shown])
    yield from ((candidate.score, text) for candidate, text in zip(shown, texts, strict=True))
