"""The documents of a server: received, translated part by part through the broker, and kept for a while.

A document is translated under its client's identity, one part after another, so that others are served in between. Its
files are in a folder that only this user can read, and that is removed at shutdown. Workers read and write them.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from latentmt.documents.formats import format_of
from latentmt.errors import UserError
from latentmt.serve.admission import Admission, Client, RefusedError
from latentmt.serve.broker import Broker, Work
from latentmt.serve.facts import AUTO, ModelFacts
from latentmt.serve.metrics import Metrics
from latentmt.serve.models import Models

KEEP_SECONDS = 600.0
"""How long a document is kept after it was translated."""
MAX_SECONDS = 3600.0
"""How long translating one may take."""
MAX_KEPT = 64
"""Documents that are kept. The client with most of them loses its oldest one first."""
_RETRY_SECONDS = 5.0
"""The longest pause before a part is queued again that found the queue full."""
_MAX_NAME = 100


@dataclass(eq=False)
class StoredDocument:
    """A document, until it is removed."""

    id: str
    key: str
    name: str
    """Of the file."""
    source: str
    target: str
    """Empty as long as it depends on the language of the document."""
    client: Client
    folder: Path
    status: str = "queued"
    done: int = 0
    total: int = 0
    """Texts that are translated, and all."""
    characters: int = 0
    error: str = ""
    seconds: float = 0.0
    """How long it will still take."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def result_name(self) -> str:
        path = PurePath(self.name)
        return f"{path.stem}.{self.target}{path.suffix}"

    @property
    def media_type(self) -> str:
        return format_of(self.name).media_type

    @property
    def result(self) -> Path:
        return self.folder / "result"


class Documents:
    """All documents of a server. Only for use from the event loop's thread."""

    def __init__(self, admission: Admission, broker: Broker, metrics: Metrics) -> None:
        self._admission, self._broker, self._metrics = admission, broker, metrics
        self._documents: dict[str, StoredDocument] = {}
        self._busy = Counter[str]()
        """Documents that are received or translated, by client."""
        self._root: tempfile.TemporaryDirectory[str] | None = None

    @property
    def _models(self) -> Models:
        return self._broker.models

    def close(self) -> None:
        """Remove all documents."""
        for document in self._documents.values():
            for task in document.tasks:
                task.cancel()
        if self._root:
            self._root.cleanup()

    @contextmanager
    def slot(self, client: str) -> Iterator[None]:
        """Room for a document of a client while it is received or translated; refused if there is none (429)."""
        limits = self._admission.limits
        if self._busy[client] >= limits.max_documents:
            raise RefusedError(429, f"{limits.max_documents} documents at a time: wait until one is done", 5)
        if self._busy.total() >= limits.max_documents_in_all:
            raise RefusedError(429, "the server is busy: too many documents are being translated", 5)
        self._busy[client] += 1
        try:
            yield
        finally:
            self._busy[client] -= 1
            self._busy += Counter()  # forgets who has none

    async def add(self, file: BinaryIO, name: str, source: str, target: str, client: Client) -> StoredDocument:
        """Store a document that was received. `source` may be `auto`."""
        name = _clean(name)
        format_of(name)
        source = source or AUTO
        candidates = self._models.candidates(source, target)
        if len(candidates) == 1:
            target = target or candidates[0].pair[1]
        if self._root is None:
            self._root = tempfile.TemporaryDirectory(prefix="latentmt-", ignore_cleanup_errors=True)
        id_ = secrets.token_urlsafe(24)
        document = StoredDocument(
            id_, secrets.token_urlsafe(24), name, source, target, client, Path(self._root.name) / id_
        )
        await asyncio.to_thread(_save, file, document.folder, self._admission.limits.max_file_bytes)
        self._documents[id_] = document
        return document

    def find(self, id_: str, key: str | None = None) -> StoredDocument:
        """The document with this id, and this key if there is one to be shown (404)."""
        document = self._documents.get(id_)
        if document is None or (
            key is not None and not secrets.compare_digest(document.key.encode(), key.encode("utf-8", "replace"))
        ):
            raise RefusedError(404, "there is no such document, or it is no longer kept")
        return document

    def start(self, document: StoredDocument) -> None:
        """Translate a document in the background. What goes wrong is in its status."""

        slot = ExitStack()
        try:
            slot.enter_context(self.slot(document.client.name))
        except RefusedError:
            self._remove(document)
            raise

        async def work() -> None:
            with slot, suppress(RefusedError, UserError, TimeoutError):
                await self.translate(document)

        task = asyncio.ensure_future(work())
        document.tasks.add(task)
        task.add_done_callback(document.tasks.discard)

    async def translate(self, document: StoredDocument) -> None:
        """Translate a document. If the caller is cancelled, it is removed."""
        try:
            async with asyncio.timeout(MAX_SECONDS):
                await self._translate(document)
            document.status, document.seconds = "done", 0.0
        except (RefusedError, UserError, TimeoutError) as error:
            document.status, document.error = "error", str(error) or "this took too long"
            raise
        except BaseException:
            self._remove(document)
            raise
        finally:
            asyncio.get_running_loop().call_later(KEEP_SECONDS, self._remove, document)
            self._make_room()

    async def _translate(self, document: StoredDocument) -> None:
        model = self._models.candidates(document.source, document.target)[0]
        size = (document.folder / "source").stat().st_size
        conversion = size * max(model.costs.markup, model.costs.character)
        read = await self._submit("read", document, {}, model, conversion, document.id)
        if not document.target:  # which decides what of a catalogue is translated
            document.source, document.target = self._models.pair(read["language"])
            read = await self._submit("read", document, {}, model, conversion, document.id)
        model = self._models.candidates(read["language"], document.target)[0]
        document.characters = sum(read["characters"])
        self._admission.count(document.client, document.characters)
        self._metrics.accepted(document.characters)
        needed = self._models.needs_translation(read["language"], document.target)
        parts: list[int] = read["parts"] if needed else []
        document.total, document.status = sum(parts), "translating"
        options = model.options({}, self._admission.limits)
        seconds = [
            model.costs.estimate(["a" * characters], options, html=read["inline"]) for characters in read["characters"]
        ]
        for number, texts in enumerate(parts):
            document.seconds = sum(seconds[number:]) + conversion
            part = {"number": number, "inline": read["inline"]}
            await self._submit("part", document, part, model, seconds[number], read["inline"])
            document.done += texts
        await self._submit("render", document, {"parts": len(parts)}, model, conversion, document.id)

    async def _submit(
        self,
        kind: str,
        document: StoredDocument,
        fields: dict[str, Any],
        model: ModelFacts,
        seconds: float,
        group: object,
    ) -> Any:
        """The response to a job of a document. Where the queue is full, it waits, since it was accepted before."""
        options = model.options({}, self._admission.limits)
        work = Work(kind, model, options, document.client, seconds, group)
        about = {"folder": str(document.folder), "name": document.name}
        fields = {**about, "source": document.source, "target": document.target, **fields}
        while True:
            try:
                return json.loads(await self._broker.submit(work, fields))
            except RefusedError as error:
                if error.status != 429:
                    raise
                await asyncio.sleep(min(_RETRY_SECONDS, float(error.headers.get("Retry-After", 1))))

    def _make_room(self) -> None:
        while len(kept := [one for one in self._documents.values() if one.status in ("done", "error")]) > MAX_KEPT:
            (client, _), *_ = Counter(one.client.name for one in kept).most_common(1)
            self._remove(next(one for one in kept if one.client.name == client))

    def _remove(self, document: StoredDocument) -> None:
        if self._documents.pop(document.id, None):
            asyncio.get_running_loop().run_in_executor(None, shutil.rmtree, document.folder, True)


def status(document: StoredDocument) -> dict[str, Any]:
    """A document's status, as DeepL has it, and how many texts are done."""
    fields: dict[str, Any] = {"document_id": document.id, "status": document.status}
    if document.status in ("queued", "translating"):
        fields["seconds_remaining"] = math.ceil(document.seconds)
    if document.status == "done":
        fields["billed_characters"] = document.characters
    if document.status == "error":
        fields["error_message"] = " ".join(document.error.split())
    return {**fields, "done": document.done, "total": document.total}


def _clean(name: str) -> str:
    """The last part of a file's name, without control characters, and not too long."""
    last = PurePath(name.replace("\\", "/")).name
    path = PurePath("".join(character for character in last if character.isprintable()) or "document")
    return path.stem[:_MAX_NAME] + path.suffix[:_MAX_NAME]


def _save(file: BinaryIO, folder: Path, limit: int) -> None:
    folder.mkdir(mode=0o700)
    with (folder / "source").open("wb") as output:
        shutil.copyfileobj(file, output)
    if (folder / "source").stat().st_size > limit:
        shutil.rmtree(folder, ignore_errors=True)
        raise RefusedError(413, f"the file is larger than {limit:,} bytes")
