"""Spans that a translation copies verbatim: masked before the model, restored after it.

Each address, path, emoji … of a sentence is replaced by a placeholder: a piece that the tokenizer reserves, or else a
letter, which models copy well. In the translation each placeholder is replaced by its span. A span that the model
dropped is inserted behind the word that is aligned with it. Numbers stay in the sentence and are checked afterwards.
Only a sentence that lost one is translated again, with placeholders for its numbers too. The same goes for names, which
`names` finds.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from latentmt.data.spans import find_spans, is_emoji
from latentmt.data.tokenizer import PLACEHOLDERS
from latentmt.results import Link
from latentmt.text.digits import check_numbers, find_numbers, format_number
from latentmt.text.rewriting import Replacement, Rewritten
from latentmt.text.sentences import Line, split_line

LETTERS = ("X", "Y", "Z", "W", "XA", "XB", "XC", "XD")
"""Placeholders for models without reserved pieces. (Names would be translated: Maria becomes Mary.)"""

_FILLERS = "ꝎꞠꞢꞤꞦꞨ"
"""Capital letters of no language in use. They fill spans while a text is split into sentences."""

_Span = tuple[int, int]


@dataclass(frozen=True)
class Sentence:
    """A sentence and its masked form, which the model translates."""

    text: str
    prefix: str
    suffix: str
    """Emoji around the sentence, with their white space. They are not translated."""
    masked: Rewritten
    """The text between them, with placeholders."""
    placeholders: dict[str, str]
    """The string that each placeholder stands for, as the translation writes it."""
    languages: tuple[str, str] | None = None
    """Source and target language, where the numbers of the translation are checked."""

    @staticmethod
    def plain(text: str) -> Sentence:
        """A sentence without placeholders."""
        return Sentence(text, "", "", Rewritten(text), {})

    @property
    def masked_spans(self) -> dict[_Span, str]:
        """The spans of the text between them that have placeholders, with the string that each stands for."""
        return {old.span: self.placeholders[old.text.strip(" ")] for old in self.masked.replacements}

    @property
    def is_translatable(self) -> bool:
        """Whether there is a letter outside of what is copied verbatim."""
        rest = self.masked.original
        for replacement in reversed(self.masked.replacements):
            rest = rest[: replacement.start] + rest[replacement.end :]
        return any(character.isalpha() for character in rest)


@dataclass(frozen=True)
class MissingSpan:
    """A span of the source that the translation lacks."""

    span: _Span
    """Its position in the masked source."""
    text: str
    """The text that the translation should have."""


class Verbatim:
    """Masks sentences for one model, with its placeholders and languages."""

    def __init__(self, placeholders: str, languages: tuple[str, str] | None, lowercase: bool = False) -> None:
        letters = tuple(map(str.lower, LETTERS)) if lowercase else LETTERS
        self._placeholders: Sequence[str] = tuple(placeholders) or letters
        self._languages = languages

    def split(self, text: str, fits: Callable[[str], bool]) -> tuple[Line, list[Sentence]]:
        """Split a text into sentences whose masked form fits. No span is split, unless it is alone."""
        spans = find_spans(text)
        filler = next((letter for letter in _FILLERS if letter not in text), None)
        if not spans or filler is None:
            line = split_line(text, fits)
            return line, [self._sentence(part.text, ()) for part in line.parts]
        filled = Rewritten(text, [Replacement(start, end, filler * (end - start)) for start, end in spans]).text
        runs = re.compile(f"{filler}+")

        def masked_fits(part: str) -> bool:
            masked, count = runs.subn(self._placeholders[0], part)
            return count <= len(self._unused(runs.sub(" ", part), ())) and fits(masked)

        line, sentences, first = split_line(filled, masked_fits), [], 0
        start = len(line.before)
        for part in line.parts:
            end = start + len(part.text)
            last = bisect_left(spans, (end, end), first)
            inside = [(max(a, start) - start, min(b, end) - start) for a, b in spans[first:last]]
            sentences.append(self._sentence(text[start:end], [span for span in inside if span[0] < span[1]]))
            first = max(first, last - 1)  # a span may continue in the next part
            start = end + len(part.after)
        return line, sentences

    def _sentence(self, text: str, spans: Sequence[_Span]) -> Sentence:
        start, end = _without_emoji(text, spans)
        core = text[start:end]
        inside = [(a - start, b - start) for a, b in spans if start <= a and b <= end]
        strings = list(dict.fromkeys(core[a:b] for a, b in inside))
        assigned = dict(zip(strings, self._unused(core, inside), strict=False))  # enough for all of them: see `split`
        replacements = [
            Replacement(a, b, _spaced(core, (a, b), assigned[core[a:b]])) for a, b in inside if core[a:b] in assigned
        ]
        placeholders = {placeholder: string for string, placeholder in assigned.items()}
        return Sentence(text, text[:start], text[end:], Rewritten(core, replacements), placeholders, self._languages)

    def mask_numbers(self, sentence: Sentence) -> Sentence:
        """The sentence with placeholders for its numbers too, as far as there are unused ones."""
        languages = sentence.languages or ("", "")
        numbers = find_numbers(sentence.masked.original)
        return self.mask(sentence, {number.span: format_number(number.text, languages) for number in numbers})

    def mask(self, sentence: Sentence, spans: Mapping[_Span, str]) -> Sentence:
        """The sentence with placeholders for these spans too, as far as there are unused ones.

        Spans are given with what the translation writes. Those that overlap with masked ones are left as they are.
        """
        core, replacements = sentence.masked.original, list(sentence.masked.replacements)
        free = {
            span: text
            for span, text in spans.items()
            if not any(span[0] < old.end and old.start < span[1] for old in replacements)
        }
        unused = [placeholder for placeholder in self._unused(core, ()) if placeholder not in sentence.placeholders]
        assigned = dict(zip(dict.fromkeys(free.values()), unused, strict=False))
        replacements += [
            Replacement(*span, _spaced(core, span, assigned[text])) for span, text in free.items() if text in assigned
        ]
        added = {placeholder: text for text, placeholder in assigned.items()}
        return replace(
            sentence, masked=Rewritten(core, sorted(replacements)), placeholders=sentence.placeholders | added
        )

    def _unused(self, core: str, spans: Sequence[_Span]) -> list[str]:
        """Placeholders that do not occur in the sentence itself."""
        outside = Rewritten(core, [Replacement(a, b, " ") for a, b in spans]).text
        return [placeholder for placeholder in self._placeholders if not _pattern(placeholder).search(outside)]


def restore(sentence: Sentence, translation: str) -> tuple[Rewritten, list[MissingSpan]]:
    """The model's translation with placeholders replaced and numbers corrected, and the spans that it lacks."""
    source = sentence.masked.text
    replacements, missing = [], []
    for placeholder, string in sentence.placeholders.items():
        expected = [match.span() for match in _pattern(placeholder).finditer(source)]
        actual = [match.span() for match in _pattern(placeholder).finditer(translation)]
        for source_span, span in zip(expected, actual, strict=False):
            replacements.append(_restored(translation, span, _added_spaces(sentence.masked, source_span), string))
        replacements += [_removed(translation, span) for span in actual[len(expected) :]]
        missing += [MissingSpan(span, string) for span in expected[len(actual) :]]
    for match in re.finditer(f"[{PLACEHOLDERS}]", translation):
        if match[0] not in sentence.placeholders:
            replacements.append(_removed(translation, match.span()))
    if sentence.languages:
        check = check_numbers(source, translation, sentence.languages)
        replacements += check.repairs
        missing += [
            MissingSpan(number.span, format_number(number.text, sentence.languages)) for number in check.missing
        ]
    rewritten = Rewritten(translation, _without_overlaps(sorted(replacements)))
    return rewritten, sorted(missing, key=lambda span: span.span)


def superfluous(sentence: Sentence, translation: str) -> int:
    """How many placeholders the model's translation has more often than the masked sentence."""
    counts = (
        [len(pattern.findall(text)) for text in (translation, sentence.masked.text)]
        for pattern in map(_pattern, sentence.placeholders)
    )
    return sum(max(0, written - expected) for written, expected in counts)


def insert_missing(rewritten: Rewritten, missing: Sequence[MissingSpan], links: Sequence[Link]) -> Rewritten:
    """Insert each missing span behind the word that is aligned with it, or with what is just before it.

    Links are between the masked source and the model's output.
    """
    replacements = list(rewritten.replacements)
    for span in missing:
        position = _insertion_point(span.span, links, rewritten.original)
        for other in replacements:  # never inside of another replacement
            if other.start < position < other.end or (position == other.start < other.end):
                position = other.end
        text = f" {span.text}" if position else f"{span.text} "
        replacements.append(Replacement(position, position, text))
    return Rewritten(rewritten.original, sorted(replacements, key=lambda replacement: replacement.span))


def _insertion_point(source: _Span, links: Sequence[Link], translation: str) -> int:
    """The end of the word with the strongest link to a source span; without one, the end of the sentence."""
    here = [link for link in links if link.source[0] < source[1] and source[0] < link.source[1]]
    before = [link for link in links if link.source[1] <= source[0] <= link.source[1] + 1]
    end = len(translation.rstrip(".!?… "))
    if not here and not before:
        return end if source[0] else 0
    position = max(here or before, key=lambda link: link.weight).target[1]
    while position < len(translation) and translation[position].isalnum():
        position += 1
    return position


def _without_overlaps(replacements: Sequence[Replacement]) -> list[Replacement]:
    """Sorted replacements without overlaps: two may claim the space between them."""
    result: list[Replacement] = []
    for replacement in replacements:
        start = max(replacement.start, result[-1].end) if result else replacement.start
        result.append(Replacement(start, max(start, replacement.end), replacement.text))
    return result


def _without_emoji(text: str, spans: Sequence[_Span]) -> _Span:
    """The span of a sentence without the emoji at its ends."""
    start, end = 0, len(text)
    for a, b in spans:
        if not text[start:a].strip() and is_emoji(text[a:b]):
            start = b + len(text[b:]) - len(text[b:].lstrip())
    for a, b in reversed(spans):
        if a >= start and not text[b:end].strip() and is_emoji(text[a:b]):
            end = len(text[:a].rstrip())
    return (start, end) if start < end else (0, len(text))


def _pattern(placeholder: str) -> re.Pattern[str]:
    """Matches a placeholder. A letter also counts right after a lower-case one, because models forget a space."""
    if placeholder in PLACEHOLDERS:
        return re.compile(re.escape(placeholder))
    before = r"(?<!\w)" if placeholder.islower() else "(?<![A-Z0-9_])"
    return re.compile(rf"{before}{placeholder}(?!\w)")


def _spaced(text: str, span: _Span, placeholder: str) -> str:
    """A placeholder with spaces where its span touches a word, so that it is a word by itself."""
    before, after = _touches_word(text, span)
    return f"{' ' * before}{placeholder}{' ' * after}"


def _added_spaces(masked: Rewritten, span: _Span) -> tuple[bool, bool]:
    """On which sides masking added a space to the placeholder at this span."""
    return _touches_word(masked.original, masked.to_original(*span))


def _touches_word(text: str, span: _Span) -> tuple[bool, bool]:
    """On which sides a span has a letter, a digit or a combining mark beside it."""
    before, after = text[: span[0]][-1:], text[span[1] :][:1]
    return _is_word_character(before), _is_word_character(after)


def _is_word_character(character: str) -> bool:
    return character != "" and (character.isalnum() or unicodedata.category(character).startswith("M"))


def _restored(text: str, span: _Span, added: tuple[bool, bool], string: str) -> Replacement:
    """Replace a placeholder: without the spaces that masking added, and separated from words elsewhere."""
    touches = _touches_word(text, span)
    start = span[0] - (added[0] and text[: span[0]].endswith(" "))
    end = span[1] + (added[1] and text[span[1] :].startswith(" "))
    before, after = (bool(touch and not space) for touch, space in zip(touches, added, strict=True))
    return Replacement(start, end, f"{' ' * before}{string}{' ' * after}")


def _removed(text: str, span: _Span) -> Replacement:
    """Remove a superfluous placeholder, with the space before it."""
    start = span[0] - (span[0] > 0 and text[span[0] - 1] == " ")
    return Replacement(start, span[1], "")
