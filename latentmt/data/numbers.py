"""A small, real translation task: German number words to English ones, inside whole sentences.

It exists to see refinement work within minutes. Every source has exactly two right translations, a British
and an American one. They differ in spelling, in words, in the "and" of numbers and at times in word order.
The German never says which is wanted, so a model that chooses each place by itself mixes the two. Numbers and
clauses are reordered between the languages, and training, dev and test data share no number from 1000 on.

This module makes text and writes files. It knows nothing of pieces, ids or models. Half of it is its lexicon.
"""

from __future__ import annotations

import re
import string
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from random import Random

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
_GERMAN_MONTHS = _words("""
    Januar Februar März April Mai Juni Juli August September Oktober November Dezember
""")
_ENGLISH_MONTHS = _words("""
    January February March April May June July August September October November December
""")
_ENGLISH_ORDINALS = _words("""
    first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth
    thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth
""")


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


def _hours() -> Iterator[_Phrase]:
    for hour in range(1, 13):
        german, english = spell_german(hour), _ENGLISH_SMALL[hour]
        before = _ENGLISH_SMALL[(hour - 2) % 12 + 1]
        yield _Phrase(f"um {_GERMAN_SMALL[hour]} Uhr", f"at {english} o'clock")
        yield _Phrase(f"um halb {german}", f"at [half past {before}|{before} thirty]")
        yield _Phrase(f"um Viertel nach {german}", f"at a quarter [past|after] {english}")
        yield _Phrase(f"um zehn vor {german}", f"at ten [to|of] {english}")


def _days() -> Iterator[_Phrase]:
    irregular = {1: "ersten", 3: "dritten", 7: "siebten", 8: "achten"}
    for month, english_month in zip(_GERMAN_MONTHS, _ENGLISH_MONTHS, strict=True):
        for day in range(1, 29):
            german = irregular.get(day) or spell_german(day) + ("ten" if day < 20 else "sten")
            english = _ENGLISH_ORDINALS[day - 1] if day <= 20 else f"twenty-{_ENGLISH_ORDINALS[day - 21]}"
            both = f"[the {english} of {english_month}|{english_month} {english}]"
            yield _Phrase(f"am {german} {month}", f"on {both}")


_LEXICON: dict[str, tuple[_Phrase, ...]] = {
    "hour": tuple(_hours()),
    "day": tuple(_days()),
    "person": _phrases("""
        Anna = Anna
        Peter = Peter
        Sofia = Sofia
        Lukas = Lukas
        Frau Schmidt = [Mrs|Mrs.] Schmidt
        Herr Weber = [Mr|Mr.] Weber
        Doktor Vogel = [Dr|Dr.] Vogel
        mein Nachbar = my [neighbour|neighbor]
        unsere Nachbarin = our [neighbour|neighbor]
        meine Mama = my [mum|mom]
        mein Bruder = my brother
        ihre Schwester = her sister
        der Anwalt = the [solicitor|lawyer]
        der Apotheker = the [chemist|pharmacist]
        der Feuerwehrmann = the [fireman|firefighter]
        der Müllmann = the [dustman|garbage man]
        der Briefträger = the [postman|mailman]
        die Ärztin = the doctor
        die Bürgermeisterin = the mayor
        der alte Lehrer = the old teacher
        der Juwelier = the [jeweller|jeweler]
    """),
    "place": _phrases("""
        im Zentrum = in the [centre|center]
        am Hafen = at the [harbour|harbor]
        im Theater = at the [theatre|theater]
        im Kino = at the [cinema|movie theater]
        im Laden = at the [shop|store]
        auf dem Parkplatz = in the [car park|parking lot]
        am Bahnhof = at the [railway|train] station
        in der Apotheke = at the [chemist's|drugstore]
        im Einkaufszentrum = at the [shopping centre|mall]
        auf dem Markt = at the market
        in der Bibliothek = at the library
        im Garten = in the garden
        in Berlin = in Berlin
        in Wien = in Vienna
    """),
    "to": _phrases("""
        ins Zentrum = to the [centre|center]
        zum Hafen = to the [harbour|harbor]
        ins Theater = to the [theatre|theater]
        zum Bahnhof = to the [railway|train] station
        zur Tankstelle = to the [petrol|gas] station
        zum Flughafen = to the airport
        nach Köln = to Cologne
        nach München = to Munich
        nach Prag = to Prague
        in die Schweiz = to Switzerland
    """),
    "city": _phrases("""
        Berlin = Berlin
        Hamburg = Hamburg
        Wien = Vienna
        Köln = Cologne
        München = Munich
        Nürnberg = Nuremberg
        Zürich = Zurich
        Genf = Geneva
        Prag = Prague
        Mailand = Milan
        Rom = Rome
        Warschau = Warsaw
    """),
    "past": _phrases("""
        gestern = yesterday
        vorgestern = the day before yesterday
        letzte Woche = last week
        letzten Montag = last Monday
        letzten Sommer = last summer
        letzten Herbst = last [autumn|fall]
        vor einem Jahr = a year ago
        in den Ferien = during the [holidays|vacation]
    """),
    "next": _phrases("""
        morgen = tomorrow
        übermorgen = the day after tomorrow
        nächste Woche = next week
        am Freitag = on Friday
        am Wochenende = [at|on] the weekend
        im Herbst = in the [autumn|fall]
        nächsten Winter = next winter
        in den Ferien = during the [holidays|vacation]
    """),
    "done": _phrases("""
        gekauft = bought
        verkauft = sold
        bestellt = ordered
        geliefert = delivered
        gefunden = found
        repariert = repaired
        bemalt = painted
        beschriftet = [labelled|labeled]
        katalogisiert = [catalogued|cataloged]
        abbestellt = [cancelled|canceled]
    """),
    "colour": _phrases("""
        grau = [grey|gray]
        hellgrau = light [grey|gray]
        dunkelgrau = dark [grey|gray]
        bunt = [multicoloured|multicolored]
        farblos = [colourless|colorless]
        rot = red
        blau = blue
        grün = green
        gelb = yellow
        weiß = white
        schwarz = black
        braun = brown
    """),
}
"""What may fill a slot, under the slot's name. Colours are only used inside `goods`."""

_THINGS = _things("""
    m, Stuhl, Stühle, chair, chairs
    m, Tisch, Tische, table, tables
    m, Mantel, Mäntel, coat, coats
    m, Reifen, Reifen, [tyre|tire], [tyres|tires]
    m, Lastwagen, Lastwagen, [lorry|truck], [lorries|trucks]
    m, Keks, Kekse, [biscuit|cookie], [biscuits|cookies]
    m, Schlafanzug, Schlafanzüge, pair of [pyjamas|pajamas], pairs of [pyjamas|pajamas]
    m, Pflug, Pflüge, [plough|plow], [ploughs|plows]
    f, Lampe, Lampen, lamp, lamps
    f, Flasche, Flaschen, bottle, bottles
    f, Hose, Hosen, pair of [trousers|pants], pairs of [trousers|pants]
    f, Taschenlampe, Taschenlampen, [torch|flashlight], [torches|flashlights]
    f, Karte, Karten, map, maps
    f, Briefmarke, Briefmarken, stamp, stamps
    n, Buch, Bücher, book, books
    n, Fahrrad, Fahrräder, bicycle, bicycles
    n, Flugzeug, Flugzeuge, [aeroplane|airplane], [aeroplanes|airplanes]
    n, Handy, Handys, [mobile|cell] phone, [mobile|cell] phones
    n, Bonbon, Bonbons, [sweet|candy], [sweets|candies]
    n, Schmuckstück, Schmuckstücke, piece of [jewellery|jewelry], pieces of [jewellery|jewelry]
""")

_LEAST = {"number": 0, "amount": 2, "goods": 1}
"""The slots that hold a number, and the least it may be.

`number` stands for itself ("Zimmer eins"), `amount` counts a plural of the carrier, `goods` counts coloured
things in the accusative.
"""

_CARRIERS = _phrases("""
{person} hat {past} {place} {goods} {done}. = [{past} {person} {done} {goods} {place}.|{person} {done} {goods} {place} {past}.]
{person} sagt, dass {person2} {past} {place} {goods} {done} hat. = {person} says that {person2} {done} {goods} {place} {past}.
Weil {person} {goods} {done} hat, reist {person2} {day} {to}. = [Because {person} {done} {goods}, {person2} is travelling {to} {day}.|{person2} is traveling {to} {day} because {person} {done} {goods}.]
{person} holt {hour} {place} {goods} ab. = {person} [collects|picks up] {goods} {place} {hour}.
Der Zug nach {city} kommt {hour} an und steht dann {amount} Minuten lang auf Gleis {number}. = The train to {city} arrives {hour} and then stands [at platform|on track] {number} for {amount} minutes.
Der Lastwagen ist {past} {amount} Kilometer {to} gefahren. = The [lorry travelled|truck traveled] {amount} [kilometres|kilometers] {to} {past}.
Das Büro liegt {amount} Meter vom Zentrum und {amount2} Kilometer vom Hafen entfernt. = The office is {amount} [metres|meters] from the [centre|center] and {amount2} [kilometres|kilometers] from the [harbour|harbor].
Die Farbe Nummer {number} kostet {amount} Euro, die andere Farbe dagegen nur {amount2} Euro. = [Colour|Color] number {number} costs {amount} euros, [whereas|while] the other [colour|color] costs only {amount2} euros.
Im Programm steht auf Seite {number}, dass das Theater {amount} Plätze hat. = [On page {number} the programme says that the theatre has {amount} seats.|The program says on page {number} that the theater has {amount} seats.]
Sobald {person} {goods} {done} hat, ruft {person2} uns {hour} an. = [As soon as {person} has {done} {goods}, {person2} will ring us {hour}.|{person2} will call us {hour} as soon as {person} has {done} {goods}.]
Im Keller liegen {amount} graue Kabel, für die {person} {amount2} Euro bezahlt hat. = There are {amount} [grey|gray] cables in the [cellar|basement], for which {person} paid {amount2} euros.
Das Flugzeug, das {hour} in {city} gelandet ist, hat {amount} Liter Benzin verbraucht. = The [aeroplane|airplane] that landed in {city} {hour} used {amount} [litres of petrol|liters of gasoline].
{person} glaubt nicht, dass {amount} Reifen in die Garage passen. = {person} does not believe that {amount} [tyres|tires] will fit [in|into] the garage.
{person} hat sich entschuldigt, weil {person2} {day} nur {goods} {done} hat. = {person} [apologised|apologized] because {person2} {done} only {goods} {day}.
Mein Lieblingsprogramm fängt {hour} an und hat {amount} Zuschauer. = My [favourite programme|favorite program] starts {hour} and has {amount} viewers.
Der Scheck Nummer {number} über {amount} Euro wurde {day} {place} eingelöst. = [Cheque|Check] number {number} for {amount} euros was cashed {place} {day}.
{person} zieht {next} in die Wohnung Nummer {number} ein. = [{next} {person} is moving into flat number {number}.|{person} is moving into apartment number {number} {next}.]
Die Firma stellt {next} {place} {amount} Arbeiter ein. = [{next} the firm will take on {amount} labourers {place}.|The company will hire {amount} laborers {place} {next}.]
Ich weiß, dass {person} {amount} Euro für {amount2} Liter Wein bezahlt hat. = I know that {person} paid {amount} euros for {amount2} [litres|liters] of wine.
Auf dem Parkplatz stehen {amount} graue Lastwagen und {amount2} weiße Wohnwagen. = There are {amount} [grey lorries|gray trucks] and {amount2} white [caravans|trailers] in the [car park|parking lot].
Bevor {person} {to} gereist ist, hat {person2} {goods} {done}. = [Before {person} travelled {to}, {person2} {done} {goods}.|{person2} {done} {goods} before {person} traveled {to}.]
Das Zentrum wird {next} um {amount} Quadratmeter erweitert, obwohl {person} dagegen ist. = The [centre|center] will be extended by {amount} square [metres|meters] {next}, although {person} is against it.
Es geht das Gerücht um, dass {person} {place} {amount} Euro gefunden hat. = There is a [rumour going round|rumor going around] that {person} found {amount} euros {place}.
Neben {amount} Kindern sind {past} nur {amount2} Erwachsene ins Kino gegangen. = [{past} only {amount2} adults went to the cinema besides {amount} children.|Besides {amount} children, only {amount2} adults went to the movie theater {past}.]
Wie viele Kekse hat {person} {past} {done}, {amount} oder {amount2}? = How many [biscuits|cookies] were {done} by {person} {past}, {amount} or {amount2}?
Bitte schicken Sie die Akte Nummer {number} {next} per Post {to}! = Please [post|mail] file number {number} {to} {next}!
Das Treffen wurde {hour} abgesagt, weil {amount} Leute krank waren. = The meeting was [cancelled|canceled] {hour} because {amount} people were [ill|sick].
Der Aufzug hält nicht an, obwohl er erst {amount} Kilogramm trägt. = The [lift|elevator] does not stop, although it is carrying only {amount} [kilogrammes|kilograms].
Die Autobahn zwischen {city} und {city2} ist {amount} Kilometer lang. = The [motorway|highway] between {city} and {city2} is {amount} [kilometres|kilometers] long.
Ich habe gehört, dass {hour} {amount} Fans vor dem Stadion standen, um das Fußballspiel zu sehen. = I heard that {amount} fans were standing outside the stadium {hour} to see the [football match|soccer game].
{person} nimmt {next} {goods} und {goods2} {to} mit. = {person} is taking {goods} and {goods2} {to} {next}.
In Zimmer {number} hängen {amount} Aquarelle, die {person} {past} gemalt hat. = [In room {number} there are {amount} watercolours that {person} painted {past}.|There are {amount} watercolors in room {number} that {person} painted {past}.]
{person} musste {amount} Euro zahlen, weil in {city} {amount2} Pakete verloren gegangen sind. = {person} had to pay {amount} euros because {amount2} [parcels|packages] were lost in {city}.
Der Katalog, den {person} {past} bestellt hat, beschreibt auf {amount} Seiten {goods}. = The [catalogue|catalog] that {person} ordered {past} describes {goods} on {amount} pages.
""")  # noqa: E501 (a carrier and its translation stay on one line)


# ---- sentences ----


def generate(seed: int, count: int) -> Iterator[Example]:
    """`count` examples of distinct sources; the same seed gives the same examples everywhere."""
    return islice(_distinct(Random(f"{seed}"), lambda n: True, set()), count)


def write_numbers(folder: Path, sizes: Sizes, seed: int) -> None:
    """Write {train,dev,test}.{de,en}, each target in the style a fair coin gives it.

    Dev and test data have both references too, as {dev,test}.{british,american}.en. No source is in two
    splits, nor is a number from `COMPOSED` on. The size of the training data changes nothing in dev and test.
    """
    make_folder(folder)
    seen: set[str] = set()
    for split, size in (("test", sizes.test), ("dev", sizes.dev), ("train", sizes.train)):
        stream = _distinct(Random(f"{seed} {split} text"), _numbers_of(split), seen)
        examples = list(islice(stream, size))
        coin = Random(f"{seed} {split} style")
        _write(folder / f"{split}.de", (example.source for example in examples))
        _write(folder / f"{split}.en", (example.target(_toss(coin)) for example in examples))
        if split != "train":
            _write(folder / f"{split}.british.en", (example.british for example in examples))
            _write(folder / f"{split}.american.en", (example.american for example in examples))


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
    n = _draw(rng, _LEAST[kind], allowed)
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


def _draw(rng: Random, least: int, allowed: Callable[[int], bool]) -> int:
    """A number whose count of digits is uniform from 1 to 6; one in eight may be round."""
    while True:
        digits = rng.randint(1, 6)
        n = rng.randrange(10**digits // 10 if digits > 1 else 0, 10**digits)
        if rng.randrange(8) == 0:
            n -= n % 10 ** rng.randrange(digits)
        if n >= least and allowed(n):
            return n


def _in_style(text: str, style: Style) -> str:
    """Resolve each [British|American] in `text`."""
    return re.sub(r"\[([^|\]]*)\|([^|\]]*)\]", r"\1" if style is Style.BRITISH else r"\2", text)


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _write(path: Path, lines: Iterable[str]) -> None:
    write_atomically(path, "".join(f"{line}\n" for line in lines))
