"""Translations before and after refinement, side by side, with what has moved and what has changed (Table 2).

A latent is drawn from the prior, not taken as its mean: there is more to refine. Phrases are sequences of words.
"""

from __future__ import annotations

import difflib
import itertools
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.text import Text

from latentmt.errors import UserError
from latentmt.infer.how import How, Method, default_method
from latentmt.infer.translator import Translator

KEPT, CHANGED = 0, -1
"""What a phrase is marked with; those that have moved are numbered from 1, on both sides alike."""
_MOVED_STYLES = ("bold blue", "bold magenta", "bold cyan", "bold yellow")
_CHANGED_STYLES = ("strike red", "underline green")
"""Of what has gone, and of what has come."""


@dataclass(frozen=True)
class Phrase:
    """Words that stay together."""

    text: str
    mark: int


@dataclass(frozen=True)
class Sample:
    """A sentence, what it should become, and what it became."""

    source: str
    references: list[str]
    before: list[Phrase]
    """From a sample of the prior."""
    after: list[Phrase]
    """Refined."""


def sampled(translator: Translator, method: Method | None = None, steps: int = 1, seed: int = 1) -> How:
    """How to refine a sample of the prior: of two candidates, the first is its mean and the second is meant."""
    if translator.latent is None:
        raise UserError("samples: there is no latent model whose latents could be refined")
    method = method or default_method([one for one in translator.methods if one not in ("prior", "teacher")])
    if method in ("prior", "teacher") or steps < 1:
        raise UserError("samples: a method that refines (delta, score, energy) and at least one step are needed")
    return translator.how(method=method, steps=steps, samples=2, rerank="decoder", seed=seed)


def take_samples(
    translator: Translator, sources: Sequence[str], references: Sequence[Sequence[str]], count: int, how: How
) -> list[Sample]:
    """The first sentences that refinement changes, `count` of them at most. How: `sampled(…)`.

    References: one list or more, each as long as the sources. Texts of several sentences are left out.
    """
    found: list[Sample] = []
    numbers = (number for number, text in enumerate(sources) if len(translator.sentences(text)) == 1)
    while len(found) < count and (some := list(itertools.islice(numbers, 2 * count))):
        texts = [sources[number] for number in some]
        ways = (replace(how, steps=0), how)
        both = [[each[1].text for each in translator.candidates(texts, way)] for way in ways]
        for number, before, after in zip(some, *both, strict=True):
            if before != after:
                accepted = [reference[number] for reference in references]
                found.append(Sample(sources[number], accepted, *compare(before.split(), after.split())))
    return found[:count]


def compare(before: Sequence[str], after: Sequence[str]) -> tuple[list[Phrase], list[Phrase]]:
    """Both as phrases: what both have in the same order is kept, what the other has elsewhere has moved.

    The rest has changed. A phrase that moves may get or lose a capital letter or a comma.
    """
    marks = [CHANGED] * len(before), [CHANGED] * len(after)
    known = [[word.strip(string.punctuation).casefold() for word in side] for side in (before, after)]
    for block in difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        _mark(marks, block, KEPT)
    for number in itertools.count(1):
        block = _longest_common(known[0], known[1], marks)
        if not block.size:
            break
        _mark(marks, block, number)
    return list(_phrases(before, marks[0])), list(_phrases(after, marks[1]))


def _mark(marks: tuple[list[int], list[int]], block: difflib.Match, mark: int) -> None:
    for side, start in zip(marks, (block.a, block.b), strict=True):
        side[start : start + block.size] = [mark] * block.size


def _longest_common(before: Sequence[str], after: Sequence[str], marks: tuple[list[int], list[int]]) -> difflib.Match:
    """The longest phrase of words not marked yet that both sides have; more than punctuation."""
    best = difflib.Match(0, 0, 0)
    for first, second in itertools.product(range(len(before)), range(len(after))):
        size = 0
        while (
            first + size < len(before)
            and second + size < len(after)
            and marks[0][first + size] == marks[1][second + size] == CHANGED
            and before[first + size] == after[second + size]
        ):
            size += 1
        if size > best.size and any(before[first : first + size]):
            best = difflib.Match(first, second, size)
    return best


def _phrases(words: Sequence[str], marks: Sequence[int]) -> Iterator[Phrase]:
    for mark, some in itertools.groupby(zip(words, marks, strict=True), key=lambda pair: pair[1]):
        yield Phrase(" ".join(word for word, _ in some), mark)


def show_samples(samples: Sequence[Sample], console: Console) -> None:
    """Print them, phrases coloured where there are colours."""
    for sample in samples:
        _line(console, "source", Text(sample.source))
        for reference in sample.references:
            _line(console, "reference", Text(reference))
        for name, phrases, changed in zip(
            ("sampled", "refined"), (sample.before, sample.after), _CHANGED_STYLES, strict=True
        ):
            _line(console, name, Text(" ").join(Text(phrase.text, _style(phrase, changed)) for phrase in phrases))
        console.out()


def _style(phrase: Phrase, changed: str) -> str:
    if phrase.mark == KEPT:
        return ""
    return changed if phrase.mark == CHANGED else _MOVED_STYLES[(phrase.mark - 1) % len(_MOVED_STYLES)]


def _line(console: Console, name: str, text: Text) -> None:
    console.print(Text.assemble((f"{name:<11}", "dim"), text), soft_wrap=True, highlight=False)
