"""Alignment of characters, and the projection and field that a page draws of a trace."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from latentmt.data.normalise import TextRules, normalise, origins
from latentmt.data.tokenizer import EOS, Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.data.tokens import Tokens
from latentmt.fields.learned import FieldConfig
from latentmt.fields.registry import field_network
from latentmt.infer.annotate import annotate
from latentmt.infer.search import Networks
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.models.outputs import TokenOutput
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.nn.attention import CrossAttention, attention_bias
from latentmt.options import LENGTH_LIMIT
from latentmt.projection import Projection
from latentmt.translator import Translator

SIZE: dict[str, Any] = {"preset": "tiny", "d_model": 16, "d_filter": 32, "layers": 2, "heads": 2, "dropout": 0.0}
CORPUS = ["Ein kleiner Satz steht hier.", "The small sentence is here.", "Wir haben 1100 Bücher gelesen!"]
RULES = (TextRules(lowercase=True), TextRules())


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(CORPUS * 20, TokenizerConfig(vocab_size=420))


def make(tokenizer: Tokenizer, dim: int = 5, output: str = "tokens") -> Translator:
    torch.manual_seed(4)
    # An untrained teacher writes to the last position, and CTC needs room for that.
    config = LatentConfig(**SIZE, encoder_layers=1, latent_dim=dim, output=output, upsampling=12)
    score = field_network(FieldConfig(**SIZE, kind="score"), config).double().eval()
    model = LatentModel(config, tokenizer.size)
    with torch.no_grad():
        score.head.weight.normal_(std=0.8)  # type: ignore[union-attr]
        if isinstance(model.output, TokenOutput):
            model.output.length_head.bias.copy_(-3.0 * (torch.arange(2 * LENGTH_LIMIT + 1) - LENGTH_LIMIT - 1).abs())
    torch.manual_seed(5)  # a teacher that writes letters
    return Translator.from_networks(
        tokenizer,
        RULES,
        latent=model.double().eval(),
        fields={"score": score},
        teacher=Teacher(TeacherConfig(**SIZE, encoder_layers=1), tokenizer.size).double().eval(),
    )


@pytest.fixture(scope="module", params=["tokens", "ctc"])
def translator(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Translator:
    return make(tokenizer, output=request.param)


texts = st.text(
    st.sampled_from("ab äßİŞ ▁\ue000\n\t\u00a0\u00ad字e\u0301Σ.") | st.characters(exclude_categories=["Cs"]),
    max_size=25,
)


@given(texts)
@settings(max_examples=settings().max_examples * 3, deadline=None)
def test_every_normalised_character_has_an_origin(text: str) -> None:
    for rules in (TextRules(), TextRules(lowercase=True), TextRules(language_rules="romanian")):
        found = origins(text, rules)
        assert len(found) == len(normalise(text, rules))
        assert found == sorted(found)
        assert all(0 <= position < len(text) for position in found)
    plain = origins("Ein  Satz", TextRules())
    assert plain == [0, 1, 2, 3, 5, 6, 7, 8]


@given(text=texts)
@settings(max_examples=settings().max_examples * 3, deadline=None)
def test_piece_spans_cover_their_text(tokenizer: Tokenizer, text: str) -> None:
    text = normalise(text, TextRules())
    ids = tokenizer.encode([text])[0]
    spans = tokenizer.spans(ids)
    assert tokenizer.decode([ids]) == [text]
    assert len(spans) == len(ids)
    assert spans[-1] == (len(text), len(text))
    for (start, end), piece in zip(spans, tokenizer.pieces(ids), strict=True):
        if not {"\ue000", "▁"} & set(text) and not piece.startswith("<"):
            assert text[start:end] == piece.removeprefix("▁")
    covered = {position for start, end in spans for position in range(start, end)}
    assert {position for position, character in enumerate(text) if character != " "} <= covered


def test_attention_weights_reproduce_the_attention_output() -> None:
    torch.manual_seed(1)
    attention, norm = CrossAttention(16, 2).double(), torch.nn.LayerNorm(16).double()
    x, keys_values = torch.randn(2, 3, 16).double(), torch.randn(2, 2, 2, 4, 8).double()
    segment = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    bias = attention_bias(torch.ones(2, 3, dtype=torch.long), segment, torch.float64)
    weights = attention.attention_weights(x, keys_values, bias, norm)
    gathered = (weights @ keys_values[1]).transpose(1, 2).flatten(2)
    expected = attention(x, keys_values, bias, norm, torch.nn.Dropout(0.0))
    torch.testing.assert_close(x + attention.out(gathered), expected)
    assert weights[0, :, :, 3].abs().max() == 0


def test_an_alignment_is_the_same_in_any_batch(translator: Translator) -> None:
    sources = translator.tokenizer.encode(["ein satz", "wir haben viele bücher gelesen", "hier"])
    targets = [ids[:-1] for ids in translator.tokenizer.encode(["The small one", "is", ""])]
    for networks in (
        translator.backend.networks,
        Networks(None, {}, translator.backend.networks.teacher, translator.backend.networks.pieces),
    ):
        together = [one.attention for one in annotate(networks, sources, targets)]
        for source, target, weights in zip(sources, targets, together, strict=True):
            assert weights.shape == (len(target), len(source) - 1)
            torch.testing.assert_close(torch.tensor(weights.sum(1)), torch.ones(len(target)))
            torch.testing.assert_close(annotate(networks, [source], [target])[0].attention, weights)
    model = translator.backend.networks.latent
    assert model
    source, target = Tokens.padded(sources[:1]), Tokens.padded([[*targets[0], EOS]])
    encoded, attention_weights = model.encode(source), list[torch.Tensor]()
    places = model.output.places(encoded, target)
    z = model.posterior(target, places, model.posterior_stack.project_kv(encoded)).mean
    states = model.decode(z, places, model.decoder_stack.project_kv(encoded), attention_weights)
    mean = torch.stack(attention_weights).mean((0, 2))
    mean = model.output.to_tokens(mean, states, places, model.embedding, target)[0, :-1, :-1].float() ** 2
    torch.testing.assert_close(
        torch.tensor(annotate(translator.backend.networks, sources[:1], targets[:1])[0].attention),
        mean / mean.sum(1, keepdim=True),
    )


@pytest.mark.parametrize("method", ["score", "teacher"])
def test_links_cover_spans_of_the_text_and_its_translation(translator: Translator, method: str) -> None:
    text = "  Ein KLEINER  Satz. \u00ad Und ein\nzweiter, 字 ▁ hier! "
    options = translator.options(method=method)
    ((aligned), nothing) = translator.translations([text, " \n"], options, details=True)
    assert aligned.text == translator.translate(text, method=method)
    assert (nothing.text, nothing.alignment) == (" \n", [])
    assert aligned.alignment
    sentence_ends = [len(part) for part in text.split("Und")]
    for link in aligned.alignment:
        source, target = text[slice(*link.source)], aligned.text[slice(*link.target)]
        assert source.strip() == source != ""
        assert target != ""
        assert 0 < link.weight <= 1
    first = [link for link in aligned.alignment if link.source[1] <= sentence_ends[0]]
    assert first
    assert max(link.target[1] for link in first) < max(link.target[1] for link in aligned.alignment)
    assert translator.translations([], options, details=True) == []


def test_ranked_candidates_begin_with_the_kept_one(translator: Translator) -> None:
    options = translator.options(method="score", lengths=4, samples=2, rerank="decoder")
    both = "Ein Satz. Noch einer!"
    first, nothing = translator.translations([both, ""], options, alternatives=3)
    assert (nothing.text, nothing.alternatives) == ("", [])
    found = [first.text, *first.alternatives]
    assert 1 < len(found) <= 4
    assert len(set(found)) == len(found)
    assert found[0] == translator.translations([both], options)[0].text
    (result,) = translator.backend.candidates(translator.sentences("Ein Satz."), options)
    candidates, best = result.all, result.best
    order = sorted(range(8), key=lambda number: (number != best, -candidates[number].score))
    expected = list(dict.fromkeys(translator.texts([candidates[number].readable for number in order])))
    (single,) = translator.translations(["Ein Satz."], options, alternatives=99)
    assert [single.text, *single.alternatives] == expected


def test_the_projection_explains_the_movement(tokenizer: Tokenizer, translator: Translator) -> None:
    (trace,) = translator.trace("Ein kleiner Satz", steps=3)
    plane = Projection.from_trace(trace)
    np.testing.assert_allclose(plane.axes @ plane.axes.T, np.eye(2), atol=1e-12)
    assert all(axis[np.abs(axis).argmax()] > 0 for axis in plane.axes)
    z = np.array([step.z for step in trace.steps])
    moves = (z[1:] - z[0]).reshape(-1, z.shape[2])
    assert plane.explained == pytest.approx(np.square(plane.project(moves)).sum() / np.square(moves).sum())
    sizes = np.square(np.linalg.svd(moves, compute_uv=False))
    assert plane.explained == pytest.approx(sizes[:2].sum() / sizes.sum())  # no plane holds more
    points = np.array([[0.5, -1.0], [2.0, 3.0]])
    lifted = plane.lift(points, z[0, 1])
    np.testing.assert_allclose(plane.project(lifted), points)
    off = (lifted - z[0, 1]) - (points - plane.project(z[0, 1])) @ plane.axes
    assert np.abs(off).max() < 1e-12
    (still,) = translator.trace("Ein kleiner Satz", method="prior")
    assert 0 < Projection.from_trace(still).explained <= 1
    (flat,) = make(tokenizer, dim=2).trace("Ein Satz", steps=1)
    assert Projection.from_trace(flat).explained == 1.0
    assert Projection.from_trace(flat).axes.tolist() == [[1, 0], [0, 1]]


def test_the_field_around_a_token_is_its_next_move(translator: Translator) -> None:
    options = translator.options(steps=2)
    (trace,) = translator.traces("Ein kleiner Satz", options)
    end = torch.tensor(trace.steps[-1].z, dtype=torch.float64)
    points = torch.stack([end[1], end[1] + 0.5, end[0]])
    moves = torch.tensor(translator.backend.field_around(trace, options, 1, points.tolist()), dtype=torch.float64)
    assert translator.backend.networks.latent
    source = translator.backend.networks.latent.encode(Tokens.padded([trace.source]))
    for point, move in zip(points, moves, strict=True):
        z = end.clone()
        z[1] = point
        layout = Tokens.padded([[EOS] * len(z)]).layout
        expected = translator.backend.networks.bind_field("score", source, layout)(z[None])[0, 1]
        torch.testing.assert_close(move, expected)
    still = translator.backend.field_around(trace, translator.options(method="prior"), 1, points.tolist())
    assert not torch.tensor(still).any()
    assert all(step.milliseconds > 0 and math.isfinite(step.milliseconds) for step in trace.steps)


def test_a_target_that_does_not_fit_on_its_places_has_no_alignment(tokenizer: Tokenizer) -> None:
    """Twelve places for EOS and a token: room for that, and not for seven times the same piece, with blanks between."""
    translator = make(tokenizer, output="ctc")
    networks = replace(translator.backend.networks, teacher=None)
    source, piece = tokenizer.encode(["ein"])[0][-1:], tokenizer.encode(["is"])[0][0]
    fitting, other = annotate(networks, [source, source], [[piece] * 6, [piece] * 7], log_probs=True)
    assert all(-30 < value < 0 for value in fitting.log_probs)
    assert set(other.log_probs) == {-1e4}
    assert not other.attention.any()
