"""No finished artefact is lost: other settings are refused, or old artefacts are kept until all are made again."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from latentmt.bundle import LANGUAGE_MODEL, read_format
from latentmt.data.corpus import read_manifest
from latentmt.errors import UserError
from latentmt.pipeline import distill_corpus, prepare_corpus, run, train_stage
from latentmt.recipe import load_recipe
from latentmt.replacement import WorkFolder, artefacts, differences, read_record
from latentmt.train.checkpoint import CHECKPOINT, Progress, save_checkpoint
from latentmt.train.ranks import Ranks
from latentmt.train.step import TrainStep
from latentmt.train.stop import StopRequest
from latentmt.translator import Translator

OTHER_RATE = "latent.train.learning_rate=1e-3"
ARTEFACTS = ("corpus", "teacher", "distilled", "latent", "score", "energy")
assert list(ARTEFACTS) == [name for name in artefacts() if name != LANGUAGE_MODEL][: len(ARTEFACTS)]


@pytest.fixture(scope="session")
def finished(numbers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, in the folder of its recipe and text; to be copied, not written to."""
    folder = Path(shutil.copytree(numbers, tmp_path_factory.mktemp("finished") / "work"))
    assert run_again(folder)
    return folder


@pytest.fixture
def work(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "work"))


def run_again(work: Path, *overrides: str, replace: bool = False) -> bool:
    return run(load_recipe(work, overrides), work, work, ranks=Ranks(), stop=StopRequest(), replace=replace)


def identities(folder: Path) -> dict[str, str | None]:
    return {artefact: found.identity for artefact in ARTEFACTS if (found := read_record(folder / artefact))}


def die_at_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(TrainStep, "run", die)


@pytest.mark.parametrize(
    ("override", "artefact", "message"),
    [
        ("teacher.train.learning_rate=1e-3", "teacher", "teacher.train.learning_rate 0.002 → 0.001"),
        ("latent.elbo.budget=0.125", "latent", "latent.elbo.budget 0.25 → 0.125"),
        ("fields.score.model.d_filter=48", "score", "fields.score.model.d_filter 32 → 48"),
        ("fields.energy.train.seed=7", "energy", "fields.energy.train.seed 1 → 7"),
        ("data.clean.max_ratio=2", "corpus", "data.clean.max_ratio "),
        ("distill.beam.beam=3", "distilled", "distill.beam.beam 2 → 3"),
        ("distill=null", "latent", "corpus "),
    ],
)
def test_other_settings_are_named_and_refused(work: Path, override: str, artefact: str, message: str) -> None:
    before = identities(work)
    with pytest.raises(UserError) as refused:
        run_again(work, override)
    said = str(refused.value)
    assert said.startswith(f"{work / artefact}: is finished, with other settings")
    assert f": {message}" in said
    assert "--work" in said
    assert "--replace" in said
    assert "\n" not in said
    assert ("learnt from it" in said) == (artefact not in ("score", "energy"))
    assert identities(work) == before


def test_each_command_refuses_other_settings(work: Path) -> None:
    before, recipe = identities(work), load_recipe(work, ["latent.train.seed=2", "data.row_width=65"])
    with pytest.raises(UserError, match=r"data\.row_width 64 → 65"):
        prepare_corpus(recipe, work, work)
    with pytest.raises(UserError, match=r"latent\.train\.seed 1 → 2"):
        train_stage(recipe, work, "latent", ranks=Ranks(), stop=StopRequest())
    with pytest.raises(UserError, match=r"distill\.bf16 true → false"):
        distill_corpus(load_recipe(work, ["distill.bf16=false"]), work, Ranks())
    (work / "train.de").write_text((work / "train.de").read_text() + "\n")
    (work / "train.en").write_text((work / "train.en").read_text() + "\n")
    with pytest.raises(UserError, match=r"files.train.de [0-9a-f]{12} → [0-9a-f]{12}, files.train.en"):
        run_again(work)
    assert identities(work) == before


def test_settings_without_effect_are_accepted(work: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = ("grad_accumulation=2", "report_every=1", "validate_every=2", "save_every=1")
    overrides = [f"latent.train.{setting}" for setting in settings]
    assert run_again(work, *overrides, "distill.shard_batches=3", "data.resample.seed=9")
    assert capfd.readouterr().err.count("nothing changed") == len(ARTEFACTS)


def test_bundles_without_settings_are_refused_without_naming_differences(work: Path) -> None:
    path = work / "score" / "format.json"
    tree = json.loads(path.read_text())
    del tree["settings"], tree["checksum"]
    path.write_text(json.dumps(tree))
    assert run_again(work)  # the same settings are still the same
    with pytest.raises(UserError, match="with other settings: it does not say which; name another"):
        run_again(work, "fields.score.train.seed=2")
    path.write_text(json.dumps(tree | {"format": 0}))
    with pytest.raises(UserError, match=r"score/format\.json: model format 0, this version reads 1; .*--replace"):
        run_again(work)


def test_settings_of_version_0_1_are_compared_under_present_names(work: Path) -> None:
    corpus, score = work / "corpus" / "manifest.json", work / "score" / "format.json"
    for path, old, new in ((corpus, "vocabulary", "vocab_size"), (score, "rate", "learning_rate")):
        tree = json.loads(path.read_text())
        del tree["checksum"]
        assert f'"{new}"' in json.dumps(tree)
        path.write_text(json.dumps(tree).replace(f'"{new}"', f'"{old}"'))
    assert run_again(work)
    with pytest.raises(UserError, match=r"other settings: fields\.score\.train\.learning_rate 0\.002 → 0\.001; "):
        run_again(work, "fields.score.train.rate=1e-3")
    with pytest.raises(UserError, match=r"learnt from it\): data\.tokenizer\.vocab_size 600 → 601; "):
        run_again(work, "data.tokenizer.vocabulary=601")


def test_a_corpus_that_no_model_was_trained_on_is_replaced(work: Path) -> None:
    for artefact in ARTEFACTS[1:]:
        shutil.rmtree(work / artefact)
    before = identities(work)
    prepare_corpus(load_recipe(work, ["data.row_width=65"]), work, work)
    assert identities(work) != before
    assert not (work / "replaced").exists()


def marked(folder: Path, artefact: str) -> Path:
    """A part that is finished, with settings that nobody can read."""
    (folder / artefact).mkdir(parents=True)
    (folder / artefact / "format.json").write_text('{"format": 0, "kind": "teacher", "files": {}}')
    return folder / artefact


def begun(work: Path, stage: str, identity: str, step: int = 1) -> Path:
    """The state of a training run of two steps."""
    path = work / "training" / stage / CHECKPOINT
    save_checkpoint(path, Progress(run=identity, total=2, step=step), {"weight": torch.ones(1)})
    return path


def test_a_distilled_corpus_is_not_lost(tmp_path: Path) -> None:
    marked(tmp_path, "distilled")
    with pytest.raises(UserError, match=r"distilled/format\.json: model format 0.*--replace"):
        WorkFolder(tmp_path, replace=False, by_teacher=True).check("distilled", "new", {})
    WorkFolder(tmp_path, replace=True, by_teacher=True).set_aside("distilled", "new")
    assert read_record(tmp_path / "replaced" / "1" / "distilled")


@pytest.mark.parametrize("artefact", ["corpus", "latent"])
def test_only_the_link_to_another_run_is_removed(tmp_path: Path, artefact: str) -> None:
    other, work = marked(tmp_path / "other", artefact), tmp_path / "work"
    work.mkdir()
    (work / artefact).symlink_to(other)
    with pytest.raises(UserError, match=f"{artefact}: is a symbolic link.*--work.*--replace"):
        WorkFolder(work, replace=False, by_teacher=True).check(artefact, "new", {})
    WorkFolder(work, replace=True, by_teacher=True).set_aside(artefact, "new")
    assert not (work / artefact).is_symlink()
    assert read_record(other)


def test_training_is_moved_aside_and_restored_with_its_artefact(tmp_path: Path) -> None:
    marked(tmp_path, "latent")
    state = begun(tmp_path, "latent", "old", step=2)
    later = begun(tmp_path, "score", "old score")
    finished = WorkFolder(tmp_path, replace=True, by_teacher=True)
    finished.set_aside("latent", "new")
    assert not state.exists()
    assert not later.exists()
    replaced = tmp_path / "replaced" / "1"
    assert (replaced / "training" / "latent" / CHECKPOINT).exists()
    WorkFolder(tmp_path, replace=False, by_teacher=True).set_aside("score", "old score")
    assert later.exists()
    finished.clean_up()
    assert read_record(replaced / "latent")
    marked(tmp_path, "latent")
    finished.clean_up()
    assert not replaced.exists()


def test_unfinished_training_with_other_settings_is_refused_or_moved_aside(tmp_path: Path) -> None:
    state = begun(tmp_path, "latent", "old")
    refusing = WorkFolder(tmp_path, replace=False, by_teacher=True)
    refusing.check("latent", "old", {})
    with pytest.raises(UserError, match=r"training/latent: is unfinished, with other settings; .*--work.*--replace"):
        refusing.check("latent", "new", {})
    WorkFolder(tmp_path, replace=True, by_teacher=True).set_aside("latent", "new")
    assert not state.exists()
    refusing.set_aside("latent", "old")
    assert state.exists()


def test_foreign_files_in_the_replaced_folder_stay(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    notes = tmp_path / "replaced" / "notes" / "teacher"
    notes.mkdir(parents=True)
    (tmp_path / "replaced" / "1").mkdir()
    (tmp_path / "replaced" / "1" / "mine.txt").write_text("mine")
    marked(tmp_path, "teacher")
    finished = WorkFolder(tmp_path, replace=True, by_teacher=False)
    finished.set_aside("teacher", "new")
    assert read_record(tmp_path / "replaced" / "2" / "teacher")
    marked(tmp_path, "teacher")
    finished.clean_up()
    assert "2/teacher removed" in capfd.readouterr().err
    assert notes.exists()
    assert (tmp_path / "replaced" / "1" / "mine.txt").exists()
    assert not (tmp_path / "replaced" / "2").exists()


def test_the_old_run_is_kept_until_the_new_one_is_complete(
    work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = identities(work)
    with monkeypatch.context() as patch:
        die_at_first_step(patch)
        with pytest.raises(KeyboardInterrupt):
            run_again(work, OTHER_RATE, replace=True)
    replaced = work / "replaced" / "1"
    assert identities(replaced) == {artefact: before[artefact] for artefact in ("latent", "score", "energy")}
    assert identities(work) == {artefact: before[artefact] for artefact in ("corpus", "teacher", "distilled")}
    recipe = load_recipe(work, [OTHER_RATE])
    train_stage(recipe, work, "latent", ranks=Ranks(), stop=StopRequest())  # it goes on without being told again
    train_stage(recipe, work, "score", ranks=Ranks(), stop=StopRequest())
    assert Translator.load(replaced).translate("Ja.") is not None  # still whole: fields are with their latent model
    assert run_again(work, OTHER_RATE, replace=True)
    assert not (work / "replaced").exists()
    after = identities(work)
    assert [artefact for artefact in ARTEFACTS if after[artefact] != before[artefact]] == ["latent", "score", "energy"]
    assert read_format(work / "score").latent == read_format(work / "latent").fingerprint
    capfd.readouterr()
    assert run_again(work, OTHER_RATE, replace=True)
    assert capfd.readouterr().err.count("nothing changed") == len(ARTEFACTS)


def test_the_old_settings_restore_the_old_run(
    work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = identities(work)
    teacher = read_format(work / "teacher")
    prepare_corpus(load_recipe(work, ["data.row_width=65"]), work, work, replace=True)
    assert identities(work / "replaced" / "1") == before
    with monkeypatch.context() as patch:  # the old ones come back: not a step is taken
        die_at_first_step(patch)
        assert run_again(work)
    assert identities(work) == before
    assert read_format(work / "teacher") == teacher
    assert capfd.readouterr().err.count("restored from") == len(ARTEFACTS)
    assert not (work / "replaced").exists()


def test_two_replacements_in_a_row_lose_no_run(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = identities(work)
    train_stage(load_recipe(work, [OTHER_RATE]), work, "latent", ranks=Ranks(), stop=StopRequest(), replace=True)
    second = identities(work)
    with monkeypatch.context() as patch:
        die_at_first_step(patch)
        with pytest.raises(KeyboardInterrupt):
            run_again(work, "latent.train.seed=5", replace=True)
        assert identities(work / "replaced" / "2") == {"latent": second["latent"]}
        assert run_again(work)  # the first one is back
    assert identities(work) == before


def test_an_artefact_that_is_not_made_again_stays(work: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run_again(work, OTHER_RATE, "fields.energy=null", replace=True)
    assert set(identities(work / "replaced" / "1")) == {"latent", "score", "energy"}
    assert f"{work / 'replaced'}: kept, since not all of it has been made again" in capfd.readouterr().err
    assert Translator.load(work).translate("Ja.") is not None  # no field of another latent model is in its way


def test_without_distillation_nothing_depends_on_the_teacher(work: Path) -> None:
    assert WorkFolder(work, replace=True, by_teacher=False)._invalidated("teacher") == ["teacher"]
    assert WorkFolder(work, replace=True, by_teacher=True)._invalidated("teacher") == list(reversed(ARTEFACTS[1:]))


def test_killed_between_any_two_moves_nothing_is_lost(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, rename = identities(work), os.rename
    trained = len(list((work / "training").iterdir()))
    for moves in range(len(ARTEFACTS) + trained):
        left = iter(range(moves))

        def killed(source: Path, target: Path, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            rename(source, target)

        with monkeypatch.context() as patch:
            patch.setattr("latentmt.files.os.rename", killed)
            with pytest.raises(KeyboardInterrupt):
                prepare_corpus(load_recipe(work, ["data.row_width=65"]), work, work, replace=True)
        asides = [identities(replaced) for replaced in work.glob("replaced/*")]
        kept = [*asides, identities(work)]
        assert {artefact: name for some in kept for artefact, name in some.items()} == before
        left_over = list(identities(work))
        assert left_over == list(ARTEFACTS[: len(left_over)])  # what is left goes together
        with monkeypatch.context() as patch:
            die_at_first_step(patch)
            assert run_again(work)
        assert identities(work) == before


def test_a_stop_requested_in_the_very_last_step_leaves_the_run_finished(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for artefact in ("score", "energy", "training/score"):
        shutil.rmtree(work / artefact)
    recipe, stop, step = load_recipe(work, ["fields.energy=null"]), StopRequest(), TrainStep.run
    left = iter(range(recipe.fields["score"].train.steps - 1))  # type: ignore[union-attr]

    def asked_in_the_last(*arguments: object) -> None:
        if next(left, None) is None:
            stop.signal = signal.SIGTERM
        step(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(TrainStep, "run", asked_in_the_last)
    assert run(recipe, work, work, ranks=Ranks(), stop=stop)
    assert stop.signal


def test_on_the_command_line(work: Path) -> None:
    def latentmt(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "latentmt", "run", work, "--data", work, "--work", work, *arguments]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)

    before = read_manifest(work / "corpus")
    refused = latentmt("--set", "fields.score.train.warmup=3")
    assert refused.returncode == 1
    assert (
        f"error: {work / 'score'}: is finished, with other settings: fields.score.train.warmup 4 → 3; "
        in refused.stderr
    )
    assert "Traceback" not in refused.stderr
    replaced = latentmt("--set", "fields.score.train.warmup=3", "--replace")
    assert replaced.returncode == 0, replaced.stderr
    assert f"{work}/replaced/1: score kept until everything is made again" in replaced.stderr
    assert read_format(work / "score").settings["fields"]["score"]["train"]["warmup"] == 3
    assert read_manifest(work / "corpus") == before
    assert not (work / "replaced").exists()


def test_differences_are_one_line() -> None:
    old = {"data": {"languages": ["de", "en"], "clean": {"a": 1, "b": 2}}, "corpus": "0" * 64, "start": "f" * 64}
    new = {"data": {"languages": ["de", "ro"], "clean": {"a": 1, "b": 3}}, "corpus": "1" * 64}
    assert differences(old, new) == (
        'data.languages ["de", "en"] → ["de", "ro"], data.clean.b 2 → 3, corpus 000000000000 → 111111111111, '
        "start ffffffffffff → none"
    )
    assert differences({str(n): 0 for n in range(9)}, {}).endswith("5 0 → none, and 3 more")
    assert differences({}, new) == "it does not say which"
    assert differences(old, old) == "it was made by another version"
