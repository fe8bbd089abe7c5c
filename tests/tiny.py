"""Small corpora and untrained networks for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from latentmt.bundle import open_model
from latentmt.data.corpus import Corpus
from latentmt.data.normalise import TextRules
from latentmt.data.numbers import Sizes, write_numbers
from latentmt.data.tokenizer import BLANK, EOS, Tokenizer
from latentmt.engines.onnx.engine import OnnxEngine
from latentmt.export.model import graph_files
from latentmt.fields.energy import EnergyNetwork
from latentmt.fields.learned import FieldConfig
from latentmt.fields.registry import field_network
from latentmt.fields.score import ScoreNetwork
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.models.outputs import TokenOutput
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.networks import BundleConfig, save_bundle
from latentmt.options import LENGTH_LIMIT
from latentmt.pipeline import prepare_corpus
from latentmt.recipe import load_recipe
from latentmt.translator import Translator

RECIPE = """
data:
  languages: [de, en]
  train: [{source: [train.de], target: [train.en]}]
  dev: {source: [dev.de], target: [dev.en]}
  test: {source: [test.de], target: [test.en]}
  tokenizer: {vocab_size: 400}
"""
SIZE: dict[str, Any] = {"preset": "tiny", "d_model": 32, "d_filter": 32, "layers": 1, "heads": 2, "dropout": 0.0}
LATENT = LatentConfig(**SIZE, encoder_layers=1, latent_dim=4)
TEACHER = TeacherConfig(**SIZE, encoder_layers=1)
SENTENCES = [
    "Ein kleiner Satz steht hier, und noch einer dort.",
    "The small sentence is here, another one over there.",
    "Wir haben 1100 Bücher gelesen!",
    "Did they read 2200 books?",
]
BYTES = slice(4, 260)
"""The ids of the byte pieces."""


def enliven(network: LatentModel | ScoreNetwork | EnergyNetwork | Teacher) -> None:
    """Scale the heads so that every sentence and every method has a different text, in letters."""
    with torch.no_grad():
        if isinstance(network, LatentModel):
            for head in (network.prior.head, network.posterior_head):
                head.weight[: network.latent_dim].normal_(std=1.0)
                head.weight[network.latent_dim :].normal_(std=0.1)
            for stack in (network.prior.stack, network.posterior_stack):
                stack.layers[0].cross_attention.out.weight.mul_(3)
            if isinstance(output := network.output, TokenOutput):
                output.length_head.weight.normal_(std=1.5)
                output.length_head.bias.copy_(-0.8 * (torch.arange(2 * LENGTH_LIMIT + 1) - LENGTH_LIMIT - 2).abs())
            else:
                network.embedding.weight[BLANK] *= 3  # else hardly any place would write nothing
            if network.decoder_stack.upsampling:  # else adjacent places would write the same
                width = network.decoder_stack.size.width
                network.decoder_stack.source_keys_values.weight[-width:] *= 0.3
        if isinstance(network, LatentModel | Teacher):
            network.decoder_stack.layers[0].cross_attention.out.weight.mul_(3)
            network.embedding.weight[BYTES] *= 0.1
        else:
            network.head.weight.normal_(std=0.8 if isinstance(network, ScoreNetwork) else 8.0)


def onnx_translator(
    folder: Path, tokenizer: Tokenizer, rules: tuple[TextRules, TextRules], networks: Mapping[BundleConfig, nn.Module]
) -> Translator:
    """A translator on the ONNX engine, with these networks in single precision."""
    latent = None
    for config, network in networks.items():
        weights = {name: weight.float() for name, weight in network.state_dict().items()}
        files = graph_files(network, config.kind, set())
        of = latent if config.field else None
        about = save_bundle(folder / config.kind, config, tokenizer, weights, latent=of, files=files)
        latent = about.fingerprint if config.kind == "latent" else latent
    return Translator(tokenizer, rules, OnnxEngine(open_model(folder)))


def write_corpus(folder: Path, held_out: int) -> Corpus:
    """Write text, recipe.yaml and the corpus, with `held_out` development and test pairs each."""
    write_numbers(folder, Sizes(train=300, dev=held_out, test=held_out), seed=1)
    (folder / "recipe.yaml").write_text(RECIPE)
    return prepare_corpus(load_recipe(folder), folder, folder)[0]


def write_models(folder: Path, corpus: Corpus, latent_dim: int = 4, output: str = "tokens") -> None:
    """Write untrained bundles of all kinds, with different texts for every sentence and method."""
    torch.manual_seed(1)
    pieces = corpus.tokenizer.size
    config = LatentConfig(**SIZE, encoder_layers=1, latent_dim=latent_dim, output=output)
    facts: dict[str, Any] = {"languages": corpus.manifest.languages, "rules": corpus.manifest.rules}
    latent, teacher = LatentModel(config, pieces), Teacher(TEACHER, pieces)
    score, energy = (field_network(FieldConfig(kind=kind, **SIZE), config) for kind in ("score", "energy"))
    assert isinstance(score, ScoreNetwork)
    with torch.no_grad():
        latent.prior.head.weight[:latent_dim].normal_(std=0.5)
        latent.posterior_head.weight[:latent_dim].normal_(std=0.5)
        if isinstance(latent.output, TokenOutput):
            latent.output.length_head.weight.mul_(0.1)
            latent.output.length_head.bias[LENGTH_LIMIT] = 0.1  # else lengths would vary widely, and tests be slow
        score.head.weight.normal_()
        energy.head.weight.mul_(20)
        teacher.decoder_stack.norm.bias += (
            3 * teacher.embedding.weight[EOS]
        )  # else it would write up to the last position
    about = save_bundle(folder / "latent", BundleConfig(**facts, latent=config), corpus.tokenizer, latent.state_dict())
    for kind, net in (("score", score), ("energy", energy)):
        bundle = BundleConfig(**facts, latent=config, field=FieldConfig(kind=kind, **SIZE))  # type: ignore[arg-type]
        save_bundle(folder / kind, bundle, corpus.tokenizer, net.state_dict(), latent=about.fingerprint)
    save_bundle(folder / "teacher", BundleConfig(**facts, teacher=TEACHER), corpus.tokenizer, teacher.state_dict())
