"""Checks the numbers of a translation: they keep their digits, in the format of the target language.

"1.500 Euro" becomes "1,500 euros". A number may also be spelt out ("five"), a time may use a 12-hour clock, and a date
may be split into parts. It compares texts only. Inserting a missing number is the caller's task.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from latentmt.text.rewriting import Replacement

SEPARATORS = {"de": (".", ","), "ro": (".", ","), "en": (",", ".")}
"""The separators of thousands and of decimals, by language."""

# Not after a letter (CO2), nor after a half or a quarter of an hour (halb 3).
_NUMBER = re.compile(
    r"(?<![^\W\d_])(?<!halb )(?<!iertel )(?<!iertel nach )(?<!iertel vor )"
    r"(?<!half past )(?<!uarter past )(?<!uarter to )"
    r"(?:\d{1,3}(?:[ \u00a0\u202f'’]\d{3})+(?!\d)|\d{1,2} Uhr \d{2}(?!\d)|\d+(?:[.,:/]\d+)*)"
)
_HOUR = re.compile(r"[\s\u00a0]*(?:Uhr|o'clock|o’clock)\b")
_AFTERNOON = re.compile(r"[\s\u00a0]*[pP]\.?[mM]\b")
_DECADE = re.compile(r"er(?:n|\b)|['’]?s\b")

_ENGLISH = """zero,midnight|a,an,one,first,once,single|two,second,twice,both,half,double,pair,couple|three,third,thirds
four,fourth,quarter,quarters|five,fifth|six,sixth|seven,seventh|eight,eighth|nine,ninth|ten,tenth|eleven,eleventh|twelve,twelfth,dozen,noon,midnight|thirteen,thirteenth
fourteen,fourteenth|fifteen,fifteenth|sixteen,sixteenth|seventeen,seventeenth|eighteen,eighteenth|nineteen,nineteenth
twenty,twentieth,twenties"""
_WORDS = {str(number): set(words.split(",")) for number, words in enumerate(re.split(r"[|\n]", _ENGLISH))} | {
    "21": {"twenty-first", "twenty-one"},
    "30": {"thirty", "thirties", "thirtieth"},
    "40": {"forty", "forties", "fortieth"},
    "50": {"fifty", "fifties", "fiftieth"},
    "60": {"sixty", "sixties", "sixtieth"},
    "70": {"seventy", "seventies"},
    "80": {"eighty", "eighties"},
    "90": {"ninety", "nineties"},
    "100": {"hundred", "hundredth", "century"},
    "1000": {"thousand", "thousandth", "millennium"},
    "1000000": {"million"},
}

_GERMAN = """null,mitternacht|ein,eins,eine,einen,einem,einer,eines,einmal,erst,einzige
zwei,zweimal,zweit,beide,beiden,halb,doppelt,paar|drei,dreimal,dritt,drittel|vier,viermal,viert,viertel
fünf,fünft|sechs,sechst|sieben,siebt|acht|neun,neunt|zehn,zehnt|elf,elft|zwölf,zwölft,dutzend,mittag,mittags,mitternacht
dreizehn,dreizehnt|vierzehn,vierzehnt|fünfzehn,fünfzehnt|sechzehn,sechzehnt|siebzehn,siebzehnt|achtzehn,achtzehnt
neunzehn,neunzehnt"""
_TENS = ("zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")


def _german_words() -> dict[str, set[str]]:
    """Numbers with the endings of ordinals and decades: "erster", "zwanziger"."""
    words = {str(number): set(words.split(",")) for number, words in enumerate(re.split(r"[|\n]", _GERMAN))}
    units = ["", *(f"{unit}und" for unit in ("ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"))]
    words |= {f"{ten}{unit}": {f"{units[unit]}{_TENS[ten - 2]}"} for ten in range(2, 10) for unit in range(10)}
    words |= {
        "100": {"hundert", "jahrhundert"},
        "1000": {"tausend", "jahrtausend"},
        "1000000": {"million", "millionen"},
    }
    for number, spelt in words.items():
        ordinals = {f"{word}st" for word in spelt} if len(number) > 1 and int(number) > 19 else spelt
        spelt |= {word + ending for word in ordinals for ending in ("e", "en", "er", "es", "em")}
        if len(number) == 2 and number >= "20":
            spelt |= {f"{word}er" for word in spelt}  # a decade
    return words


_SPELT = {"en": _WORDS, "de": _german_words()}

_MONTHS = {
    "en": ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    "de": ("jan", "feb", "mär", "apr", "mai", "jun", "jul", "aug", "sep", "okt", "nov", "dez"),
}


@dataclass(frozen=True)
class Number:
    """A number and its position in a text."""

    start: int
    end: int
    text: str
    keys: tuple[str, ...]
    """The digits that it may have in a translation, the unchanged ones first."""

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end

    @property
    def parts(self) -> list[str]:
        """The digits between separators, without leading zeros."""
        return [part.lstrip("0") or "0" for part in re.findall(r"\d+", self.text)]


@dataclass(frozen=True)
class NumberCheck:
    """The differences between the numbers of a sentence and of its translation."""

    repairs: list[Replacement]
    """Corrections of the translation."""
    missing: list[Number]
    """Numbers of the source that the translation lacks."""


def find_numbers(text: str) -> list[Number]:
    """The numbers of a text, in order."""
    return [Number(*match.span(), match[0], _keys(text, match)) for match in _NUMBER.finditer(text)]


def format_number(number: str, languages: tuple[str, str]) -> str:
    """A number of the source language as the target language writes it."""
    if not all(language in SEPARATORS for language in languages):
        return number
    (thousands, decimal), (new_thousands, new_decimal) = (SEPARATORS[language] for language in languages)
    t, d = re.escape(thousands), re.escape(decimal)
    if re.fullmatch(rf"[1-9]\d{{0,2}}(?:{t}\d{{3}})+(?:{d}\d+)?|\d+{d}\d+", number):
        return number.translate(str.maketrans(thousands + decimal, new_thousands + new_decimal))
    return number


def check_numbers(source: str, target: str, languages: tuple[str, str]) -> NumberCheck:
    """Compare the numbers of a sentence with those of its translation.

    Nothing is reported missing in a target language whose words for numbers are not known.
    """
    missing, extra = find_numbers(source), find_numbers(target)
    pairs = [
        *_paired(missing, extra, lambda number: number.keys[:1]),
        *_paired(missing, extra, lambda number: number.keys[1:]),
    ]
    repairs = [
        Replacement(other.start, other.end, new)
        for number, other in pairs
        if ((new := format_number(number.text, languages)) != number.text or _is_malformed(other.text, languages[1]))
        and number.keys[0] == other.keys[0]
        and new != other.text
        and ":" not in other.text
        and not _HOUR.match(target, other.end)
    ]
    words = set(re.findall(r"\w+(?:-\w+)*", target.lower()))
    missing = [
        number
        for number in missing
        if not (_is_spelt(number, words, languages[1]) or _is_in_parts(number, extra, target, languages))
    ]
    repairs += _corrected_hours(source, missing, target, extra)
    for number, other in itertools.product(list(missing), list(extra)):
        if number in missing and other in extra and _is_garbled(number.keys[0], other.keys[0]):
            missing.remove(number)
            extra.remove(other)
            repairs.append(Replacement(other.start, other.end, format_number(number.text, languages)))
    return NumberCheck(sorted(repairs), missing if languages[1] in _SPELT else [])


def _corrected_hours(source: str, missing: list[Number], target: str, extra: list[Number]) -> list[Replacement]:
    """An hour of the afternoon on a wrong hour of the 24-hour clock ("17.45 Uhr" for 7:45 pm). Both leave the lists."""
    repairs = []
    for number, other in itertools.product(list(missing), list(extra)):
        if not (_AFTERNOON.match(source, number.end) and _HOUR.match(target, other.end)):
            continue
        hour, minutes = number.parts[0], number.text.partition(":")[2]
        if (
            number in missing
            and other in extra
            and int(hour) < 12
            and minutes == "".join(re.split(r"[.:]", other.text)[1:])
        ):
            missing.remove(number)
            extra.remove(other)
            right = re.sub(r"^\d+", str(int(hour) + 12), other.text)
            repairs.append(Replacement(other.start, other.end, right))
    return repairs


def _is_malformed(number: str, language: str) -> bool:
    """Whether the language's separator of thousands separates something else ("31,03,2027")."""
    if language not in SEPARATORS:
        return False
    thousands, decimal = map(re.escape, SEPARATORS[language])
    pattern = rf"\d+(?:{decimal}\d+)?|\d{{1,3}}(?:{thousands}\d{{3}})+(?:{decimal}\d+)?"
    return SEPARATORS[language][0] in number and re.fullmatch(pattern, number) is None


def _paired(
    missing: list[Number], extra: list[Number], keys: Callable[[Number], Sequence[str]]
) -> list[tuple[Number, Number]]:
    """Pairs with the same digits. They are removed from the lists."""
    pairs = []
    for number in list(missing):
        if same := next((other for other in extra if other.keys[0] in keys(number)), None):
            missing.remove(number)
            extra.remove(same)
            pairs.append((number, same))
    return pairs


def _keys(text: str, match: re.Match[str]) -> tuple[str, ...]:
    keys = [re.sub(r"\D", "", match[0])]
    if "Uhr" in match[0] or _HOUR.match(text, match.end()) or re.fullmatch(r"\d{1,2}:\d{2}", match[0]):
        first, *others = re.findall(r"\d+", match[0])
        for hour in {int(first), int(first) - 12 if int(first) > 12 else int(first)}:
            minutes = "".join(others)
            keys += [f"{hour}{minutes}", f"{hour:02d}{minutes}"]
            keys += [f"{hour}00", str(hour)] if minutes in ("", "00") else []
    if _AFTERNOON.match(text, match.end()) and re.fullmatch(r"(?:0?[1-9]|1[01])(?:[:.]\d{2})?", match[0]):
        hour, *rest = re.findall(r"\d+", match[0])
        keys += [f"{int(hour) + 12}{minutes}" for minutes in (("", "00") if rest in ([], ["00"]) else rest)]
    if _DECADE.match(text, match.end()):
        keys += {2: [f"19{keys[0]}"], 4: [keys[0][2:]]}.get(len(keys[0]), [])
    return tuple(keys)


def _is_spelt(number: Number, words: set[str], language: str) -> bool:
    def spelt(digits: str) -> bool:
        return not _SPELT.get(language, {}).get(digits.lstrip("0") or "0", set()).isdisjoint(words)

    return any(map(spelt, number.keys)) or all(map(spelt, number.parts))


def _is_in_parts(number: Number, extra: Sequence[Number], target: str, languages: tuple[str, str]) -> bool:
    """Whether the parts of a date, ratio or fraction occur with other separators, or with the month as a word."""
    present = {part for other in extra for part in other.parts}
    parts = number.parts
    if len(parts) < 2 or format_number(number.text, languages) != number.text:
        return False
    places = (1,) if "." in number.text else (0, 1) if "/" in number.text and len(parts) == 3 else ()
    months = [place for place in places if _has_month(target, parts[place], languages[1])]
    return any(set(parts[:place] + parts[place + 1 :]) <= present for place in months) or set(parts) <= present


def _has_month(target: str, number: str, language: str) -> bool:
    """Whether the name of the month with this number is there."""
    names = _MONTHS.get(language, ())
    if len(number) > 2 or not 1 <= int(number) <= len(names):
        return False
    return re.search(rf"\b{names[int(number) - 1]}\w*\b", target, re.IGNORECASE) is not None


def _is_garbled(right: str, wrong: str) -> bool:
    """Whether the model likely miscopied a number: a digit repeated or dropped, or one of three or more wrong."""
    if len(right) == len(wrong):
        return len(right) > 2 and sum(a != b for a, b in zip(right, wrong, strict=True)) == 1
    runs = ([key for key, _ in itertools.groupby(digits)] for digits in (right, wrong))
    return abs(len(right) - len(wrong)) == 1 and next(runs) == next(runs)
