"""A run that is interrupted, resumed or split over ranks gives the result of an uninterrupted one."""

import dataclasses
import itertools
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from latentmt.data.tokenizer import TokenizerConfig, train_tokenizer
from latentmt.data.tokens import Pairs
from latentmt.errors import UNFINISHED, Stopped, UserError
from latentmt.models.latent import LatentConfig
from latentmt.networks import load_bundle, save_bundle
from latentmt.pipeline import train_stage
from latentmt.recipe import LatentStage, load_recipe
from latentmt.stages import _deciding
from latentmt.task import Controls, Cost
from latentmt.train.config import TrainConfig, run_identity
from latentmt.train.loop import CALIBRATION, Trainer
from latentmt.train.ranks import Ranks
from latentmt.train.step import TrainStep
from latentmt.train.stop import StopRequest, stop_on_signal
from latentmt.train.tasks import TeacherTask

Weights = dict[str, torch.Tensor]
# No noise; and an epsilon with which Adam does not blow up gradients that are nothing but rounding (a key's bias).
ROUNDING_ONLY = ("teacher.model.dropout=0", "teacher.train.adam_epsilon=1e-3")


@pytest.fixture
def work(numbers: Path, tmp_path: Path) -> Path:
    """A folder to train in. Nothing is distilled here, so that no stage waits for the teacher."""
    folder = Path(shutil.copytree(numbers, tmp_path / "work"))
    recipe = folder / "recipe.yaml"
    recipe.write_text("\n".join(line for line in recipe.read_text().splitlines() if not line.startswith("distill")))
    return folder


def trained(
    work: Path,
    stage: str,
    *overrides: str,
    max_minutes: float | None = None,
    budget_minutes: float | None = None,
    start: Path | None = None,
    replace: bool = False,
) -> Weights:
    """Train a stage, or go on with it; every tensor of the state it leaves."""
    train_stage(
        load_recipe(work, overrides),
        work,
        stage,  # type: ignore[arg-type]
        ranks=Ranks(),
        stop=StopRequest(max_minutes),
        budget_minutes=budget_minutes,
        start=str(start) if start else None,
        replace=replace,
    )
    return state(work, stage)


def state(work: Path, stage: str) -> Weights:
    return load_file(work / "training" / stage / "state.safetensors")


def forget(work: Path, stage: str) -> None:
    shutil.rmtree(work / stage, ignore_errors=True)
    shutil.rmtree(work / "training" / stage)


def log(work: Path, stage: str, kind: str) -> list[dict[str, float]]:
    lines = (work / "training" / stage / "log.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]


def assert_equal(first: Weights, second: Weights, tolerance: float = 0.0) -> None:
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=tolerance, atol=tolerance, msg=name)


def break_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Let a run die after some steps."""
    original, left = TrainStep.run, iter(range(steps))

    def run(train_step: TrainStep, *arguments: object) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        original(train_step, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(TrainStep, "run", run)


@pytest.mark.parametrize("stage", ["teacher", "latent", "score", "energy"])
def test_resumed_is_uninterrupted(work: Path, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if stage in ("score", "energy"):
        trained(work, "latent")
    whole = trained(work, stage)
    forget(work, stage)
    for steps in (4, 5):  # states are saved after 3 and 6 steps; what came later is done again
        with monkeypatch.context() as patch:
            break_after(patch, steps)
            with pytest.raises(KeyboardInterrupt):
                trained(work, stage)
    assert_equal(whole, trained(work, stage))
    assert [entry["step"] for entry in log(work, stage, "train")] == [5, 10, 12]


@pytest.mark.parametrize("stage", ["teacher", "score"])
def test_training_can_start_from_the_weights_of_another_model(work: Path, tmp_path: Path, stage: str) -> None:
    if stage == "score":
        trained(work, "latent")
    trained(work, stage)
    first = Path(shutil.copytree(work / stage, tmp_path / "first" / stage))
    forget(work, stage)
    still = [f"{stage}.train.{setting}" for setting in ("learning_rate=1e-12", "steps=2")]
    trained(work, stage, *still, start=first.parent)
    begun, ended = load_bundle(first), load_bundle(work / stage)
    assert_equal(begun.network.state_dict(), ended.network.state_dict(), 1e-6)
    with pytest.raises(UserError, match=f"other settings: start {begun.about.fingerprint[:12]} → none"):
        trained(work, stage, *still)
    trained(work, stage, *still, replace=True)  # without them it is another run
    assert load_bundle(work / stage).about.fingerprint != ended.about.fingerprint


def test_a_run_started_from_weights_resumes(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(work, "teacher")
    first = Path(shutil.copytree(work / "teacher", tmp_path / "first" / "teacher")).parent
    with pytest.raises(UserError, match="would be overwritten"):
        trained(work, "teacher", start=work)
    forget(work, "teacher")
    whole = trained(work, "teacher", start=first)
    forget(work, "teacher")
    with monkeypatch.context() as patch:
        break_after(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            trained(work, "teacher", start=first)
    with pytest.raises(UserError, match="other settings"):
        trained(work, "teacher")
    assert_equal(whole, trained(work, "teacher", start=first))


def test_initial_weights_must_fit(work: Path, tmp_path: Path) -> None:
    trained(work, "teacher")
    first = Path(shutil.copytree(work / "teacher", tmp_path / "first" / "teacher")).parent
    forget(work, "teacher")
    for other_size in ("d_filter=48", "heads=1"):  # heads change no shape, but what the weights mean
        with pytest.raises(UserError, match="is of another size than the recipe's teacher model"):
            trained(work, "teacher", f"teacher.model.{other_size}", start=first)
    with pytest.raises(UserError, match="first/latent"):
        trained(work, "latent", start=first)  # there is no latent model
    config = load_bundle(first / "teacher").config
    other = train_tokenizer(["ein anderer Satz", "und noch einer"], TokenizerConfig(vocab_size=400))
    save_bundle(first / "teacher", config, other, config.network(other.size).state_dict())
    with pytest.raises(UserError, match="has other pieces than"):
        trained(work, "teacher", start=first)


def test_a_run_follows_its_schedules_and_returns_its_ema_weights(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, seen = TrainStep.run, []

    def run(train_step: TrainStep, micro_batches: Sequence[Pairs], controls: Mapping[str, float], seed: int) -> None:
        seen.append((dict(controls), seed))
        original(train_step, micro_batches, controls, seed)

    monkeypatch.setattr(TrainStep, "run", run)
    tensors = trained(work, "latent", "latent.train.schedule=linear", "latent.elbo.budget=2.0")
    rates = [2e-3 * (step + 1) / 4 if step < 4 else 2e-3 * (12 - step) / 8 for step in range(12)]
    assert [controls["learning_rate"] for controls, _ in seen] == pytest.approx(rates)
    assert [controls["ema_decay"] for controls, _ in seen] == pytest.approx(
        [(1 + step) / (10 + step) for step in range(12)]
    )
    budgets = [2.0 - max(0, step - 6) / 6 * (2.0 - 0.1) for step in range(12)]
    assert [controls["kl_budget"] for controls, _ in seen] == pytest.approx(budgets)
    assert len({seed for _, seed in seen}) == 12
    weights = load_bundle(work / "latent").network.state_dict()
    for name, parameter in weights.items():
        assert torch.equal(parameter, tensors[f"average.{name}"]), name
    assert any(not torch.equal(parameter, tensors[f"weight.{name}"]) for name, parameter in weights.items())


def test_gradient_accumulation_does_not_change_the_result(work: Path) -> None:
    whole = trained(work, "teacher", *ROUNDING_ONLY)
    forget(work, "teacher")
    assert_equal(whole, trained(work, "teacher", *ROUNDING_ONLY, "teacher.train.grad_accumulation=4"), 1e-5)


def test_a_time_budget_fixes_the_steps_once_and_calibration_restores_all_state(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(work, "latent", "latent.train.steps=30")
    forget(work, "latent")
    calibrate = Trainer._calibrate

    def two_seconds(run: Trainer) -> float:
        calibrate(run)
        return 2.0

    monkeypatch.setattr(Trainer, "_calibrate", two_seconds)
    monkeypatch.setattr("latentmt.train.loop.time.monotonic", lambda: 0.0)  # so that calibrating takes no time
    with monkeypatch.context() as patch:
        break_after(patch, sum(CALIBRATION) + 4)
        with pytest.raises(KeyboardInterrupt):
            trained(work, "latent", "latent.train.steps=7", budget_minutes=1.0)
    assert load_progress(work, "latent")["total"] == 30
    resumed = trained(work, "latent", "latent.train.steps=7", budget_minutes=99.0)
    assert_equal(whole, resumed)


@pytest.mark.parametrize(("assumed", "planned"), [(2.0, 50), (0.5, 200)])
def test_the_steps_of_a_time_budget_are_corrected_by_their_real_speed(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], assumed: float, planned: int
) -> None:
    """Steps take a second each, whatever was measured before the first."""
    now, step = [0.0], Trainer._step

    def one_second(run: Trainer, *arguments: Any) -> None:
        step(run, *arguments)
        now[0] += 1.0

    monkeypatch.setattr(Trainer, "_calibrate", lambda run: assumed)
    monkeypatch.setattr(Trainer, "_step", one_second)
    monkeypatch.setattr("latentmt.train.loop.time.monotonic", lambda: now[0])
    trained(work, "latent", budget_minutes=100 / 60)
    assert load_progress(work, "latent")["total"] == load_progress(work, "latent")["step"] == 100
    output = "".join(capsys.readouterr())
    assert f"are {planned} steps" in output
    assert "1000.0 ms a step so far, so 100 steps" in output


def test_a_run_stopped_by_a_time_limit_resumes(work: Path) -> None:
    whole = trained(work, "teacher")
    forget(work, "teacher")
    for steps in range(1, 4):
        trained(work, "teacher", max_minutes=0.0)
        assert load_progress(work, "teacher")["step"] == steps
    assert not (work / "teacher").exists()
    assert_equal(whole, trained(work, "teacher"))
    assert (work / "teacher" / "format.json").exists()


def load_progress(work: Path, stage: str) -> dict[str, object]:
    from safetensors import safe_open

    with safe_open(work / "training" / stage / "state.safetensors", framework="pt") as file:
        return json.loads(file.metadata()["progress"])


def test_a_step_whose_gradient_is_not_finite_is_skipped_and_counted(
    work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    original, count = TeacherTask.cost, iter(range(100))

    def cost(task: TeacherTask, batch: Pairs, controls: Controls) -> Cost:
        found = original(task, batch, controls)
        broken = next(count) == 7
        return dataclasses.replace(found, total=found.total * torch.inf) if broken else found

    monkeypatch.setattr(TeacherTask, "cost", cost)
    tensors = trained(work, "teacher")
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    assert load_progress(work, "teacher")["skipped"] == 1
    assert tensors["step.embedding.weight"] == 11
    assert "WARNING: 1 steps of teacher skipped" in capfd.readouterr().err


def test_posterior_collapse_is_a_warning(
    work: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("latentmt.train.metrics.KL_FLOOR", 1e6)
    trained(work, "latent")
    assert "WARNING: posterior collapse" in capfd.readouterr().err


def test_a_checkpoint_with_other_settings_is_refused(work: Path) -> None:
    trained(work, "teacher", max_minutes=0.0)
    with pytest.raises(UserError, match=r"training/teacher: is unfinished, with other settings.*--work"):
        trained(work, "teacher", "teacher.train.learning_rate=1e-5")
    trained(work, "teacher", "teacher.train.report_every=7")  # how it is watched decides nothing
    # The checkpoint of a finished run is replaced.
    trained(work, "teacher", "teacher.train.learning_rate=1e-5", replace=True)
    damaged = work / "training" / "teacher" / "state.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-100])
    shutil.rmtree(work / "teacher")
    with pytest.raises(UserError, match=r"state\.safetensors: damaged"):
        trained(work, "teacher")


def test_the_identity_of_a_run_is_that_of_version_0_1() -> None:
    config = TrainConfig(
        steps=7,
        batch_rows=8,
        grad_accumulation=2,
        learning_rate=2e-3,
        warmup=4,
        schedule="cosine",
        adam_betas=(0.8, 0.95),
        adam_epsilon=1e-8,
        max_grad_norm=0.5,
        ema_decay=0.98,
        seed=3,
    )
    identity = run_identity("latent", config, {"corpus": "c", "tokenizer": "t", "stage": {"smoothing": 0.1}})
    assert identity == "80293d4e87698bdffb940d818f1dff1b2761d75d620d7c0b810807b07bca7254"


def test_what_decides_a_latent_model_is_that_of_version_0_1() -> None:
    """Keys that were added since are left out while they have their default."""
    stage = LatentStage(model=LatentConfig(preset="small"), train=TrainConfig())
    sizes = {"d_model": 256, "d_filter": 1024, "layers": 3, "heads": 4, "dropout": 0.1, "encoder_layers": 5}
    assert _deciding(stage) == {
        "model": {"preset": "small", **sizes, "latent_dim": 8},
        "smoothing": 0.1,
        "elbo": {"budget": 0.25, "budget_floor": 0.1},
    }


def test_ranks_must_divide_a_batch(work: Path) -> None:
    with pytest.raises(UserError, match="batch_rows 4 cannot be divided into 3 micro-batches on each of 1 ranks"):
        trained(work, "teacher", "teacher.train.grad_accumulation=3")


def command(work: Path, stage: str, *overrides: str, processes: int = 1) -> list[str]:
    start = [sys.executable, "-m"]
    if processes > 1:
        start += ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
    sets = [word for override in overrides for word in ("--set", override)]
    return [*start, "latentmt", "train", str(work), "--work", str(work), "--stage", stage, *sets]


def test_two_processes_give_the_result_of_one(work: Path) -> None:
    """Token-weighted gradients: the shares of a batch are unequal, and it makes no difference; nor does who resumes."""
    settings = (*ROUNDING_ONLY, "teacher.train.save_every=6")
    whole = trained(work, "teacher", *settings)
    forget(work, "teacher")
    done = subprocess.run(command(work, "teacher", *settings, processes=2), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert_equal(whole, state(work, "teacher"), 1e-5)
    assert done.stderr.count("written") == 1  # by rank 0 alone
    forget(work, "teacher")
    with pytest.MonkeyPatch.context() as patch:
        break_after(patch, 7)
        with pytest.raises(KeyboardInterrupt):
            trained(work, "teacher", *settings)
    subprocess.run(command(work, "teacher", *settings, processes=2), capture_output=True, check=True)
    assert_equal(whole, state(work, "teacher"), 1e-5)
    forget(work, "teacher")
    halted = [*command(work, "teacher", *settings, processes=2), "--max-minutes", "0"]
    assert subprocess.run(halted, capture_output=True, check=False).returncode == 1  # torchrun's, for 75
    assert load_progress(work, "teacher")["step"] == 10  # ranks ask each other every ten steps
    assert_equal(whole, trained(work, "teacher", *settings), 1e-5)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("whole", [False, True])
def test_a_signal_saves_and_the_exit_code_says_that_it_is_unfinished(work: Path, number: int, whole: bool) -> None:
    settings = ("teacher.train.steps=100000", "teacher.train.report_every=1")
    started = command(work, "teacher", *settings)
    if whole:
        started = [word for word in started if word not in ("--stage", "teacher")]
        started[started.index("train")] = "run"
    process = subprocess.Popen(started, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    for line in process.stderr:
        if "accuracy" in line:
            process.send_signal(number)
            break
    rest = process.stderr.read()
    process.stderr.close()
    assert process.wait() == UNFINISHED
    assert "the same command resumes" in rest
    assert "Traceback" not in rest
    assert load_progress(work, "teacher")["step"] >= 1


def test_a_time_limit_is_told_by_the_exit_code(work: Path) -> None:
    started = [*command(work, "teacher"), "--max-minutes", "0"]
    assert subprocess.run(started, capture_output=True, check=False).returncode == UNFINISHED
    assert subprocess.run(started[:-2], capture_output=True, check=False).returncode == 0


def test_outside_of_training_a_signal_stops_the_work_at_once() -> None:
    with stop_on_signal() as stop, stop.graceful():
        signal.raise_signal(signal.SIGTERM)
        assert stop.requested()
        with pytest.raises(SystemExit, match="130"):  # a second one, by hand
            signal.raise_signal(signal.SIGINT)
    for number in (signal.SIGTERM, signal.SIGINT):
        with stop_on_signal(), pytest.raises(Stopped, match=str(UNFINISHED)):
            signal.raise_signal(number)


@pytest.mark.parametrize("kills", [2, pytest.param(33, marks=pytest.mark.long)])
def test_a_run_killed_at_random_moments_gives_the_same_result(work: Path, kills: int) -> None:
    """SIGKILL at random moments; each time the run goes on from its last save, and ends as if nothing had been."""
    settings = (f"latent.train.steps={30 * (kills + 1)}", "latent.train.save_every=2", "latent.train.report_every=1")
    whole = trained(work, "latent", *settings)
    expected = log(work, "latent", "dev")[-1]
    forget(work, "latent")
    rng = random.Random(0)
    reached = 0
    for _ in range(kills):
        process = subprocess.Popen(command(work, "latent", *settings), stderr=subprocess.PIPE)
        assert process.stderr
        under_way = (line for line in process.stderr if b"accuracy" in line)
        assert len(list(itertools.islice(under_way, 3))) == 3  # a step was saved before the third report
        time.sleep(rng.uniform(0, 0.15))
        process.kill()
        process.wait()
        process.stderr.close()
        path = work / "training" / "latent" / "state.safetensors"
        step = int(str(load_progress(work, "latent")["step"])) if path.exists() else 0
        assert step >= reached
        reached = step
    assert 0 < reached < 30 * (kills + 1)
    assert_equal(whole, trained(work, "latent", *settings))
    assert log(work, "latent", "dev")[-1] == expected


def test_a_full_disk_leaves_the_last_complete_checkpoint(work: Path) -> None:
    import resource

    before = trained(work, "teacher", max_minutes=0.0)
    size = (work / "training" / "teacher" / "state.safetensors").stat().st_size
    done = subprocess.run(
        command(work, "teacher"),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2)),
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("error: ")
    assert "File too large" in done.stderr
    assert_equal(before, state(work, "teacher"))
    assert not list((work / "training" / "teacher").glob(".*"))
