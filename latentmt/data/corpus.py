"""A corpus on disk: memory-mapped ids of sentence pairs, and a manifest that describes them.

    corpus/manifest.json            the commit point: the data folder, its files, their sizes and hashes
    corpus/data-<random>/           the data of one preparation
        tokenizer.model
        train.source.ids  …         concatenated ids (uint16 if they fit)
        train.source.offsets  …     the start of each sentence, and the end of the last (int64)
        dev.source.txt  …           held-out text, normalised

New data are written to a new folder and become the corpus when the manifest is replaced. So a reader finds the old
corpus or the new one, even if the writer is killed. There is one writer at a time. This file does not know where text
comes from.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, BinaryIO, ClassVar, Literal

import numpy as np
from jaxtyping import Int, Integer, UInt
from pydantic import Field

import latentmt
from latentmt.config import Section, load_versioned, to_json
from latentmt.data.normalise import TextRules
from latentmt.data.text import Pair, all_text, read_lines
from latentmt.data.tokenizer import Tokenizer
from latentmt.errors import UserError
from latentmt.files import make_folder, remove, sha256, sync, write_atomically
from latentmt.verified import FileFacts

FORMAT = 1
"""Raised whenever a corpus written before could be misread."""

MAX_ROW_WIDTH = 4096
"""The most tokens on either side of a packed training row, so of a sentence."""

MONOLINGUAL = "monolingual"
"""The name of the split of sources without a translation. Its targets are empty."""

SIDES: tuple[Literal["source"], Literal["target"]] = ("source", "target")


@dataclass(frozen=True, kw_only=True)
class SplitFacts(Section):
    """The counts of one split of a corpus."""

    pairs: int
    source_tokens: int
    target_tokens: int
    read: int
    """Pairs before cleaning."""
    dropped: dict[str, int] = field(default_factory=dict)
    """Pairs that each rule dropped."""
    resampled: int = 0
    """Pairs that are copies with a resampled segmentation of the source."""
    repeated: int = 0
    """Pairs that are copies for a higher weight, before the rules on length."""
    replaced: int = 0
    """Pairs that kept their reference because the distilled target was unusable."""


@dataclass(frozen=True, kw_only=True)
class Manifest(Section):
    """The description of a corpus and its origin."""

    aliases: ClassVar[Mapping[str, str]] = {"vocabulary": "vocab_size"}

    kind: Literal["corpus"] = "corpus"
    format: int = FORMAT
    package: str = latentmt.__version__
    """The version of latentmt that wrote it."""
    fingerprint: str
    """A hash of everything that determines the corpus: configuration, source files, tokenizer, format."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The same settings in readable form, by the recipe's names."""
    data: str
    """The name of the data folder. It is unique, so old and new data can exist side by side."""
    languages: tuple[str, str]
    rules: tuple[TextRules, TextRules]
    """How source and target text are normalised."""
    row_width: Annotated[int, Field(ge=2, le=MAX_ROW_WIDTH)]
    """Tokens on either side of a packed training row."""
    vocab_size: int
    tokenizer: str
    """SHA-256 of the tokenizer."""
    sources: dict[str, str]
    """SHA-256 of every file that was read."""
    splits: dict[str, SplitFacts]
    files: dict[str, FileFacts]
    checksum: str = field(default="", compare=False)
    """Of this file. Version 0.1 wrote none."""


@dataclass(frozen=True)
class Sentences:
    """Sentences of ids, concatenated in one array."""

    ids: UInt[np.ndarray, tokens]
    offsets: Int[np.ndarray, sentences_and_one]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> UInt[np.ndarray, t]:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> Int[np.ndarray, sentences]:
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Split:
    """Source and target sentences, equally many."""

    source: Sentences
    target: Sentences

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class Corpus:
    """An opened corpus."""

    folder: Path
    manifest: Manifest
    tokenizer: Tokenizer

    @staticmethod
    def load(folder: Path) -> Corpus:
        """Open a corpus. A missing or truncated file is named in the error."""
        manifest = read_manifest(folder)
        data = folder / manifest.data
        for name, facts in manifest.files.items():
            size = (data / name).stat().st_size if (data / name).exists() else None
            if size is None:
                raise UserError(f"{data / name}: missing; prepare the corpus again")
            if size != facts.bytes:
                raise UserError(f"{data / name}: {size} bytes, {facts.bytes} expected; prepare the corpus again")
        return Corpus(folder, manifest, Tokenizer.load(data / "tokenizer.model"))

    @staticmethod
    def existing(folder: Path, fingerprint: str) -> Corpus | None:
        """The corpus in a folder, if it is complete and has that fingerprint."""
        try:
            corpus = Corpus.load(folder)
        except UserError:  # missing or incomplete
            return None
        return corpus if corpus.manifest.fingerprint == fingerprint else None

    def split(self, name: str) -> Split:
        """The ids of a split, memory-mapped."""
        if name not in self.manifest.splits:
            raise UserError(f"{self.folder}: the corpus has no {name} split")
        facts = self.manifest.splits[name]
        dtype = _id_type(self.manifest.vocab_size)
        return Split(
            *(
                Sentences(
                    _mapped(self._path(f"{name}.{side}.ids"), dtype, tokens),
                    _mapped(self._path(f"{name}.{side}.offsets"), np.dtype(np.int64), facts.pairs + 1),
                )
                for side, tokens in zip(SIDES, (facts.source_tokens, facts.target_tokens), strict=True)
            )
        )

    def text(self, name: str) -> list[Pair]:
        """The text of a held-out split."""
        source, target = (all_text(read_lines([self._path(f"{name}.{side}.txt")])) for side in SIDES)
        return [Pair(*lines) for lines in zip(source, target, strict=True)]

    def verify(self) -> None:
        """Check the hash of every file. The first that differs is named in the error."""
        for name, facts in self.manifest.files.items():
            if sha256(self._path(name)) != facts.sha256:
                raise UserError(f"{self._path(name)}: altered since it was written; prepare the corpus again")

    def _path(self, name: str) -> Path:
        return self.folder / self.manifest.data / name


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a corpus."""
    return load_versioned(folder / "manifest.json", Manifest, FORMAT, "corpus")


class SplitWriter:
    """Appends sentence pairs to one split."""

    def __init__(
        self, folder: Path, name: str, dtype: np.dtype[np.unsignedinteger], files: contextlib.ExitStack
    ) -> None:
        self._dtype = dtype
        self._ids, self._offsets = (
            [files.enter_context((folder / f"{name}.{side}.{kind}").open("wb")) for side in SIDES]
            for kind in ("ids", "offsets")
        )
        for file in self._offsets:
            file.write(np.zeros(1, dtype=np.int64).tobytes())
        self.pairs = 0
        self.tokens = [0, 0]
        """Tokens written so far: source, target."""

    def append(self, source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]) -> None:
        """Add pairs of ids, in order."""
        if len(source) != len(target):
            raise ValueError(f"{len(source)} sources, {len(target)} targets")
        for side, sentences in enumerate((source, target)):
            flat = np.fromiter((id_ for sentence in sentences for id_ in sentence), dtype=self._dtype)
            ends = self.tokens[side] + np.cumsum([len(sentence) for sentence in sentences], dtype=np.int64)
            self._ids[side].write(flat.tobytes())
            self._offsets[side].write(ends.tobytes())
            self.tokens[side] += len(flat)
        self.pairs += len(source)


class CorpusWriter:
    """Writes a corpus beside an existing one, and replaces that at `commit`.

        with CorpusWriter(folder, tokenizer) as writer:
            writer.split("train").append(source_ids, target_ids)
            writer.commit(manifest)

    Without a commit, the old corpus stays and the new data are removed.
    """

    def __init__(self, folder: Path, tokenizer: Tokenizer) -> None:
        self._folder = make_folder(folder)
        self._data = folder / f"data-{secrets.token_hex(4)}"
        self._tokenizer = tokenizer
        self._files = contextlib.ExitStack()

    def __enter__(self) -> CorpusWriter:
        self._remove_stale(self._current())
        make_folder(self._data)
        (self._data / "tokenizer.model").write_bytes(self._tokenizer.model)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # closing flushes, which fails again on a full disk
            self._files.close()
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(self._data)
        if self._data.name != self._current():
            remove(self._data)

    def split(self, name: str) -> SplitWriter:
        return SplitWriter(self._data, name, _id_type(self._tokenizer.size), self._files)

    def text(self, name: str) -> tuple[BinaryIO, BinaryIO]:
        """Files for the held-out text of a split: source, target."""
        source, target = (self._files.enter_context((self._data / f"{name}.{side}.txt").open("wb")) for side in SIDES)
        return source, target

    def commit(
        self,
        *,
        fingerprint: str,
        settings: Mapping[str, Any],
        languages: tuple[str, str],
        rules: tuple[TextRules, TextRules],
        row_width: int,
        sources: dict[str, str],
        splits: dict[str, SplitFacts],
    ) -> Manifest:
        """Write the manifest, which replaces the old corpus."""
        self._files.close()
        for path in self._data.iterdir():
            sync(path)
        manifest = Manifest(
            fingerprint=fingerprint,
            settings=dict(settings),
            data=self._data.name,
            languages=languages,
            rules=rules,
            row_width=row_width,
            vocab_size=self._tokenizer.size,
            tokenizer=self._tokenizer.fingerprint,
            sources=sources,
            splits=splits,
            files={path.name: FileFacts.of(path) for path in sorted(self._data.iterdir())},
        )
        sync(self._data)
        write_atomically(self._folder / "manifest.json", to_json(manifest))
        self._remove_stale(manifest.data)
        return manifest

    def _current(self) -> str:
        try:
            return read_manifest(self._folder).data
        except UserError:  # missing or unreadable
            return ""

    def _remove_stale(self, current: str) -> None:
        """Remove data that are not in the manifest: of an older corpus, or of a killed writer."""
        for path in self._folder.glob("data-*"):
            if path.name != current:
                remove(path)


def _id_type(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    return np.dtype(np.uint16) if vocab_size <= 1 << 16 else np.dtype(np.uint32)


def _mapped(path: Path, dtype: np.dtype, count: int) -> Integer[np.ndarray, n]:
    if count == 0:
        return np.zeros(0, dtype=dtype)  # an empty file cannot be memory-mapped
    return np.memmap(path, dtype=dtype, mode="r", shape=(count,))
