"""Glossaries: files, terms in a text, and terms in translations."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentmt.errors import UserError
from latentmt.text.glossary import Glossary
from latentmt.translator import Translator

TERMS = Glossary(
    {
        "Bremsscheibe": "brake disc",
        "Bremse": "brake",
        "Bank": "bank",
        "Zentrale Bank": "central bank",
        "abnehmen": "accept",
        "Rat": "council",
        "C++": "C plus plus",
        "Formel 1": "F-One",
    }
)


@pytest.fixture(scope="module")
def shipped() -> Translator:
    return Translator.load("deen", "cpu")


def found(text: str, language: str = "de") -> list[str]:
    return [text[term.start : term.end] for term in TERMS.find(text, language)]


def test_terms_are_found_as_whole_words_the_longest_first() -> None:
    assert found("Die Zentrale Bank und die Bank.") == ["Zentrale Bank", "Bank"]
    assert found("Die Zentrale  Bank") == ["Zentrale  Bank"]
    assert found("Bankkonto, Parkbank, Bank-Konto, E-Bank, bank, BANK") == []
    assert found("Ich kann C++ und die Bank-") == ["C++", "Bank"]


def test_long_terms_may_have_an_ending_of_the_language() -> None:
    assert found("Die Banken, der Banks, Bremsscheiben, Rates, Räte, Bremsenn") == ["Banken", "Banks", "Bremsscheiben"]
    assert found("Die Banken", language="fr") == []


def test_case_matters_except_where_a_sentence_begins() -> None:
    assert found("Abnehmen wollen wir abnehmen, nicht Abnehmen.") == ["Abnehmen", "abnehmen"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tb\nc\n", "line 2: expected a term, a tab and its translation"),
        (b"a\tb\tc\n", "line 1: expected"),
        (b"a\t \n", "line 1: expected"),
        (b"# a\n\na\tb\nb\tc\na\td\n", "line 5: a is in line 3 already"),
        (b"a\tb\n\xff\n", "line 2: not UTF-8"),
        (b"a\t" + b"b" * 201, "line 1: a term is 1 to 200 characters"),
    ],
)
def test_bad_lines_are_refused_with_their_number(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "terms.tsv"
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        Glossary.read(path)
    assert message in str(error.value)


def test_a_file_is_read_with_comments_and_carriage_returns(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_bytes(b"\xef\xbb\xbf# terms\r\nBank\tbank\r\n\r\nZentrale  Bank\tcentral bank\r\n")
    assert Glossary.read(path).terms == {"Bank": "bank", "Zentrale Bank": "central bank"}
    with pytest.raises(UserError, match="no such file"):
        Glossary.read(tmp_path / "none.tsv")


@pytest.mark.parametrize("options", [{}, {"verbatim": False}, {"method": "delta", "steps": 2}])
def test_every_term_of_a_text_stands_in_its_translation(shipped: Translator, options: dict[str, object]) -> None:
    texts = [
        "Die Bremsscheibe muss vor dem Einbau gereinigt werden.",
        "Bremsscheibe",
        "Bremsscheibe, Bank (Bremse)",
        "Der Rat und die Bank und der Rat und die Zentrale Bank, die Bremse, C++ und die Bremsscheibe.",
        "Die Formel 1 hat 12 Bremsen. Siehe www.bank.de oder `Bank`.",
        "Bank Bank Bank Bank Bank Bank Bank Bank Bank",
    ]
    results = shipped.translations(texts, shipped.options(**options), glossary=TERMS, details=True)  # type: ignore[arg-type]
    for text, result in zip(texts, results, strict=True):
        for term in TERMS.find(text.replace("`Bank`", ""), "de"):
            assert term.target.lower() in result.text.lower(), (text, result.text)
    assert results[1].text.lower() == "brake disc"
    assert results[5].text.lower().count("bank") == 9


def test_without_a_term_nothing_changes_and_alignment_covers_replaced_words(shipped: Translator) -> None:
    plain = "Ich schaffe diese Arbeit nicht allein."
    assert shipped.translations([plain], glossary=TERMS) == shipped.translations([plain])
    glossary = Glossary({"Arbeit": "automation"})
    (result,) = shipped.translations([plain], glossary=glossary, alignment=True)
    start = result.text.index("automation")
    sources = [link.source for link in result.alignment if link.target == (start, start + len("automation"))]
    assert plain.index("Arbeit") in [source[0] for source in sources]


def test_a_term_that_begins_a_sentence_has_a_capital_and_articles_agree(shipped: Translator) -> None:
    glossary = Glossary({"Der Junge": "lad", "Stuhl": "armchair"})
    (result,) = shipped.translations(["Der Junge saß auf einem Stuhl."], glossary=glossary)
    assert result.text.startswith("Lad")
    assert result.text.endswith(" an armchair.")


def test_alternatives_have_the_terms_too(shipped: Translator) -> None:
    options = shipped.options(lengths=3, samples=2, rerank="decoder")
    (result,) = shipped.translations(
        ["Ich habe das Buch nicht gekauft."], options, alternatives=3, glossary=Glossary({"Buch": "volume"})
    )
    assert result.alternatives
    assert all("volume" in text for text in [result.text, *result.alternatives])
