"""Minimal office documents and books, with what their formats have, and fake translations of them."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping

from lxml import etree

from latentmt.documents.base import Document
from latentmt.results import Link, Translation

OFFICE = "http://schemas.openxmlformats.org"
W, A, P, S = (
    f"{OFFICE}/{name}/2006/main" for name in ("wordprocessingml", "drawingml", "presentationml", "spreadsheetml")
)
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def zipped(members: Mapping[str, str | bytes]) -> bytes:
    """A zip file; what is called mimetype is stored."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content, zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED)
    return target.getvalue()


def members_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def office(parts: Mapping[str, tuple[str, str]], **others: bytes) -> bytes:
    """An Office Open XML file of parts with their content types, and other members."""
    types = "".join(
        f'<Override PartName="/{name}" ContentType="application/vnd.openxmlformats-officedocument.{kind}+xml"/>'
        for name, (kind, _) in parts.items()
    )
    namespace = f"{OFFICE}/package/2006/content-types"
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{namespace}">{types}</Types>',
            **{name: text for name, (_, text) in parts.items()},
            **others,
        }
    )


def word(body: str, **parts: str) -> bytes:
    """A .docx with this body, and other parts by their kinds."""
    around = f'xmlns:w="{W}" xmlns:r="{OFFICE}/officeDocument/2006/relationships"'
    main = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
    main += f"<w:document {around}><w:body>{body}</w:body></w:document>"
    others = {
        f"word/{kind}.xml": (f"wordprocessingml.{kind}", f"<w:{kind} {around}>{text}</w:{kind}>")
        for kind, text in parts.items()
    }
    return office(
        {"word/document.xml": ("wordprocessingml.document.main", main), **others}, **{"word/media/image1.png": PICTURE}
    )


def slides(body: str) -> bytes:
    """A .pptx with one slide."""
    slide = f'<p:sld xmlns:p="{P}" xmlns:a="{A}"><p:txBody>{body}</p:txBody></p:sld>'
    main = f'<p:presentation xmlns:p="{P}"/>'
    return office(
        {
            "ppt/presentation.xml": ("presentationml.presentation.main", main),
            "ppt/slides/slide1.xml": ("presentationml.slide", slide),
        }
    )


def sheets(strings: str, sheet: str = "", columns: str = "") -> bytes:
    """An .xlsx with shared strings, a sheet, and the columns of a table."""
    return office(
        {
            "xl/workbook.xml": ("spreadsheetml.sheet.main", f'<workbook xmlns="{S}"/>'),
            "xl/sharedStrings.xml": ("spreadsheetml.sharedStrings", f'<sst xmlns="{S}">{strings}</sst>'),
            "xl/worksheets/sheet1.xml": ("spreadsheetml.worksheet", f'<worksheet xmlns="{S}">{sheet}</worksheet>'),
            "xl/tables/table1.xml": ("spreadsheetml.table", f'<table xmlns="{S}">{columns}</table>'),
        }
    )


def open_document(body: str, kind: str = "text", styles: str = "") -> bytes:
    """An OpenDocument file."""
    spaces = (
        " ".join(
            f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{full}:1.0"'
            for name, full in (("office", "office"), ("text", "text"), ("style", "style"), ("draw", "drawing"))
        )
        + ' xmlns:fo="urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0" xmlns:loext="urn:x"'
    )
    content = (
        f"<office:document-content {spaces}><office:automatic-styles>{styles}</office:automatic-styles>"
        f"<office:body><office:text>{body}</office:text></office:body></office:document-content>"
    )
    return zipped(
        {"mimetype": f"application/vnd.oasis.opendocument.{kind}", "content.xml": content, "Pictures/1.png": PICTURE}
    )


def book(body: str, **others: str | bytes) -> bytes:
    """An EPUB with one page."""
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
            '<rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>',
            "OPS/book.opf": '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
            "<metadata><dc:title>Ein Buch</dc:title><dc:language>de</dc:language></metadata><manifest>"
            '<item id="n" href="toc.ncx" media-type="application/x-dtbncx+xml"/>'
            '<item id="a" href="a%20b.xhtml" media-type="application/xhtml+xml"/></manifest>'
            '<spine toc="n"><itemref idref="a"/></spine></package>',
            "OPS/toc.ncx": '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap><navPoint><navLabel>'
            "<text>Erster Teil</text></navLabel></navPoint></navMap></ncx>",
            "OPS/a b.xhtml": '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n'
            '<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="de"><head><title>Titel</title></head>'
            f"<body>{body}</body></html>",
            "OPS/image.png": PICTURE,
            **others,
        }
    )


def canonical(content: bytes) -> bytes:
    """XML as C14N has it."""
    written: bytes = etree.tostring(etree.fromstring(content), method="c14n")
    return written


def shout(text: str, reverse: bool = False) -> Translation:
    """A fake translation: the words in capitals, or in reverse order with the last one staying last."""
    words = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    if reverse:
        words = [*reversed(words[:-1]), *words[-1:]]
    out, links = "", []
    for start, end in words:
        spaced = start == 0 or text[start - 1].isspace() or (reverse and text[start:end].isalnum())
        out += " " if out and spaced else ""
        shouted = text[start:end].upper()
        links.append(Link((start, end), (len(out), len(out) + len(shouted)), 1.0))
        out += shouted
    return Translation(out, alignment=links)


def shouted(document: Document, reverse: bool = False) -> bytes:
    return document.render([shout(text, reverse) for text in document.texts])
