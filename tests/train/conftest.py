"""A recipe so small that every stage takes seconds, on a few hundred pairs of the numbers corpus."""

from pathlib import Path

import pytest

from latentmt.data.numbers import Sizes, write_numbers
from latentmt.pipeline import prepare_corpus
from latentmt.recipe import load_recipe

RECIPE = """
data:
  languages: [de, en]
  train: [{source: [train.de], target: [train.en]}]
  dev: {source: [dev.de], target: [dev.en]}
  tokenizer: {vocab_size: 600}
teacher:
  model: {preset: tiny, d_model: 32, d_filter: 32, layers: 1, encoder_layers: 1, heads: 2}
  train: &train
    {steps: 12, batch_rows: 4, learning_rate: 2e-3, warmup: 4, report_every: 5, validate_every: 100, save_every: 3}
distill: {beam: {beam: 2, max_ratio: 0, max_extra: 12}}
latent:
  model: {preset: tiny, d_model: 32, d_filter: 32, layers: 1, encoder_layers: 1, heads: 2, latent_dim: 4}
  train: *train
fields:
  score:
    model: {preset: tiny, d_model: 32, d_filter: 32, layers: 1, heads: 2}
    train: *train
  energy:
    model: {preset: tiny, d_model: 32, d_filter: 32, layers: 1, heads: 2}
    train: *train
"""


@pytest.fixture(scope="session")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recipe.yaml, the text and the prepared corpus; to be copied, not written to."""
    folder = tmp_path_factory.mktemp("numbers")
    write_numbers(folder, Sizes(train=300, dev=20, test=20), seed=1)
    (folder / "recipe.yaml").write_text(RECIPE)
    prepare_corpus(load_recipe(folder), folder, folder)
    return folder
