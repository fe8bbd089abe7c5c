"""OpenDocument files (.odt, .ods, .odp): paragraphs and headings of the content, and of headers and footers.

What was deleted while changes were tracked is not translated. Fields stay as they are.
"""

from __future__ import annotations

from lxml import etree

from latentmt.documents.archive import Archive
from latentmt.documents.mixed import Kind, Mixed
from latentmt.documents.package import Package
from latentmt.documents.paragraphs import Vocabulary
from latentmt.documents.tree import Element, parse
from latentmt.errors import UserError

_NAMESPACE = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}"
_TEXT, _STYLE, _OFFICE = _NAMESPACE % "text", _NAMESPACE % "style", _NAMESPACE % "office"
_MANIFEST = "META-INF/manifest.xml"
_MEMBERS = ("content.xml", "styles.xml")
_KINDS: dict[str, Kind] = {
    **dict.fromkeys((f"{_TEXT}span", f"{_TEXT}a", f"{_TEXT}meta"), "inline"),
    **dict.fromkeys((f"{_TEXT}tab", f"{_TEXT}line-break"), "break"),
    f"{_TEXT}s": "space",
}
_NAMES = (f"{_TEXT}name", f"{_OFFICE}name", f"{_TEXT}change-id", f"{_TEXT}id")
"""Attributes by which the two ends of a range are one's."""


def read_text_document(content: bytes) -> Package:
    """The document in an .odt file."""
    return _read(content, "text")


def read_spreadsheet(content: bytes) -> Package:
    """The document in an .ods file."""
    return _read(content, "spreadsheet")


def read_presentation(content: bytes) -> Package:
    """The document in an .odp file."""
    return _read(content, "presentation")


def _read(content: bytes, kind: str) -> Package:
    archive = Archive.read(content)
    if "mimetype" not in archive.names or archive.member("mimetype").strip() != _media_type(kind):
        raise UserError(f"no OpenDocument {kind}")
    if _MANIFEST in archive.names and _is_encrypted(archive):
        raise UserError("an encrypted document")
    members = [name for name in _MEMBERS if name in archive.names]
    looks: dict[str, str] = {}
    for name in members:
        looks |= _looks(parse(archive.member(name), name))
    dialect = Mixed(_kind, _mark, lambda element: looks.get(element.get(f"{_TEXT}style-name", ""), ""))
    vocabulary = Vocabulary(
        {f"{_TEXT}p": dialect, f"{_TEXT}h": dialect}, skipped=frozenset((f"{_TEXT}tracked-changes",))
    )
    return Package(archive, dict.fromkeys(members, vocabulary))


def _media_type(kind: str) -> bytes:
    return f"application/vnd.oasis.opendocument.{kind}".encode()


def _is_encrypted(archive: Archive) -> bool:
    return next(parse(archive.member(_MANIFEST), _MANIFEST).iter("{*}encryption-data"), None) is not None


def _kind(element: Element) -> Kind:
    return _KINDS.get(element.tag, "verbatim")


def _mark(element: Element) -> tuple[str, bool] | None:
    """The range that an element begins or ends."""
    if not isinstance(element.tag, str) or not element.tag.endswith(("-start", "-end")):
        return None
    kind, _, end = element.tag.rpartition("-")
    name = next((element.get(name) for name in _NAMES if name in element.attrib), "")
    return f"{kind} {name}", end == "start"


def _looks(root: Element) -> dict[str, str]:
    """What spans of each automatic style look like. Programs make styles that differ in nothing that is seen."""
    looks: dict[str, str] = {}
    for style in root.iterfind(f"{_OFFICE}automatic-styles/{_STYLE}style"):
        if style.get(f"{_STYLE}family") == "text":
            seen = [(child.tag, _visible(child)) for child in style if isinstance(child.tag, str) and _visible(child)]
            parent = style.get(f"{_STYLE}parent-style-name", "")
            looks[style.get(f"{_STYLE}name", "")] = repr((parent, seen))
    return looks


def _visible(properties: Element) -> list[tuple[str, str]]:
    """The attributes of properties that somebody can see. Those with children count as different from all others."""
    inside = [("", etree.tostring(child, method="c14n").decode()) for child in properties]
    hidden = ("rsid", "paragraph-rsid")
    return inside + sorted(item for item in properties.items() if etree.QName(item[0]).localname not in hidden)
