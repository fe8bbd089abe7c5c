"""A text split into segments for a model, and joined again from their translations. It translates nothing itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from latentmt.data.tokenizer import Tokenizer
from latentmt.results import Annotation, Candidate, Link, Token
from latentmt.text.rewriting import Rewritten
from latentmt.text.sentences import Line
from latentmt.text.verbatim import MissingSpan, Sentence, insert_missing, restore


@dataclass(frozen=True)
class Segment:
    """A sentence of a text, and its ids."""

    sentence: Sentence
    ids: list[int]
    """Of the masked sentence."""
    verbatim: bool = True

    @property
    def is_translated(self) -> bool:
        """Whether the model translates it: it is not empty when normalised, and has a letter."""
        return len(self.ids) > 1 and (not self.verbatim or self.sentence.is_translatable)

    @property
    def untranslated(self) -> str:
        """Its text where it is not translated. A sentence that normalising empties is dropped."""
        core = self.sentence.masked.original if len(self.ids) > 1 else ""
        return self.sentence.prefix + core + self.sentence.suffix


@dataclass(frozen=True)
class SegmentedText:
    """A text as segments."""

    line: Line
    segments: list[Segment]

    @property
    def translated(self) -> list[Segment]:
        """The segments that the model translates."""
        return [segment for segment in self.segments if segment.is_translated]

    def joined(self, translations: Sequence[str]) -> str:
        """The text with these segments translated."""
        remaining = iter(translations)
        return self.line.joined(
            [next(remaining) if segment.is_translated else segment.untranslated for segment in self.segments]
        )

    def sentences(self, translations: Sequence[TranslatedSegment]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Where each segment begins and ends in the text, and where in its translation."""
        remaining, spans = iter(translations), []
        source = target = len(self.line.before)
        for segment, part in zip(self.segments, self.line.parts, strict=True):
            size = len(next(remaining).text if segment.is_translated else segment.untranslated)
            spans.append(((source, source + len(part.text)), (target, target + size)))
            source += len(part.text) + len(part.after)
            target += size + len(part.after)
        return spans

    def alignment(self, translations: Sequence[TranslatedSegment]) -> list[Link]:
        """The links of all segments, between the characters of the whole text and of its translation."""
        remaining, links = iter(translations), []
        source = target = len(self.line.before)
        for segment, after in zip(self.segments, (part.after for part in self.line.parts), strict=True):
            translated = segment.untranslated
            if segment.is_translated:
                translation = next(remaining)
                translated = translation.text
                links += [link.shifted(source, target) for link in translation.alignment]
            elif translated == segment.sentence.text:
                size = len(translated)
                links.append(Link((source, source + size), (target, target + size), 1.0))
            source += len(segment.sentence.text) + len(after)
            target += len(translated) + len(after)
        return links


@dataclass(frozen=True)
class TranslatedSegment:
    """A translated sentence."""

    segment: Segment
    candidate: Candidate
    rewritten: Rewritten
    """The model's output with placeholders replaced."""
    missing: list[MissingSpan]
    annotation: Annotation | None = None
    links: Sequence[Link] = ()
    """Between the masked sentence and the model's output."""

    @staticmethod
    def from_candidate(segment: Segment, candidate: Candidate, text: str) -> TranslatedSegment:
        """A candidate whose ids read as this text."""
        if not segment.verbatim:
            return TranslatedSegment(segment, candidate, Rewritten(text), [])
        return TranslatedSegment(segment, candidate, *restore(segment.sentence, text))

    def completed(self) -> TranslatedSegment:
        """The same with missing spans inserted where the links say."""
        return replace(self, rewritten=insert_missing(self.rewritten, self.missing, self.links), missing=[])

    @property
    def text(self) -> str:
        whole = self.completed() if self.missing else self
        return self.segment.sentence.prefix + whole.rewritten.text + self.segment.sentence.suffix

    def tokens(self, tokenizer: Tokenizer) -> list[Token]:
        """The pieces that the model wrote, if they are annotated with probabilities."""
        log_probs = self.annotation.log_probs if self.annotation else []
        if not log_probs:
            return []
        ids = self.candidate.readable
        text, ends = tokenizer.decode([ids])[0], [end for _, end in tokenizer.spans(ids)]
        return [
            Token(text[start:end], min(1.0, math.exp(log_prob)))
            for start, end, log_prob in zip([0, *ends], ends, log_probs, strict=False)
        ]

    @property
    def alignment(self) -> list[Link]:
        """Links between the sentence and its translation."""
        sentence = self.segment.sentence
        prefix, suffix = len(sentence.prefix), len(sentence.suffix)
        inside = [
            Link(sentence.masked.to_original(*link.source), self.rewritten.to_rewritten(*link.target), link.weight)
            for link in self.links
        ]
        around = [Link((0, prefix), (0, prefix), 1.0)] if prefix else []
        if suffix:
            ends = len(sentence.text), len(self.text)
            around.append(Link((ends[0] - suffix, ends[0]), (ends[1] - suffix, ends[1]), 1.0))
        return [link.shifted(prefix, prefix) for link in inside] + around


def mean_score(results: Sequence[TranslatedSegment], ranked: bool) -> float | None:
    """The mean per token of what ranked the candidates, or else of the annotated log-probabilities; None if neither."""
    if ranked and results:
        sizes = [len(result.candidate.readable) + 1 for result in results]  # EOS counts
        scores = [result.candidate.score for result in results]
        return sum(score * size for score, size in zip(scores, sizes, strict=True)) / sum(sizes)
    log_probs = [value for result in results if result.annotation for value in result.annotation.log_probs]
    return sum(log_probs) / len(log_probs) if log_probs else None
