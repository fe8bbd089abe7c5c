"""Numbers of a sentence in its translation: every digit of the source comes back, written as the target language does.

"1.500 Euro" becomes "1,500 euros". A number may also be spelt out ("five"), or be an hour of a clock with twelve. It
knows texts only: what is lost is the caller's to put back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from latentmt.infer.rewriting import Replacement

SEPARATORS = {"de": (".", ","), "ro": (".", ","), "en": (",", ".")}
"""What languages write between thousands, and before decimals."""

_NUMBER = re.compile(r"(?<![\w.])\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?!\d)|\d+(?:[.,:]\d+)*")
_HOUR = re.compile(r"[\s\u00a0]*Uhr\b")
_DECADE = re.compile(r"er\b")
_ALIKE = 0.5
"""How much two numbers have in common that are taken for one, at least."""

_ENGLISH = """zero|a,an,one,first,once,single|two,second,twice,both,half,double|three,third|four,fourth,quarter
five,fifth|six,sixth|seven,seventh|eight,eighth|nine,ninth|ten,tenth|eleven,eleventh|twelve,twelfth,dozen|thirteen,thirteenth
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
_SPELT = {"en": _WORDS}


@dataclass(frozen=True)
class Number:
    """A number where it stands in a text."""

    start: int
    end: int
    text: str
    keys: tuple[str, ...]
    """The digits that it may have in a translation, its own first."""


@dataclass(frozen=True)
class Checked:
    """What a look at the numbers of a translation found."""

    repairs: list[Replacement]
    """In the translation."""
    lost: list[Number]
    """Numbers of the source that are not in it."""


def numbers_in(text: str) -> list[Number]:
    """The numbers of a text, in order."""
    return [Number(*match.span(), match[0], _keys(text, match)) for match in _NUMBER.finditer(text)]


def written(number: str, languages: tuple[str, str]) -> str:
    """A number of the source language as the target language writes it."""
    if not all(language in SEPARATORS for language in languages):
        return number
    (thousands, decimal), (new_thousands, new_decimal) = (SEPARATORS[language] for language in languages)
    t, d = re.escape(thousands), re.escape(decimal)
    if re.fullmatch(rf"[1-9]\d{{0,2}}(?:{t}\d{{3}})+(?:{d}\d+)?|\d+{d}\d+", number):
        return number.translate(str.maketrans(thousands + decimal, new_thousands + new_decimal))
    return number


def check_numbers(source: str, target: str, languages: tuple[str, str]) -> Checked:
    """Compare the numbers of a sentence with those of its translation."""
    missing, extra, repairs = numbers_in(source), numbers_in(target), []
    for number in list(missing):
        if same := next((one for one in extra if one.keys[0] in number.keys), None):
            missing.remove(number)
            extra.remove(same)
            new = written(number.text, languages)
            if new != number.text and same.keys[0] == number.keys[0] and same.text != new:
                repairs.append(Replacement(same.start, same.end, new))
    words = re.findall(r"[\w-]+", target.lower())
    missing = [number for number in missing if not _is_spelt(number, words, languages[1])]
    for number, other in _alike(missing, extra):
        missing.remove(number)
        extra.remove(other)
        repairs.append(Replacement(other.start, other.end, written(number.text, languages)))
    return Checked(sorted(repairs), missing)


def _keys(text: str, match: re.Match[str]) -> tuple[str, ...]:
    own = re.sub(r"\D", "", match[0])
    keys = [own]
    if _HOUR.match(text, match.end()):
        hour, rest = re.match(r"(\d{1,2})\D?(\d*)", match[0]).groups()  # type: ignore[union-attr] # it begins with a digit
        hour = str(int(hour) - 12 if int(hour) > 12 else int(hour))
        keys += [hour + rest] + ([hour] if rest in ("", "00") else [])
    if _DECADE.match(text, match.end()) and len(own) == 2:
        keys.append(f"19{own}")
    return tuple(keys)


def _is_spelt(number: Number, words: Sequence[str], language: str) -> bool:
    known = _SPELT.get(language, {})
    return any(not known.get(key.lstrip("0") or "0", set()).isdisjoint(words) for key in number.keys)


def _alike(missing: Sequence[Number], extra: Sequence[Number]) -> list[tuple[Number, Number]]:
    """Pairs of a missing number and one that is likely what the model made of it."""
    ratios = [
        (SequenceMatcher(None, one.keys[0], other.keys[0], False).ratio(), one, other)
        for one in missing
        for other in extra
        if abs(len(one.keys[0]) - len(other.keys[0])) <= 2
    ]
    pairs: dict[int, tuple[Number, Number]] = {}
    for ratio, one, other in sorted(ratios, key=lambda row: (-row[0], row[1].start, row[2].start)):
        taken = one.start in pairs or any(other.start == of.start for _, of in pairs.values())
        if ratio >= _ALIKE and not taken:
            pairs[one.start] = (one, other)
    return list(pairs.values())
