"""The ONNX engine computes what torch computes, without torch."""

from __future__ import annotations

import copy
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import SENTENCES, enliven, onnx_translator
from torch import nn

from latentmt import networks as networks_module
from latentmt.bundle import open_bundle, open_model
from latentmt.data.normalise import TextRules
from latentmt.data.pieces import PieceProperties
from latentmt.data.tokenizer import BLANK, Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.data.tokens import Tokens
from latentmt.engines.onnx import cpu, tokens
from latentmt.engines.onnx.beam import beam_search
from latentmt.engines.onnx.engine import OnnxEngine
from latentmt.engines.onnx.graphs import Graphs
from latentmt.engines.onnx.latent import OnnxLatent
from latentmt.engines.onnx.outputs import TokenOutput
from latentmt.engines.onnx.postprocess import Postprocessor
from latentmt.engines.onnx.shortlist import Shortlist
from latentmt.engines.onnx.teacher import OnnxTeacher
from latentmt.engines.onnx.weights import Weights
from latentmt.engines.torch_engine import TorchEngine, make_torch_engine
from latentmt.errors import UserError
from latentmt.export.graph import quantisable
from latentmt.export.model import graph_files
from latentmt.export.networks import graphs
from latentmt.fields.learned import FieldConfig
from latentmt.fields.registry import field_network
from latentmt.infer.postprocess import PieceTable, readable
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.networks import BundleConfig, load_bundle, quantised, save_bundle
from latentmt.options import REMOVE_REPEATS, BeamConfig, DecodingOptions, RemoveRepeats
from latentmt.translator import Translator

DIM = 3
SIZE: dict[str, Any] = {"preset": "tiny", "d_model": 32, "d_filter": 48, "layers": 2, "heads": 2, "dropout": 0.0}
LATENT = LatentConfig(**SIZE, encoder_layers=2, latent_dim=DIM)
LATENTS = {
    "tokens": LATENT,
    "pooled": replace(LATENT, length_pooling="attention", prior_layers=1, posterior_layers=3, decoder_layers=4),
    "ctc": replace(LATENT, output="ctc", posterior_layers=3),
    "ctc-3": replace(LATENT, output="ctc", upsampling=3, prior_layers=1, decoder_layers=3),
    "wide": replace(LATENT, encoder_width=48, encoder_heads=4, length_pooling="attention"),
    "ctc-wide": replace(LATENT, encoder_width=48, encoder_filter=32, source_input=True, output="ctc"),
}
SCORE = FieldConfig(kind="score", **(SIZE | {"d_model": 16, "layers": 1}))  # narrower than the latent model
PLACELESS = FieldConfig(kind="score", **SIZE, positions=False)
TEACHER = TeacherConfig(**(SIZE | {"d_model": 24, "heads": 4}), encoder_layers=1)
RULES = (TextRules(), TextRules())
TEXT: dict[str, Any] = {"languages": ("de", "en"), "rules": RULES}
TEXTS = [*SENTENCES, "Ja.", "Ein kleiner Satz, und noch ein kleiner, und dort noch ein sehr kleiner Satz!"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(SENTENCES * 20, TokenizerConfig(vocab_size=440))


@pytest.fixture(scope="module", params=LATENTS)
def parts(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> dict[BundleConfig, nn.Module]:
    torch.manual_seed(6)
    config = LATENTS[request.param]
    latent, teacher = LatentModel(config, tokenizer.size), Teacher(TEACHER, tokenizer.size)
    score = field_network(SCORE, config)
    for network in (latent, score, teacher):
        enliven(network)  # type: ignore[arg-type]
        network.eval().requires_grad_(False)
        for parameter in network.parameters():
            if parameter.dim() == 1:  # biases and norms are trivial in the beginning
                parameter.add_(0.1 * torch.randn_like(parameter))
    return {
        BundleConfig(**TEXT, latent=config): latent,
        BundleConfig(**TEXT, latent=config, field=SCORE): score,
        BundleConfig(**TEXT, teacher=TEACHER): teacher,
    }


@pytest.fixture(scope="module")
def expected(tokenizer: Tokenizer, parts: dict[BundleConfig, nn.Module]) -> TorchEngine:
    latent, score, teacher = parts.values()
    return make_torch_engine(tokenizer, latent, {"score": score}, teacher)  # type: ignore[arg-type, dict-item]


@pytest.fixture(scope="module")
def translator(
    tokenizer: Tokenizer, parts: dict[BundleConfig, nn.Module], tmp_path_factory: pytest.TempPathFactory
) -> Translator:
    return onnx_translator(tmp_path_factory.mktemp("model"), tokenizer, RULES, parts)


@pytest.fixture(scope="module")
def sentences(tokenizer: Tokenizer) -> list[list[int]]:
    return tokenizer.encode(TEXTS)


# Every way of translating.

WAYS = [
    DecodingOptions("prior", 0),
    DecodingOptions("delta", 1),
    DecodingOptions("delta", 3, remove_repeats="none"),
    DecodingOptions("score", 1, remove_repeats="pieces"),
    DecodingOptions("score", 4, length_bias=0.3),
    DecodingOptions("score", 1, length_bias=-0.5),
    DecodingOptions("score", 6, adaptive=True, lengths=2, samples=2, rerank="decoder"),
    DecodingOptions("delta", 6, adaptive=True),
    DecodingOptions("prior", 0, lengths=3, samples=3, rerank="decoder", seed=4),
    DecodingOptions("score", 1, lengths=3, samples=2, rerank="teacher"),
    DecodingOptions("delta", 1, lengths=2, samples=3, rerank="elbo"),
    DecodingOptions("score", 1, lengths=2, samples=2, rerank="marginal"),
    DecodingOptions("prior", 0, lengths=101, rerank="decoder"),
    DecodingOptions("teacher", beam=1),
    DecodingOptions("teacher", beam=3),
    DecodingOptions("teacher", beam=4),
]


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_all_candidates_are_those_of_torch(
    expected: TorchEngine, translator: Translator, sentences: list[list[int]], options: DecodingOptions
) -> None:
    found = translator.backend.candidates(sentences, options)
    for own, others in zip(found, expected.candidates(sentences, options), strict=True):
        assert own.best == others.best
        for one, other in zip(own.all, others.all, strict=True):
            assert (one.decoded, one.readable) == (other.decoded, other.readable)
            assert one.score == pytest.approx(other.score, rel=1e-6, abs=1e-4)
    assert [each.all[each.best] for each in found] == translator.backend.best(sentences, options)


def test_methods_hints_and_rerankers_are_those_of_torch(expected: TorchEngine, translator: Translator) -> None:
    backend = translator.backend
    assert backend.methods == expected.methods == ["prior", "delta", "score", "teacher"]
    assert backend.hints == expected.hints
    assert backend.rerankers == expected.rerankers
    assert backend.default_method == expected.default_method == "score"
    assert backend.latent_dim == expected.latent_dim == DIM
    assert backend.info.keys() == expected.info.keys()
    assert not backend.on_gpu


@pytest.mark.parametrize("log_probs", [False, True])
@pytest.mark.parametrize("kinds", ["latent", "teacher", "both"])
def test_annotations_are_those_of_torch(
    tokenizer: Tokenizer,
    parts: dict[BundleConfig, nn.Module],
    sentences: list[list[int]],
    tmp_path: Path,
    kinds: str,
    log_probs: bool,
) -> None:
    chosen = {config: part for config, part in parts.items() if config.kind == kinds or kinds == "both"}
    by_kind: dict[str, Any] = {config.kind: part for config, part in chosen.items()}
    torch_engine = make_torch_engine(tokenizer, by_kind.get("latent"), {}, by_kind.get("teacher"))
    onnx = onnx_translator(tmp_path, tokenizer, RULES, chosen).backend
    targets = [sentence[:-1][::-1] for sentence in sentences]
    targets[-1] = 4 * targets[-1]  # with CTC, more than there are places for
    others = torch_engine.annotate(sentences, targets, log_probs=log_probs)
    for one, other in zip(onnx.annotate(sentences, targets, log_probs=log_probs), others, strict=True):
        np.testing.assert_allclose(one.attention, other.attention, atol=1e-4)
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-3)
        assert bool(one.log_probs) == log_probs


def test_traces_are_those_of_torch(expected: TorchEngine, translator: Translator, sentences: list[list[int]]) -> None:
    for options in (WAYS[4], replace(WAYS[9], steps=3), DecodingOptions("prior", 0)):
        for sentence in sentences:
            one, other = translator.backend.trace(sentence, options), expected.trace(sentence, options)
            assert (one.source, len(one.steps)) == (other.source, len(other.steps))
            if one.best != other.best:  # two candidates read the same, and rounding decides between them
                assert one.candidates[one.best].readable == other.candidates[other.best].readable
                continue
            for step, same in zip(one.steps, other.steps, strict=True):
                assert (step.number, step.ids) == (same.number, same.ids)
                np.testing.assert_allclose(step.z, same.z, atol=1e-3)
                assert step.log_probs == pytest.approx(same.log_probs, abs=1e-3)
                assert step.milliseconds > 0


@pytest.mark.parametrize("method", ["prior", "delta", "score"])
def test_the_field_around_a_token_is_that_of_torch(
    expected: TorchEngine, translator: Translator, sentences: list[list[int]], method: str
) -> None:
    options = DecodingOptions(method, 2)
    trace, points = expected.trace(sentences[0], options), [[0.0, 1.0, -1.0], [0.5, 0.5, 0.5], [3.0, 0.0, 0.0]]
    found = translator.backend.field_around(trace, options, 2, points)
    np.testing.assert_allclose(found, expected.field_around(trace, options, 2, points), atol=1e-3)
    assert (np.abs(found).max() > 0.01) == (method != "prior")


def test_a_field_without_positions_is_exported(
    tokenizer: Tokenizer, parts: dict[BundleConfig, nn.Module], sentences: list[list[int]], tmp_path: Path
) -> None:
    (config, latent), *_ = parts.items()
    assert config.latent is not None
    score = field_network(PLACELESS, config.latent).eval().requires_grad_(False)
    enliven(score)  # type: ignore[arg-type]
    both = {config: latent, BundleConfig(**TEXT, latent=config.latent, field=PLACELESS): score}
    options, onnx = DecodingOptions("score", 2), onnx_translator(tmp_path, tokenizer, RULES, both).backend
    torch_engine = make_torch_engine(tokenizer, latent, {"score": score}, None)  # type: ignore[arg-type]
    assert onnx.candidates(sentences, options) == torch_engine.candidates(sentences, options)


def test_what_candidates_of_ctc_write_is_not_what_their_places_are(
    expected: TorchEngine, translator: Translator, sentences: list[list[int]]
) -> None:
    """So the tests above compare targets of different lengths, with blanks and repetitions on the way."""
    assert isinstance(translator.backend, OnnxEngine)
    model = translator.backend.latent
    assert model is not None
    if isinstance(model.output, TokenOutput):
        pytest.skip("one token a place")
    steps = [translator.backend.trace(sentence, DecodingOptions("score", 2)).steps[-1] for sentence in sentences]
    assert {len(step.ids) / len(sentence) for step, sentence in zip(steps, sentences, strict=True)} <= {2.0, 3.0}
    assert all(3 < len(step.ids) - step.ids.count(BLANK) < 0.5 * len(step.ids) for step in steps[:4])


# Weights.


def test_a_tensor_in_several_shards_is_put_together(
    parts: dict[BundleConfig, nn.Module], tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config, latent), *_ = parts.items()
    monkeypatch.setattr(networks_module, "SHARD_BYTES", 4000)
    matrices = quantisable(latent)
    save_bundle(tmp_path / "latent", config, tokenizer, quantised(latent.state_dict(), matrices))
    bundle = open_bundle(tmp_path / "latent")
    assert any(part.number > 1 for part in bundle.tensors(networks_module.load_tensors))
    weights, loaded = Weights(bundle, seven_bits=False), load_bundle(tmp_path / "latent").network.state_dict()
    for name, weight in latent.state_dict().items():
        if name in matrices:
            stored = weights[f"{name}.T"].T * weights[f"{name}.scale"][:, None]
            np.testing.assert_array_equal(stored, loaded[name].numpy())
            step = weight.abs().amax(1, keepdim=True) / 127
            assert ((torch.tensor(stored) - weight).abs() <= 0.5001 * step).all()
        else:
            np.testing.assert_array_equal(weights[name], loaded[name].numpy())


def test_seven_bits_are_enough_for_sums_of_16_bits(
    parts: dict[BundleConfig, nn.Module], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    (config, latent), *_ = parts.items()
    matrices = quantisable(latent)
    save_bundle(tmp_path / "latent", config, tokenizer, quantised(latent.state_dict(), matrices))
    eight, seven = (Weights(open_bundle(tmp_path / "latent"), seven_bits) for seven_bits in (False, True))
    for name in matrices:
        assert 2 * 255 * int(np.abs(seven[f"{name}.T"]).max()) < 2**15
        before, after = (each[f"{name}.T"] * each[f"{name}.scale"] for each in (eight, seven))
        assert (np.abs(before - after) <= 1.001 * eight[f"{name}.scale"]).all()
        np.testing.assert_array_equal(seven[name].T, seven[f"{name}.T"])


@pytest.mark.parametrize(
    ("machine", "flags", "expected"),
    [
        ("x86_64", "fpu avx2 avx512_vnni", False),
        ("x86_64", "fpu avx2 avx_vnni", False),
        ("x86_64", "fpu avx2 avx512f", True),
        ("x86_64", None, True),
        ("aarch64", None, False),
        ("arm64", None, False),
    ],
)
def test_the_processor_is_asked_for_its_instructions(
    monkeypatch: pytest.MonkeyPatch, machine: str, flags: str | None, expected: bool
) -> None:
    def read_text(_: Path, encoding: str) -> str:
        if flags is None:
            raise FileNotFoundError
        return f"processor\t: 0\nflags\t\t: {flags}\n"

    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(Path, "read_text", read_text)
    assert cpu.saturates.__wrapped__() == expected


@pytest.mark.parametrize("seven_bits", [False, True])
def test_int8_is_close_to_single_precision(
    parts: dict[BundleConfig, nn.Module],
    expected: TorchEngine,
    tokenizer: Tokenizer,
    sentences: list[list[int]],
    tmp_path: Path,
    seven_bits: bool,
) -> None:
    latent: str | None = None
    for config, network in parts.items():
        weights = quantised(network.state_dict(), quantisable(network))
        files = graph_files(network, config.kind, quantisable(network))
        about = save_bundle(
            tmp_path / config.kind, config, tokenizer, weights, latent=latent if config.field else None, files=files
        )
        latent = about.fingerprint if config.kind == "latent" else latent
    bundles = {kind: Graphs(bundle, seven_bits=seven_bits) for kind, bundle in open_model(tmp_path).items()}
    everything = Shortlist(np.zeros((tokenizer.size, 0), dtype=np.int64), np.arange(1, tokenizer.size))
    model = OnnxLatent(bundles["latent"], {"score": bundles["score"]}, everything, DIM, tokenizer.size)
    exact = expected.networks.latent
    assert exact is not None
    for sentence in sentences:
        source = model.encode(sentence)
        encoded = exact.encode(Tokens.padded([sentence]))
        assert _error(source.states.numpy(), encoded.states.numpy()) < 0.04
        target, same = Tokens.padded([sentence[::-1]]), tokens.Tokens.padded([sentence[::-1]])
        places, layout = exact.output.places(encoded, target), model.output.places(len(sentence), same)
        prior = exact.prior(places, exact.prior.project_kv(encoded)).mode
        assert _error(model.prior(layout, source).mean, prior.numpy()) < 0.06
        posterior = exact.posterior(target, places, exact.posterior_stack.project_kv(encoded))
        memory = model.posterior_memory(source)
        assert _error(model.posterior(same, layout, memory).mean, posterior.mean.numpy()) < 0.06
        states = exact.decode(prior, places, exact.decoder_stack.project_kv(encoded))
        logits = model.logits(prior.numpy(), layout, source).values
        assert _error(logits, exact.embedding.logits(states).numpy()) < 0.06
        shortlisted = model.shortlisted(prior.numpy(), layout, source)
        np.testing.assert_array_equal(shortlisted.values, logits[..., 1:])


def _error(found: np.ndarray, exact: np.ndarray) -> float:
    """The relative error."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


# The shortlist.


def _teacher(translator: Translator, shortlist: Shortlist | None) -> OnnxTeacher:
    """The teacher of a translator, with another shortlist."""
    assert isinstance(translator.backend, OnnxEngine)
    teacher = translator.backend.teacher
    assert teacher is not None
    size = TEACHER.size
    return OnnxTeacher(teacher.graphs, shortlist, size.layers, size.heads, size.d_model, translator.tokenizer.size)


def test_a_shortlist_of_all_pieces_changes_nothing(
    translator: Translator, sentences: list[list[int]], tokenizer: Tokenizer
) -> None:
    everything = Shortlist(np.zeros((tokenizer.size, 0), dtype=np.int64), np.arange(tokenizer.size))
    teacher, plain = _teacher(translator, everything), _teacher(translator, None)
    for sentence in sentences:
        for beam in (1, 3):
            found = beam_search(teacher, sentence, BeamConfig(beam=beam))
            other = beam_search(plain, sentence, BeamConfig(beam=beam))
            assert found.decoded == other.decoded
            assert found.score == pytest.approx(other.score, abs=1e-5)
        targets = [sentence[:-1], sentence[1:-1]]
        np.testing.assert_allclose(teacher.score(sentence, targets), plain.score(sentence, targets), atol=1e-5)


def test_only_pieces_of_the_shortlist_are_written_and_all_can_be_scored(
    translator: Translator, sentences: list[list[int]], tokenizer: Tokenizer
) -> None:
    likely = np.arange(tokenizer.size)[:, None] + np.array([[1, 2]])
    shortlist = Shortlist(likely % tokenizer.size, np.array([0, 1, 2, 3, 300, 301]))
    teacher = _teacher(translator, shortlist)
    for sentence in sentences:
        allowed = shortlist.pieces(sentence)
        near = {(id_ + n) % tokenizer.size for id_ in sentence for n in (0, 1, 2)}
        assert allowed.tolist() == sorted({0, 1, 2, 3, 300, 301} | near)
        assert set(beam_search(teacher, sentence, BeamConfig(beam=2)).decoded) <= set(allowed.tolist())
        outside = next(id_ for id_ in range(4, tokenizer.size) if id_ not in allowed)
        assert np.isfinite(teacher.score(sentence, [[outside, 5], [5]])).all()


LATENT_WAYS = [options for options in WAYS if options.method != "teacher"]


def _with_shortlist(translator: Translator, shortlist: Shortlist | None) -> OnnxEngine:
    """The engine of a translator, whose latent model has another shortlist."""
    engine = copy.copy(translator.backend)
    assert isinstance(engine, OnnxEngine)
    engine.latent = copy.copy(engine.latent)
    assert engine.latent is not None
    engine.latent._shortlist = shortlist
    return engine


def _few(tokenizer: Tokenizer) -> Shortlist:
    """A shortlist that does not have most pieces."""
    likely = np.arange(tokenizer.size)[:, None] + np.array([[1, 2]])
    return Shortlist(likely % tokenizer.size, np.array([0, 1, 2, 3, 300, 301, 302]))


@pytest.mark.parametrize("options", LATENT_WAYS, ids=str)
def test_a_latent_shortlist_of_all_pieces_changes_nothing(
    translator: Translator, sentences: list[list[int]], tokenizer: Tokenizer, options: DecodingOptions
) -> None:
    everything = Shortlist(np.zeros((tokenizer.size, 0), dtype=np.int64), np.arange(tokenizer.size))
    engine = _with_shortlist(translator, everything)
    assert engine.candidates(sentences, options) == translator.backend.candidates(sentences, options)


@pytest.mark.parametrize("options", LATENT_WAYS, ids=str)
def test_the_latent_model_writes_pieces_of_the_shortlist(
    translator: Translator, sentences: list[list[int]], tokenizer: Tokenizer, options: DecodingOptions
) -> None:
    """Sentence by sentence as many at once."""
    engine, shortlist = _with_shortlist(translator, _few(tokenizer)), _few(tokenizer)
    found = engine.candidates(sentences, options)
    for sentence, candidates in zip(sentences, found, strict=True):
        allowed = set(shortlist.pieces(sentence).tolist())
        assert all(set(candidate.decoded) <= allowed for candidate in candidates.all)
        assert engine.candidates([sentence], options) == [candidates]
    assert found != translator.backend.candidates(sentences, options)


def test_a_shortlist_does_not_change_the_scores_of_targets(
    translator: Translator, sentences: list[list[int]], tokenizer: Tokenizer
) -> None:
    """Also those of pieces that are not in it."""
    engine = _with_shortlist(translator, _few(tokenizer))
    targets = [sentence[:-1][::-1] for sentence in sentences]
    allowed = _few(tokenizer).pieces(sentences[0])
    targets[0] = next([id_] for id_ in range(4, tokenizer.size) if id_ not in allowed)
    plain = _with_shortlist(translator, None)
    engine.teacher = plain.teacher = None
    annotations = (each.annotate(sentences, targets, log_probs=True) for each in (engine, plain))
    for one, other in zip(*annotations, strict=True):
        assert one.log_probs == other.log_probs
        np.testing.assert_array_equal(one.attention, other.attention)


def test_a_trace_shows_what_a_shortlist_leaves(
    translator: Translator, sentences: list[list[int]], tokenizer: Tokenizer
) -> None:
    engine, options = _with_shortlist(translator, _few(tokenizer)), DecodingOptions("delta", 2, remove_repeats="none")
    for sentence in sentences:
        trace = engine.trace(sentence, options)
        allowed = {*_few(tokenizer).pieces(sentence).tolist(), BLANK}
        assert all(set(step.ids) <= allowed for step in trace.steps)
        assert all(max(step.log_probs) <= 0 for step in trace.steps)
        assert np.isfinite(trace.steps[-1].log_probs).all()
        assert engine.field_around(trace, options, 0, [[0.0] * DIM])


# Postprocessing.


@given(
    st.lists(st.integers(0, 8), max_size=12),
    st.lists(st.integers(0, 8), max_size=6),
    st.lists(st.tuples(*[st.booleans()] * 4), min_size=9, max_size=9),
    st.sampled_from(REMOVE_REPEATS),
)
def test_targets_are_made_readable_as_in_torch(
    ids: list[int], source: list[int], rows: list[tuple[bool, ...]], remove: RemoveRepeats
) -> None:
    columns = np.array(rows).T
    columns[1:, :4] = True  # special pieces are words by themselves, and blank
    properties, table = PieceProperties(*columns), PieceTable(*torch.tensor(columns).unbind())
    ids, source = ids or [3], source or [3]
    target = readable(Tokens.padded([ids]), remove, table, Tokens.padded([source]))
    (expected,) = target.ids[:, : int(target.layout.real.sum()) - 1].tolist()
    postprocessor = Postprocessor(properties)
    assert postprocessor.readable(ids, remove, source) == expected
    assert postprocessor.is_blank(expected) == bool(table.is_blank(target)[0])


# What cannot be exported.


def test_a_field_that_differentiates_has_no_graph(tokenizer: Tokenizer) -> None:
    energy = field_network(FieldConfig(kind="energy", **SIZE), LATENT)
    assert graphs(energy, "energy", set()) == {}


def test_another_output_is_refused(tokenizer: Tokenizer) -> None:
    model = LatentModel(LATENT, tokenizer.size)
    model.output = nn.Identity()  # type: ignore[assignment]
    with pytest.raises(UserError, match="a latent model with Identity cannot be exported"):
        graphs(model, "latent", set())


def test_another_prior_is_refused(tokenizer: Tokenizer) -> None:
    model = LatentModel(LATENT, tokenizer.size)
    model.prior = nn.Identity()  # type: ignore[assignment]
    with pytest.raises(UserError, match="only a latent model with a Gaussian prior"):
        graphs(model, "latent", set())
