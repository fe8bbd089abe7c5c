"""The formats of documents, by the ending of a file's name. Their modules are imported when they are used."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import PurePath

from latentmt.documents.base import Document
from latentmt.documents.languages import UNKNOWN, Languages
from latentmt.errors import UserError


@dataclass(frozen=True)
class Format:
    """A kind of file."""

    name: str
    """For people."""
    module: str
    """In this package."""
    reader: str
    """What makes a document of the content of a file, in that module. It refuses what it cannot read (`UserError`)."""
    media_type: str
    is_catalogue: bool = False
    """Whether such files have source and translation, or say between which languages. Their reader is told these."""

    def read(self, content: bytes, languages: Languages = UNKNOWN) -> Document:
        """The document that a file of this format has, to be translated between these languages."""
        reader = getattr(importlib.import_module(f"latentmt.documents.{self.module}"), self.reader)
        document: Document = reader(content, languages) if self.is_catalogue else reader(content)
        return document


_OFFICE, _OPEN = "application/vnd.openxmlformats-officedocument.", "application/vnd.oasis.opendocument."

FORMATS = {
    ".markdown": Format("Markdown", "markdown", "Markdown", "text/markdown"),
    ".md": Format("Markdown", "markdown", "Markdown", "text/markdown"),
    ".htm": Format("HTML", "html", "HtmlFile", "text/html"),
    ".html": Format("HTML", "html", "HtmlFile", "text/html"),
    ".txt": Format("plain text", "plain", "PlainText", "text/plain"),
    ".docx": Format("Word", "word", "read_word", _OFFICE + "wordprocessingml.document"),
    ".pptx": Format("PowerPoint", "slides", "read_slides", _OFFICE + "presentationml.presentation"),
    ".xlsx": Format("Excel", "sheets", "read_sheets", _OFFICE + "spreadsheetml.sheet"),
    ".odt": Format("OpenDocument text", "opendocument", "read_text_document", _OPEN + "text"),
    ".ods": Format("OpenDocument spreadsheet", "opendocument", "read_spreadsheet", _OPEN + "spreadsheet"),
    ".odp": Format("OpenDocument presentation", "opendocument", "read_presentation", _OPEN + "presentation"),
    ".srt": Format("SubRip subtitles", "subtitles", "read_srt", "application/x-subrip"),
    ".vtt": Format("WebVTT subtitles", "subtitles", "read_vtt", "text/vtt"),
    ".epub": Format("EPUB", "epub", "read_epub", "application/epub+zip"),
    ".json": Format("JSON catalogue", "json_catalogue", "JsonCatalogue", "application/json", is_catalogue=True),
    ".arb": Format("Flutter catalogue", "json_catalogue", "read_arb", "application/json", is_catalogue=True),
    ".xlf": Format("XLIFF", "xliff", "Xliff", "application/xliff+xml", is_catalogue=True),
    ".xliff": Format("XLIFF", "xliff", "Xliff", "application/xliff+xml", is_catalogue=True),
    ".po": Format("gettext", "po", "PoFile", "text/x-gettext-translation", is_catalogue=True),
    ".pot": Format("gettext", "po", "PoFile", "text/x-gettext-translation", is_catalogue=True),
}
"""By suffix. Another format is a module with a reader, and an entry here."""


def format_of(name: str | PurePath) -> Format:
    """The format of a file, by its name."""
    suffix = PurePath(name).suffix.lower()
    if suffix not in FORMATS:
        raise UserError(f"{name}: documents of this type are not translated; expected one of {', '.join(FORMATS)}")
    return FORMATS[suffix]


def read_document(name: str | PurePath, content: bytes, languages: Languages = UNKNOWN) -> Document:
    """The document in a file, to be translated between these languages. What cannot be read is refused in one line."""
    try:
        return format_of(name).read(content, languages)
    except UserError as error:
        raise error if str(error).startswith(f"{name}:") else UserError(f"{name}: {error}") from None
