"""Splits a line of text into parts to translate one by one, and the white space between them.

Models are trained on single sentences of a limited length. So a line is split where its sentences end. A sentence that
is too long is split where its clauses end, else at a space, else anywhere. Parts and white space joined are the line.
The rules are for German and English and work for most languages in Latin script. They do not depend on the language.
The caller decides whether a part is short enough.

Where a full stop is ambiguous, the sentence continues. Two sentences taken for one are translated a little worse. One
sentence taken for two is translated a lot worse.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A part to translate."""

    text: str
    """Not empty, and without white space around it."""
    after: str
    """The white space that follows. Empty between two halves of a word."""


@dataclass(frozen=True)
class Line:
    """A line as parts."""

    before: str
    """The white space it begins with; the whole line if there is nothing to translate."""
    parts: tuple[Part, ...]

    def joined(self, translations: Sequence[str]) -> str:
        """The line with its parts replaced by as many translations."""
        pairs = zip(translations, self.parts, strict=True)
        return self.before + "".join(translation + part.after for translation, part in pairs)


def split_line(line: str, fits: Callable[[str], bool]) -> Line:
    """Split a line so that every part fits or is a single character. A line feed ends a sentence too."""
    spans = [
        span
        for start, end in _lines(line)
        for sentence in _sentences(line, start, end)
        for span in _fitting(line, sentence, fits)
    ]
    if not spans:
        return Line(line, ())
    nexts = [span[0] for span in spans[1:]] + [len(line)]
    parts = (Part(line[span[0] : span[1]], line[span[1] : next_]) for span, next_ in zip(spans, nexts, strict=True))
    return Line(line[: spans[0][0]], tuple(parts))


# Start and end in a text. A gap is a span of white space, perhaps empty.
_Span = tuple[int, int]

_CLOSING = r"\"'”“’‘»«›‹)\]}」』）】》"
# Possessive (`++`), or a long row of dots would take time quadratic in its length. The last group is the gap.
_SENTENCE_END = re.compile(rf"(?<![.!?…])([.!?…]++)[{_CLOSING}]*+(\s++)|[。！？｡]++[{_CLOSING}]*+(\s*+)")
# From the stronger to the weaker. A comma or colon inside of a number or an address has no white space after it.
_CLAUSE_ENDS = (
    re.compile(rf"[;:][{_CLOSING}]*+(\s++)|[；：](\s*+)"),
    re.compile(rf"[,–—][{_CLOSING}]*+(\s++)|[，、](\s*+)|(?<!\s)(\s++)(?=[(\[])"),
)
_SPACE = re.compile(r"(\s++)")


def _lines(text: str) -> Iterator[_Span]:
    """The lines between line feeds, without the white space around them."""
    for match in re.finditer(r"[^\n]+", text):
        line = match.group()
        start, end = match.start() + len(line) - len(line.lstrip()), match.start() + len(line.rstrip())
        if start < end:
            yield start, end


def _sentences(text: str, start: int, end: int) -> Iterator[_Span]:
    """The sentences between two positions."""
    word = _first_word(text, start, end)
    for match, gap in _gaps(_SENTENCE_END, text, start, end):
        if word < gap[0] and _can_begin(text, gap[1]) and _can_end(text, start, word, match, gap):
            yield start, gap[0]
            start = gap[1]
            word = _first_word(text, start, end)
    yield start, end


def _fitting(text: str, span: _Span, fits: Callable[[str], bool]) -> Iterator[_Span]:
    """Split a span into parts that fit, in order.

    It is halved recursively until the parts fit. Taking as much as fits each time would sometimes need fewer parts, but
    could leave a last one of a word or two without context. Halving keeps parts about as long as sentences, and scans
    each character at most log n times.
    """
    stack = [span]
    while stack:
        start, end = stack.pop()
        if end - start == 1 or fits(text[start:end]):
            yield start, end
        else:
            gap = _split_point(text, start, end)
            stack += [(gap[1], end), (start, gap[0])]


def _split_point(text: str, start: int, end: int) -> _Span:
    """The best gap to split a span at: of the strongest kind with a gap far enough from both ends."""
    # A split near an end would separate a word or two from the rest. Seven or eight pieces can be a clause.
    margin = (end - start) // 8
    for gaps in _clause_gaps(text, start, end):
        inner = [gap for gap in gaps if gap[0] - start >= margin and end - gap[1] >= margin]
        if inner:
            return _nearest_to_middle(inner, start, end)
    spaces = [gap for _, gap in _gaps(_SPACE, text, start, end)]
    return _nearest_to_middle(spaces, start, end) if spaces else _split_in_word(text, start, end)


def _clause_gaps(text: str, start: int, end: int) -> Iterator[Iterable[_Span]]:
    """The gaps between clauses: first those between sentences that continue in lower case, then by kind."""
    word = _first_word(text, start, end)
    yield (gap for match, gap in _gaps(_SENTENCE_END, text, start, end) if _can_end(text, start, word, match, gap))
    for pattern in _CLAUSE_ENDS:
        yield (gap for _, gap in _gaps(pattern, text, start, end))


def _gaps(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[tuple[re.Match[str], _Span]]:
    """The matches of a pattern, whose last group is a gap, that have text on both sides."""
    for match in pattern.finditer(text, start, end):
        gap = match.span(match.lastindex or 0)
        if gap[1] < end and not (gap[0] == gap[1] and _inside_character(text, start, gap[0])):
            yield match, gap


def _nearest_to_middle(gaps: Iterable[_Span], start: int, end: int) -> _Span:
    """The gap that is nearest to the middle of a span."""
    return min(gaps, key=lambda gap: abs(sum(gap) - start - end))


def _split_in_word(text: str, start: int, end: int) -> _Span:
    """The position nearest to the middle where a character ends; the middle itself if there is only one character."""
    middle = (start + end) // 2
    for distance in range(end - start):
        for position in (middle - distance, middle + distance):
            if start < position < end and not _inside_character(text, start, position):
                return position, position
    return middle, middle


_ZERO_WIDTH_JOINER = "\u200d"
# Code points that extend the character before them and are not marks: joiners, skin tones, tags, Korean vowels.
_EXTENDS = re.compile("[\u200c\u200d\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\u1160-\u11ff]")
_FLAG_LETTERS = re.compile("[\U0001f1e6-\U0001f1ff]+")


def _inside_character(text: str, start: int, position: int) -> bool:
    """Whether the position is inside a grapheme cluster. An approximation of Unicode's rules."""
    before, after = text[position - 1], text[position]
    if after.isascii():
        return before == _ZERO_WIDTH_JOINER
    if before == _ZERO_WIDTH_JOINER or unicodedata.category(after).startswith("M") or _EXTENDS.match(after):
        return True
    if "\ud800" <= before <= "\udbff":
        return "\udc00" <= after <= "\udfff"
    # A flag is two letters, so the number of letters before this position matters.
    if _FLAG_LETTERS.fullmatch(before + after):
        first = position
        while first > start and _FLAG_LETTERS.fullmatch(text[first - 1]):
            first -= 1
        return (position - first) % 2 == 1
    return False


# What a sentence may have before its first word (quotation marks, brackets, dashes, symbols), and the word.
_OPENING = re.compile(r"((?:[^\w.,;:!?…)\]}。！？｡]|_)*+)(\w*+)")
_ALWAYS_BEGINS = re.compile("[¿¡•‣▪●*]")


def _opening(text: str, position: int) -> tuple[str, str]:
    """The text before the next word, and the word."""
    match = _OPENING.match(text, position)
    return (match.group(1), match.group(2)) if match else ("", "")


def _can_begin(text: str, position: int) -> bool:
    """Whether a sentence can begin here: not in lower case, not even after a quotation mark, a bracket or a dash.

    So the sentence continues in: “Really?” – he asked.
    """
    opening, word = _opening(text, position)
    return _ALWAYS_BEGINS.search(opening) is not None or (word != "" and not word[0].islower())


_LETTER_OR_DIGIT = re.compile(r"[^\W_]")


def _first_word(text: str, start: int, end: int) -> int:
    """The position of the first letter or digit; the end if there is none.

    It is searched for once for each sentence, not once for every mark in it that might end it.
    """
    match = _LETTER_OR_DIGIT.search(text, start, end)
    return match.start() if match else end


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Abbreviations, in lower case and without their last full stop. After these, the sentence always continues.
_NEVER_LAST = _words(
    """
    abb bes betr bzgl bzw dipl dr einschl evtl exkl frl ggf ggü hrn hrsg inkl insb lt nr prof sog vgl zzgl
    cf messrs mlle mme mr mrs msgr viz vs
    """
)
# Abbreviations only before a number: otherwise words, as in “eine neue Art.” or “No.”
_BEFORE_NUMBER = _words("abs art aufl bd chap ch fig kap max mind no nos pp sec tab vol")
# After these it continues, unless the next word is a typical first word. “etc.” and “usw.” are in none of these lists:
# they close an enumeration. If the sentence continues after them, it is nearly always in lower case, even in German.
_SOMETIMES_LAST = _words(
    """
    allg anm ca chr dl dna dt ehem engl entspr fr franz geb gem gen griech habil hbf hl hr ing ital jh jhd jhdt jun lat
    med min mio mrd phil rer sek sen sf st std str tel tsd
    jan jän feb febr mär mar apr jul aug sep sept okt oct nov dez dec
    a.m adm al approx ave blvd bros capt co col corp dept est ft gov hon inc jr ltd maj ms mt p.m ph.d pres rd rep rev
    sgt sq sr
    """
)
# Words that are seldom capitalised except at the beginning of a sentence. Not “I”, nor “A”, which may be an initial.
_FIRST_WORDS = _words(
    """
    Aber Alle Allerdings Als Am An Auch Auf Aus Außerdem Bei Beim Bis Da Dabei Daher Damit Danach Dann Darum Das Dazu
    Dem Den Denn Der Des Deshalb Die Dies Diese Diesem Diesen Dieser Dieses Doch Dort Ein Eine Einem Einen Einer Einige
    Er Es Für Gestern Heute Hier Ich Ihr Ihre Im In Jedoch Jetzt Kein Keine Man Mehr Mein Meine Mit Nach Nachdem Nicht
    Noch Nun Nur Obwohl Oder Ohne Schon Sein Seine Seit Seitdem Sie Sind So Später Trotzdem Über Um Und Unser Unsere
    Unter Viele Vom Von Vor Während Warum Was Weil Wenn Wer Wie Wir Wo Zu Zuerst Zum Zunächst Zur
    After All Although And As At Because Before But By During Even For From Furthermore He Her Here His How However If
    It Its Later Many Meanwhile Most My Not Now On Or Our She Since Some That The Their Then There These They This Those
    To Today We What When Where While Who Why With Without Yesterday You Your
    """
)
_LONGEST_ABBREVIATION = 24
# Single letters, one or several, with or without spaces: J. R. R., z. B., e.g., U.S., J.-P.
_LETTERS = re.compile(r"(?<![^\s(\[{\"„“‚‘«»])(?:[^\W\d_]\.[\s-]?)*[^\W\d_]\Z")
# One to three digits, perhaps with others before: 3., 24.12., 19./20.; or Roman. More digits are usually a year.
_ORDINAL = re.compile(r"[\d./–-]*(?<!\d)\d{1,3}|[IVXLC]{2,}")


def _can_end(text: str, start: int, first_word: int, match: re.Match[str], gap: _Span) -> bool:
    """Whether the matched mark can end the sentence that began at `start`, and its first word at `first_word`."""
    if match.group(1) != ".":
        return True
    dot = match.start()
    before = text[max(start, dot - _LONGEST_ABBREVIATION) : dot]
    if not before or before[-1].isspace():
        return True
    token = before.split()[-1]
    word = token.lstrip("([{\"'„“‚‘«»")
    short = word.rpartition("-")[2].casefold()
    letters = _LETTERS.search(before)
    if short in _NEVER_LAST:
        return False
    if short in _BEFORE_NUMBER:
        return not text[gap[1]].isdigit()
    if letters and letters.group()[0].islower() and short not in _SOMETIMES_LAST:
        return False  # z. B., d. h., i.e.
    if letters or short in _SOMETIMES_LAST or short.endswith("str") or _is_ordinal(word, match, gap):
        # At the very beginning it is the number of what follows: “1. Die Anfänge”.
        return _opening(text, gap[1])[1] in _FIRST_WORDS and first_word < dot - len(token)
    return True


def _is_ordinal(word: str, match: re.Match[str], gap: _Span) -> bool:
    """Whether the full stop may belong to an ordinal number. Before a closing quotation mark or bracket it does not."""
    return match.end(1) == gap[0] and _ORDINAL.fullmatch(word) is not None
