"""The command line in real processes: output, errors and exit codes."""

import os
import resource
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, cast, get_args

import pytest
import torch
import typer.main
from typer.testing import CliRunner

from latentmt.bundle import read_format
from latentmt.cli import app
from latentmt.errors import UserError
from latentmt.installed import PRETRAINED
from latentmt.options import DecodingOptions, field_annotations
from latentmt.translator import Translator

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "tests" / "fixtures" / "tatoeba"


def latentmt(*arguments: object, limit: int | None = None) -> subprocess.CompletedProcess[str]:
    def before() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "latentmt", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=before,
        env=os.environ | {"COLUMNS": "120"},
    )


def refused(*arguments: object, **options: int) -> str:
    result = latentmt(*arguments, **options)
    assert result.returncode == 1, result.stderr
    lines = result.stderr.strip().splitlines()
    assert lines[-1].startswith("error: "), result.stderr
    assert "Traceback" not in result.stderr
    return lines[-1].removeprefix("error: ")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "data: {languages: [de, en], train: [{source: [train.de], target: [train.en]}], "
        "dev: {source: [train.de], target: [train.en], limit: 50}, tokenizer: {vocab_size: 600}}"
    )
    return path


def test_numbers_prepare_inspect(tmp_path: Path) -> None:
    assert latentmt("numbers", tmp_path / "text", "--train", 300, "--dev", 20, "--test", 20).returncode == 0
    prepare = ("prepare", ROOT / "recipes" / "numbers", "--data", tmp_path / "text", "--work", tmp_path)
    first = latentmt(*prepare)
    assert first.returncode == 0
    assert "kept" in first.stdout
    assert "tokenizer: " in first.stderr
    second = latentmt(*prepare)
    assert second.returncode == 0
    assert "nothing changed, nothing to do" in second.stderr
    shown = latentmt("inspect", tmp_path / "corpus")
    assert shown.returncode == 0
    for expected in ("de → en", "train", "efficiency 0.", "Lengths in tokens", "▁"):
        assert expected in shown.stdout


def test_user_errors_are_one_line(tmp_path: Path, recipe: Path) -> None:
    data = ("--data", SAMPLE, "--work", tmp_path)
    assert refused("prepare", tmp_path / "nothing.yaml") == f"{tmp_path}/nothing.yaml: no such file"
    assert "unknown key data.clean.max_lenght (did you mean max_length?)" in refused(
        "prepare", recipe, *data, "--set", "data.clean.max_lenght=3"
    )
    assert "nowhere: no such folder" in refused("prepare", recipe, "--data", tmp_path / "nowhere")
    assert "train.de: no such file" in refused("prepare", recipe, "--work", tmp_path)
    assert "missing.model: cannot be read" in refused("prepare", recipe, *data, "--tokenizer", "missing.model")
    assert "neither a corpus (manifest.json) nor a model (format.json)" in refused("inspect", tmp_path)
    assert "there is a file" in refused("prepare", recipe, "--data", SAMPLE, "--work", recipe)


def test_a_missing_device_is_one_line(tmp_path: Path, recipe: Path) -> None:
    assert "device tpu: expected cpu, cuda or cuda:<number>" in refused("run", recipe, "--device", "tpu")
    assert "device cuda:99: this machine has" in refused("run", recipe, "--device", "cuda:99")


def test_decoding_options_of_the_command_line_are_the_declared_ones() -> None:
    commands = cast(Any, typer.main.get_command(app)).commands
    options = {parameter.name: parameter for parameter in commands["translate"].params}
    for field in fields(DecodingOptions):
        base, *metadata = get_args(field_annotations()[field.name])
        described = next(item.description for item in metadata if getattr(item, "description", None))
        assert options[field.name].help == described
        if get_args(base):
            refused = CliRunner().invoke(app, ["translate", *options[field.name].opts, "nothing", "Ja."])
            assert refused.exit_code == 2
            assert all(repr(choice) in " ".join(refused.output.split()) for choice in get_args(base))
        assert options[field.name].default is None  # the model has the defaults
    assert {parameter.name for parameter in commands["trace"].params} >= {"method", "steps", "seed"}
    assert "beam" not in {parameter.name for parameter in commands["trace"].params}


def test_a_full_disk_leaves_existing_files_unchanged(tmp_path: Path, recipe: Path) -> None:
    prepare = ("prepare", recipe, "--data", SAMPLE, "--work", tmp_path)
    assert latentmt(*prepare).returncode == 0
    before = (tmp_path / "corpus" / "manifest.json").read_text()
    message = refused(*prepare, "--set", "data.clean.max_ratio=2", limit=20_000)
    assert "File too large" in message
    assert (tmp_path / "corpus" / "manifest.json").read_text() == before
    assert latentmt("inspect", tmp_path / "corpus").returncode == 0
    assert len(list((tmp_path / "corpus").iterdir())) == 2


def test_a_reader_that_leaves_is_no_traceback(tmp_path: Path, recipe: Path) -> None:
    assert latentmt("prepare", recipe, "--data", SAMPLE, "--work", tmp_path).returncode == 0
    result = subprocess.run(
        f"{sys.executable} -m latentmt inspect {tmp_path}/corpus | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == ""


HEAVY = "print([m for m in ('torch', 'numpy', 'matplotlib', 'sacrebleu') if m in sys.modules])"


def python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_package_and_the_commands_help_start_without_heavy_imports() -> None:
    assert python(f"import sys, latentmt; latentmt.UserError; {HEAVY}") == "[]\n"
    shown = python(f"import atexit, sys, latentmt.cli; atexit.register(lambda: {HEAVY}); latentmt.cli.main()", "--help")
    assert "translate" in shown
    assert shown.endswith("[]\n")


MISTAKES = """
import torch
from latentmt import Translator, UserError
loaded = Translator.load("deen", device=torch.device("cpu"))
for mistake in (
    lambda: Translator.load("deen", device="cuda:99"),
    lambda: Translator.load("deen", device="gpu"),
    lambda: loaded.translate(["a", None]),
    lambda: loaded.translate("x", stepz=3),
    lambda: loaded.translate("x", colour="red"),
    lambda: loaded.translate("x", length_bias="a"),
):
    try:
        mistake()
    except UserError as error:
        print(error)
"""


def test_errors_in_python_are_one_line_too() -> None:
    there = torch.cuda.device_count()
    names = ", ".join(field.name for field in fields(DecodingOptions))
    assert python(MISTAKES).splitlines() == [
        f"device cuda:99: this machine has {there} GPUs that torch can use",
        "device gpu: expected cpu, cuda or cuda:<number>",
        "expected a text, got None",
        "unknown option stepz (did you mean steps?)",
        f"unknown option colour (there are {names})",
        "length_bias a: expected -0.9 to 5",
    ]
    if not there:
        with pytest.raises(UserError, match="device cuda: this machine has 0 GPUs"):
            Translator.load("deen", device="cuda")


def test_a_model_is_inspected_by_its_name_or_folder(tmp_path: Path) -> None:
    by_name = latentmt("inspect", "deen")
    assert by_name.returncode == 0, by_name.stderr
    for kind in ("latent", "language_model"):
        assert f"{kind} {read_format(PRETRAINED / 'deen' / kind).fingerprint[:12]}, format" in by_name.stdout
    assert latentmt("inspect", PRETRAINED / "deen").stdout == by_name.stdout
    assert "nowhere: neither a folder nor the name of a model (installed: deen)" in refused("inspect", "nowhere")


def test_public_names_are_imported_lazily() -> None:
    code = "from latentmt import Translation, Translator, UserError; print(Translator.load('deen').translate('Ja.'))"
    assert python(code).strip()
    import latentmt as package

    assert all(getattr(package, name).__name__ == name for name in package.__all__)
    with pytest.raises(AttributeError, match="'latentmt' has no attribute 'Translater'"):
        package.Translater  # noqa: B018
