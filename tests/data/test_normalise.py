import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmt.data.normalise import MAX_MARKS, TextRules, normalise

PLAIN = TextRules()
ALL_RULES = [
    PLAIN,
    TextRules(lowercase=True),
    TextRules(language_rules="romanian"),
    TextRules(lowercase=True, language_rules="romanian"),
    TextRules(language_rules="german"),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  zwei  Wörter ", "zwei Wörter"),
        ("o\u0308", "ö"),
        ("a\tb\x07c\u2028d\x85e", "a b c d e"),
        ("Sil\u00adben\u200b", "Silben"),
        ("a\u200b\u0308", "ä"),
        ("non\u00a0breaking", "non breaking"),
        ("👩\u200d👧", "👩\u200d👧"),
        ("\n", ""),
    ],
)
def test_normalisation_examples(text: str, expected: str) -> None:
    assert normalise(text, PLAIN) == expected


def test_romanian_rules_remove_diacritics() -> None:
    text = "Şi ţara, și țara: pâine, împărat, ăla. ŞŢĂÂÎ"
    assert normalise(text, TextRules(language_rules="romanian")) == "Si tara, si tara: paine, imparat, ala. STAAI"
    assert normalise("s\u0326i t\u0327ara", TextRules(language_rules="romanian")) == "si tara"


OLD_SPELLINGS = """
daß sodaß Daß muß müßte Muß läßt laßt Anlaß unerläßlich häßlich gräßlich gewiß bißchen Imbiß Kompromiß Mißbrauch mißt
ißt vergißt Prozeß Kongreß Streß preßt Meßgerät wußte wüßte bewußt umfaßt gefaßt paßt anpaßt Reisepaß naß blaß Haß
Elsaß Ausschuß Beschluß Schlußfolgerung Fluß Einfluß Genuß Nuß Kuß küßt Guß Überdruß Rußland Schloß schloß Erdgeschoß
goß genoß Roß Amboß Koloß KOMPROMIß
"""
LONG_VOWELS = """
große größer Größe groß Straße Maß Maße Maßnahme gemäß regelmäßig Spaß Späße Fuß Füße Gruß grüßen Buße Muße müßig ruß
Ruß heißt weiß weißt Fleiß reißt dreißig außer Außenpolitik äußern schließt schließlich gießt ließ hieß genießt bloß
Stoß verstoßen Floß saß aß fraß vergaß besaß Gefäß süß Soße Schoß Preußen Strauß Bayreuther
"""


@pytest.mark.parametrize("old", OLD_SPELLINGS.split())
def test_german_is_spelt_as_since_1996(old: str) -> None:
    assert normalise(old, TextRules(language_rules="german")) == old.replace("ß", "ss")


@pytest.mark.parametrize("word", LONG_VOWELS.split())
def test_german_keeps_what_has_a_long_vowel(word: str) -> None:
    assert normalise(word, TextRules(language_rules="german")) == word


def test_lower_case() -> None:
    assert normalise("ÄPFEL Straße", TextRules(lowercase=True)) == "äpfel straße"


@given(text=st.text(), rules=st.sampled_from(ALL_RULES))
def test_normalisation_is_idempotent_and_gives_one_line(text: str, rules: TextRules) -> None:
    once = normalise(text, rules)
    assert normalise(once, rules) == once
    assert unicodedata.is_normalized("NFC", once)
    assert once == " ".join(once.split())
    assert not any(unicodedata.category(character) == "Cc" for character in once)


def test_marks_in_a_row_are_bounded() -> None:
    assert normalise("a" + "\u0316\u0301" * 15, PLAIN) == "á" + "\u0316" * 15 + "\u0301" * 14
    assert normalise("x" + "\u0323" * 100_000 + " y", PLAIN) == "x" + "\u0323" * MAX_MARKS + " y"
    assert normalise("•" * 100, PLAIN) == "•" * 100  # no marks


@pytest.mark.parametrize("text", ["\u0958" + "\u0301" * 30, "İ" + "\u0301" * 30, "\u0f73" * 30, "\u0344" * 40])
@pytest.mark.parametrize("rules", ALL_RULES)
def test_marks_are_bounded_where_characters_are_decomposed(text: str, rules: TextRules) -> None:
    once = normalise(text, rules)
    assert normalise(once, rules) == once
    assert sum(unicodedata.category(character).startswith("M") for character in once) <= MAX_MARKS
