"""Likelihoods along refinement: the marginal of each output, estimated once, and averaged right."""

from __future__ import annotations

import statistics

import pytest
from tiny import write_corpus, write_models

from latentmt.data.tokens import Tokens
from latentmt.errors import UserError
from latentmt.infer.marginal import Marginal, marginal
from latentmt.infer.noise import standard_noise
from latentmt.measure import likelihood as module
from latentmt.measure.likelihood import likelihoods
from latentmt.measure.tokens import outputs_along
from latentmt.translator import Translator

SAMPLES = 30


@pytest.fixture(scope="module", params=["tokens", "ctc"])
def translator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("numbers")
    write_models(folder, write_corpus(folder, held_out=6), output=request.param)
    return Translator.load(folder)


def alone(translator: Translator, source: list[int], target: list[int]) -> Marginal:
    assert translator.backend.networks.latent is not None
    noise = standard_noise(SAMPLES, 100, 4, seed=1)
    return marginal(
        translator.backend.networks.latent,
        translator.backend.networks.latent.encode(Tokens.padded([source])),
        Tokens.padded([target]),
        noise,
    )


def test_likelihoods_are_means_over_single_estimates(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = [
        translator.sentences(text)[0] for text in ("Anna hat zwei Lampen.", "Im Theater hängen zehn rote Lampen.")
    ]
    outputs = outputs_along(translator, sentences, "score", (0, 1, 2))
    outputs[2] = outputs[0]  # equal outputs are estimated once
    asked: list[int] = []
    real = module.marginal
    monkeypatch.setattr(module, "marginal", lambda *given: asked.append(len(given[2].ids)) or real(*given))
    found = likelihoods(translator, sentences, outputs, SAMPLES, seed=1)
    assert sum(asked) == 4
    for one in found:
        each = [alone(translator, *pair) for pair in zip(sentences, outputs[one.steps], strict=True)]
        logs = [float(judged.log_prob) for judged in each]
        assert one.log_prob == pytest.approx(statistics.fmean(logs), rel=1e-6, abs=1e-4)
        assert one.per_token == pytest.approx(sum(logs) / sum(map(len, outputs[one.steps])), abs=1e-5)
        assert one.elbo == pytest.approx(statistics.fmean(float(judged.elbo) for judged in each), abs=1e-3)
        assert one.elbo <= one.log_prob
        assert one.effective == pytest.approx(statistics.median(float(judged.effective) for judged in each), rel=1e-3)
        assert one.effective_low == pytest.approx(min(float(judged.effective) for judged in each), rel=1e-3)
    assert [one.gain for one in found] == pytest.approx([0, found[1].log_prob - found[0].log_prob, 0], abs=1e-6)
    before, after = (
        [float(alone(translator, *p).log_prob) for p in zip(sentences, outputs[n], strict=True)] for n in (0, 1)
    )
    gains = [b - a for a, b in zip(before, after, strict=True)]
    assert found[1].gain_error == pytest.approx(statistics.stdev(gains) / 2**0.5, rel=1e-5)


def test_a_latent_model_is_needed(translator: Translator) -> None:
    teacher = Translator.from_networks(
        translator.tokenizer, translator.rules, teacher=translator.backend.networks.teacher
    )
    with pytest.raises(UserError, match="there is no latent model"):
        likelihoods(teacher, [[5, 3]], {0: [[5, 3]]})
    with pytest.raises(UserError, match="there is no latent model"):
        outputs_along(teacher, [[5, 3]], "delta")
