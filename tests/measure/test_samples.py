"""Samples: translations of samples of the prior, in which every word has a mark."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tiny import write_corpus, write_models

from latentmt.errors import UserError
from latentmt.measure.samples import CHANGED, KEPT, Phrase, Sample, compare, sample_options, show_samples, take_samples
from latentmt.options import DecodingOptions
from latentmt.translator import Translator

WORDS = st.lists(st.sampled_from(["im", "Im", "Land", "gibt", "es", "es,", "Ärzte", "–"]), max_size=9)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("numbers")
    write_models(folder, write_corpus(folder, held_out=6))
    return Translator.load(folder)


def test_moved_phrases() -> None:
    """As in the paper's first example."""
    old = "Es gibt nicht viele Ärzte im fernen Land, nur einen"
    new = "Im fernen Land gibt es nicht viele Ärzte, nur eine"
    before, after = compare(old.split(), new.split())
    assert before == [
        Phrase("Es", CHANGED),  # in case
        Phrase("gibt", 2),
        Phrase("nicht viele", KEPT),
        Phrase("Ärzte", CHANGED),  # by a comma
        Phrase("im fernen Land,", 1),
        Phrase("nur", KEPT),
        Phrase("einen", CHANGED),
    ]
    assert after == [
        Phrase("Im fernen Land", 1),
        Phrase("gibt", 2),
        Phrase("es", CHANGED),
        Phrase("nicht viele", KEPT),
        Phrase("Ärzte,", CHANGED),
        Phrase("nur", KEPT),
        Phrase("eine", CHANGED),
    ]


def test_swapped_phrases() -> None:
    before, after = compare(["a", "b", "c", "d", "e"], ["d", "e", "a", "b", "c"])
    assert before == [Phrase("a b c", KEPT), Phrase("d e", 1)]
    assert after == [Phrase("d e", 1), Phrase("a b c", KEPT)]
    assert compare(["x"], ["y"]) == ([Phrase("x", CHANGED)], [Phrase("y", CHANGED)])
    assert compare([], []) == ([], [])
    assert compare(["So", ",", "what"], ["what", "So"])[0] == [
        Phrase("So", KEPT),
        Phrase(",", CHANGED),
        Phrase("what", 1),
    ]


@given(WORDS, WORDS)
def test_every_word_has_a_mark(first: list[str], second: list[str]) -> None:
    before, after = compare(first, second)
    for words, phrases in ((first, before), (second, after)):
        assert " ".join(phrase.text for phrase in phrases).split() == words
    kept = [" ".join(phrase.text for phrase in side if phrase.mark == KEPT).split() for side in (before, after)]
    assert kept[0] == kept[1]
    moved = [Counter(p.mark for p in side for _ in p.text.split() if p.mark > 0) for side in (before, after)]
    assert moved[0] == moved[1]  # as many words on either side


def test_samples_are_the_second_candidate(translator: Translator) -> None:
    sources = ["Anna hat zwei Lampen. Und drei.", "", "Anna hat zwei Lampen.", "Im Theater hängen zehn rote Lampen."]
    references = [["a", "b", "c", "d"], ["e", "f", "g", "h"]]
    options = sample_options(translator, "score", steps=2, seed=3)
    found = take_samples(translator, sources, references, 5, options)
    assert [sample.source for sample in found] == sources[2:]
    assert [sample.references for sample in found] == [["c", "g"], ["d", "h"]]
    for sample in found:
        draw = {"samples": 2, "rerank": "decoder", "seed": 3}
        both = [translator.options(method="score", steps=steps, **draw) for steps in (0, 2)]
        texts = [translator.candidates([sample.source], options)[0][1].text for options in both]
        for phrases, text in zip((sample.before, sample.after), texts, strict=True):
            assert " ".join(phrase.text for phrase in phrases) == " ".join(text.split())
        assert sample.before != sample.after
    assert take_samples(translator, sources, references, 1, options) == found[:1]
    assert sample_options(translator).method == "score"


def test_samples_need_a_refining_method_and_a_latent_model(translator: Translator) -> None:
    for method, steps in (("teacher", 1), ("prior", 1), ("delta", 0)):
        with pytest.raises(UserError, match="a method that refines"):
            sample_options(translator, method, steps)  # type: ignore[arg-type]
    teacher = Translator.from_networks(
        translator.tokenizer, translator.rules, teacher=translator.backend.networks.teacher
    )
    with pytest.raises(UserError, match="there is no latent model"):
        sample_options(teacher)


def test_marks_are_colours_on_a_terminal() -> None:
    sample = Sample("quelle [1]", ["ziel"], [Phrase("a", KEPT), Phrase("b", CHANGED), Phrase("c", 1)], [Phrase("c", 1)])
    shown = io.StringIO()
    show_samples([sample], DecodingOptions(), Console(file=shown, force_terminal=True, width=80))
    assert "quelle [1]" in shown.getvalue()
    assert "\x1b[9;31mb\x1b[0m" in shown.getvalue()  # struck out
    assert shown.getvalue().count("\x1b[1;34mc\x1b[0m") == 2  # moved: one colour on both sides
    plain = io.StringIO()
    show_samples([sample], DecodingOptions(), Console(file=plain, width=80))
    assert "sampled    a b c\nrefined    c\n" in plain.getvalue()
