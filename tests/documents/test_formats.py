"""A document is what it was around its texts, and what cannot be read is refused by name."""

from __future__ import annotations

import codecs
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmt.documents.formats import FORMATS, format_of, read_document
from latentmt.errors import UserError
from latentmt.results import Translation


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_has_a_reader(suffix: str) -> None:
    chosen = format_of(f"folder/name{suffix.upper()}")
    assert chosen is FORMATS[suffix]
    with suppress(UserError):  # of formats in which no file is empty
        chosen.read(b"")


def test_other_files_are_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"^picture\.png: documents of this type"):
        read_document("picture.png", b"")


def test_what_is_not_text_is_refused_with_its_line() -> None:
    with pytest.raises(UserError, match=r"^a\.txt: line 2: not UTF-8$"):
        read_document("a.txt", b"gut\n\xff\n")


def same(texts: list[str]) -> list[Translation]:
    return [Translation(text) for text in texts]


@given(st.text(), st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
def test_plain_text_stays_as_it_is_around_its_texts(text: str, encoding: str) -> None:
    content = text.encode(encoding, "ignore")
    if encoding == "utf-8" and content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return
    document = read_document("a.txt", content)
    assert document.render(same(list(document.texts))) == content
    assert all(found == found.strip() and found for found in document.texts)
