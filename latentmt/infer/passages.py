"""A text taken apart for a model, and put together again from what the model wrote. It translates nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from latentmt.infer.alignment import Link
from latentmt.infer.results import Candidate
from latentmt.infer.rewriting import Rewritten
from latentmt.infer.sentences import Line
from latentmt.infer.verbatim import Lost, Sentence, put_back, restore


@dataclass(frozen=True)
class Part:
    """A sentence of a text."""

    sentence: Sentence
    ids: list[int]
    """Of what the model is shown."""
    verbatim: bool = True

    @property
    def is_asked(self) -> bool:
        """Whether the model is to translate it: something is left when it is normalised, with a letter in it."""
        return len(self.ids) > 1 and (not self.verbatim or self.sentence.speaks)

    @property
    def untouched(self) -> str:
        """What stands for it where it is not translated: without what normalising leaves nothing of."""
        core = self.sentence.shown.before if len(self.ids) > 1 else ""
        return self.sentence.lead + core + self.sentence.tail


@dataclass(frozen=True)
class Passage:
    """A text taken apart."""

    line: Line
    parts: list[Part]

    @property
    def asked(self) -> list[Part]:
        """Those that are translated."""
        return [part for part in self.parts if part.is_asked]

    def joined(self, translations: Sequence[str]) -> str:
        """The text with these translated."""
        each = iter(translations)
        return self.line.joined([next(each) if part.is_asked else part.untouched for part in self.parts])


@dataclass(frozen=True)
class Done:
    """A translated sentence."""

    part: Part
    candidate: Candidate
    rewritten: Rewritten
    """What the model wrote, as it is read."""
    lost: list[Lost]

    @staticmethod
    def of(part: Part, candidate: Candidate, text: str) -> Done:
        if not part.verbatim:
            return Done(part, candidate, Rewritten(text), [])
        return Done(part, candidate, *restore(part.sentence, text))

    def completed(self, links: Sequence[Link] = ()) -> Done:
        """The same with what was lost put back."""
        return replace(self, rewritten=put_back(self.rewritten, self.lost, links), lost=[])

    @property
    def text(self) -> str:
        whole = self.completed() if self.lost else self
        return self.part.sentence.lead + whole.rewritten.text + self.part.sentence.tail

    def linked(self, links: Sequence[Link]) -> list[Link]:
        """Links between the sentence and its translation, from those between what was shown and what was written."""
        sentence = self.part.sentence
        lead, tail = len(sentence.lead), len(sentence.tail)
        inside = [
            Link(sentence.shown.origin(*link.source), self.rewritten.after(*link.target), link.weight) for link in links
        ]
        around = [Link((0, lead), (0, lead), 1.0)] if lead else []
        if tail:
            ends = len(sentence.text), len(self.text)
            around.append(Link((ends[0] - tail, ends[0]), (ends[1] - tail, ends[1]), 1.0))
        return [link.moved(lead, lead) for link in inside] + around
