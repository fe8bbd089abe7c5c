"""Translates a document. Finished translations go to a journal beside the output, so that a killed job goes on.

The output of a job that was killed and went on is that of an undisturbed one, byte for byte: a translation depends on
nothing else than its text, and what is rendered is always read from the journal. Formats are not known here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

import latentmt
from latentmt.documents.base import Document
from latentmt.documents.bilingual import bilingual_page
from latentmt.documents.formats import read_document
from latentmt.documents.journal import Journal
from latentmt.documents.languages import UNKNOWN
from latentmt.engines.backend import CheckCancelled, never_cancelled
from latentmt.errors import UserError
from latentmt.files import make_folder, remove_stale, write_atomically
from latentmt.options import DecodingOptions
from latentmt.results import Link, Token, Translation
from latentmt.text.glossary import Glossary
from latentmt.translator import Translator

MAX_BYTES = 1 << 28
"""The most bytes of a file."""
_BATCH_TEXTS, _BATCH_CHARACTERS = 64, 10_000
"""A batch has at most so many texts, and, if it has more than one, so many characters. A kill loses one batch."""

Progress = Callable[[int, int], None]
"""Called with the number of texts that are done, and of all texts. Equal ones count once."""


@dataclass(frozen=True)
class Job:
    """How documents are translated."""

    translator: Translator
    options: DecodingOptions
    glossary: Glossary | None = None
    details: bool = False
    """Whether tokens with their confidence, and alignments, are wanted."""

    @property
    def settings(self) -> dict[str, Any]:
        """What a translation depends on beside its text."""
        info = self.translator.backend.info
        return {
            "version": latentmt.__version__,
            "model": self.translator.fingerprints,
            "engine": f"{info['device']} {info['dtype']}",
            "options": asdict(self.options),
            "glossary": self.glossary.fingerprint if self.glossary else None,
            "details": self.details,
        }


@dataclass(frozen=True)
class Outputs:
    """The files that are written of a document."""

    document: Path
    bilingual: Path | None = None
    """A page with source and translation side by side."""
    json: Path | None = None
    """JSON lines with everything that is known of each text."""

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.document, self.bilingual, self.json) if path]

    @property
    def journal(self) -> Path:
        return self.document.with_name(f".{self.document.name}.latentmt-partial")


class Translations(Sequence[Translation]):
    """The translations of a document's texts, read from the journal when they are asked for."""

    def __init__(self, journal: Journal, numbers: Sequence[int]) -> None:
        self._journal, self._numbers = journal, numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Translation: ...

    @overload
    def __getitem__(self, index: slice) -> list[Translation]: ...

    def __getitem__(self, index: int | slice) -> Translation | list[Translation]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return _from_entry(self._journal[self._numbers[index]])


def read_file(path: Path) -> bytes:
    """The content of a document's file."""
    if path.is_dir():
        raise UserError(f"{path}: a folder, not a file")
    if not path.is_file():
        raise UserError(f"{path}: {'not a plain file' if os.path.lexists(path) else 'no such file'}")
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise UserError(f"{path}: larger than {MAX_BYTES:,} bytes")
    return content


def translate_file(
    job: Job,
    source: Path,
    outputs: Outputs,
    *,
    replace: bool = False,
    progress: Progress = lambda done, total: None,
    check_cancelled: CheckCancelled = never_cancelled,
) -> int:
    """Translate a file, and go on with it if it was begun before. The number of its texts is returned.

    An output that exists is refused, unless `replace` says otherwise or this very job was about to write it.
    """
    content = read_file(source)
    identity = job.settings | {
        "input": hashlib.sha256(content).hexdigest(),
        "outputs": [path.name for path in outputs.paths],
    }
    resumed = Journal.is_of(outputs.journal, identity)
    for path in outputs.paths:
        check_output(path, source, replace or resumed)
    document = read_document(source, content, job.translator.languages or UNKNOWN)
    del content
    for folder in {path.parent for path in outputs.paths}:
        remove_stale(make_folder(folder))
    with Journal(outputs.journal, identity, replace) as journal:
        numbers: dict[str, int] = {}
        order = [numbers.setdefault(text, len(numbers)) for text in document.texts]
        _translate(job, list(numbers), document.inline, journal, progress, check_cancelled)
        for path in outputs.paths:
            check_output(path, source, replace or resumed)
        _write(job, source, document, Translations(journal, order), outputs)
        journal.remove()
    return len(order)


def _write(job: Job, source: Path, document: Document, translations: Sequence[Translation], outputs: Outputs) -> None:
    write_atomically(outputs.document, document.render(translations))
    if outputs.bilingual:
        page = bilingual_page(source.name, document.texts, translations, job.translator.languages)
        write_atomically(outputs.bilingual, page)
    if outputs.json:
        write_atomically(outputs.json, b"", *_json_lines(document.texts, translations, job.options))


def check_output(path: Path, source: Path, replace: bool) -> None:
    """Refuse to write over the source, over a folder, or over a file that is not to be replaced."""
    if path.exists() and path.samefile(source):
        raise UserError(f"{path}: the input itself; name another output (-o)")
    if path.is_dir():
        raise UserError(f"{path}: a folder, not a file")
    if os.path.lexists(path) and not replace:
        raise UserError(f"{path}: exists; --replace writes over it")


def _translate(
    job: Job,
    texts: Sequence[str],
    inline: bool,
    journal: Journal,
    progress: Progress,
    check_cancelled: CheckCancelled,
) -> None:
    """Append the translations of texts that the journal does not have yet."""
    progress(len(journal), len(texts))
    for batch in _batches(texts[len(journal) :]):
        check_cancelled()
        for translation in job.translator.translations(
            batch,
            job.options,
            alignment=inline,
            details=job.details,
            glossary=job.glossary,
            check_cancelled=check_cancelled,
        ):
            journal.append(_to_entry(translation))
        progress(len(journal), len(texts))


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        if batch and (len(batch) == _BATCH_TEXTS or characters + len(text) > _BATCH_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch


def _to_entry(translation: Translation) -> dict[str, Any]:
    """A translation as JSON, which keeps every float exactly."""
    return {
        "text": translation.text,
        "ids": translation.ids,
        "score": translation.score,
        "tokens": [[token.text, token.confidence] for token in translation.tokens],
        "alignment": [[*link.source, *link.target, link.weight] for link in translation.alignment],
    }


def _from_entry(entry: Mapping[str, Any]) -> Translation:
    return Translation(
        entry["text"],
        entry["ids"],
        entry["score"],
        tokens=[Token(*token) for token in entry["tokens"]],
        alignment=[Link((a, b), (c, d), weight) for a, b, c, d, weight in entry["alignment"]],
    )


def _json_lines(texts: Sequence[str], translations: Sequence[Translation], options: DecodingOptions) -> Iterator[bytes]:
    for source, translation in zip(texts, translations, strict=True):
        facts = {
            "source": source,
            "translation": translation.text,
            "score": translation.score,
            "tokens": [asdict(token) for token in translation.tokens],
            "alignment": [asdict(link) for link in translation.alignment],
            "options": str(options),
        }
        yield (json.dumps(facts, ensure_ascii=False) + "\n").encode("utf-8", "replace")
