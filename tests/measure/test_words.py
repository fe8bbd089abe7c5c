"""Numbers and non-words: small cases counted by hand, and properties of any text."""

from __future__ import annotations

import gzip
import lzma
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmt.errors import UserError
from latentmt.measure.words import non_words, numbers_kept, read_words, words_of

TEXTS = st.lists(st.text("ab ß2É0,.-_'\n", max_size=20), max_size=5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't stop, Straße!", ["don", "t", "stop", "strasse"]),
        ("snake_case and utf8 or x2y", ["snake", "case", "and", "utf", "or", "x", "y"]),
        ("naïve ÉTÉ Ελλάς", ["naïve", "été", "ελλάσ"]),
        ("12, 3.4 — …", []),
    ],
)
def test_a_word_is_a_run_of_letters_with_its_case_folded(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("source", "text", "share"),
    [
        ("Um 7.42 Uhr.", "At 7.42.", 1.0),
        ("1.240 Euro", "1,240 euros", 1.0),
        ("1240 Euro", "1,240 euros", 0.0),
        ("3 und 3 und 3", "3 and 3", 2 / 3),
        ("3", "3 or 3", 1.0),
        ("12", "1 2 123", 0.0),
        ("CO2 am 1.", "CO2 on the 1st", 1.0),
        ("drei", "3", None),
    ],
)
def test_numbers_are_runs_of_digits_and_each_counts_as_often_as_it_occurs(
    source: str, text: str, share: float | None
) -> None:
    assert numbers_kept([text], [source]) == share


def test_numbers_count_in_their_own_sentence_and_over_all_of_them() -> None:
    assert numbers_kept(["2", "1", "4 5 6"], ["1", "2", "4 5 6"]) == 3 / 5
    assert numbers_kept([], []) is None


def test_non_words_are_neither_known_nor_in_their_own_source() -> None:
    known = {"the", "goes", "to"}
    sources = ["Der Zug nach Wümme.", "Er geht."]
    texts = ["The tzug, the TRAIN goes to WÜMME 12.", "Wümme goes."]
    assert non_words(texts, sources, known) == 3 / 9  # tzug, train, and Wümme where it is not in the source
    assert non_words(["12 !", ""], ["a", "b"], known) == 0.0


@given(TEXTS, TEXTS)
def test_a_copy_of_the_source_has_its_numbers_and_no_non_words(sources: list[str], others: list[str]) -> None:
    assert numbers_kept(sources, sources) in (1.0, None)
    assert non_words(sources, sources, ()) == 0.0
    with_more = [f"{source} {other}" for source, other in zip(sources, others, strict=False)]
    assert numbers_kept(with_more, sources[: len(with_more)]) in (1.0, None)  # more numbers do no harm


@given(TEXTS)
def test_every_word_counts_where_none_is_known(texts: list[str]) -> None:
    empty = [""] * len(texts)
    has_words = any(map(words_of, texts))
    assert non_words(texts, empty, ()) == float(has_words)
    assert non_words(texts, empty, {word for text in texts for word in words_of(text)}) == 0.0


@given(TEXTS)
def test_words_are_read_as_they_are_counted(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    expected = {word for text in texts for word in words_of(text)}
    path = tmp_path_factory.mktemp("words") / "train.en"
    path.write_text("\n".join(texts), encoding="utf-8")
    if expected:
        assert read_words([path]) == expected
    else:
        with pytest.raises(UserError, match=re.escape(f"{path}: no words")):
            read_words([path])


def test_words_are_read_from_several_files_plain_and_packed(tmp_path: Path) -> None:
    plain, gz, xz = (tmp_path / name for name in ("a.en", "b.en.gz", "c.en.xz"))
    plain.write_text("One two.\n")
    gz.write_bytes(gzip.compress(b"Two three-four\n\n"))
    xz.write_bytes(lzma.compress("fünf\u00a0sechs".encode()))
    assert read_words([plain, gz, xz]) == {"one", "two", "three", "four", "fünf", "sechs"}


def test_text_that_has_no_words_or_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "numbers").write_text("1 2\n")
    (tmp_path / "bytes").write_bytes(b"good\nb\xffd\n")
    with pytest.raises(UserError, match="numbers: no words"):
        read_words([tmp_path / "numbers"])
    with pytest.raises(UserError, match="missing: no such file"):
        read_words([tmp_path / "missing"])
    with pytest.raises(UserError, match="bytes, line 2: invalid UTF-8 at byte 2"):
        read_words([tmp_path / "bytes"])
