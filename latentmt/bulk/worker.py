"""What an actor does: translates the rows of a part and writes them to the output.

It imports what translates, and torch only if the engine needs it. A part that has ended two actors is translated in a
process of its own, row by row, so that the row that does it can be found and passed over.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from latentmt.bulk.choice import ModelChoice
from latentmt.bulk.isolated import isolated_translate
from latentmt.bulk.manifest import PartFacts
from latentmt.bulk.rows import Block
from latentmt.bulk.store import Folder
from latentmt.bulk.translating import kind_of, translate_rows
from latentmt.bulk.writing import OutputFormat, TranslatedRow, encode
from latentmt.errors import UserError
from latentmt.options import DecodingOptions
from latentmt.translator import Translator

CAREFUL_FROM = 2
"""Actors that a part loses before it is translated row by row."""


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a file of the input, and the file of the output that they go to."""

    name: str
    first_row: int
    """The number of the first row in the whole input."""
    block: Block
    bytes: float
    """About how much of the input it is."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class WorkerConfig:
    """What an actor needs to know."""

    model: ModelChoice
    fingerprints: dict[str, str]
    """Those of the model's bundles where the job was started."""
    output: str
    to: OutputFormat
    max_chars: int


class PartWorker:
    """The actor. Ray makes it on whichever machine has room."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._folder = Folder(config.output)
        self._loaded: tuple[Translator, DecodingOptions] | None = None
        self._metrics = _Metrics()

    def ready(self) -> None:
        """Load the model."""
        translator, options = self._config.model.load()
        if translator.fingerprints != self._config.fingerprints:
            raise UserError(f"model {self._config.model.name or 'installed'}: differs between the machines")
        self._loaded = translator, options

    def run(self, part: Part, losses: int) -> PartFacts:
        """Translate a part and write it."""
        start = time.monotonic()
        rows = part.block.rows()
        if losses >= CAREFUL_FROM:
            self._loaded = None  # there is not always memory for two
            done = isolated_translate(rows, self._config.model, self._config.max_chars)
        else:
            done = translate_rows(rows, self._translate, self._config.max_chars)
        content = encode(part.block, part.first_row, done, self._config.to)
        self._folder.put(part.name, content)
        facts = _facts(done, content)
        self._metrics.count(facts, time.monotonic() - start)
        return facts

    def _translate(self, texts: Sequence[str]) -> list[str]:
        if self._loaded is None:
            self.ready()
        assert self._loaded is not None
        translator, options = self._loaded
        return [translation.text for translation in translator.translations(texts, options)]


def _facts(rows: list[TranslatedRow], content: bytes) -> PartFacts:
    errors = Counter(kind_of(row.error) for row in rows if row.error is not None)
    return PartFacts(
        rows=len(rows),
        errors={kind: errors[kind] for kind in sorted(errors)},
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


class _Metrics:
    """Prometheus metrics of an actor, exported by Ray if the cluster does so."""

    def __init__(self) -> None:
        from ray.util.metrics import Counter as RayCounter

        self._rows = RayCounter("latentmt_bulk_rows", "Rows written.")
        self._errors = RayCounter("latentmt_bulk_row_errors", "Rows with an error.")
        self._seconds = RayCounter("latentmt_bulk_busy_seconds", "Time spent on parts.")

    def count(self, facts: PartFacts, seconds: float) -> None:
        self._rows.inc(facts.rows)
        self._seconds.inc(seconds)
        if facts.errors:
            self._errors.inc(sum(facts.errors.values()))
