"""EPUB: the pages of a book, its table of contents and its title.

Languages that the book declares stay, because the language of a translation is not known here.
"""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

from latentmt.documents.archive import Archive
from latentmt.documents.markup import INLINE, INLINE_VERBATIM, VERBATIM
from latentmt.documents.mixed import PLAIN, Kind, Mixed
from latentmt.documents.package import Package
from latentmt.documents.paragraphs import Vocabulary
from latentmt.documents.tree import Element, parse
from latentmt.errors import UserError

_MEDIA_TYPE = b"application/epub+zip"
_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_XHTML = "{http://www.w3.org/1999/xhtml}"
_WITHIN_TEXT = INLINE_VERBATIM | {"img", "wbr", "ruby", "input", "object", "audio", "video", "button", "select"}


def _kind(element: Element) -> Kind:
    namespace, _, name = element.tag.rpartition("}")
    if namespace != _XHTML[:-1]:
        return "break" if name == "svg" else "verbatim"  # an equation
    excluded = element.get("translate") == "no" or "notranslate" in element.get("class", "").split()
    if name in INLINE:
        return "verbatim" if excluded else "inline"
    if name in _WITHIN_TEXT:
        return "verbatim"
    return "break" if excluded or name in VERBATIM or name == "br" else "block"


_PAGE = Mixed(_kind)
_TITLED = {f"{_XHTML}{name}": ("title",) for name in sorted(INLINE | {"p", "div", "section", "table", "td", "th"})}
_PAGES = Vocabulary(
    {f"{_XHTML}body": _PAGE, f"{_XHTML}title": PLAIN},
    values={**_TITLED, f"{_XHTML}img": ("alt", "title"), f"{_XHTML}area": ("alt", "title")},
)
_CONTENTS = Vocabulary({"{http://www.daisy.org/z3986/2005/ncx/}text": PLAIN})
_BOOK = Vocabulary({"{http://purl.org/dc/elements/1.1/}title": PLAIN})
_BY_TYPE = {"application/xhtml+xml": _PAGES, "application/x-dtbncx+xml": _CONTENTS}


def read_epub(content: bytes) -> Package:
    """The book in an .epub file."""
    archive = Archive.read(content)
    if "mimetype" not in archive.names or archive.member("mimetype").strip() != _MEDIA_TYPE:
        raise UserError("no EPUB")
    members: dict[str, Vocabulary] = {}
    for rootfile in parse(archive.member(_CONTAINER), _CONTAINER).iter("{*}rootfile"):
        book = rootfile.get("full-path", "")
        members[book] = _BOOK
        members |= _pages(archive, book)
    if _ENCRYPTION in archive.names:
        _check_encryption(archive, members)
    return Package(archive, members)


def _pages(archive: Archive, book: str) -> dict[str, Vocabulary]:
    """What is read of the files that a book lists: those of the spine in its order, then others."""
    root = parse(archive.member(book), book)
    items = {item.get("id"): item for item in root.iter("{*}item")}
    spine = [reference.get("idref") for reference in root.iter("{*}itemref")]
    found: dict[str, Vocabulary] = {}
    for number in dict.fromkeys([*spine, *items]):
        item = items.get(number)
        if item is not None and item.get("media-type") in _BY_TYPE:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(book), unquote(item.get("href", ""))))
            if path in archive.names:
                found[path] = _BY_TYPE[item.get("media-type")]
    return found


def _check_encryption(archive: Archive, members: dict[str, Vocabulary]) -> None:
    """Refuse a book whose pages are encrypted. Its fonts may be."""
    for reference in parse(archive.member(_ENCRYPTION), _ENCRYPTION).iter("{*}CipherReference"):
        if unquote(reference.get("URI", "")) in members:
            raise UserError("an encrypted book")
