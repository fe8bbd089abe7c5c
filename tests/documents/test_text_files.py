"""Plain text and HTML as files: what is a text, and what stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmt.documents.formats import read_document
from latentmt.errors import UserError
from latentmt.results import Translation


def capitals(name: str, content: bytes) -> bytes:
    document = read_document(name, content)
    return document.render([Translation(text.upper()) for text in document.texts])


WRAPPED = (
    "Dies ist ein langer Absatz, der von Hand auf etwa sechzig\r\n"
    "Zeichen umbrochen wurde, weil man das in Textdateien oft\r\n"
    "so machte. Er hat drei Zeilen.\r\n\r\n- ein Punkt, der so lang ist, dass er in die dritte Zeile\r\n"
    "  reicht und dort weitergeht\r\n- zwei"
)


def test_wrapped_lines_are_one_text() -> None:
    texts = read_document("a.txt", WRAPPED.encode()).texts
    assert [text.split()[-1] for text in texts] == ["Zeilen.", "weitergeht", "zwei"]
    assert capitals("a.txt", WRAPPED.encode()) == WRAPPED.upper().encode()


@pytest.mark.parametrize(
    "source", ["Ein Satz.\nNoch ein Satz, der länger ist als der davor.\nDrei.\n", "", "\n \n", "a\nb"]
)
def test_lines_that_are_not_wrapped_are_texts(source: str) -> None:
    assert list(read_document("a.txt", source.encode()).texts) == [line for line in source.split("\n") if line.strip()]


@given(st.text("ab .-\n\r\t>1", max_size=300))
def test_untranslated_text_files_keep_their_bytes(source: str) -> None:
    document = read_document("a.txt", source.encode())
    assert document.render([Translation(text) for text in document.texts]) == source.encode()


def test_html_keeps_its_encoding_and_translates_attributes() -> None:
    page = (
        '<!DOCTYPE html>\r\n<html lang="de"><head><meta charset="iso-8859-1"><meta name="description" content="ein ä">'
        '<title>ja</title></head><body>\r\n<p title="x">ö<img alt="ü" src="a"><code>c</code></p></body></html>'
    )
    document = read_document("a.html", page.encode("cp1252"))
    assert list(document.texts) == ["ja", "ö", "ein ä", "x", "ü"]
    result = document.render([Translation(text) for text in ("nö", "α", '"><script>', "y", "z")]).decode("cp1252")
    for part in ('lang="de"', "<title>nö</title>", "&#945;", 'alt="z" src="a"', 'title="y"', "<code>c</code>", "\r\n"):
        assert part in result
    assert 'content="&quot;&gt;&lt;script&gt;"' in result


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.txt", b"\xff\xfe\xff"), ("a.md", b"\x80"), ("a.html", b"\xe4"), ("a.html", b"<meta charset=foo>ja")],
)
def test_other_encodings_are_refused_in_one_line(name: str, content: bytes) -> None:
    with pytest.raises(UserError, match=r"\A[^\n]+\Z"):
        read_document(name, content)
