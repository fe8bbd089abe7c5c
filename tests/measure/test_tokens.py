"""Tokens along refinement: equal to the translator's, counted right, whatever the batch."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import write_corpus, write_models

from latentmt.data.tokenizer import BLANK, EOS
from latentmt.engines.torch_engine import TorchEngine
from latentmt.measure.tokens import count_tokens, edit_distance, outputs_along
from latentmt.options import DecodingOptions
from latentmt.results import without_special
from latentmt.translator import Translator

IDS = st.lists(st.integers(0, 3), max_size=7)


@pytest.fixture(scope="module", params=["tokens", "ctc"])
def work(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbers")
    write_models(folder, write_corpus(folder, held_out=8), output=request.param)
    return folder


@pytest.fixture(scope="module")
def translator(work: Path) -> Translator:
    return Translator.load(work)


@pytest.fixture(scope="module")
def sources(work: Path) -> list[str]:
    return (work / "test.de").read_text().splitlines()


@given(IDS, IDS)
def test_the_edit_distance_equals_its_definition(first: list[int], second: list[int]) -> None:
    @lru_cache
    def distance(left: int, right: int) -> int:
        if not left or not right:
            return left + right
        same = distance(left - 1, right - 1) + (first[left - 1] != second[right - 1])
        return min(same, distance(left - 1, right) + 1, distance(left, right - 1) + 1)

    assert edit_distance(first, second) == distance(len(first), len(second))


@pytest.mark.parametrize("method", ["delta", "score", "energy"])
def test_outputs_along_a_walk_equal_separate_translations(
    translator: Translator, sources: list[str], method: str
) -> None:
    """After L steps of one walk stands what L steps alone lead to, and what a trace shows."""
    sentences = [ids for text in sources for ids in translator.sentences(text)]
    found = outputs_along(translator, sentences, method, steps=(0, 1, 3))  # type: ignore[arg-type]
    for steps, targets in found.items():
        alone = translator.backend.best(sentences, translator.options(method=method, steps=steps))
        assert [without_special(ids) for ids in targets] == [one.decoded for one in alone]
    traced = translator.backend.trace(sentences[2], translator.options(method=method, steps=3))
    along = [[id_ for id_ in traced.steps[steps].ids if id_ != BLANK] for steps in (0, 1, 3)]
    assert [found[steps][2] for steps in (0, 1, 3)] == along
    assert found[0] != found[3]


def test_batch_size_changes_nothing(
    translator: Translator, sources: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = [ids for text in sources for ids in translator.sentences(text)]
    together = outputs_along(translator, sentences, "score", (0, 2))
    monkeypatch.setattr(TorchEngine, "batch_tokens", 1)
    assert outputs_along(translator, sentences, "score", (0, 2)) == together


def test_searches_and_adaptive_steps_cannot_be_followed(translator: Translator) -> None:
    for options in (
        DecodingOptions(steps=2),
        DecodingOptions(steps=3, adaptive=True),
        DecodingOptions(steps=3, samples=2, rerank="decoder"),
    ):
        with pytest.raises(ValueError, match="one candidate that takes all of its steps"):
            translator.backend.targets_along([[5, EOS]], options, [0, 3])


def test_counts_of_a_small_example(translator: Translator) -> None:
    a, b, c = translator.tokenizer.encode(["and"])[0][0], 300, 301
    outputs = {
        0: [[a, a, b, EOS], [b, b, b, EOS]],
        1: [[a, b, b, EOS], [b, c, b, EOS]],  # EOS is no token to be counted
        2: [[a, c, b, c, EOS], [b, b, b, EOS]],
    }
    references = ["and", "and and"]
    expected = sum(len(without_special(ids)) for ids in translator.tokenizer.encode(references))
    none, one, two = count_tokens(translator, outputs, references)
    assert (none.steps, none.edits, none.changed, none.repeats, none.relative_repeats) == (0, 0, 0, 3, 1)
    assert none.length == pytest.approx((2 + 1) / expected)  # repetitions are not read
    assert (one.steps, one.edits, one.edits_error, one.changed, one.repeats) == (1, 1, 0, 1, 1)
    assert one.relative_repeats == pytest.approx(1 / 3)
    assert one.length == pytest.approx((2 + 3) / expected)
    assert (two.edits, two.changed, two.repeats) == (1, 0.5, 2)
    assert two.edits_error == pytest.approx(1.0)  # of 2 and 0: deviation √2, over √2
    assert count_tokens(translator, {0: [[a, EOS]], 1: [[a, a, EOS]]}, ["and"])[1].relative_repeats is None
