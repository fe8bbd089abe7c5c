"""Rows that cannot be translated: they keep their text, and the others are translated."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from latentmt.bulk.choice import ModelChoice
from latentmt.bulk.isolated import isolated_translate
from latentmt.bulk.rows import NO_TEXT, NOT_UTF8, Row
from latentmt.bulk.translating import FAILED, KILLED, SLOW, kind_of, too_long, translate_rows
from latentmt.bulk.writing import TranslatedRow
from latentmt.errors import UserError
from latentmt.translator import Translator

CHOICE = ModelChoice("deen", "cpu", "auto", {})


def shout(texts: Sequence[str]) -> list[str]:
    if any("FEHLER" in text for text in texts):
        raise ValueError("ein\nFehler")
    return [text.upper() for text in texts]


def test_one_row_that_fails_does_not_stop_the_others() -> None:
    rows = [Row(str(number)) for number in range(100)]
    rows[3] = rows[77] = Row("FEHLER")
    done = translate_rows(rows, shout, max_chars=100)
    bad = TranslatedRow("FEHLER", f"{FAILED}: ValueError: ein Fehler")
    assert done == [bad if number in (3, 77) else TranslatedRow(str(number)) for number in range(100)]
    assert kind_of(bad.error or "") == FAILED


def test_rows_without_text_or_with_too_much_are_not_translated() -> None:
    rows = [Row("kurz"), Row("x" * 11), Row(None, NO_TEXT), Row(None), Row("ein \ufffd", NOT_UTF8)]
    assert translate_rows(rows, shout, max_chars=10) == [
        TranslatedRow("KURZ"),
        TranslatedRow("x" * 11, too_long(10)),
        TranslatedRow(None, NO_TEXT),
        TranslatedRow(None, NO_TEXT),
        TranslatedRow("EIN \ufffd", NOT_UTF8),
    ]


@pytest.mark.usefixtures("deadly")
def test_a_row_that_ends_the_process_is_found_and_passed_over() -> None:
    texts = ["Guten Morgen!", "TOD", "FEHLER", "", "Danke!\nBitte!", "SCHLAF", "Gute Nacht!"]
    done = isolated_translate([Row(text) for text in texts], CHOICE, 100, row_seconds=5.0)
    errors = {1: KILLED, 2: f"{FAILED}: ValueError: ein Fehler", 5: SLOW}
    plain = Translator.load("deen", "cpu", 1)
    assert done == [
        TranslatedRow(text, errors[number]) if number in errors else TranslatedRow(plain.translate(text))
        for number, text in enumerate(texts)
    ]


def test_a_model_that_cannot_be_loaded_is_no_fault_of_a_row(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="could not load the model"):
        isolated_translate([Row("Guten Morgen!")], ModelChoice(str(tmp_path), "cpu", "auto", {}), 100)
