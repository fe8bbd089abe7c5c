"""Translations before and after refinement, side by side, with moved and changed phrases marked (Table 2).

The latent is a sample of the prior, not its mean, so that there is more to refine. Phrases are sequences of words.
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
from latentmt.fields.registry import preferred_field
from latentmt.measure.methods import refining_methods, require_latent
from latentmt.measure.results import write_result
from latentmt.options import DecodingOptions
from latentmt.translator import Translator

KEPT, CHANGED = 0, -1
"""Marks of a phrase; those that have moved are numbered from 1, alike on both sides."""
_OPEN = -2
"""Not marked yet."""
_MOVED_STYLES = ("bold blue", "bold magenta", "bold cyan", "bold yellow")
_CHANGED_STYLES = ("strike red", "underline green")
"""Of words that were removed, and of words that were added."""


@dataclass(frozen=True)
class Phrase:
    """Consecutive words with the same mark."""

    text: str
    mark: int


@dataclass(frozen=True)
class Sample:
    """A sentence, its references, and its translation before and after refinement."""

    source: str
    references: list[str]
    before: list[Phrase]
    """From a sample of the prior."""
    after: list[Phrase]
    """Refined."""


def sample_options(translator: Translator, method: str | None = None, steps: int = 1, seed: int = 1) -> DecodingOptions:
    """Options that refine a sample of the prior: the first of two candidates is the mean, the second is the sample."""
    require_latent(translator)
    refining = refining_methods(translator)
    method = method or str(preferred_field(refining))
    if method in ("prior", "teacher") or steps < 1:
        needed = f"a method that refines ({', '.join(refining)}) and at least one step"
        raise UserError(f"samples: {needed} are needed")
    return translator.options(method=method, steps=steps, samples=2, rerank="decoder", seed=seed)


def take_samples(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    count: int,
    options: DecodingOptions,
) -> list[Sample]:
    """The first sentences that refinement changes, at most `count` of them, with options of `sample_options`.

    References: one list or more, each as long as the sources. Texts of several sentences are left out.
    """
    samples: list[Sample] = []
    numbers = (number for number, text in enumerate(sources) if len(translator.sentences(text)) == 1)
    while len(samples) < count and (chunk := list(itertools.islice(numbers, 2 * count))):
        texts = [sources[number] for number in chunk]
        before_and_after = [
            [candidates[1].text for candidates in translator.candidates(texts, each)]
            for each in (replace(options, steps=0), options)
        ]
        for number, before, after in zip(chunk, *before_and_after, strict=True):
            if before != after:
                accepted = [reference[number] for reference in references]
                samples.append(Sample(sources[number], accepted, *compare(before.split(), after.split())))
    return samples[:count]


def compare(before: Sequence[str], after: Sequence[str]) -> tuple[list[Phrase], list[Phrase]]:
    """Both sides as phrases: words in the same order on both sides are kept, words that are elsewhere have moved.

    The rest has changed. Case and punctuation are ignored when moved words are looked for.
    """
    first, second = ([word.strip(string.punctuation).casefold() for word in side] for side in (before, after))
    marks = _Marks([_OPEN] * len(before), [_OPEN] * len(after))
    for block in difflib.SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks():
        for offset in range(block.size):
            same = before[block.a + offset] == after[block.b + offset]
            marks.set(difflib.Match(block.a + offset, block.b + offset, 1), KEPT if same else CHANGED)
    for number in itertools.count(1):
        block = marks.longest_common(first, second)
        if not block.size:
            break
        marks.set(block, number)
    return list(_phrases(before, marks.before)), list(_phrases(after, marks.after))


@dataclass(frozen=True)
class _Marks:
    """The marks of the words on both sides."""

    before: list[int]
    after: list[int]

    def set(self, block: difflib.Match, mark: int) -> None:
        for side, start in ((self.before, block.a), (self.after, block.b)):
            side[start : start + block.size] = [mark] * block.size

    def longest_common(self, first: Sequence[str], second: Sequence[str]) -> difflib.Match:
        """The longest unmarked phrase that both sides have; punctuation alone does not count."""
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
    for mark, pairs in itertools.groupby(zip(words, marks, strict=True), key=lambda pair: pair[1]):
        yield Phrase(" ".join(word for word, _ in pairs), mark)


def show_samples(
    samples: Sequence[Sample], options: DecodingOptions, console: Console, path: Path | None = None
) -> None:
    """Print samples, with coloured phrases on a terminal, and write the JSON."""
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
