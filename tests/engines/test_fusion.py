"""Translations that are read with a language model: on both engines the same, for every way to search."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from grams import save_language_model
from tiny import SENTENCES, enliven

from latentmt.bundle import LANGUAGE_MODEL, open_bundle, open_model
from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import EOS, Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.data.tokens import Tokens
from latentmt.engines.load import load_language_model
from latentmt.engines.onnx.engine import OnnxEngine
from latentmt.engines.torch_engine import TorchEngine, load_torch_engine
from latentmt.errors import UserError
from latentmt.export.model import graph_files
from latentmt.fields.learned import FieldConfig
from latentmt.infer.trace import targets_along
from latentmt.models.latent import LatentConfig
from latentmt.models.teacher import TeacherConfig
from latentmt.networks import BundleConfig, load_bundle, save_bundle
from latentmt.ngrams.estimate import NgramConfig
from latentmt.ngrams.model import NgramModel
from latentmt.options import DecodingOptions
from latentmt.results import without_special
from latentmt.translator import Translator

SIZE: dict[str, Any] = {"preset": "tiny", "d_model": 32, "d_filter": 48, "layers": 1, "heads": 2, "dropout": 0.0}
LATENT = LatentConfig(**SIZE, encoder_layers=1, latent_dim=3, output="ctc")
TEXT: dict[str, Any] = {"languages": ("de", "en"), "rules": (TextRules(), TextRules())}
TEXTS = ["Ein kleiner Satz.", "Noch einer dort!", "2200 books?"]
WAYS = [
    DecodingOptions("prior", lm_weight=0.3),
    DecodingOptions("prior", lm_weight=1.0, beam=1),
    DecodingOptions("delta", 1, lm_weight=0.5),
    DecodingOptions("delta", 3, lm_weight=2.0, beam=6, remove_repeats="none"),
    DecodingOptions("delta", 3, adaptive=True, lm_weight=0.5),
    DecodingOptions("score", 1, lm_weight=0.5, length_bias=0.4),
    DecodingOptions("prior", lengths=2, rerank="decoder", lm_weight=0.5),
    DecodingOptions("delta", 1, lengths=2, samples=2, rerank="teacher", lm_weight=0.5),
    DecodingOptions("score", 1, samples=2, rerank="elbo", lm_weight=0.5),
    DecodingOptions("prior", lengths=2, rerank="marginal", lm_weight=0.5),
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(SENTENCES * 20, TokenizerConfig(vocab_size=440))


def save(folder: Path, tokenizer: Tokenizer, *configs: BundleConfig) -> None:
    """Untrained networks with their graphs, in single precision."""
    torch.manual_seed(6)
    fingerprint = None
    for config in configs:
        network = config.network(tokenizer.size)
        enliven(network)  # type: ignore[arg-type]
        files, of = graph_files(network, config.kind, set()), fingerprint if config.field else None
        about = save_bundle(folder / config.kind, config, tokenizer, network.state_dict(), latent=of, files=files)
        fingerprint = about.fingerprint if config.kind == "latent" else fingerprint


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with CTC, a score, a teacher and a language model, which both engines can run."""
    folder = tmp_path_factory.mktemp("model")
    score = BundleConfig(**TEXT, latent=LATENT, field=FieldConfig(kind="score", **SIZE))
    teacher = BundleConfig(**TEXT, teacher=TeacherConfig(**SIZE, encoder_layers=1))
    save(folder, tokenizer, BundleConfig(**TEXT, latent=LATENT), score, teacher)
    save_language_model(folder, tokenizer, tokenizer.encode(SENTENCES), TEXT)
    return folder


@pytest.fixture(scope="module")
def onnx(model: Path) -> OnnxEngine:
    return OnnxEngine(open_model(model))


@pytest.fixture(scope="module")
def in_torch(model: Path) -> TorchEngine:
    engine = load_torch_engine(open_model(model), "cpu", None, None, None)
    assert isinstance(engine, TorchEngine)
    return engine


@pytest.fixture(scope="module")
def sentences(tokenizer: Tokenizer) -> list[list[int]]:
    return tokenizer.encode(TEXTS)


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_both_engines_read_the_same(
    onnx: OnnxEngine, in_torch: TorchEngine, sentences: list[list[int]], options: DecodingOptions
) -> None:
    found, expected = (engine.candidates(sentences, options) for engine in (onnx, in_torch))
    for own, other in zip(found, expected, strict=True):
        assert own.best == other.best
        for one, same in zip(own.all, other.all, strict=True):
            assert (one.decoded, one.readable) == (same.decoded, same.readable)
            assert one.score == pytest.approx(same.score, rel=1e-6, abs=1e-4)
    alone = [in_torch.candidates([sentence], options)[0] for sentence in sentences]
    assert [[one.decoded for one in each.all] for each in alone] == [
        [one.decoded for one in each.all] for each in expected
    ]
    plain = in_torch.candidates(sentences, replace(options, lm_weight=0.0))
    assert [each.all for each in plain] != [each.all for each in expected]


@pytest.mark.parametrize("engine", ["onnx", "in_torch"])
def test_the_more_it_weighs_the_more_probable_is_what_is_read(
    request: pytest.FixtureRequest, model: Path, sentences: list[list[int]], engine: str
) -> None:
    language_model = load_language_model(open_model(model))
    assert isinstance(language_model, NgramModel)

    def cost(weight: float) -> float:
        """Of a token, beyond what one costs on average."""
        options = DecodingOptions("prior", lm_weight=weight, beam=8, remove_repeats="none")
        read = [one.decoded for one in request.getfixturevalue(engine).best(sentences, options)]
        log_prob = sum(language_model.log_prob([*ids, EOS]) for ids in read)
        return -log_prob - sum(len(ids) + 1 for ids in read) * language_model.surprisal / 16

    costs = [cost(weight) for weight in (0.0, 0.3, 1.0, 5.0)]
    assert costs == sorted(costs, reverse=True)
    assert len(set(costs)) == 4


@pytest.mark.parametrize("method", ["prior", "delta", "score"])
def test_weight_0_is_no_language_model(
    onnx: OnnxEngine, in_torch: TorchEngine, model: Path, sentences: list[list[int]], tmp_path: Path, method: str
) -> None:
    shutil.copytree(model, tmp_path / "without")
    shutil.rmtree(tmp_path / "without" / LANGUAGE_MODEL)
    bundles = open_model(tmp_path / "without")
    options = DecodingOptions(method, 2, beam=7)
    for engine, without in (
        (onnx, OnnxEngine(bundles)),
        (in_torch, load_torch_engine(bundles, "cpu", None, None, None)),
    ):
        assert (engine.has_language_model, without.has_language_model) == (True, False)
        assert engine.methods == without.methods
        assert engine.best(sentences, options) == without.best(sentences, options)


def test_traces_of_both_engines_are_the_same(
    onnx: OnnxEngine, in_torch: TorchEngine, sentences: list[list[int]]
) -> None:
    """Every step is read with the language model. Its places show the likeliest way to write what is read."""
    for options in (replace(WAYS[3], steps=2), WAYS[6]):
        for sentence in sentences[2:]:
            one, other = onnx.trace(sentence, options), in_torch.trace(sentence, options)
            assert one.best == other.best
            assert [step.ids for step in one.steps] == [step.ids for step in other.steps]
            for step, same in zip(one.steps, other.steps, strict=True):
                np.testing.assert_allclose(step.z, same.z, atol=1e-3)
            assert one.candidates[one.best].decoded == onnx.best([sentence], options)[0].decoded
            assert without_special(one.steps[-1].ids) == one.candidates[one.best].decoded
            assert [each.decoded for each in one.candidates] == [each.decoded for each in other.candidates]


def test_the_field_around_a_token_is_read_with_the_language_model(
    onnx: OnnxEngine, in_torch: TorchEngine, sentences: list[list[int]]
) -> None:
    options, points = DecodingOptions("delta", 2, lm_weight=2.0), [[0.0, 1.0, -1.0], [0.5, 0.5, 0.5]]
    trace = in_torch.trace(sentences[0], options)
    found, same = (engine.field_around(trace, options, 2, points) for engine in (onnx, in_torch))
    np.testing.assert_allclose(found, same, atol=1e-3)
    plain = in_torch.field_around(trace, replace(options, lm_weight=0.0), 2, points)
    assert np.abs(np.array(plain) - np.array(same)).max() > 1e-2


def test_what_is_read_along_the_way_is_what_fewer_steps_read(in_torch: TorchEngine, sentences: list[list[int]]) -> None:
    options = DecodingOptions("delta", 2, lm_weight=1.0)
    source = Tokens.padded(sentences)
    along = targets_along(in_torch.networks, source, options, in_torch.noise(options), [0, 1, 2])
    for steps in (0, 1, 2):
        fewer = in_torch.best(sentences, replace(options, steps=steps))
        assert [without_special(row[steps]) for row in along] == [one.decoded for one in fewer]


# What has no language model.


@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_a_model_that_cannot_read_with_one_says_so(
    model: Path, tokenizer: Tokenizer, tmp_path: Path, engine: Any
) -> None:
    """Without one, without CTC, without a latent model."""
    message = "^lm_weight 0.5: this model has no language model$"
    translator = Translator.load(model, "cpu", engine=engine)
    assert translator.options(lm_weight=0.5).lm_weight == 0.5
    with pytest.raises(UserError, match=r"^lm_weight: the teacher translates without a language model$"):
        translator.translate("Ein Satz.", method="teacher", lm_weight=0.5)
    assert translator.translate("Ein Satz.", method="teacher")
    for name, kinds in (("without", ["latent"]), ("teacher", ["teacher", LANGUAGE_MODEL])):
        for kind in kinds:
            shutil.copytree(model / kind, tmp_path / name / kind)
    save(tmp_path / "tokens", tokenizer, BundleConfig(**TEXT, latent=replace(LATENT, output="tokens")))
    shutil.copytree(model / LANGUAGE_MODEL, tmp_path / "tokens" / LANGUAGE_MODEL)
    for name in ("without", "tokens", "teacher"):
        other = Translator.load(tmp_path / name, "cpu", engine=engine)
        assert not other.backend.has_language_model
        assert other.translate("Ein Satz.")
        if name != "teacher":
            with pytest.raises(UserError, match=message):
                other.translate("Ein Satz.", lm_weight=0.5)
    shutil.copytree(model / LANGUAGE_MODEL, tmp_path / "alone" / LANGUAGE_MODEL)
    with pytest.raises(UserError, match="no model"):
        Translator.load(tmp_path / "alone", "cpu", engine=engine)


def test_a_language_model_is_no_network(model: Path) -> None:
    with pytest.raises(UserError, match=r"config\.yaml: names neither a teacher nor a latent model"):
        load_bundle(model / LANGUAGE_MODEL)


def test_a_language_model_of_another_order_is_refused(model: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    content = (model / LANGUAGE_MODEL / "ngrams.npz").read_bytes()
    config = BundleConfig(**TEXT, language_model=NgramConfig(order=4))
    for files, message in (
        ({"ngrams.npz": content}, r"language_model/ngrams\.npz: not an n-gram model of order 4 for \d+ pieces"),
        ({"ngrams.npz": b""}, r"language_model/ngrams\.npz: not an n-gram model"),
        ({}, "language_model: not a language model"),
    ):
        save_bundle(tmp_path / LANGUAGE_MODEL, config, tokenizer, {}, files=files, parameters={})
        with pytest.raises(UserError, match=message):
            load_language_model({LANGUAGE_MODEL: open_bundle(tmp_path / LANGUAGE_MODEL)})
