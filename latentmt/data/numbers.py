"""A synthetic translation task: sentences with German number words to English ones.

It shows refinement at work within minutes. Every source has exactly two correct translations, a British and an American
one. They differ in spelling, in words, in the "and" of numbers and sometimes in word order. The source does not tell
which is expected, so a model that chooses each token independently mixes the two. Numbers and clauses are reordered
between the languages. Training, dev and test data share no number from 1000 on.

This module generates text and writes files. It does not know about tokenization or models.
"""

from __future__ import annotations

import os
import re
import string
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from random import Random

from latentmt.errors import UserError
from latentmt.files import make_folder, write_atomically

LARGEST = 999_999
"""The largest number that is spelt; the smallest is 0."""

COMPOSED = 1_000
"""From here on a number belongs to one split only."""


class Style(Enum):
    """Which English."""

    BRITISH = "british"
    AMERICAN = "american"


@dataclass(frozen=True)
class Example:
    """A German sentence and its two translations."""

    source: str
    british: str
    american: str

    def target(self, style: Style) -> str:
        return self.british if style is Style.BRITISH else self.american


@dataclass(frozen=True)
class Sizes:
    """How many sentence pairs each split has."""

    train: int = 40_000
    dev: int = 500
    test: int = 1_000


# ---- numbers ----


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_GERMAN_SMALL = _words("""
    null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf
    dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn
""")
_GERMAN_TENS = _words("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
_ENGLISH_SMALL = _words("""
    zero one two three four five six seven eight nine ten eleven twelve
    thirteen fourteen fifteen sixteen seventeen eighteen nineteen
""")
_ENGLISH_TENS = _words("twenty thirty forty fifty sixty seventy eighty ninety")


def spell_german(n: int) -> str:
    """The cardinal as one counts: 1 is "eins", 21 "einundzwanzig", 1001 "eintausendeins"."""
    _check(n)
    thousands, rest = divmod(n, 1000)
    word = (_german_stem(thousands) + "tausend" if thousands else "") + (_german_stem(rest) if rest else "")
    if n == 0:
        return "null"
    return word + "s" if rest % 100 == 1 else word


def _german_stem(n: int) -> str:
    """1 to 999 as the front of a compound, where 1 is "ein"."""
    hundreds, rest = divmod(n, 100)
    word = _GERMAN_SMALL[hundreds] + "hundert" if hundreds else ""
    if rest >= 20:
        tens, ones = divmod(rest, 10)
        return word + (_GERMAN_SMALL[ones] + "und" if ones else "") + _GERMAN_TENS[tens - 2]
    return word + (_GERMAN_SMALL[rest] if rest else "")


def spell_english(n: int, style: Style) -> str:
    """The cardinal; only the British say "and" before what is left below a hundred."""
    _check(n)
    if n < 20:
        return _ENGLISH_SMALL[n]
    if n < 100:
        tens, ones = divmod(n, 10)
        return _ENGLISH_TENS[tens - 2] + (f"-{_ENGLISH_SMALL[ones]}" if ones else "")
    unit, name = (1000, "thousand") if n >= 1000 else (100, "hundred")
    count, rest = divmod(n, unit)
    words = f"{spell_english(count, style)} {name}"
    if rest == 0:
        return words
    joint = " and " if style is Style.BRITISH and rest < 100 else " "
    return words + joint + spell_english(rest, style)


def _check(n: int) -> None:
    if not 0 <= n <= LARGEST:
        raise ValueError(f"{n} is not between 0 and {LARGEST}")


# ---- the lexicon ----
#
# English is written once: [lorry|truck] is "lorry" in British and "truck" in American English. The brackets
# do not nest, but a carrier's brackets may hold slots whose fillings have brackets of their own.


@dataclass(frozen=True)
class _Phrase:
    """A German phrase and its English, with the alternatives still in it."""

    german: str
    english: str


@dataclass(frozen=True)
class _Thing:
    """A noun that can be counted."""

    gender: str
    one: str
    many: str
    english_one: str
    english_many: str


def _phrases(table: str) -> tuple[_Phrase, ...]:
    rows = (line.split(" = ") for line in table.strip().splitlines())
    return tuple(_Phrase(german.strip(), english) for german, english in rows)


def _things(table: str) -> tuple[_Thing, ...]:
    return tuple(_Thing(*(cell.strip() for cell in line.split(","))) for line in table.strip().splitlines())


_LEXICON: dict[str, tuple[_Phrase, ...]] = {
    "person": _phrases("""
        Anna = Anna
        Peter = Peter
        Frau Schmidt = [Mrs|Mrs.] Schmidt
        Herr Weber = [Mr|Mr.] Weber
        mein Nachbar = my [neighbour|neighbor]
        die Ärztin = the doctor
    """),
    "to": _phrases("""
        zum Hafen = to the [harbour|harbor]
        zum Flughafen = to the airport
        nach Köln = to Cologne
        nach Prag = to Prague
    """),
    "next": _phrases("""
        morgen = tomorrow
        nächste Woche = next week
        am Freitag = on Friday
    """),
    "done": _phrases("""
        gekauft = bought
        verkauft = sold
        bemalt = painted
        beschriftet = [labelled|labeled]
    """),
    "colour": _phrases("""
        grau = [grey|gray]
        bunt = [multicoloured|multicolored]
        rot = red
        blau = blue
    """),
}
"""What may fill a slot, under the slot's name. Colours are only used inside `goods`."""

_THINGS = _things("""
    m, Stuhl, Stühle, chair, chairs
    m, Reifen, Reifen, [tyre|tire], [tyres|tires]
    f, Lampe, Lampen, lamp, lamps
    f, Flasche, Flaschen, bottle, bottles
    n, Buch, Bücher, book, books
    n, Flugzeug, Flugzeuge, [aeroplane|airplane], [aeroplanes|airplanes]
""")

_MINIMUM = {"number": 0, "amount": 2, "goods": 1}
"""The slots that hold a number, and its minimum.

`number` stands for itself ("Wohnung Nummer eins"), `amount` counts a plural of the carrier, `goods` counts coloured
things in the accusative.
"""

_CARRIERS = _phrases("""
{person} hat {goods} {done}. = {person} {done} {goods}.
{person} sagt, dass {person2} {goods} {done} hat. = {person} says that {person2} {done} {goods}.
{person} holt {goods} ab. = {person} [fetches|gets] {goods}.
{person} zieht {next} in die Wohnung Nummer {number} ein. = [{next} {person} is moving into flat number {number}.|{person} is moving into apartment number {number} {next}.]
Die Firma stellt {next} {amount} Arbeiter ein. = The firm will [take on|hire] {amount} [labourers|laborers] {next}.
Der Lastwagen ist {amount} Kilometer {to} gefahren. = The [lorry travelled|truck traveled] {amount} [kilometres|kilometers] {to}.
Das Büro liegt {amount} Meter vom Zentrum entfernt. = The office is {amount} [metres|meters] from the [centre|center].
Die Farbe Nummer {number} kostet {amount} Euro. = [Colour|Color] number {number} costs {amount} euros.
Im Theater hängen {amount} graue Lampen. = There are {amount} [grey|gray] lamps in the [theatre|theater].
""")  # noqa: E501 (a carrier and its translation stay on one line)


# ---- sentences ----


def generate(seed: int, count: int) -> Iterator[Example]:
    """`count` examples of distinct sources; the same seed gives the same examples everywhere."""
    return islice(_distinct(Random(f"{seed}"), lambda n: True, set()), count)


def write_numbers(folder: Path, sizes: Sizes, seed: int) -> None:
    """Write {train,dev,test}.{de,en}, each target in the style a fair coin gives it.

    Dev and test data have both references too, as {dev,test}.{british,american}.en. No source is in two
    splits, nor is a number from `COMPOSED` on. The size of the training data changes nothing in dev and test. A file
    with other content is not replaced.
    """
    contents: dict[str, str] = {}
    seen: set[str] = set()
    for split, size in (("test", sizes.test), ("dev", sizes.dev), ("train", sizes.train)):
        stream = _distinct(Random(f"{seed} {split} text"), _numbers_of(split), seen)
        examples = list(islice(stream, size))
        coin = Random(f"{seed} {split} style")
        contents[f"{split}.de"] = _lines(example.source for example in examples)
        contents[f"{split}.en"] = _lines(example.target(_toss(coin)) for example in examples)
        if split != "train":
            contents[f"{split}.british.en"] = _lines(example.british for example in examples)
            contents[f"{split}.american.en"] = _lines(example.american for example in examples)
    for name, content in contents.items():
        if os.path.lexists(path := folder / name) and (not path.is_file() or path.read_bytes() != content.encode()):
            raise UserError(f"{path}: exists with other content; name another folder, or move it away")
    make_folder(folder)
    for name, content in contents.items():
        write_atomically(folder / name, content)


def _toss(coin: Random) -> Style:
    return Style.BRITISH if coin.getrandbits(1) else Style.AMERICAN


def _numbers_of(split: str) -> Callable[[int], bool]:
    """Which numbers a split may use: all small ones, and its own part of the others, whatever the seed."""

    def allowed(n: int) -> bool:
        if n < COMPOSED:
            return True
        lot = zlib.crc32(str(n).encode()) % 20
        return split == ("test" if lot < 2 else "dev" if lot < 3 else "train")

    return allowed


def _distinct(rng: Random, allowed: Callable[[int], bool], seen: set[str]) -> Iterator[Example]:
    """Examples without end whose sources are not in `seen`, to which they are added."""
    while True:
        example = _compose(rng, allowed)
        if example.source not in seen and example.british != example.american:
            seen.add(example.source)
            yield example


def _compose(rng: Random, allowed: Callable[[int], bool]) -> Example:
    """A carrier with its slots filled; two slots of one sentence never hold the same."""
    carrier = rng.choice(_CARRIERS)
    fillings: dict[str, _Phrase] = {}
    for _, slot, _, _ in string.Formatter().parse(carrier.german):
        if slot is None:
            continue
        filling = _fill(slot.rstrip("2"), rng, allowed)
        while filling in fillings.values():
            filling = _fill(slot.rstrip("2"), rng, allowed)
        fillings[slot] = filling
    german = carrier.german.format_map({slot: filling.german for slot, filling in fillings.items()})
    british, american = (_english(carrier, fillings, style) for style in (Style.BRITISH, Style.AMERICAN))
    return Example(_sentence(german), british, american)


def _english(carrier: _Phrase, fillings: dict[str, _Phrase], style: Style) -> str:
    words = {slot: _in_style(filling.english, style) for slot, filling in fillings.items()}
    return _sentence(_in_style(carrier.english, style).format_map(words))


def _fill(kind: str, rng: Random, allowed: Callable[[int], bool]) -> _Phrase:
    if kind in _LEXICON:
        return rng.choice(_LEXICON[kind])
    n = _draw(rng, _MINIMUM[kind], allowed)
    number = _Phrase(spell_german(n), f"[{spell_english(n, Style.BRITISH)}|{spell_english(n, Style.AMERICAN)}]")
    return _counted(n, number, rng) if kind == "goods" else number


def _counted(n: int, number: _Phrase, rng: Random) -> _Phrase:
    """Coloured things and their number, as a direct object: "einen grauen Stuhl", "zwei graue Stühle"."""
    colour, thing = rng.choice(_LEXICON["colour"]), rng.choice(_THINGS)
    if n > 1:
        german = f"{number.german} {colour.german}e {thing.many}"
        return _Phrase(german, f"{number.english} {colour.english} {thing.english_many}")
    article, ending = {"m": ("einen", "en"), "f": ("eine", "e"), "n": ("ein", "es")}[thing.gender]
    german = f"{article} {colour.german}{ending} {thing.one}"
    return _Phrase(german, f"{number.english} {colour.english} {thing.english_one}")


def _draw(rng: Random, minimum: int, allowed: Callable[[int], bool]) -> int:
    """A number of one to five digits, mostly three; one in eight may be round."""
    while True:
        digits = rng.choice((1, 2, 2, 3, 3, 3, 3, 4, 5))
        n = rng.randrange(10**digits // 10 if digits > 1 else 0, 10**digits)
        if rng.randrange(8) == 0:
            n -= n % 10 ** rng.randrange(digits)
        if n >= minimum and allowed(n):
            return n


def _in_style(text: str, style: Style) -> str:
    """Resolve each [British|American] in `text`."""
    return re.sub(r"\[([^|\]]*)\|([^|\]]*)\]", r"\1" if style is Style.BRITISH else r"\2", text)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
