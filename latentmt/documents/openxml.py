"""What the formats of Microsoft Office have in common: parts by their content types, and text in drawings."""

from __future__ import annotations

from latentmt.documents.archive import Archive
from latentmt.documents.paragraphs import Dialect
from latentmt.documents.runs import Runs
from latentmt.documents.tree import parse
from latentmt.errors import UserError

_TYPES = "[Content_Types].xml"


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


DRAWING_PARTS = words("chart diagramData diagramDrawing drawing")
"""Charts and diagrams, by the last words of their content types."""


def office_parts(archive: Archive, format_: str, name: str) -> dict[str, str]:
    """The parts of a document, and what each is: `header`, `slide`. A file of another format is refused."""
    if _TYPES not in archive.names:
        raise UserError(f"no {name} file: no {_TYPES} in it")
    root = parse(archive.member(_TYPES), _TYPES)
    types = {one.get("PartName", "")[1:]: one.get("ContentType", "") for one in root.iter("{*}Override")}
    kinds = {part: content_type.removesuffix("+xml").rpartition(".")[2] for part, content_type in types.items()}
    if not any(kinds[part] == "main" and f".{format_}." in content_type for part, content_type in types.items()):
        raise UserError(f"no {name} file")
    return {part: kind for part, kind in kinds.items() if part in archive.names}


def namespaces(format_: str) -> tuple[str, str]:
    """The namespaces of a format, as they are in tags: what programs write, and what the strict standard has."""
    return (
        f"{{http://schemas.openxmlformats.org/{format_}/2006/main}}",
        f"{{http://purl.oclc.org/ooxml/{format_}/main}}",
    )


def drawing() -> dict[str, Dialect]:
    """The paragraphs of text in drawings, which all three formats have."""
    return {
        f"{namespace}p": Runs(
            run=f"{namespace}r",
            text=f"{namespace}t",
            properties=f"{namespace}rPr",
            breaks=frozenset(f"{namespace}{name}" for name in ("pPr", "endParaRPr", "br")),
        )
        for namespace in namespaces("drawingml")
    }


_PICTURE_NAMESPACES = (
    "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}docPr",
    "{http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing}cNvPr",
    "{http://schemas.openxmlformats.org/presentationml/2006/main}cNvPr",
)
PICTURES = dict.fromkeys(_PICTURE_NAMESPACES, ("descr", "title"))
"""The descriptions of pictures."""
