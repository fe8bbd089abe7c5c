"""Translations before and after refinement, side by side, with what has moved and what has changed (Table 2).

A latent is drawn from the prior, not taken as its mean: there is more to refine. Phrases are sequences of words.
"""

from __future__ import annotations

import difflib
import itertools
import string
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from latentmt.errors import UserError
from latentmt.measure.results import write_result
from latentmt.options import DecodingOptions, Method, default_method
from latentmt.translator import Translator

KEPT, CHANGED = 0, -1
"""What a phrase is marked with; those that have moved are numbered from 1, on both sides alike."""
_OPEN = -2
"""Not decided yet."""
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


def sampled(translator: Translator, method: Method | None = None, steps: int = 1, seed: int = 1) -> DecodingOptions:
    """How to refine a sample of the prior: of two candidates, the first is its mean and the second is meant."""
    if translator.latent is None:
        raise UserError("samples: there is no latent model whose latents could be refined")
    method = method or default_method([one for one in translator.methods if one not in ("prior", "teacher")])
    if method in ("prior", "teacher") or steps < 1:
        raise UserError("samples: a method that refines (delta, score, energy) and at least one step are needed")
    return translator.options(method=method, steps=steps, samples=2, rerank="decoder", seed=seed)


def take_samples(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    count: int,
    options: DecodingOptions,
) -> list[Sample]:
    """The first sentences that refinement changes, `count` of them at most. How: `sampled(…)`.

    References: one list or more, each as long as the sources. Texts of several sentences are left out.
    """
    found: list[Sample] = []
    numbers = (number for number, text in enumerate(sources) if len(translator.sentences(text)) == 1)
    while len(found) < count and (some := list(itertools.islice(numbers, 2 * count))):
        texts = [sources[number] for number in some]
        ways = (replace(options, steps=0), options)
        both = [[each[1].text for each in translator.candidates(texts, way)] for way in ways]
        for number, before, after in zip(some, *both, strict=True):
            if before != after:
                accepted = [reference[number] for reference in references]
                found.append(Sample(sources[number], accepted, *compare(before.split(), after.split())))
    return found[:count]


def compare(before: Sequence[str], after: Sequence[str]) -> tuple[list[Phrase], list[Phrase]]:
    """Both as phrases: what both have in the same order is kept, what the other has elsewhere has moved.

    The rest has changed. Capital letters and punctuation do not matter for whether a word has moved.
    """
    first, second = ([word.strip(string.punctuation).casefold() for word in side] for side in (before, after))
    marks = _Marks([_OPEN] * len(before), [_OPEN] * len(after))
    for block in difflib.SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks():
        for place in range(block.size):
            same = before[block.a + place] == after[block.b + place]
            marks.set(difflib.Match(block.a + place, block.b + place, 1), KEPT if same else CHANGED)
    for number in itertools.count(1):
        block = marks.longest_common(first, second)
        if not block.size:
            break
        marks.set(block, number)
    return list(_phrases(before, marks.before)), list(_phrases(after, marks.after))


@dataclass(frozen=True)
class _Marks:
    """Of the words on both sides."""

    before: list[int]
    after: list[int]

    def set(self, block: difflib.Match, mark: int) -> None:
        for side, start in ((self.before, block.a), (self.after, block.b)):
            side[start : start + block.size] = [mark] * block.size

    def longest_common(self, first: Sequence[str], second: Sequence[str]) -> difflib.Match:
        """The longest phrase of words without a mark that both sides have; more than punctuation."""
        best = difflib.Match(0, 0, 0)
        for left, right in itertools.product(range(len(first)), range(len(second))):
            pairs = zip(first[left:], second[right:], self.before[left:], self.after[right:], strict=False)
            alike = itertools.takewhile(lambda four: four[0] == four[1] and four[2] == four[3] == _OPEN, pairs)
            size = sum(1 for _ in alike)
            if size > best.size and any(first[left : left + size]):
                best = difflib.Match(left, right, size)
        return best


def _phrases(words: Sequence[str], marks: Sequence[int]) -> Iterator[Phrase]:
    marks = [CHANGED if mark == _OPEN else mark for mark in marks]
    for mark, some in itertools.groupby(zip(words, marks, strict=True), key=lambda pair: pair[1]):
        yield Phrase(" ".join(word for word, _ in some), mark)


def show_samples(
    samples: Sequence[Sample], options: DecodingOptions, console: Console, path: Path | None = None
) -> None:
    """Print them, phrases coloured where there are colours, and give the JSON out."""
    for sample in samples:
        _line(console, "source", Text(sample.source))
        for reference in sample.references:
            _line(console, "reference", Text(reference))
        for name, phrases, changed in zip(
            ("sampled", "refined"), (sample.before, sample.after), _CHANGED_STYLES, strict=True
        ):
            _line(console, name, Text(" ").join(Text(phrase.text, _style(phrase, changed)) for phrase in phrases))
        console.out()
    write_result({"options": str(options), "samples": [asdict(sample) for sample in samples]}, console, path)


def _style(phrase: Phrase, changed: str) -> str:
    if phrase.mark == KEPT:
        return ""
    return changed if phrase.mark == CHANGED else _MOVED_STYLES[(phrase.mark - 1) % len(_MOVED_STYLES)]


def _line(console: Console, name: str, text: Text) -> None:
    console.print(Text.assemble((f"{name:<11}", "dim"), text), soft_wrap=True, highlight=False)
