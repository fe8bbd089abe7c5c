"""What a translation repeats verbatim: kept out of the model's hands, and put back where it belongs.

A sentence is shown to the model with a stand-in for each address, path, emoji … in it: a piece that its tokenizer
reserves, or else a letter, which models copy well. In the translation each stand-in gives way to what it stood for.
What the model has lost is put behind the word that comes from there. Numbers stay in the sentence and are checked
afterwards; only where one is lost is the sentence shown again with stand-ins for them, too.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from latentmt.data.spans import find_spans, is_emoji
from latentmt.data.tokenizer import PLACEHOLDERS
from latentmt.results import Link
from latentmt.text.digits import check_numbers, numbers_in, written
from latentmt.text.rewriting import Replacement, Rewritten
from latentmt.text.sentences import Line, split_line

LETTERS = ("X", "Y", "Z", "W", "XA", "XB", "XC", "XD")
"""Stand-ins for models without pieces of their own. (Names are translated: Maria becomes Mary.)"""

_FILLERS = "ꝎꞠꞢꞤꞦꞨ"
"""Capital letters of no language in use, to fill spans with while a text is cut into sentences."""

_Span = tuple[int, int]


@dataclass(frozen=True)
class Sentence:
    """A sentence, and what the model is shown of it."""

    text: str
    lead: str
    tail: str
    """Emoji around it, with the white space between: nothing to translate."""
    shown: Rewritten
    """The text between them with stand-ins."""
    stand_ins: dict[str, str]
    """What each stand-in stands for, as the translation has it."""
    languages: tuple[str, str] | None = None
    """Where the digits of the source are wanted in the translation, written as there."""

    @staticmethod
    def plain(text: str) -> Sentence:
        """A sentence that is shown as it is."""
        return Sentence(text, "", "", Rewritten(text), {})

    @property
    def speaks(self) -> bool:
        """Whether there is anything to translate: a letter, outside of what is repeated verbatim."""
        kept = self.shown.before
        for one in reversed(self.shown.replacements):
            kept = kept[: one.start] + kept[one.end :]
        return any(character.isalpha() for character in kept)


@dataclass(frozen=True)
class Lost:
    """Something of the source that the translation lacks."""

    place: _Span
    """Where it is in what the model was shown."""
    text: str
    """What the translation should have."""


class Verbatim:
    """The rules of one model: its stand-ins and languages."""

    def __init__(self, placeholders: str, languages: tuple[str, str] | None, lowercase: bool = False) -> None:
        letters = tuple(map(str.lower, LETTERS)) if lowercase else LETTERS
        self._stand_ins: Sequence[str] = tuple(placeholders) or letters
        self._languages = languages

    def cut(self, text: str, fits: Callable[[str], bool]) -> tuple[Line, list[Sentence]]:
        """A text as sentences, of which what the model is shown fits. No span is cut apart, unless it is alone."""
        spans = find_spans(text)
        filler = next((letter for letter in _FILLERS if letter not in text), None)
        if not spans or filler is None:
            line = split_line(text, fits)
            return line, [self._sentence(part.text, ()) for part in line.parts]
        filled = Rewritten(text, [Replacement(start, end, filler * (end - start)) for start, end in spans]).text
        runs = re.compile(f"{filler}+")

        def fitting(part: str) -> bool:
            short, count = runs.subn(self._stand_ins[0], part)
            return count <= len(self._free(runs.sub(" ", part), ())) and fits(short)

        line, sentences, first = split_line(filled, fitting), [], 0
        place = len(line.before)
        for part in line.parts:
            end = place + len(part.text)
            last = bisect_left(spans, (end, end), first)
            inside = [(max(a, place) - place, min(b, end) - place) for a, b in spans[first:last]]
            sentences.append(self._sentence(text[place:end], [span for span in inside if span[0] < span[1]]))
            first = max(first, last - 1)  # a span may go on in the next part
            place = end + len(part.after)
        return line, sentences

    def _sentence(self, text: str, spans: Sequence[_Span]) -> Sentence:
        start, end = _without_emoji(text, spans)
        core = text[start:end]
        inside = [(a - start, b - start) for a, b in spans if start <= a and b <= end]
        strings = list(dict.fromkeys(core[a:b] for a, b in inside))
        given = dict(zip(strings, self._free(core, inside), strict=False))  # as many as there are: see `cut`
        replacements = [
            Replacement(a, b, _apart(core, (a, b), given[core[a:b]])) for a, b in inside if core[a:b] in given
        ]
        stand_ins = {stand_in: string for string, stand_in in given.items()}
        return Sentence(text, text[:start], text[end:], Rewritten(core, replacements), stand_ins, self._languages)

    def without_numbers(self, sentence: Sentence) -> Sentence:
        """The same with stand-ins for its numbers, too, as far as there are any left."""
        core, taken = sentence.shown.before, list(sentence.shown.replacements)
        numbers = [
            one for one in numbers_in(core) if not any(one.start < old.end and old.start < one.end for old in taken)
        ]
        left = [one for one in self._free(core, ()) if one not in sentence.stand_ins]
        strings = list(dict.fromkeys(one.text for one in numbers))
        given = dict(zip(strings, left, strict=False))
        taken += [
            Replacement(one.start, one.end, _apart(core, (one.start, one.end), given[one.text]))
            for one in numbers
            if one.text in given
        ]
        languages = sentence.languages or ("", "")
        stand_ins = sentence.stand_ins | {stand_in: written(one, languages) for one, stand_in in given.items()}
        return Sentence(
            sentence.text, sentence.lead, sentence.tail, Rewritten(core, sorted(taken)), stand_ins, sentence.languages
        )

    def _free(self, core: str, spans: Sequence[_Span]) -> list[str]:
        """Stand-ins that the sentence itself does not have."""
        outside = Rewritten(core, [Replacement(a, b, " ") for a, b in spans]).text
        return [one for one in self._stand_ins if not _pattern(one).search(outside)]


def restore(sentence: Sentence, translation: str) -> tuple[Rewritten, list[Lost]]:
    """The model's translation with what stand-ins stood for, and with its numbers put right; and what is lost."""
    shown = sentence.shown.text
    replacements, lost = [], []
    for stand_in, string in sentence.stand_ins.items():
        wanted = [match.span() for match in _pattern(stand_in).finditer(shown)]
        found = [match.span() for match in _pattern(stand_in).finditer(translation)]
        for source, span in zip(wanted, found, strict=False):
            replacements.append(_replaced(translation, span, _glued(sentence.shown, source), string))
        replacements += [_removed(translation, span) for span in found[len(wanted) :]]
        lost += [Lost(span, string) for span in wanted[len(found) :]]
    for match in re.finditer(f"[{PLACEHOLDERS}]", translation):
        if match[0] not in sentence.stand_ins:
            replacements.append(_removed(translation, match.span()))
    if sentence.languages:
        checked = check_numbers(shown, translation, sentence.languages)
        replacements += checked.repairs
        lost += [Lost((one.start, one.end), written(one.text, sentence.languages)) for one in checked.lost]
    return Rewritten(translation, _apart_from_each_other(sorted(replacements))), sorted(lost, key=lambda one: one.place)


def put_back(rewritten: Rewritten, lost: Sequence[Lost], links: Sequence[Link]) -> Rewritten:
    """The translation with what it lost, each behind the word that comes from there, or from just before.

    Links are between what the model was shown and what it wrote.
    """
    replacements = list(rewritten.replacements)
    for one in lost:
        place = _place_for(one.place, links, rewritten.before)
        for other in replacements:  # never inside of another
            if other.start < place < other.end or (place == other.start < other.end):
                place = other.end
        words = f" {one.text}" if place else f"{one.text} "
        replacements.append(Replacement(place, place, words))
    return Rewritten(rewritten.before, sorted(replacements, key=lambda each: (each.start, each.end)))


def _place_for(source: _Span, links: Sequence[Link], translation: str) -> int:
    """The end of the word that has most to do with a place of the source; the end of the sentence if there is none."""
    here = [link for link in links if link.source[0] < source[1] and source[0] < link.source[1]]
    before = [link for link in links if link.source[1] <= source[0] <= link.source[1] + 1]
    end = len(translation.rstrip(".!?… "))
    if not here and not before:
        return end if source[0] else 0
    place = max(here or before, key=lambda link: link.weight).target[1]
    while place < len(translation) and translation[place].isalnum():
        place += 1
    return place


def _apart_from_each_other(replacements: Sequence[Replacement]) -> list[Replacement]:
    """The same without overlaps: two may want the space between them."""
    apart: list[Replacement] = []
    for one in replacements:
        start = max(one.start, apart[-1].end) if apart else one.start
        apart.append(Replacement(start, max(start, one.end), one.text))
    return apart


def _without_emoji(text: str, spans: Sequence[_Span]) -> _Span:
    """What is left of a sentence without the emoji at its ends."""
    start, end = 0, len(text)
    for a, b in spans:
        if not text[start:a].strip() and is_emoji(text[a:b]):
            start = b + len(text[b:]) - len(text[b:].lstrip())
    for a, b in reversed(spans):
        if a >= start and not text[b:end].strip() and is_emoji(text[a:b]):
            end = len(text[:a].rstrip())
    return (start, end) if start < end else (0, len(text))


def _pattern(stand_in: str) -> re.Pattern[str]:
    """A letter counts behind one in lower case, too: models forget a space."""
    if stand_in in PLACEHOLDERS:
        return re.compile(re.escape(stand_in))
    return re.compile(rf"(?<!\w){stand_in}(?!\w)" if stand_in.islower() else rf"(?<![A-Z0-9_]){stand_in}(?!\w)")


def _apart(text: str, span: _Span, stand_in: str) -> str:
    """A stand-in with spaces where what it stands for has a word beside it: it is a word by itself."""
    before, after = _touched(text, span)
    return f"{' ' * before}{stand_in}{' ' * after}"


def _glued(shown: Rewritten, span: _Span) -> tuple[bool, bool]:
    """On which sides a stand-in in what is shown has a space that the sentence has not."""
    return _touched(shown.before, shown.origin(*span))


def _touched(text: str, span: _Span) -> tuple[bool, bool]:
    """On which sides a span has a letter, a digit or a mark beside it."""
    before, after = text[: span[0]][-1:], text[span[1] :][:1]
    return _of_word(before), _of_word(after)


def _of_word(character: str) -> bool:
    return character != "" and (character.isalnum() or unicodedata.category(character).startswith("M"))


def _replaced(text: str, span: _Span, glued: tuple[bool, bool], string: str) -> Replacement:
    """What takes a stand-in's place: without the spaces on sides that had none, and apart from words on the others."""
    touched = _touched(text, span)
    start = span[0] - (glued[0] and text[: span[0]].endswith(" "))
    end = span[1] + (glued[1] and text[span[1] :].startswith(" "))
    before, after = (bool(touch and not glue) for touch, glue in zip(touched, glued, strict=True))
    return Replacement(start, end, f"{' ' * before}{string}{' ' * after}")


def _removed(text: str, span: _Span) -> Replacement:
    """A stand-in that nobody asked for goes, with the space before it."""
    start = span[0] - (span[0] > 0 and text[span[0] - 1] == " ")
    return Replacement(start, span[1], "")
