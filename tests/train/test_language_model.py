"""The stage that writes a language model: once, for its settings, and with one line for what cannot be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from latentmt import cli
from latentmt.bundle import LANGUAGE_MODEL, open_bundle, read_format
from latentmt.data.corpus import Corpus
from latentmt.engines.load import load_language_model
from latentmt.errors import UserError
from latentmt.ngrams.estimate import NgramConfig, estimate
from latentmt.ngrams.model import NgramModel
from latentmt.pipeline import prepare_corpus, run, train_stage
from latentmt.recipe import load_recipe
from latentmt.train.ranks import Ranks
from latentmt.train.stop import StopRequest


@pytest.fixture
def work(numbers: Path, tmp_path: Path) -> Path:
    """A recipe with a language model and the corpus. Nothing is trained."""
    folder = Path(shutil.copytree(numbers, tmp_path / "work"))
    recipe = (folder / "recipe.yaml").read_text()
    before, size = recipe.split("teacher:")[0], "preset: tiny, d_model: 32, d_filter: 32, layers: 1, encoder_layers: 1"
    (folder / "recipe.yaml").write_text(
        f"{before}latent:\n  model: {{{size}, heads: 2, latent_dim: 4, output: ctc}}\n"
        "  train: {steps: 2, batch_rows: 4, warmup: 1, report_every: 1, validate_every: 100}\n"
        "language_model: {order: 3, ngrams: 200}\n"
    )
    return folder


def count(work: Path, *overrides: str, replace: bool = False, start: str | None = None) -> bool:
    recipe = load_recipe(work, overrides)
    return train_stage(recipe, work, LANGUAGE_MODEL, ranks=Ranks(), stop=StopRequest(), start=start, replace=replace)


def files(work: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (work / LANGUAGE_MODEL).iterdir()}


def test_on_the_command_line(work: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written is the model of the training targets, and again it is not written."""

    def latentmt(*arguments: object, expected: int = 0) -> str:
        monkeypatch.setattr("sys.argv", ["latentmt", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert (ended.value.code or 0) == expected
        return capfd.readouterr().err

    folder = work / LANGUAGE_MODEL
    assert f"{folder}: written" in latentmt("train", work, "--work", work, "--stage", LANGUAGE_MODEL)
    assert read_format(folder).kind == LANGUAGE_MODEL
    corpus = Corpus.load(work / "corpus")
    found, config = load_language_model({LANGUAGE_MODEL: open_bundle(folder)}), NgramConfig(order=3, ngrams=200)
    expected = estimate(corpus.split("train").target, corpus.split("dev").target, corpus.tokenizer.size, config)
    assert isinstance(found, NgramModel)
    assert found.to_bytes() == expected.to_bytes()
    assert found.surprisal > 0
    facts = read_format(folder).facts
    assert facts["tokens"] == len(corpus.split("train").target.ids)
    assert facts["dev perplexity"] == pytest.approx(2.71828 ** (found.surprisal / 16), abs=0.1)
    assert not list(folder.glob("*.safetensors*"))
    card = (folder / "MODEL_CARD.md").read_text()
    assert f"{found.sizes[2]:,}" in card

    before = files(work)
    assert f"{folder}: nothing changed" in latentmt("train", work, "--work", work, "--stage", LANGUAGE_MODEL)
    assert files(work) == before
    refused = latentmt(
        "train", work, "--work", work, "--stage", LANGUAGE_MODEL, "--set", "language_model.order=2", expected=1
    )
    assert f"{folder}: is finished, with other settings: language_model.order 3 → 2; " in refused
    assert "Traceback" not in refused
    assert files(work) == before
    latentmt("inspect", folder)


def test_other_settings_replace_it_and_nothing_else(work: Path) -> None:
    count(work)
    before, corpus = files(work), (work / "corpus" / "manifest.json").read_bytes()
    with pytest.raises(UserError, match=r"language_model: is finished, .*: language_model\.ngrams 200 → 100; .*--repl"):
        count(work, "language_model.ngrams=100")
    assert files(work) == before
    assert count(work, "language_model.ngrams=100", replace=True)
    assert files(work) != before
    assert not (work / "replaced").exists()
    assert (work / "corpus" / "manifest.json").read_bytes() == corpus
    assert count(work, replace=True)
    assert files(work) == before  # the same again, to the byte


def test_another_corpus_makes_another_one(work: Path) -> None:
    count(work)
    with pytest.raises(UserError, match=r"corpus: is finished, with other settings \(language_model learnt from it\)"):
        prepare_corpus(load_recipe(work, ["data.clean.max_ratio=2"]), work, work)
    prepare_corpus(load_recipe(work, ["data.clean.max_ratio=2"]), work, work, replace=True)
    assert (work / "replaced" / "1" / LANGUAGE_MODEL / "ngrams.npz").exists()
    assert count(work, "data.clean.max_ratio=2", replace=True)
    assert (work / LANGUAGE_MODEL / "ngrams.npz").exists()


def test_a_run_includes_it(work: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for said in ("written", "nothing changed"):
        assert run(load_recipe(work), work, work, ranks=Ranks(), stop=StopRequest())
        shown = capfd.readouterr().err
        assert f"{work / LANGUAGE_MODEL}: {said}" in shown
        assert f"{work / 'latent'}: {said}" in shown
    latent = read_format(work / "latent").fingerprint
    assert run(load_recipe(work, ["language_model=null"]), work, work, ranks=Ranks(), stop=StopRequest())
    assert read_format(work / "latent").fingerprint == latent  # which does not depend on it
    assert LANGUAGE_MODEL not in json.dumps(read_format(work / "latent").settings)
    assert LANGUAGE_MODEL not in (work / "latent" / "config.yaml").read_text()  # so an old bundle is what it was
    with pytest.raises(UserError, match=r"language_model\.order 3 → 4"):
        run(load_recipe(work, ["language_model.order=4"]), work, work, ranks=Ranks(), stop=StopRequest())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["latent.model.output=tokens"], "language_model needs a latent model with output: ctc"),
        (["latent=null"], "language_model needs a latent model with output: ctc"),
        (["language_model.order=6"], r"language_model\.order"),
        (["language_model.order=1"], r"language_model\.order"),
        (["language_model.ngrams=0"], r"language_model\.ngrams"),
        (["language_model.size=3"], r"language_model\.size"),
        (["language_model=null"], "^the recipe has no language_model section$"),
    ],
)
def test_recipes_without_sense_are_refused(work: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        count(work, *overrides)
    assert "\n" not in str(refused.value)
    assert not (work / LANGUAGE_MODEL).exists()


def test_it_begins_with_nothing(work: Path) -> None:
    with pytest.raises(UserError, match=r"^language_model: is counted, not trained, so it begins with nothing$"):
        count(work, start="deen")


def test_what_is_in_its_place_is_not_overwritten(work: Path) -> None:
    (work / LANGUAGE_MODEL).mkdir()
    (work / LANGUAGE_MODEL / "notes.txt").write_text("mine")
    for replace in (False, True):
        with pytest.raises(UserError, match=r"notes\.txt"):
            count(work, replace=replace)
    assert files(work) == {"notes.txt": b"mine"}
