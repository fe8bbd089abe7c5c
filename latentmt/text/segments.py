"""A text split into segments for a model, and joined again from their translations. It translates nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from latentmt.results import Annotation, Candidate, Link
from latentmt.text.rewriting import Rewritten
from latentmt.text.sentences import Line
from latentmt.text.verbatim import Lost, Sentence, put_back, restore


@dataclass(frozen=True)
class Segment:
    """A sentence of a text."""

    sentence: Sentence
    ids: list[int]
    """Of what the model is shown."""
    verbatim: bool = True

    @property
    def is_translated(self) -> bool:
        """Whether the model is asked: something is left when it is normalised, with a letter in it."""
        return len(self.ids) > 1 and (not self.verbatim or self.sentence.speaks)

    @property
    def untranslated(self) -> str:
        """What stands for it where it is not translated: without what normalising leaves nothing of."""
        core = self.sentence.shown.before if len(self.ids) > 1 else ""
        return self.sentence.lead + core + self.sentence.tail


@dataclass(frozen=True)
class SegmentedText:
    """A text as segments."""

    line: Line
    segments: list[Segment]

    @property
    def translated(self) -> list[Segment]:
        """Those that the model is asked to translate."""
        return [segment for segment in self.segments if segment.is_translated]

    def joined(self, translations: Sequence[str]) -> str:
        """The text with these segments translated."""
        remaining = iter(translations)
        return self.line.joined(
            [next(remaining) if segment.is_translated else segment.untranslated for segment in self.segments]
        )

    def alignment(self, translations: Sequence[TranslatedSegment]) -> list[Link]:
        """The links of all segments, between the characters of the whole text and of its translation."""
        remaining, links = iter(translations), []
        source = target = len(self.line.before)
        for segment, after in zip(self.segments, (part.after for part in self.line.parts), strict=True):
            written = segment.untranslated
            if segment.is_translated:
                translation = next(remaining)
                written = translation.text
                links += [link.shifted(source, target) for link in translation.alignment]
            elif written == segment.sentence.text:
                size = len(written)
                links.append(Link((source, source + size), (target, target + size), 1.0))
            source += len(segment.sentence.text) + len(after)
            target += len(written) + len(after)
        return links


@dataclass(frozen=True)
class TranslatedSegment:
    """A translated sentence."""

    segment: Segment
    candidate: Candidate
    rewritten: Rewritten
    """What the model wrote, as it is read."""
    lost: list[Lost]
    annotation: Annotation | None = None
    links: Sequence[Link] = ()
    """Between what the model was shown and what it wrote."""

    @staticmethod
    def from_candidate(segment: Segment, candidate: Candidate, text: str) -> TranslatedSegment:
        """A candidate whose ids read as this text."""
        if not segment.verbatim:
            return TranslatedSegment(segment, candidate, Rewritten(text), [])
        return TranslatedSegment(segment, candidate, *restore(segment.sentence, text))

    def completed(self) -> TranslatedSegment:
        """The same with what was lost put back where the links say."""
        return replace(self, rewritten=put_back(self.rewritten, self.lost, self.links), lost=[])

    @property
    def text(self) -> str:
        whole = self.completed() if self.lost else self
        return self.segment.sentence.lead + whole.rewritten.text + self.segment.sentence.tail

    @property
    def alignment(self) -> list[Link]:
        """Links between the sentence and its translation."""
        sentence = self.segment.sentence
        lead, tail = len(sentence.lead), len(sentence.tail)
        inside = [
            Link(sentence.shown.origin(*link.source), self.rewritten.after(*link.target), link.weight)
            for link in self.links
        ]
        around = [Link((0, lead), (0, lead), 1.0)] if lead else []
        if tail:
            ends = len(sentence.text), len(self.text)
            around.append(Link((ends[0] - tail, ends[0]), (ends[1] - tail, ends[1]), 1.0))
        return [link.shifted(lead, lead) for link in inside] + around
