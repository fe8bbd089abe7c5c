"""Word documents (.docx): text, headers, footers, notes, comments, text boxes, and titles of charts and diagrams.

What was deleted while changes were tracked is not translated. Results of fields stay, except links and contents.
"""

from __future__ import annotations

import re

from latentmt.documents.archive import Archive
from latentmt.documents.openxml import DRAWING_PARTS, PICTURES, drawing, namespaces, office_parts, words
from latentmt.documents.package import Package
from latentmt.documents.paragraphs import Vocabulary
from latentmt.documents.runs import Field, Runs
from latentmt.documents.tree import Element

_PARTS = DRAWING_PARTS | words("main header footer footnotes endnotes comments")
_RANGE = re.compile(r"\{[^}]*\}(\w+?)(Range)?(Start|End)")
_INSTRUCTION = re.compile(r"\s*(HYPERLINK|TOC)\b", re.IGNORECASE)


def read_word(content: bytes) -> Package:
    """The document in a .docx file."""
    archive = Archive.read(content)
    parts = office_parts(archive, "wordprocessingml", "Word")
    return Package(archive, {part: _VOCABULARY for part, kind in parts.items() if kind in _PARTS})


def _runs(namespace: str) -> Runs:
    """The dialect of WordprocessingML in one of its namespaces."""

    def tags(text: str) -> frozenset[str]:
        return frozenset(f"{namespace}{name}" for name in text.split())

    def part(element: Element) -> str:
        if element.tag != f"{namespace}fldChar":
            return ""
        return str(element.get(f"{namespace}fldCharType", ""))

    def mark(element: Element) -> tuple[str, bool] | None:
        found = _RANGE.fullmatch(element.tag) if isinstance(element.tag, str) else None
        return (f"{found[1]} {element.get(f'{namespace}id')}", found[3] == "Start") if found else None

    def is_inline(element: Element) -> bool:
        instruction = element.get(f"{namespace}instr")
        return instruction is None or bool(_INSTRUCTION.match(instruction))

    inline = tags("hyperlink ins moveTo smartTag customXml fldSimple dir bdo")
    return Runs(
        run=f"{namespace}r",
        text=f"{namespace}t",
        properties=f"{namespace}rPr",
        inline={**dict.fromkeys(inline, ""), f"{namespace}sdt": f"{namespace}sdtContent"},
        breaks=tags("pPr smartTagPr customXmlPr fldData tab ptab br cr"),
        read_as={f"{namespace}noBreakHyphen": "\u2011"},
        dropped=tags("proofErr lastRenderedPageBreak softHyphen"),
        fields=Field(part, f"{namespace}instrText", _INSTRUCTION),
        mark=mark,
        is_inline=is_inline,
    )


_VOCABULARY = Vocabulary(
    {**{f"{namespace}p": _runs(namespace) for namespace in namespaces("wordprocessingml")}, **drawing()},
    values=PICTURES,
)
