"""An engine is any class with the methods of `Backend`. One without torch works in `Translator`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from uppercase import LOG_PROB, UppercaseEngine

from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import EOS, TokenizerConfig, train_tokenizer
from latentmt.engines.backend import Backend
from latentmt.errors import UserError
from latentmt.translator import Translator

TEXT = ["Ein kleiner Satz steht hier.", "EIN KLEINER SATZ STEHT HIER.", "Noch einer!", "NOCH EINER!"]


def make_translator() -> Translator:
    tokenizer = train_tokenizer(TEXT * 20, TokenizerConfig(vocab_size=380))
    engine = UppercaseEngine(tokenizer)
    return Translator(tokenizer, (TextRules(), TextRules()), engine, languages=("de", "en"))


@pytest.fixture(scope="module")
def translator() -> Translator:
    return make_translator()


def test_an_engine_without_networks_translates(translator: Translator) -> None:
    assert isinstance(translator.backend, Backend)
    assert translator.translate("Ein Satz.  Noch einer!\n") == "EIN SATZ.  NOCH EINER!\n"
    assert translator.translate(["hier", "", "12"]) == ["HIER", "", "12"]
    assert translator.translate("Siehe www.a.de, hier!") == "SIEHE www.a.de, HIER!"
    assert str(translator.options()) == "upper-1"
    with pytest.raises(UserError, match="method score: this model has only upper"):
        translator.translate("Ein Satz.", method="score")


def test_details_are_tokens_score_and_alignment(translator: Translator) -> None:
    text = "Ein Satz. Noch einer!"
    (translation,) = translator.translations([text], details=True)
    assert translation.text == text.upper()
    assert "".join(token.text for token in translation.tokens) == "EIN SATZ.NOCH EINER!"
    assert all(token.confidence == pytest.approx(0.5) for token in translation.tokens)
    assert translation.score == pytest.approx(LOG_PROB)
    assert translation.alignment
    for link in translation.alignment:
        assert 0 <= link.source[0] < link.source[1] <= len(text)
        assert 0 <= link.target[0] < link.target[1] <= len(text)
        assert link.weight == 1.0
        assert (link.source[0] < 10) == (link.target[0] < 10)  # of the same sentence
    assert EOS not in translation.ids
    assert translation.alternatives == []


def test_without_details_there_are_none(translator: Translator) -> None:
    (translation,) = translator.translations(["Ein Satz."])
    assert (translation.tokens, translation.alignment, translation.score) == ([], [], None)
    (aligned,) = translator.translations(["Ein Satz."], alignment=True)
    assert aligned.alignment
    assert (aligned.tokens, aligned.score) == ([], None)


def test_alternatives_are_the_other_candidates(translator: Translator) -> None:
    options = translator.options(lengths=2, rerank="decoder")
    (translation,) = translator.translations(["Ein Satz. Noch einer!"], options, alternatives=3)
    assert translation.text == "EIN SATZ. NOCH EINER!"
    assert translation.alternatives == ["Ein Satz. Noch einer!"]
    assert translation.score == pytest.approx(-1.0)


def test_cancelling_reaches_the_engine(translator: Translator) -> None:
    def cancel() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        translator.translations(["Ein Satz."], check_cancelled=cancel)


def test_torch_engine_refuses_another_backend_in_one_line(translator: Translator) -> None:
    from latentmt.engines.torch_engine import torch_engine

    with pytest.raises(UserError, match=r"^this needs the torch engine$"):
        torch_engine(translator.backend)


def test_no_torch_is_imported_for_an_engine_without_it() -> None:
    code = f"import sys; sys.path += {sys.path!r}; import test_backend; test_backend.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "EIN SATZ.\n"


def main() -> None:
    print(make_translator().translate("Ein Satz."))
    assert "torch" not in sys.modules
