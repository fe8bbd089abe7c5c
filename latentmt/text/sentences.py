"""A line of text → the parts of it that are translated one by one, and the white space between them.

The model has seen single sentences of a limited length. So a line is cut where its sentences end, and a sentence that
is too long where its clauses end, else at a space, else anywhere. Nothing is lost: parts and white space joined are
the line. The rules are for German and English, and do for most languages in Latin script; which language it is they
do not know, nor what a piece is: whether a text is short enough is for the caller to say.

Where a full stop is in doubt, the sentence goes on. Two sentences taken for one are translated a little worse, one
sentence taken for two is torn apart.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """Something to translate."""

    text: str
    """Never empty, and without white space around it."""
    after: str
    """The white space that follows; none between two halves of a word."""


@dataclass(frozen=True)
class Line:
    """A line, taken apart."""

    before: str
    """The white space it begins with: all of the line where there is nothing to translate."""
    parts: tuple[Part, ...]

    def joined(self, translations: Sequence[str]) -> str:
        """The line with its parts replaced by as many translations."""
        pairs = zip(translations, self.parts, strict=True)
        return self.before + "".join(translation + part.after for translation, part in pairs)


def split_line(line: str, fits: Callable[[str], bool]) -> Line:
    """Take a line apart, so that every part fits or is a single character. A line feed ends a sentence, too."""
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


# Two places in a text. A span is what lies between them; a gap is the white space between them, perhaps none.
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
    """What stands between line feeds, without the white space around it."""
    for match in re.finditer(r"[^\n]+", text):
        line = match.group()
        start, end = match.start() + len(line) - len(line.lstrip()), match.start() + len(line.rstrip())
        if start < end:
            yield start, end


def _sentences(text: str, start: int, end: int) -> Iterator[_Span]:
    """The sentences between two places."""
    for match, gap in _gaps(_SENTENCE_END, text, start, end):
        # The order matters for speed: a row of symbols is looked through once, not once for every mark in it.
        if _can_begin(text, gap[1]) and _has_word(text, start, gap[0]) and _can_end(text, start, match, gap):
            yield start, gap[0]
            start = gap[1]
    yield start, end


def _fitting(text: str, span: _Span, fits: Callable[[str], bool]) -> Iterator[_Span]:
    """A span in parts that fit, in order.

    It is halved, and its halves are, until they fit. Taking the most that fits each time would need fewer parts at
    times, but leave a last one of a word or two, which says little without the rest. Halves are of the length that
    sentences are, and every character is looked at only as often as the whole can be halved.
    """
    todo = [span]
    while todo:
        start, end = todo.pop()
        if end - start == 1 or fits(text[start:end]):
            yield start, end
        else:
            gap = _cut(text, start, end)
            todo += [(gap[1], end), (start, gap[0])]


def _cut(text: str, start: int, end: int) -> _Span:
    """The best gap to cut a span at: of the strongest kind that has one far enough from both ends."""
    # A cut near an end would part a word or two from the rest. Seven or eight pieces can be a clause.
    margin = (end - start) // 8
    for gaps in _clause_gaps(text, start, end):
        inner = [gap for gap in gaps if gap[0] - start >= margin and end - gap[1] >= margin]
        if inner:
            return _middlemost(inner, start, end)
    spaces = [gap for _, gap in _gaps(_SPACE, text, start, end)]
    return _middlemost(spaces, start, end) if spaces else _cut_in_word(text, start, end)


def _clause_gaps(text: str, start: int, end: int) -> Iterator[Iterable[_Span]]:
    """The gaps between clauses: first those between sentences that go on in lower case, then by kind."""
    yield (gap for match, gap in _gaps(_SENTENCE_END, text, start, end) if _can_end(text, start, match, gap))
    for pattern in _CLAUSE_ENDS:
        yield (gap for _, gap in _gaps(pattern, text, start, end))


def _gaps(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[tuple[re.Match[str], _Span]]:
    """Where a pattern, whose last group is a gap, leaves something on both sides of it."""
    for match in pattern.finditer(text, start, end):
        gap = match.span(match.lastindex or 0)
        if gap[1] < end and not (gap[0] == gap[1] and _one_character(text, start, gap[0])):
            yield match, gap


def _middlemost(gaps: Iterable[_Span], start: int, end: int) -> _Span:
    """The gap that is nearest to the middle of a span."""
    return min(gaps, key=lambda gap: abs(sum(gap) - start - end))


def _cut_in_word(text: str, start: int, end: int) -> _Span:
    """The place nearest to the middle where a character ends; the middle itself where there is only one character."""
    middle = (start + end) // 2
    for distance in range(end - start):
        for place in (middle - distance, middle + distance):
            if start < place < end and not _one_character(text, start, place):
                return place, place
    return middle, middle


_ZERO_WIDTH_JOINER = "\u200d"
# What belongs to the character before it, and is not a mark: non-joiner, joiner, skin tones, tags, Korean vowels.
_EXTENDS = re.compile("[\u200c\u200d\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\u1160-\u11ff]")
_FLAG_LETTERS = re.compile("[\U0001f1e6-\U0001f1ff]+")


def _one_character(text: str, start: int, place: int) -> bool:
    """Whether a reader sees one character where two meet. Close to Unicode's rules, not all of them."""
    before, after = text[place - 1], text[place]
    if after.isascii():
        return before == _ZERO_WIDTH_JOINER
    if before == _ZERO_WIDTH_JOINER or unicodedata.category(after).startswith("M") or _EXTENDS.match(after):
        return True
    if "\ud800" <= before <= "\udbff":
        return "\udc00" <= after <= "\udfff"
    # A flag is two letters, so it matters how many there are before this place.
    if _FLAG_LETTERS.fullmatch(before + after):
        first = place
        while first > start and _FLAG_LETTERS.fullmatch(text[first - 1]):
            first -= 1
        return (place - first) % 2 == 1
    return False


# What a sentence may have before its first word (quotation marks, brackets, dashes, symbols), and the word.
_OPENING = re.compile(r"((?:[^\w.,;:!?…)\]}。！？｡]|_)*+)(\w*+)")
_ALWAYS_BEGINS = re.compile("[¿¡•‣▪●*]")


def _opening(text: str, place: int) -> tuple[str, str]:
    """What stands before the first word from here on, and the word."""
    match = _OPENING.match(text, place)
    return (match.group(1), match.group(2)) if match else ("", "")


def _can_begin(text: str, place: int) -> bool:
    """Whether a sentence can begin here: not in lower case, not even behind a quotation mark, a bracket or a dash.

    So the sentence goes on in: “Really?” – he asked.
    """
    lead, word = _opening(text, place)
    return _ALWAYS_BEGINS.search(lead) is not None or (word != "" and not word[0].islower())


def _has_word(text: str, start: int, end: int) -> bool:
    """Whether there is a letter or a digit between two places. Usually the first is one: no slice, no search."""
    return any(text[place].isalnum() for place in range(start, end))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Abbreviations, in lower case and without their last full stop. After these, the sentence always goes on.
_NEVER_LAST = _words(
    """
    abb bes betr bzgl bzw dipl dr einschl evtl exkl frl ggf ggü hrn hrsg inkl insb lt nr prof sog vgl zzgl
    cf messrs mlle mme mr mrs msgr viz vs
    """
)
# Short for something only where a number follows: otherwise a word, as in “eine neue Art.” or “No.”
_BEFORE_NUMBER = _words("abs art aufl bd chap ch fig kap max mind no nos pp sec tab vol")
# After these it goes on, unless the next word is one that begins a sentence. “etc.” and “usw.” are in none of these
# lists: they close an enumeration, and when the sentence goes on after them, it is nearly always in lower case, even
# in German.
_SOMETIMES_LAST = _words(
    """
    allg anm ca chr dl dna dt ehem engl entspr fr franz geb gem gen griech habil hbf hl hr ing ital jh jhd jhdt jun lat
    med min mio mrd phil rer sek sen sf st std str tel tsd
    jan jän feb febr mär mar apr jul aug sep sept okt oct nov dez dec
    a.m adm al approx ave blvd bros capt co col corp dept est ft gov hon inc jr ltd maj ms mt p.m ph.d pres rd rep rev
    sgt sq sr
    """
)
# Words that seldom have a capital but at the beginning of a sentence. Not “I”, nor “A”, which may be an initial.
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
# Of one or two digits, perhaps with others before it: 3., 24.12., 19./20.; or Roman. More digits are a year more often
# than they are an ordinal.
_ORDINAL = re.compile(r"[\d./–-]*(?<!\d)\d{1,3}|[IVXLC]{2,}")


def _can_end(text: str, start: int, match: re.Match[str], gap: _Span) -> bool:
    """Whether the mark that was found can end the sentence that began at `start`."""
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
        return _opening(text, gap[1])[1] in _FIRST_WORDS and _has_word(text, start, dot - len(token))
    return True


def _is_ordinal(word: str, match: re.Match[str], gap: _Span) -> bool:
    """Whether the full stop may belong to a number. Before a closing quotation mark or bracket it does not."""
    return match.end(1) == gap[0] and _ORDINAL.fullmatch(word) is not None
