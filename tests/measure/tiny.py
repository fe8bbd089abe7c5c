"""What measuring is tried on: a few pairs of the numbers corpus, and networks of a size to match."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from latentmt.data.corpus import Corpus
from latentmt.data.numbers import Sizes, write_numbers
from latentmt.models.latent import LatentConfig
from latentmt.pipeline import prepare_corpus
from latentmt.recipe import load_recipe

RECIPE = """
data:
  languages: [de, en]
  train: [{source: [train.de], target: [train.en]}]
  dev: {source: [dev.de], target: [dev.en]}
  tokenizer: {vocabulary: 400}
"""
SIZE: dict[str, Any] = {"preset": "tiny", "d_model": 32, "d_filter": 32, "layers": 1, "heads": 2, "dropout": 0.0}
LATENT = LatentConfig(**SIZE, encoder_layers=1, latent_dim=4)


def write_corpus(folder: Path, held_out: int) -> Corpus:
    """The text, recipe.yaml and the corpus, with as many development and test pairs."""
    write_numbers(folder, Sizes(train=300, dev=held_out, test=held_out), seed=1)
    (folder / "recipe.yaml").write_text(RECIPE)
    return prepare_corpus(load_recipe(folder), folder, folder)[0]
