"""XML of a document as a tree, and back. Entities are refused, nothing outside is read, depth is limited."""

from __future__ import annotations

import re
from html.entities import name2codepoint
from typing import Any

from lxml import etree

from latentmt.errors import UserError

Element = Any
"""Of lxml, which has no types."""

_NAMED = re.compile(
    rb"(?s:<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z))"  # what has no references
    rb"|&(?P<name>[A-Za-z0-9]{2,8});"
)
_ASCII = 128
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse(content: bytes, name: str) -> Element:
    """The root of a member that is XML."""
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, huge_tree=False, load_dtd=False, strip_cdata=False
    )
    try:
        root = etree.fromstring(_NAMED.sub(_as_number, content), parser)
    except etree.XMLSyntaxError as error:
        raise UserError(f"{name}: no well-formed XML: {error.msg}") from None
    except (ValueError, LookupError) as error:
        raise UserError(f"{name}: no well-formed XML: {error}") from None
    dtd = root.getroottree().docinfo.internalDTD
    if dtd is not None and any(True for _ in dtd.iterentities()):
        raise UserError(f"{name}: XML that declares entities")
    for reference in root.iter(etree.Entity):
        raise UserError(f"{name}: XML with the unknown entity {reference.name}")
    return root


def _as_number(match: re.Match[bytes]) -> bytes:
    """A named character of HTML (&nbsp;), which XHTML may have, by its number."""
    code = name2codepoint.get(match["name"].decode()) if match["name"] else None
    return match[0] if code is None or code < _ASCII else b"&#%d;" % code


def allowed(text: str) -> str:
    """A text without the characters that XML forbids."""
    return _FORBIDDEN.sub("", text)


def serialise(root: Element) -> bytes:
    """The member that a tree is, with its declaration and what is around the root."""
    tree = root.getroottree()
    info = tree.docinfo
    written: bytes = etree.tostring(
        tree, xml_declaration=True, encoding=info.encoding or "UTF-8", standalone=info.standalone or None
    )
    return written
