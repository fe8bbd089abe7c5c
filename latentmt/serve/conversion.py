"""Documents in a worker: read into texts, which are translated in parts, and written around their translations.

A document is a folder that the server made. The worker reads and writes its files, so the event loop sees no text:
`source` as it was sent, `texts-N` and `translations-N` of each part, and `result`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from latentmt.documents.formats import read_document
from latentmt.documents.languages import Languages
from latentmt.engines.backend import CheckCancelled
from latentmt.results import Link, Translation
from latentmt.serve.admission import Limits, RefusedError
from latentmt.serve.facts import AUTO

_PART_CHARACTERS, _PART_TEXTS = 2000, 64
"""A part has texts of about so many characters, and at most so many of them."""
_CHECK_SECONDS = 0.01

T = TypeVar("T")


class DocumentRequest(BaseModel):
    """A document, and the languages that it is translated between."""

    folder: Path
    name: str
    source: str
    target: str

    @property
    def languages(self) -> Languages:
        """As far as they are known."""
        return ("" if self.source == AUTO else self.source), self.target


class ReadRequest(DocumentRequest):
    """A document to be read."""


class ReadResponse(BaseModel):
    """What was read."""

    parts: list[int]
    """How many texts each has."""
    characters: list[int]
    """Of each part."""
    inline: bool
    language: str


class PartRequest(BaseModel):
    """A part to be translated."""

    folder: Path
    number: int
    inline: bool


class RenderRequest(DocumentRequest):
    """A document to be written."""

    parts: int


def read(request: ReadRequest, limits: Limits, check: CheckCancelled) -> tuple[list[list[str]], bool]:
    """The texts of a document, in parts, and whether they have inline elements."""
    content = (request.folder / "source").read_bytes()
    document = _interruptible(lambda: read_document(request.name, content, request.languages), check)
    characters = sum(map(len, document.texts))
    if characters > limits.max_document_characters:
        raise RefusedError(
            413, f"{characters:,} characters: this server allows {limits.max_document_characters:,} in a document"
        )
    return list(_parts(document.texts)), document.inline


def write_texts(folder: Path, parts: Sequence[Sequence[str]]) -> None:
    """Store the texts of a document."""
    for number, texts in enumerate(parts):
        (folder / f"texts-{number}").write_text(json.dumps(texts), encoding="utf-8")


def read_texts(request: PartRequest) -> list[str]:
    """The texts of a part."""
    texts: list[str] = json.loads((request.folder / f"texts-{request.number}").read_text(encoding="utf-8"))
    return texts


def write_translations(request: PartRequest, translations: Sequence[Translation]) -> None:
    """Store the translations of a part."""
    data = [
        [translation.text, [[*link.source, *link.target, link.weight] for link in translation.alignment]]
        for translation in translations
    ]
    (request.folder / f"translations-{request.number}").write_text(json.dumps(data), encoding="utf-8")


def render(request: RenderRequest, check: CheckCancelled) -> None:
    """Write a document around its translations. Without parts it stays as it is."""
    content = (request.folder / "source").read_bytes()

    def written() -> bytes:
        document = read_document(request.name, content, request.languages)
        return document.render(list(_translations(request)))

    result = _interruptible(written, check) if request.parts else content
    (request.folder / "result").write_bytes(result)
    for path in request.folder.iterdir():
        if path.name.startswith(("texts-", "translations-")):
            path.unlink()


def _translations(request: RenderRequest) -> Iterator[Translation]:
    for number in range(request.parts):
        path = request.folder / f"translations-{number}"
        for text, links in json.loads(path.read_text(encoding="utf-8")):
            yield Translation(text, alignment=[Link((a, b), (c, d), weight) for a, b, c, d, weight in links])


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for text in texts:
        if part and (size + len(text) > _PART_CHARACTERS or len(part) >= _PART_TEXTS):
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text)
    if part:
        yield part


def _interruptible(work: Callable[[], T], check: CheckCancelled) -> T:
    """Work that does not pause by itself, in a thread of its own, so that others have their turns meanwhile."""
    thread = ThreadPoolExecutor(1)
    future = thread.submit(work)
    thread.shutdown(wait=False)
    while not wait([future], _CHECK_SECONDS).done:
        check()
    return future.result()
