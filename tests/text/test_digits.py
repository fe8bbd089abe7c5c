from __future__ import annotations

import pytest

from latentmt.text.digits import check_numbers, find_numbers, format_number
from latentmt.text.rewriting import Rewritten

DE_EN = ("de", "en")
EN_DE = ("en", "de")


@pytest.mark.parametrize(
    ("german", "english"),
    [
        ("1.500", "1,500"),
        ("1.234.567,89", "1,234,567.89"),
        ("3,5", "3.5"),
        ("12,500", "12.500"),
        ("2014", "2014"),
        ("14:30", "14:30"),
        ("14.30", "14.30"),
        ("24.12.2023", "24.12.2023"),
        ("0.500", "0.500"),
    ],
)
def test_separators_follow_the_language(german: str, english: str) -> None:
    assert format_number(german, DE_EN) == english
    if german != english:
        assert format_number(english, ("en", "de")) == german
    assert format_number(german, ("de", "xx")) == german


@pytest.mark.parametrize(
    ("source", "target", "repaired"),
    [
        ("Es kostet 1.500 Euro.", "It costs 1.500 euros.", "It costs 1,500 euros."),
        ("Es kostet 1.500 Euro.", "It costs EUR 1 500.", "It costs EUR 1,500."),
        ("Es kostet 10.000 Euro.", "It costs 10.0000 euros.", "It costs 10,000 euros."),
        ("Er ist 1 Jahr alt.", "He is 11 years old.", "He is 1 years old."),
        ("Im Jahr 1984 und 2014.", "In 2014 and 1994.", "In 2014 and 1984."),
        ("300 000 Euro", "300 000 euros", "300 000 euros"),
        ("Zwölf Hunde", "12 dogs", "12 dogs"),
        ("Bis 31.03.2027.", "Until 31,03,2027.", "Until 31.03.2027."),
        ("Im Jahr 2027.", "In 20,27.", "In 2027."),
        ("Bis 31.03.2027.", "Until 31/03/2027.", "Until 31/03/2027."),
    ],
)
def test_number_formats_are_corrected(source: str, target: str, repaired: str) -> None:
    checked = check_numbers(source, target, DE_EN)
    assert Rewritten(target, checked.repairs).text == repaired
    assert checked.missing == []


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Am 24.12.2023", "On 24/12/2023"),
        ("Am 24.12.2023", "On 24 December 2023"),
        ("Am 1.5.2023", "On May 1, 2023"),
        ("Am 24.12.", "On 24 December"),
        ("Sie gewannen 3:2.", "They won 3-2."),
        ("Im Verhältnis 1:10", "At a ratio of 1 to 10"),
        ("Um 20 Uhr kommen 8 Leute.", "8 people are coming at 20 o'clock."),
        ("Um 20 Uhr kommen 8 Leute.", "8 people are coming at 8 p.m."),
        ("Um 9 Uhr 30 geht es los.", "It starts at 9:30."),
        ("Um 18 Uhr", "At 6:00 p.m."),
        ("Um 14:30", "At 2:30 p.m."),
        ("Um 12 Uhr", "At noon"),
        ("Wir treffen uns um halb 3.", "We meet at 2:30."),
        ("Um Viertel nach 3", "At 3:15"),
        ("In den 80ern", "In the 1980s"),
        ("Mehr CO2", "More carbon dioxide"),
        ("2/3 der Leute", "Two thirds of the people"),
        ("10'000 Franken", "10,000 francs"),
        ("Joh 3,16", "John 3:16"),
    ],
)
def test_numbers_in_another_form_are_neither_missing_nor_changed(source: str, target: str) -> None:
    checked = check_numbers(source, target, DE_EN)
    assert (checked.repairs, checked.missing) == ([], [])


def test_no_number_is_missing_in_a_language_without_number_words() -> None:
    assert check_numbers("17 cats", "pisici", ("en", "ro")).missing == []


@pytest.mark.parametrize(
    ("source", "target", "missing"),
    [
        ("Ich habe 3 Katzen.", "I have three cats.", []),
        ("Um 20 Uhr", "At 8 p.m.", []),
        ("Um 14.30 Uhr", "At 2:30 p.m.", []),
        ("In den 90er Jahren", "In the 1990s", []),
        ("Im 19. Jahrhundert", "In the nineteenth century", []),
        ("Ich habe 17 Katzen.", "I have cats.", ["17"]),
        ("Am 24.12.2023", "On 24 January 2023", ["24.12.2023"]),
        ("Am 24.12.", "On 24 March", ["24.12"]),
        ("Seite 12 von 40", "Page 12", ["40"]),
        ("12 und 12", "12", ["12"]),
        ("Seite 12", "Page 345", ["12"]),
        ("Seite 12", "Page 34", ["12"]),  # nothing says that the one is made of the other
    ],
)
def test_missing_numbers_are_reported(source: str, target: str, missing: list[str]) -> None:
    assert [one.text for one in check_numbers(source, target, DE_EN).missing] == missing


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("3 cats at 8 p.m.", "drei Katzen um 20 Uhr"),
        ("The 1st and the 3rd", "Der erste und der dritte"),
        ("my 21st birthday", "mein einundzwanzigster Geburtstag"),
        ("23 dogs", "dreiundzwanzig Hunde"),
        ("in the 1990s", "in den neunziger Jahren"),
        ("in the '90s", "in den 1990er Jahren"),
        ("in the 1930s", "in den 30er Jahren"),
        ("on 12/24/2023", "am 24. Dezember 2023"),
        ("on 24/12/2023", "am 24. Dezember 2023"),
        ("At half past 7", "Um halb acht"),
        ("At a quarter to 7", "Um Viertel vor sieben"),
        ("At 7:45 pm", "Um 19.45 Uhr"),
        ("At 7:45 pm", "Um 7.45 Uhr abends"),
        ("At 3:00 p.m.", "Um 15 Uhr"),
        ("At 6.30 a.m.", "Um 6.30 Uhr"),
        ("At 12 pm", "Um 12 Uhr"),
        ("at 10 o'clock", "um 10 Uhr"),
    ],
)
def test_numbers_in_german(source: str, target: str) -> None:
    checked = check_numbers(source, target, EN_DE)
    assert (checked.repairs, checked.missing) == ([], [])


@pytest.mark.parametrize(
    ("source", "target", "repaired"),
    [
        ("It costs 1,500.50 euros.", "Es kostet 1,500.50 Euro.", "Es kostet 1.500,50 Euro."),
        ("The flight leaves at 7:45 pm.", "Der Flug geht um 17.45 Uhr.", "Der Flug geht um 19.45 Uhr."),
        ("At 7 p.m.", "Um 17 Uhr", "Um 19 Uhr"),
        ("At 11:05 PM", "Um 21:05 Uhr", "Um 23:05 Uhr"),
    ],
)
def test_numbers_are_corrected_in_german(source: str, target: str, repaired: str) -> None:
    checked = check_numbers(source, target, EN_DE)
    assert Rewritten(target, checked.repairs).text == repaired
    assert checked.missing == []


@pytest.mark.parametrize(
    ("source", "target", "missing"),
    [
        ("I have 17 cats.", "Ich habe Katzen.", ["17"]),
        ("on 12/24/2023", "am 24. Januar 2023", ["12/24/2023"]),
        ("At 7:45 pm, 17 people", "Um 19.45 Uhr", ["17"]),
        ("At 7:45 am", "Um 17.45 Uhr", ["7:45"]),
        ("At 7:45 pm", "Um 17.30 Uhr", ["7:45"]),
        ("At 7:45 pm", "Auf Seite 17.45", ["7:45"]),
    ],
)
def test_missing_numbers_are_reported_in_german(source: str, target: str, missing: list[str]) -> None:
    assert [one.text for one in check_numbers(source, target, EN_DE).missing] == missing


def test_a_number_grouped_by_spaces_is_one_number() -> None:
    assert [one.keys[0] for one in find_numbers("300 000 Euro, 12 345 und 3 40")] == ["300000", "12345", "3", "40"]
