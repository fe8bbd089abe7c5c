"""A corpus on disk: memory-mapped ids of sentence pairs, and a manifest that describes them.

    corpus/manifest.json            the commit point: the data folder, its files, their sizes and hashes
    corpus/data-<random>/           the data of one preparation
        tokenizer.model
        train.source.ids  …         concatenated ids (uint16 if they fit)
        train.source.offsets  …     the start of each sentence, and the end of the last (int64)
        dev.source.txt  …           held-out text, normalised

New data are written to a new folder and become the corpus when the manifest is replaced. So a reader finds the old
corpus or the new one, even if the writer is killed. There is one writer at a time. Old data are removed by the names of
their files, so that nothing else is. This file does not know where text comes from.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
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
from latentmt.data.text import Pair, all_text, decode_lines
from latentmt.data.tokenizer import Tokenizer
from latentmt.display import info
from latentmt.errors import UserError
from latentmt.files import make_folder, read_plain, remove_files, write_atomically
from latentmt.system import sync
from latentmt.verified import FileFacts, VerifiedFiles

FORMAT = 1
"""Raised whenever a corpus written before could be misread."""

MAX_ROW_WIDTH = 4096
"""The most tokens on either side of a packed training row, so of a sentence."""

MONOLINGUAL = "monolingual"
"""The name of the split of sources without a translation. Its targets are empty."""

_DATA = re.compile("data-[0-9a-f]{8}")
_FILE = re.compile(r"tokenizer\.model|[a-z]+\.(source|target)\.(ids|offsets|txt)")
"""The names of data folders and their files."""

SIDES: tuple[Literal["source"], Literal["target"]] = ("source", "target")


@dataclass(frozen=True, kw_only=True)
class SplitFacts(Section):
    """The counts of one split of a corpus."""

    pairs: Annotated[int, Field(ge=0)]
    source_tokens: Annotated[int, Field(ge=0)]
    target_tokens: Annotated[int, Field(ge=0)]
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
    data: Annotated[str, Field(pattern="^data-[0-9a-z]{1,64}$")]
    """The name of the data folder. It is unique, so old and new data can exist side by side."""
    languages: tuple[str, str]
    rules: tuple[TextRules, TextRules]
    """How source and target text are normalised."""
    row_width: Annotated[int, Field(ge=2, le=MAX_ROW_WIDTH)]
    """Tokens on either side of a packed training row."""
    vocab_size: Annotated[int, Field(ge=1, le=1 << 32)]
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
        """Open a corpus. A missing or truncated file is named in the error.

        Hashes are compared when a file is read: of ids and offsets when they are mapped.
        """
        manifest = read_manifest(folder)
        files = _files(folder, manifest)
        files.check()
        model = files.read("tokenizer.model")
        try:
            tokenizer = Tokenizer(model)
        except UserError as error:
            raise UserError(f"{files.folder / 'tokenizer.model'}: {error}") from None
        if tokenizer.size != manifest.vocab_size or tokenizer.fingerprint != manifest.tokenizer:
            raise UserError(f"{folder / 'manifest.json'}: is of another tokenizer than the corpus has")
        return Corpus(folder, manifest, tokenizer)

    @staticmethod
    def existing(folder: Path, fingerprint: str) -> Corpus | None:
        """The corpus in a folder, if it is whole and has that fingerprint. What is damaged is said and made again."""
        if not (folder / "manifest.json").exists():
            return None
        try:
            corpus = Corpus.load(folder)
            corpus.verify()
        except UserError as error:
            info(f"WARNING: {error}")
            return None
        return corpus if corpus.manifest.fingerprint == fingerprint else None

    @property
    def files(self) -> VerifiedFiles:
        return _files(self.folder, self.manifest)

    def split(self, name: str) -> Split:
        """The ids of a split, memory-mapped."""
        if name not in self.manifest.splits:
            raise UserError(f"{self.folder}: the corpus has no {name} split")
        facts = self.manifest.splits[name]
        source, target = (
            self._sentences(f"{name}.{side}", facts.pairs, tokens)
            for side, tokens in zip(SIDES, (facts.source_tokens, facts.target_tokens), strict=True)
        )
        return Split(source, target)

    def text(self, name: str) -> list[Pair]:
        """The text of a held-out split."""
        source, target = (self._lines(f"{name}.{side}.txt") for side in SIDES)
        if len(source) != len(target):
            raise UserError(f"{self.folder}: {name} has {len(source)} source and {len(target)} target lines")
        return [Pair(*lines) for lines in zip(source, target, strict=True)]

    def verify(self) -> None:
        """Check the hash of every file. The first that differs is named in the error."""
        self.files.verify()

    def _sentences(self, name: str, pairs: int, tokens: int) -> Sentences:
        ids = self._array(f"{name}.ids", _id_type(self.manifest.vocab_size), tokens)
        offsets = self._array(f"{name}.offsets", np.dtype(np.int64), pairs + 1)
        if offsets[0] != 0 or offsets[-1] != tokens or (np.diff(offsets) < 0).any():
            raise UserError(f"{self._path(f'{name}.offsets')}: not the offsets of {tokens:,} tokens")
        if tokens and int(ids.max()) >= self.manifest.vocab_size:
            raise UserError(f"{self._path(f'{name}.ids')}: has ids that the tokenizer does not have")
        return Sentences(ids, offsets)

    def _array(self, name: str, dtype: np.dtype, count: int) -> Integer[np.ndarray, n]:
        content = self.files.map(name)
        if len(content) != count * dtype.itemsize:
            raise UserError(f"{self._path(name)}: {len(content)} bytes for {count} numbers")
        return np.frombuffer(content, dtype=dtype)

    def _lines(self, name: str) -> list[str]:
        return list(all_text(decode_lines(io.BytesIO(self.files.read(name)), str(self._path(name)))))

    def _path(self, name: str) -> Path:
        return self.folder / self.manifest.data / name


def _files(folder: Path, manifest: Manifest) -> VerifiedFiles:
    advice = "; prepare the corpus again, or distil again"
    return VerifiedFiles(folder / manifest.data, manifest.files, folder / "manifest.json", advice)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a corpus."""
    return load_versioned(folder / "manifest.json", Manifest, FORMAT, "corpus")


def check_replaceable_corpus(folder: Path) -> None:
    """Refuse a folder with a manifest that is not a corpus's. Other files in the folder are left alone."""
    path = folder / "manifest.json"
    if os.path.lexists(folder) and not folder.is_dir():
        raise UserError(f"{folder}: is not a folder, so it is not replaced; move it away")
    if os.path.lexists(path) and not _is_corpus(folder):
        raise UserError(f"{path}: is not of a corpus, so it is not replaced; move it away")


def remove_corpus(folder: Path) -> list[str]:
    """Remove the files of a corpus, and its folder if nothing else is in it; what is left."""
    if _is_corpus(folder):
        for path in folder.glob("data-*"):
            if _DATA.fullmatch(path.name):
                remove_files(path, _FILE.fullmatch)
    left = [path.name for path in sorted(folder.iterdir()) if path.name != "manifest.json" or not _is_corpus(folder)]
    return left or remove_files(folder, "manifest.json".__eq__)


def _is_corpus(folder: Path) -> bool:
    """Whether the manifest in a folder is a corpus's, of any format."""
    try:
        return bool(json.loads(read_plain(folder / "manifest.json")).get("kind") == "corpus")
    except (OSError, ValueError, AttributeError, RecursionError, UserError):
        return False


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
        check_replaceable_corpus(self._folder)
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
            remove_files(self._data, _FILE.fullmatch)

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
        sync(self._folder)
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
            if path.name != current and _DATA.fullmatch(path.name):
                remove_files(path, _FILE.fullmatch)


def _id_type(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    return np.dtype(np.uint16) if vocab_size <= 1 << 16 else np.dtype(np.uint32)
