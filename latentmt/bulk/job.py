"""A bulk job: the input cut into parts, the parts translated by actors, the output with its manifest.

    out/manifest.json               what the job is, and which parts are done
    out/part-00003-000012.jsonl     part 12 of file 3: consecutive rows of the input

This process reads and hands out; actors translate and write. Killed at any moment, the same command goes on, and the
output ends with the same bytes.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console

import latentmt
from latentmt.bulk.choice import ModelChoice
from latentmt.bulk.manifest import InputFacts, Manifest, PartFacts
from latentmt.bulk.reading import DAMAGE, PARQUET, Reader, file_format
from latentmt.bulk.rows import Block, JsonBlock
from latentmt.bulk.store import Folder, StoredFile, find_files
from latentmt.bulk.worker import Part, PartWorker, WorkerConfig
from latentmt.bulk.writing import COLUMNS, EXTENSIONS, OutputFormat
from latentmt.bundle import open_model
from latentmt.cluster.config import ClusterConfig
from latentmt.cluster.pool import Pool
from latentmt.cluster.session import Cluster
from latentmt.display import ProgressBar, table
from latentmt.errors import UserError
from latentmt.installed import find_model
from latentmt.text.names import FILE as NAMES_FILE
from latentmt.translator import OPTIONS_FILES


@dataclass(frozen=True)
class BulkConfig:
    """What is translated, and into what."""

    input: str
    """A file, a folder, or a URL."""
    output: str
    """A folder, or a URL."""
    model: ModelChoice
    column: str | None = None
    """The column with the text."""
    to: OutputFormat | None = None
    """The format of the output. None: Parquet for Parquet, else JSON lines."""
    rows_per_part: int = 2048
    max_chars: int = 10_000
    """Rows with more characters are not translated."""


@dataclass(frozen=True)
class BulkSummary:
    """What a job has done."""

    rows: int
    parts: int
    errors: Mapping[str, int]
    """Rows with an error, by its kind."""
    rows_now: int
    """Rows of the parts that this run has done. The others were done before."""
    seconds: float
    """The time of this run, the start of Ray included."""
    actors_lost: int
    damaged: dict[str, str]
    """Files that could not be read to their end, and why."""


def run_job(config: BulkConfig, cluster: ClusterConfig) -> BulkSummary:
    """Do a job, or what is left of it."""
    start = time.monotonic()
    files = find_files(config.input, config.output)
    formats = {file_format(file) for file in files}
    to: OutputFormat = config.to or ("parquet" if formats == {PARQUET} else "jsonl")
    model = find_model(config.model.name)
    fingerprints = {kind: bundle.about.fingerprint for kind, bundle in open_model(model).items()}
    folder = Folder(config.output)
    manifest = Manifest(folder, _settings(config, to, model, fingerprints), files)
    manifest.resume()
    folder.make()
    before, lost = manifest.rows, 0
    source = _Source(config, to, files, manifest)
    todo = source.parts()
    first = next(todo, None)  # what is wrong with the input is said before Ray starts
    if first is not None:
        manifest.save()
        # Other processes work in other folders, and other machines may have an installed model elsewhere.
        choice = replace(config.model, name=str(model.resolve())) if _is_folder(config.model.name) else config.model
        worker = WorkerConfig(choice, fingerprints, folder.url, to, config.max_chars)
        lost = _work(worker, cluster, itertools.chain([first], todo), manifest, source)
    manifest.complete = not source.damaged
    manifest.save()
    seconds, now = time.monotonic() - start, manifest.rows - before
    return BulkSummary(manifest.rows, len(manifest.parts), manifest.errors, now, seconds, lost, source.damaged)


def _work(
    worker: WorkerConfig, config: ClusterConfig, todo: Iterator[Part], manifest: Manifest, source: _Source
) -> int:
    """Have the parts translated. Returns the number of actors lost on the way."""
    with Cluster(config) as cluster, ProgressBar("translating", "rows") as progress:
        pool: Pool[Part, PartFacts] = Pool(cluster, PartWorker, worker)
        start, seen = time.monotonic(), source.bytes_done
        try:
            for part, facts in pool.run(todo):
                manifest.add(part.name, facts)
                source.bytes_done += part.bytes
                speed = (source.bytes_done - seen) / (time.monotonic() - start)
                progress.advance(facts.rows, _note(source, speed, manifest.errors.total(), pool.lost))
        except BaseException:  # Ctrl-C too: what is done is kept
            manifest.save()
            raise
        return pool.lost


def _note(source: _Source, speed: float, errors: int, lost: int) -> str:
    notes = [f"{min(source.bytes_done / source.bytes, 1.0):.0%}"]
    if speed > 0:
        notes.append(f"{timedelta(seconds=round(max(source.bytes - source.bytes_done, 0) / speed))} left")
    if lost:
        notes.append(f"{lost} actors lost")
    if errors:
        notes.append(f"{errors:,} rows with errors")
    return ", ".join(notes)


def _is_folder(model: str | None) -> bool:
    return model is not None and Path(model).is_dir()


def _settings(config: BulkConfig, to: OutputFormat, model: Path, fingerprints: dict[str, str]) -> dict[str, Any]:
    """What decides the bytes of the output."""
    defaults = next(
        (path.read_text(encoding="utf-8") for name in OPTIONS_FILES if (path := model / name).exists()), None
    )
    names = model / NAMES_FILE
    return {
        "latentmt": latentmt.__version__,
        "model": fingerprints,
        "model_defaults": defaults,
        **({"names": hashlib.sha256(names.read_bytes()).hexdigest()} if names.exists() else {}),
        "options": config.model.options,
        "engine": config.model.engine,
        "device": config.model.device,
        "column": config.column,
        "to": to,
        "rows_per_part": config.rows_per_part,
        "max_chars": config.max_chars,
    }


class _Source:
    """The parts that are not done yet, read from the input when they are asked for."""

    def __init__(self, config: BulkConfig, to: OutputFormat, files: list[StoredFile], manifest: Manifest) -> None:
        self._reader, self._extension = Reader(config.column, config.rows_per_part), EXTENSIONS[to]
        self._files, self._manifest = files, manifest
        self.bytes = max(sum(file.size for file in files), 1)
        self.bytes_done = 0.0
        """About how much of the input is translated."""
        self.damaged: dict[str, str] = {}
        """Files that could not be read to their end, and why."""

    def parts(self) -> Iterator[Part]:
        first_row = 0
        for number, file in enumerate(self._files):
            facts = self._manifest.inputs[number]
            if self._is_done(number, facts):  # it is not even opened
                self.bytes_done += file.size
            else:
                yield from self._of_file(number, file, first_row)
            first_row += self._manifest.inputs[number].rows or 0

    def _of_file(self, number: int, file: StoredFile, first_row: int) -> Iterator[Part]:
        rows, parts, read, damage = 0, 0, 0.0, None
        try:
            for block, share in self._reader.blocks(file):
                size, read = share * file.size - read, share * file.size
                part = Part(self._name(number, parts), first_row + rows, block, size)
                rows, parts = rows + len(block), parts + 1
                if part.name in self._manifest.parts:
                    self.bytes_done += size
                    continue
                if part.first_row == 0:
                    _check(file, block)
                yield part
        except DAMAGE as error:
            damage = " ".join(str(error).split()) or type(error).__name__
        except UserError as error:
            if not number:
                raise  # most likely it is wrong for all files
            damage = str(error)
        if damage:
            self.damaged[file.name] = damage
        facts = InputFacts.of(file)
        self._manifest.inputs[number] = replace(facts, rows=rows, parts=parts, damage=damage)

    def _is_done(self, number: int, facts: InputFacts) -> bool:
        names = (self._name(number, part) for part in range(facts.parts or 0))
        return facts.rows is not None and not facts.damage and all(name in self._manifest.parts for name in names)

    def _name(self, file: int, part: int) -> str:
        return f"part-{file:05d}-{part:06d}.{self._extension}"


def _check(file: StoredFile, block: Block) -> None:
    """Refuse input that was not meant: its column is not there, or it has a column that the output adds."""
    names = dict.fromkeys(name for record in block.records() for name in record)
    if isinstance(block, JsonBlock) and all(row.text is None for row in block.rows()):
        raise UserError(f"{file.url}: no row has text in {block.column}; name its column with --column")
    for name in COLUMNS:
        if name in names:
            raise UserError(f"{file.url}: has a column {name}, which the output adds; rename it")


def show_summary(summary: BulkSummary, console: Console) -> None:
    """Show what a job has done, as a table."""
    speed = f"{summary.rows_now / summary.seconds:,.0f}"
    rows: list[tuple[str, object]] = [
        ("rows", summary.rows),
        ("of them in this run", summary.rows_now),
        ("parts", summary.parts),
        ("seconds", f"{summary.seconds:,.1f}"),
        ("rows/s, with the start of Ray", speed),
        ("actors lost", summary.actors_lost),
        ("rows with an error", sum(summary.errors.values())),
        *((f"  {kind}", count) for kind, count in sorted(summary.errors.items())),
        *((f"damaged: {name}", why) for name, why in sorted(summary.damaged.items())),
    ]
    console.print(table("Bulk translation", ("", ""), rows))
