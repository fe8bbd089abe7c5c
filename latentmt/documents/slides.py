"""PowerPoint presentations (.pptx): slides, their notes and comments, and titles of charts and diagrams."""

from __future__ import annotations

from latentmt.documents.archive import Archive
from latentmt.documents.mixed import PLAIN
from latentmt.documents.openxml import DRAWING_PARTS, PICTURES, drawing, namespaces, office_parts, words
from latentmt.documents.package import Package
from latentmt.documents.paragraphs import Vocabulary

_PARTS = DRAWING_PARTS | words("slide notesSlide comments")
_COMMENTS = {f"{namespace}text": PLAIN for namespace in namespaces("presentationml")}
_VOCABULARY = Vocabulary({**drawing(), **_COMMENTS}, values=PICTURES)


def read_slides(content: bytes) -> Package:
    """The document in a .pptx file."""
    archive = Archive.read(content)
    parts = office_parts(archive, "presentationml", "PowerPoint")
    return Package(archive, {part: _VOCABULARY for part, kind in parts.items() if kind in _PARTS})
