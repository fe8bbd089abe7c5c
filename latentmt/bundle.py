"""A model on disk: weights, tokenizer, configuration, and what it takes to trust them. Never pickle.

    format.json                 format number, kind, hashes; read first
    config.yaml                 the network's configuration, its languages and how text is normalised for it
    tokenizer.model
    model-00001-of-00003.safetensors …, model.safetensors.index.json
    MODEL_CARD.md

A model is a folder with a bundle of each network it has, named by kind: `latent`, a field's name, `teacher`. A field
carries the fingerprint of the latent model it was trained on. This file reads and checks bundles without torch;
networks are written and built by `networks`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

import latentmt
from latentmt.config import Section, load, load_versioned
from latentmt.data.corpus import FileFacts
from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import Tokenizer
from latentmt.errors import UserError
from latentmt.files import sha256

FORMAT = 1
"""Raised whenever a bundle written before could be misread."""


@dataclass(frozen=True, kw_only=True)
class TextConfig(Section):
    """What text a network is for."""

    languages: tuple[str, str]
    rules: tuple[TextRules, TextRules]
    """How source and target text are normalised."""
    longest: Annotated[int, Field(ge=1)] = 64
    """Tokens of the longest sentence it was trained on, EOS included."""


@dataclass(frozen=True, kw_only=True)
class BundleHeader(TextConfig):
    """config.yaml: the text, and the configurations of the networks, which are not looked into here."""

    teacher: dict[str, Any] | None = None
    latent: dict[str, Any] | None = None
    field: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class BundleFormat(Section):
    """format.json: what the files of a bundle must be."""

    format: int = FORMAT
    kind: str
    """`teacher`, `latent` or a field's name."""
    package: str = latentmt.__version__
    fingerprint: str
    """A hash of configuration, tokenizer and weights: the identity of the model."""
    latent: str | None = None
    """The fingerprint of the latent model that a field belongs to."""
    parameters: dict[str, int]
    """How many each part has."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Where it came from and how it did: steps, tokens, development scores."""
    settings: dict[str, Any] = field(default_factory=dict)
    """All that decided it, by the recipe's names."""
    files: dict[str, FileFacts]


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files are whole."""

    folder: Path
    header: BundleHeader
    about: BundleFormat
    tokenizer: Tokenizer


def read_format(folder: Path) -> BundleFormat:
    """format.json of a bundle."""
    return load_versioned(folder / "format.json", BundleFormat, FORMAT, "model")


def open_bundle(folder: Path, kind: str | None = None) -> Bundle:
    """Check a bundle, of a kind if one is asked for; a missing, truncated or altered file is named."""
    about = read_format(folder)
    if kind and about.kind != kind:
        raise UserError(f"{folder}: a {about.kind} model, where a {kind} model is needed")
    for name, facts in about.files.items():
        path = folder / name
        if not path.exists():
            raise UserError(f"{path}: missing")
        if path.stat().st_size != facts.bytes:
            raise UserError(f"{path}: truncated ({path.stat().st_size} bytes, {facts.bytes} expected)")
        if sha256(path) != facts.sha256:
            raise UserError(f"{path}: altered since it was written")
    header = load(folder / "config.yaml", BundleHeader)
    return Bundle(folder, header, about, Tokenizer.load(folder / "tokenizer.model"))


def kinds_in(folder: Path) -> list[str]:
    """The kinds of the bundles that a model's folder holds: the latent model first, the teacher last."""
    kinds = sorted(path.parent.name for path in folder.glob("*/format.json") if _is_named_by_kind(path))
    return sorted(kinds, key=lambda kind: (kind != "latent", kind == "teacher"))


def _is_named_by_kind(path: Path) -> bool:
    """Not what a killed writer left, nor a copy with another name. A damaged file counts, to show its error."""
    if path.parent.name.startswith("."):
        return False
    try:
        return bool(json.loads(path.read_text(encoding="utf-8"))["kind"] == path.parent.name)
    except (OSError, ValueError, LookupError, TypeError):
        return True


def open_model(folder: Path) -> dict[str, Bundle]:
    """Check all bundles of a model, and that they belong together; by kind."""
    bundles = {kind: open_bundle(folder / kind, kind) for kind in kinds_in(folder)}
    if "latent" not in bundles and "teacher" not in bundles:
        raise UserError(f"{folder}: no model (neither latent/ nor teacher/ holds a bundle)")
    first = bundles.get("latent") or bundles["teacher"]
    for kind, bundle in bundles.items():
        if kind not in ("latent", "teacher"):
            if "latent" not in bundles:
                raise UserError(f"{folder / kind}: the latent model it belongs to is not there")
            if bundle.about.latent != bundles["latent"].about.fingerprint:
                raise UserError(f"{folder / kind}: was trained on another latent model than {folder / 'latent'}")
        if bundle.tokenizer.fingerprint != first.tokenizer.fingerprint:
            raise UserError(f"{folder / kind}: has another tokenizer than {folder / 'latent'}")
        if (bundle.header.languages, bundle.header.rules) != (first.header.languages, first.header.rules):
            raise UserError(f"{folder / kind}: is for other languages or text rules than {folder / 'latent'}")
    return bundles
