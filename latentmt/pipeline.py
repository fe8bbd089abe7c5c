"""What spans stages: a recipe, and the folder in which its stages leave their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from latentmt.config import Section, load
from latentmt.data.corpus import Corpus
from latentmt.data.prepare import DataConfig, prepare
from latentmt.data.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Recipe(Section):
    """Everything that decides what is built, but for paths and devices."""

    data: DataConfig


def recipe_file(path: Path) -> Path:
    """A recipe is a YAML file, or a folder that holds `recipe.yaml`."""
    return path / "recipe.yaml" if path.is_dir() else path


def recipe_name(path: Path) -> str:
    """What a recipe is called: its folder's name, or its file's where that is not `recipe.yaml`."""
    file = recipe_file(path).resolve()
    return file.parent.name if file.name == "recipe.yaml" else file.stem


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe."""
    return load(recipe_file(path), Recipe, overrides)


def prepare_corpus(recipe: Recipe, data: Path, work: Path, tokenizer: Path | None = None) -> tuple[Corpus, bool]:
    """The corpus of a recipe in its work folder, and whether it had to be written."""
    return prepare(recipe.data, data, work / "corpus", Tokenizer.load(tokenizer) if tokenizer else None)
