"""Excel workbooks (.xlsx): the text of cells, comments, text boxes and titles of charts.

Formulas, numbers, the names of sheets and of columns of tables stay, because formulas refer to them.
"""

from __future__ import annotations

from dataclasses import replace

from latentmt.documents.archive import Archive
from latentmt.documents.mixed import PLAIN
from latentmt.documents.openxml import DRAWING_PARTS, PICTURES, drawing, namespaces, office_parts, words
from latentmt.documents.package import Package
from latentmt.documents.paragraphs import Dialect, Vocabulary
from latentmt.documents.runs import Runs
from latentmt.documents.tree import parse

_PARTS = DRAWING_PARTS | words("sharedStrings worksheet comments threadedcomments")
_THREADED = "{http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments}text"


def _strings() -> dict[str, Dialect]:
    """What has text: shared strings, strings in cells, comments."""
    found: dict[str, Dialect] = {_THREADED: PLAIN}
    for namespace in namespaces("spreadsheetml"):
        runs = Runs(f"{namespace}r", f"{namespace}t", f"{namespace}rPr")
        found |= {f"{namespace}{name}": runs for name in ("si", "is", "text")}
    return found


_VOCABULARY = Vocabulary({**_strings(), **drawing()}, values=PICTURES)


def read_sheets(content: bytes) -> Package:
    """The document in an .xlsx file."""
    archive = Archive.read(content)
    parts = office_parts(archive, "spreadsheetml", "Excel")
    tables = (parse(archive.member(part), part) for part, kind in parts.items() if kind == "table")
    columns = {column.get("name", "") for table in tables for column in table.iter("{*}tableColumn")}
    vocabulary = replace(_VOCABULARY, untranslated=frozenset(columns))
    return Package(archive, {part: vocabulary for part, kind in parts.items() if kind in _PARTS})
