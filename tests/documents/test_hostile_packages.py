"""Files that no writer of documents makes are refused in one line."""

from __future__ import annotations

import io
import random
import zipfile

import pytest
from packages import book, members_of, open_document, shouted, slides, word, zipped

from latentmt.documents import archive
from latentmt.documents.formats import read_document
from latentmt.errors import UserError

PARAGRAPH = "<w:p><w:r><w:t>ein Haus</w:t></w:r></w:p>"
GOOD = word(PARAGRAPH)


def entities(text: str) -> bytes:
    """A .docx whose document declares entities and has this text."""
    laughs = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "ha" * 10}">' for n in range(9))
    members = members_of(GOOD)
    main = members["word/document.xml"].decode().partition("?>")[2].replace("ein Haus", text)
    return zipped({**members, "word/document.xml": f"<!DOCTYPE d [{laughs}]>{main}"})


def with_member(name: str, content: bytes = b"") -> bytes:
    target = io.BytesIO(GOOD)
    with zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return target.getvalue()


def encrypted() -> bytes:
    """With the flag of encryption on every member of the table of contents."""
    content = bytearray(GOOD)
    position = content.find(b"PK\x01\x02")
    while position >= 0:
        content[position + 8] |= 1
        position = content.find(b"PK\x01\x02", position + 1)
    return bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.docx", b"", "not a zip file"),
        ("a.docx", b"{\\rtf1 x}", "not a zip file"),
        ("a.docx", GOOD[: len(GOOD) // 2], "truncated"),
        ("a.docx", bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600), "encrypted document, or one of an old"),
        ("a.docx", encrypted(), "an encrypted document"),
        ("a.docx", with_member("/etc/x"), "a file with the path /etc/x"),
        ("a.docx", with_member("a/../../x"), "a file with the path"),
        ("a.docx", with_member("C:\\x"), "a file with the path"),
        ("a.docx", with_member("bomb", bytes(100 * 2**20)), "more than 200 times larger"),
        ("a.docx", slides("<a:p/>"), "no Word file"),
        ("a.docx", open_document(""), "no Word file"),
        ("a.pptx", GOOD, "no PowerPoint file"),
        ("a.xlsx", GOOD, "no Excel file"),
        ("a.odt", GOOD, "no OpenDocument text"),
        ("a.odt", open_document("", "presentation"), "no OpenDocument text"),
        ("a.epub", GOOD, "no EPUB"),
        ("a.docx", entities("x"), "declares entities"),
        ("a.docx", entities("&a8;"), "declares entities|no well-formed XML"),
        ("a.docx", entities('</w:t><w:x a="&a8;"/><w:t>'), "declares entities|no well-formed XML"),
        ("a.docx", word("<w:sdt>" * 300 + "</w:sdt>" * 300), "no well-formed XML"),
        ("a.docx", word("<w:p>"), "word/document.xml: no well-formed XML"),
        ("a.epub", book("<p>&unknown;</p>"), "unknown"),
    ],
)
def test_hostile_files_are_refused(name: str, content: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        read_document(name, content)
    assert str(refused.value).startswith(f"{name}: ")


def test_duplicates_are_refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        content = with_member("word/document.xml", b"<x/>")
    with pytest.raises(UserError, match="two files of the same name"):
        read_document("a.docx", content)


def test_large_contents_and_many_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_BYTES", 100)
    with pytest.raises(UserError, match="at most 100 are read"):
        read_document("a.docx", GOOD)
    monkeypatch.setattr(archive, "MAX_MEMBERS", 2)
    with pytest.raises(UserError, match="at most 2 are read"):
        read_document("a.docx", GOOD)


def test_encrypted_open_documents_and_books_are_refused() -> None:
    manifest = "<manifest><file-entry><encryption-data/></file-entry></manifest>"
    secret = zipped({**members_of(open_document("")), "META-INF/manifest.xml": manifest})
    with pytest.raises(UserError, match="encrypted document"):
        read_document("a.odt", secret)
    rights = '<encryption><CipherReference URI="{}"/></encryption>'
    with pytest.raises(UserError, match="encrypted book"):
        read_document("a.epub", book("", **{"META-INF/encryption.xml": rights.format("OPS/a%20b.xhtml")}))
    assert read_document("a.epub", book("", **{"META-INF/encryption.xml": rights.format("OPS/font.otf")})).texts


def test_damage_anywhere_is_refused_or_harmless() -> None:
    """Random bytes are changed. Nothing but a refusal may come of it."""
    chance = random.Random(2)
    for _ in range(400):
        content = bytearray(GOOD)
        for _ in range(chance.randint(1, 4)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        try:
            shouted(read_document("a.docx", bytes(content)))
        except UserError:
            continue


@pytest.mark.parametrize(
    "piece", ["<w:r><w:t>a</w:t></w:r>", "<w:r><w:t>a\n</w:t></w:r>", '<w:bookmarkStart w:id="1"/>']
)
def test_a_long_paragraph_is_read(piece: str) -> None:
    document = read_document("a.docx", word("<w:p>" + piece * 5_000 + "<w:r><w:t>Haus</w:t></w:r></w:p>"))
    assert shouted(document)
