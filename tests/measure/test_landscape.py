"""The field around a latent of two entries: each point is what the networks compute there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import write_corpus, write_models

from latentmt.data.tokens import Tokens
from latentmt.errors import UserError
from latentmt.fields.base import Context
from latentmt.fields.delta import DELTA
from latentmt.measure import landscape as module
from latentmt.measure.landscape import choose_sentence, landscape
from latentmt.translator import Translator

SOURCE, REFERENCE = "Anna hat zwei Lampen.", "Anna has two lamps."


@pytest.fixture(scope="module", params=["tokens", "ctc"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    write_models(folder, write_corpus(folder, held_out=6), latent_dim=2, output=request.param)
    return folder


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return Translator.load(folder)


def test_every_point_is_what_the_networks_compute(translator: Translator) -> None:
    found = landscape(translator, SOURCE, REFERENCE, steps=2, grid=5)
    assert found.method == "score"
    model = translator.backend.networks.latent
    assert model is not None
    target = Tokens.padded(translator.tokenizer.encode([REFERENCE]))
    encoded = model.encode(Tokens.padded(translator.sentences(SOURCE)))
    layout, decoder = model.output.places(encoded, target), model.decoder_stack.project_kv(encoded)
    prior = model.prior(layout, model.prior.project_kv(encoded)).mode
    posterior = model.posterior(target, layout, model.posterior_stack.project_kv(encoded)).mean
    score = translator.backend.networks.bind_field("score", encoded, layout)
    assert len(found.panels) == layout.segment.shape[1] - 1

    def pieces(z: torch.Tensor) -> list[str]:
        """What each place writes."""
        labels = model.output.labels(model.decode(z, layout, decoder), layout, model.embedding)
        written = model.output.written(labels, layout)[0].tolist()
        shown = translator.tokenizer.pieces(labels[0].tolist())
        return [piece if writes else "·" for piece, writes in zip(shown, written, strict=True)]

    for position, panel in enumerate(found.panels):
        assert panel.prior == pytest.approx(prior[0, position].tolist(), abs=1e-4)
        assert panel.posterior == pytest.approx(posterior[0, position].tolist(), abs=1e-4)
        one = prior + score(prior)
        two = one + score(one)
        assert [*panel.paths["score"][0], *panel.paths["score"][1]] == pytest.approx(
            [*one[0, position].tolist(), *two[0, position].tolist()], abs=1e-3
        )
        after = prior + DELTA.bind(Context(model, encoded, layout))(prior)
        assert panel.paths["delta"][0] == pytest.approx(after[0, position].tolist(), abs=1e-4)
        z = prior.clone()
        z[0, position] = torch.tensor([panel.x[1], panel.y[3]])
        assert panel.field[3][1] == pytest.approx(score(z)[0, position].tolist(), abs=2e-3)
        assert panel.decoded[3][1] == pieces(z)[position]
        for x, y in (panel.prior, panel.posterior, *(point for path in panel.paths.values() for point in path)):
            assert panel.x[0] < x < panel.x[-1]
            assert panel.y[0] < y < panel.y[-1]
        assert panel.x[-1] - panel.x[0] == pytest.approx(panel.y[-1] - panel.y[0], abs=1e-3)
    assert [panel.pieces["prior"] for panel in found.panels] == pieces(prior)[:-1]
    assert found.translations["prior"] == translator.texts(model.read(prior, layout, decoder).ids.tolist())[0]


def test_the_choice_of_a_sentence(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """First one that refinement corrects, else one that it changes, else a short one."""
    walks = {
        "eins": {"prior": [9, 3], "score": [9, 3]},
        "zwei": {"prior": [9, 3], "score": [8, 3]},
        "drei": {"prior": [9, 3], "score": [7, 7, 7, 3]},
    }
    sentences = {tuple(translator.sentences(text)[0]): ends for text, ends in walks.items()}

    real = module._walk
    monkeypatch.setattr(module, "_walk", lambda *given: replace(real(*given), ends=sentences[tuple(given[1])]))
    monkeypatch.setattr(module, "_encoded", lambda _, text: [3] if text == "short" else [7, 7, 7, 3])
    texts = ["eins", "zwei", "drei"]
    assert choose_sentence(translator, texts, ["fits"] * 3) == 2
    assert choose_sentence(translator, texts, ["fits", "fits", "short"]) == 1
    assert choose_sentence(translator, texts, ["fits", "short", "short"]) == 0
    with pytest.raises(UserError, match="no line is one sentence with a reference of 4 to 9 tokens"):
        choose_sentence(translator, texts, ["short"] * 3)


@pytest.mark.parametrize(
    ("source", "reference", "message"),
    [
        ("", REFERENCE, "expected one sentence, found 0"),
        ("Anna hat zwei Lampen. Im Theater hängen zehn.", REFERENCE, "expected one sentence, found 2"),
        (SOURCE, "", "a reference of 0 tokens"),
        (SOURCE, "Anna " * 100, "there is room for 1 to 24"),
    ],
)
def test_sentences_that_cannot_be_drawn_are_refused(
    translator: Translator, source: str, reference: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        landscape(translator, source, reference)


def test_two_entries_and_a_learned_field_are_needed(translator: Translator) -> None:
    alone = Translator.from_networks(translator.tokenizer, translator.rules, latent=translator.backend.networks.latent)
    with pytest.raises(UserError, match="a latent model of two entries"):
        landscape(alone, SOURCE, REFERENCE)
