"""Names in translations: those that a model spoils are translated again as placeholders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from test_cli import latentmt, refused
from uppercase import UppercaseEngine

from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import PLACEHOLDERS, Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.engines.backend import CheckCancelled, never_cancelled
from latentmt.options import DecodingOptions
from latentmt.results import Annotation, Candidate, Candidates
from latentmt.text.glossary import Glossary
from latentmt.text.names import BUCKETS, Names, WordSet
from latentmt.translator import Translator

A, B, C = PLACEHOLDERS[:3]
SENTENCE = "Frau Brückner kennt Thormählen."
SPOILT = {"Brückner": "Bridgener", "Thormählen": "Thorms", "17": "70", "Bahnhof": "Station"}
PIECES = train_tokenizer([SENTENCE, *SPOILT, *SPOILT.values()] * 20, TokenizerConfig(vocab_size=400, placeholders=4))


class SpoilingEngine(UppercaseEngine):
    """Repeats every sentence with the names spoilt, and with `changes` made. It remembers what it was asked."""

    def __init__(self, tokenizer: Tokenizer, changes: dict[str, str]) -> None:
        super().__init__(tokenizer)
        self.changes, self.asked = changes, list[str]()

    def candidates(
        self,
        sentences: Sequence[Sequence[int]],
        options: DecodingOptions,
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> list[Candidates]:
        results = []
        for text in self._tokenizer.decode(sentences):
            self.asked.append(text)
            for old, new in (SPOILT | self.changes).items():
                text = text.replace(old, new)
            ids = self._tokenizer.encode([text])[0][:-1]
            results.append(Candidates([Candidate(ids, ids, -1.0)], 0))
        return results

    def annotate(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        check_cancelled: CheckCancelled = never_cancelled,
        log_probs: bool = False,
    ) -> list[Annotation]:
        """No token attends to anything, so that alignment does not tell where a term stands."""
        sizes = [(len(target), len(source) - 1) for source, target in zip(sources, targets, strict=True)]
        return [Annotation(np.zeros(size, dtype=np.float32), []) for size in sizes]


@pytest.fixture
def names() -> Names:
    """All words are names, except those that were seen."""
    weights = np.full(BUCKETS, 129, dtype=np.uint8)
    return Names(weights, WordSet.of(["Frau", "Bahnhof", "Der", "Siehe"]), WordSet.of(()))


def translator(names: Names | None, **changes: str) -> Translator:
    engine = SpoilingEngine(PIECES, changes)
    rules = (TextRules(), TextRules())
    return Translator(PIECES, rules, engine, languages=("de", "en"), names=names)


def asked(translator: Translator) -> list[str]:
    assert isinstance(translator.backend, SpoilingEngine)
    return translator.backend.asked


def test_spoilt_names_come_back(names: Names) -> None:
    model = translator(names)
    assert model.translate(SENTENCE) == SENTENCE
    assert asked(model) == [SENTENCE, f"Frau {A} kennt {B}."]


def test_without_what_names_look_like_or_raw_they_stay_spoilt(names: Names) -> None:
    for model, options in ((translator(None), {}), (translator(names), {"verbatim": False})):
        assert model.translate(SENTENCE, **options) == "Frau Bridgener kennt Thorms."  # type: ignore[arg-type]
        assert asked(model) == [SENTENCE]


def test_only_sentences_that_lack_names_are_translated_again(names: Names) -> None:
    model = translator(names)
    texts = ["Frau Wuemme schläft.", SENTENCE, "Der Bahnhof.", "Anna und Ömer."]
    assert model.translate(texts) == ["Frau Wuemme schläft.", SENTENCE, "Der Station.", "Anna und Ömer."]
    assert len(asked(model)) == len(texts) + 1


def test_a_name_that_is_there_is_not_masked(names: Names) -> None:
    model = translator(names)
    assert model.translate("Anna kennt Brückner.") == "Anna kennt Brückner."
    assert asked(model)[1:] == [f"Anna kennt {A}."]


@pytest.mark.parametrize("change", [{A: ""}, {A: f"{A} {A}"}, {A: B}, {"Anna": "Hanna"}])
def test_a_second_translation_that_is_no_better_is_not_taken(names: Names, change: dict[str, str]) -> None:
    """A placeholder that is lost, repeated or exchanged, or another name that is lost then."""
    model = translator(names, **{SPOILT["Brückner"]: SPOILT["Brückner"]})
    second = iter([{}, change])
    original = model.backend.candidates

    def candidates(*arguments: object) -> list[Candidates]:
        model.backend.changes = next(second)  # type: ignore[attr-defined]
        return original(*arguments)  # type: ignore[arg-type]

    model.backend.candidates = candidates  # type: ignore[method-assign, assignment]
    assert model.translate("Anna kennt Brückner.") == "Anna kennt Bridgener."
    assert len(asked(model)) == 2


def test_names_numbers_and_addresses_are_masked_at_once(names: Names) -> None:
    model = translator(names)
    text = "Siehe www.a.de: Brückner 17."
    assert model.translate(text) == text
    assert asked(model) == [f"Siehe {A}: Brückner 17.", f"Siehe {A}: {C} {B}."]


def test_names_stay_masked_when_terms_are_masked(names: Names) -> None:
    model = translator(names)
    glossary = Glossary({"Bahnhof": "railway station"})
    (result,) = model.translations(["Der Bahnhof kennt Brückner."], glossary=glossary)
    assert result.text == "Der railway station kennt Brückner."
    assert asked(model)[1:] == [f"Der Bahnhof kennt {A}.", f"Der {A} kennt {B}."]


def test_names_beside_the_bundles_are_read_and_learnt_by_a_command(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("Frau Brückner schläft.\nDas Haus ist alt.\n" * 3)
    (tmp_path / "a.en").write_text("Mrs Brückner sleeps.\nThe house is old.\n" * 3)
    text = ("--source", tmp_path / "a.de", "--target", tmp_path / "a.en")
    done = latentmt("names", tmp_path / "names.npz", *text)
    assert done.returncode == 0, done.stderr
    assert "bytes" in done.stderr
    found = Names.from_bytes((tmp_path / "names.npz").read_bytes())
    assert found.missing("Frau Brückner schläft.", "Mrs B sleeps.") == [(5, 13)]
    (tmp_path / "a.en").write_text("Mrs Brückner sleeps.\n")
    assert "a.de" in refused("names", tmp_path / "names.npz", *text)
