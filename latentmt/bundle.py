"""A model on disk: weights, tokenizer, configuration, and what it takes to trust them. Never pickle.

    format.json                 format number, kind, hashes; read first
    config.yaml                 the network's configuration, its languages and how text is normalised for it
    tokenizer.model
    model-00001-of-00003.safetensors …, model.safetensors.index.json
    MODEL_CARD.md

A model is a folder with a bundle of each network it has, named by kind: `latent`, a field's name, `teacher`. A field
carries the fingerprint of the latent model it was trained on. This file reads and checks bundles without torch;
networks are written and built by `networks`.

A file is checked when it is read. Its content is not read from anywhere but `Bundle.read`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field
from safetensors import SafetensorError

import latentmt
from latentmt.config import Section, from_yaml, load_versioned
from latentmt.data.corpus import MAX_ROW_WIDTH
from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import Tokenizer
from latentmt.errors import UserError
from latentmt.files import read_plain, remove_files
from latentmt.ngrams.model import FILE as NGRAMS
from latentmt.verified import FileFacts, VerifiedFiles

FORMAT = 1
"""Raised whenever a bundle written before could be misread."""

INDEX = "model.safetensors.index.json"
LANGUAGE_MODEL = "language_model"
"""The kind of a bundle with an n-gram model (`ngrams/model.py`) instead of a network."""
WEIGHTS = ".safetensors"
"""How the names of files with weights end."""
_IDENTITY = ("config.yaml", "tokenizer.model", INDEX, NGRAMS)
"""What decides the fingerprint, beside the weights. Graphs follow from these, and a card decides nothing."""

MAX_FILE_BYTES = 1 << 28
"""The most bytes of a file. Those that are written have at most 15 MB."""
MEMORY_VARIABLE, DEFAULT_MEMORY_GB = "LATENTMT_MAX_MODEL_GB", 8.0
"""The environment variable with the most gigabytes that a network's files, and its weights, may take."""
LanguageCode = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,35}$")]
_Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

T = TypeVar("T")


def check_memory(amount: int, what: str) -> None:
    """Refuse what would take more memory than is allowed, before it is taken."""
    try:
        allowed = float(os.environ.get(MEMORY_VARIABLE, DEFAULT_MEMORY_GB))
    except ValueError:
        raise UserError(f"{MEMORY_VARIABLE}: expected a number of gigabytes") from None
    if not amount <= allowed * 1e9:
        raise UserError(f"{what}: needs {amount / 1e9:,.1f} GB of {allowed:g} GB; {MEMORY_VARIABLE} allows more")


@dataclass(frozen=True, kw_only=True)
class TextConfig(Section):
    """What text a network is for."""

    languages: tuple[LanguageCode, LanguageCode]
    rules: tuple[TextRules, TextRules]
    """How source and target text are normalised."""
    longest: Annotated[int, Field(ge=1, le=MAX_ROW_WIDTH)] = 64
    """Tokens of the longest sentence it was trained on, EOS included."""


@dataclass(frozen=True, kw_only=True)
class BundleHeader(TextConfig):
    """config.yaml: the text, and the configurations of the networks, which are not looked into here."""

    teacher: dict[str, Any] | None = None
    latent: dict[str, Any] | None = None
    field: dict[str, Any] | None = None
    language_model: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class BundleFormat(Section):
    """format.json: what the files of a bundle must be."""

    format: int = FORMAT
    kind: Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$")]
    """`teacher`, `latent`, `language_model` or a field's name."""
    package: Annotated[str, Field(pattern="^[ -~]{1,99}$")] = latentmt.__version__
    fingerprint: _Hash
    """A hash of configuration, tokenizer and weights: the identity of the model."""
    latent: _Hash | None = None
    """The fingerprint of the latent model that a field belongs to."""
    parameters: dict[str, Annotated[int, Field(ge=0)]]
    """How many each part has."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Where it came from and how it did: steps, tokens, development scores."""
    settings: dict[str, Any] = field(default_factory=dict)
    """All that decided it, by the recipe's names."""
    files: dict[str, FileFacts]
    checksum: str = field(default="", compare=False)
    """Of this file. Version 0.1 wrote none."""


def fingerprint(files: Mapping[str, FileFacts]) -> str:
    """The identity of a model with these files."""
    identity = {name: facts.sha256 for name, facts in files.items() if name in _IDENTITY or name.endswith(WEIGHTS)}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Part:
    """A tensor of a bundle, or one of the blocks of rows that a large one is split into."""

    name: str
    number: int
    """0 for a whole tensor; 0, 1, … for blocks."""
    tensor: Any
    """Of the library that loads it."""
    file: Path


@dataclass(frozen=True)
class Bundle:
    """An opened bundle. All files have their size, and all but the weights their hash."""

    folder: Path
    about: BundleFormat

    @property
    def files(self) -> VerifiedFiles:
        return VerifiedFiles(self.folder, self.about.files, self.folder / "format.json")

    @property
    def weight_bytes(self) -> int:
        """The size of the files with weights."""
        return sum(facts.bytes for name, facts in self.about.files.items() if name.endswith(WEIGHTS))

    @cached_property
    def header(self) -> BundleHeader:
        return self.config(BundleHeader)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        model = self.read("tokenizer.model")
        try:
            return Tokenizer(model)
        except UserError as error:
            raise UserError(f"{self.folder / 'tokenizer.model'}: {error}") from None

    def config(self, kind: type[T]) -> T:
        """config.yaml as a `kind`."""
        return from_yaml(self.read("config.yaml"), kind, str(self.folder / "config.yaml"))

    def read(self, name: str) -> bytes:
        """The content of a file, which is what was hashed. A damaged file is named in the error."""
        return self.files.read(name)

    def tensors(self, load: Callable[[bytes], Mapping[str, Any]]) -> Iterator[Part]:
        """The weights, a file in memory at a time; the parts of a tensor in order.

        `load` parses the content of a safetensors file: `safetensors.torch.load`, or that of another library.
        """
        index = self._index()
        for file in sorted(set(index.values())):
            path = self.folder / file
            try:
                tensors = load(self.read(file))
            except (SafetensorError, KeyError, ValueError) as error:  # KeyError: a type that the library does not have
                raise UserError(f"{path}: not a safetensors file ({str(error)[:200]})") from None
            expected = {name for name, where in index.items() if where == file}
            if tensors.keys() != expected:
                name = min(tensors.keys() ^ expected)
                raise UserError(f"{path}: does not hold what {INDEX} says: {name[:80]}")
            parts = [Part(*_part(name), tensor, path) for name, tensor in tensors.items()]
            yield from sorted(parts, key=lambda part: (part.name, part.number))

    def verify(self) -> None:
        """Compare every file with its hash."""
        self.files.verify()

    def _index(self) -> dict[str, str]:
        """The file of each tensor or part."""
        where = self.folder / INDEX
        try:
            index = json.loads(self.read(INDEX))["weight_map"]
        except (ValueError, LookupError, TypeError, RecursionError):
            raise UserError(f"{where}: not an index of weights") from None
        if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
            raise UserError(f"{where}: not an index of weights")
        listed = {name for name in self.about.files if name.endswith(WEIGHTS)}
        if different := listed ^ set(index.values()):
            raise UserError(f"{where}: names other files than format.json: {min(different)[:80]}")
        return index


def read_format(folder: Path) -> BundleFormat:
    """format.json of a bundle."""
    return load_versioned(folder / "format.json", BundleFormat, FORMAT, "model")


def open_bundle(folder: Path, kind: str | None = None) -> Bundle:
    """Open a bundle, of a kind if one is asked for. A missing, truncated or altered file is named in the error.

    Weights are compared with their hashes when they are read.
    """
    about = read_format(folder)
    if kind and about.kind != kind:
        raise UserError(f"{folder}: a {about.kind} model, where a {kind} model is needed")
    if about.fingerprint != fingerprint(about.files):
        raise UserError(f"{folder / 'format.json'}: altered since it was written")
    bundle = Bundle(folder, about)
    bundle.files.check()
    for name, facts in about.files.items():
        if facts.bytes > MAX_FILE_BYTES:
            raise UserError(f"{folder / name}: larger than {MAX_FILE_BYTES:,} bytes")
    check_memory(sum(facts.bytes for facts in about.files.values()), str(folder))
    for name in about.files:
        if not name.endswith(WEIGHTS):
            bundle.read(name)
    _ = bundle.header, bundle.tokenizer  # parsed now, so that what is wrong with them is said now
    return bundle


def check_replaceable(folder: Path) -> None:
    """Refuse to replace what is not a bundle, or what holds more than its files."""
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise UserError(f"{folder}: is not the folder of a model, so it is not replaced; move it away")
    names, ours = sorted(path.name for path in folder.iterdir()), _own_files(folder)
    if foreign := [name for name in names if name not in ours]:
        raise UserError(f"{folder}: holds {foreign[0]}, which is not part of a model; move it away")


def remove_bundle(folder: Path) -> list[str]:
    """Remove the files of a bundle, and the folder if nothing else is in it; what is left."""
    return remove_files(folder, _own_files(folder).__contains__)


def _own_files(folder: Path) -> set[str]:
    """The files that a bundle of any format lists, and format.json; none if that is not of a bundle."""
    try:
        about = json.loads(read_plain(folder / "format.json"))
    except (OSError, ValueError, RecursionError, UserError):
        return set()
    is_bundle = isinstance(about, dict) and {"format", "kind"} <= about.keys() and isinstance(about.get("files"), dict)
    return {*about["files"], "format.json"} if is_bundle else set()


def kinds_in(folder: Path) -> list[str]:
    """The kinds of the bundles that a model's folder holds: the latent model first, the teacher last."""
    kinds = sorted(path.parent.name for path in folder.glob("*/format.json") if _is_named_by_kind(path))
    return sorted(kinds, key=lambda kind: (kind != "latent", kind == "teacher"))


def is_field(kind: str) -> bool:
    """Whether bundles of this kind belong to a latent model."""
    return kind not in ("latent", "teacher", LANGUAGE_MODEL)


def _is_named_by_kind(path: Path) -> bool:
    """Not what a killed writer left, nor a copy with another name. A damaged file counts, to show its error."""
    if path.parent.name.startswith("."):
        return False
    try:
        return bool(json.loads(read_plain(path))["kind"] == path.parent.name)
    except (OSError, ValueError, LookupError, TypeError, RecursionError, UserError):
        return True


def open_model(folder: Path) -> dict[str, Bundle]:
    """Check all bundles of a model, and that they belong together; by kind."""
    bundles = {kind: open_bundle(folder / kind, kind) for kind in kinds_in(folder)}
    if "latent" not in bundles and "teacher" not in bundles:
        raise UserError(f"{folder}: no model (neither latent/ nor teacher/ holds a bundle)")
    first = bundles.get("latent") or bundles["teacher"]
    for kind, bundle in bundles.items():
        if is_field(kind):
            if "latent" not in bundles:
                raise UserError(f"{folder / kind}: the latent model it belongs to is not there")
            if bundle.about.latent != bundles["latent"].about.fingerprint:
                raise UserError(f"{folder / kind}: was trained on another latent model than {folder / 'latent'}")
        if bundle.tokenizer.fingerprint != first.tokenizer.fingerprint:
            raise UserError(f"{folder / kind}: has another tokenizer than {folder / 'latent'}")
        if (bundle.header.languages, bundle.header.rules) != (first.header.languages, first.header.rules):
            raise UserError(f"{folder / kind}: is for other languages or text rules than {folder / 'latent'}")
    return bundles


def _part(name: str) -> tuple[str, int]:
    """`name[2]` is the third part of a tensor, `name` a whole one."""
    match = re.fullmatch(r"(.+)\[(\d{1,6})\]", name)
    return (match[1], int(match[2])) if match else (name, 0)
