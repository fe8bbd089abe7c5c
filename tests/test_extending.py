"""A field from outside the package is trained, loaded, used, served and reported.

It is tests/destination.py, which docs/extending.md shows.
"""

from __future__ import annotations

import json
from pathlib import Path

import destination
import pytest
from serving import serving
from tiny import SIZE, write_corpus
from typer.testing import CliRunner, Result

from latentmt.bundle import read_format
from latentmt.cli import app
from latentmt.translator import Translator

ROOT = Path(__file__).parent.parent
STAGES = f"""
latent:
  model: {json.dumps(SIZE | {"encoder_layers": 1, "latent_dim": 4})}
  train: {{steps: 3, batch_rows: 4, validate_every: 3}}
fields:
  destination:
    model: {json.dumps(SIZE)}
    train: {{steps: 3, batch_rows: 4, validate_every: 3}}
"""


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the new field, made by `latentmt run`."""
    folder = tmp_path_factory.mktemp("extending")
    write_corpus(folder, held_out=6)
    recipe = folder / "recipe.yaml"
    recipe.write_text(recipe.read_text() + STAGES)
    run("run", recipe, "--data", folder, "--work", folder, "--device", "cpu")
    return folder


def test_a_user_field_is_trained_and_saved(work: Path) -> None:
    about = read_format(work / "destination")
    assert about.kind == "destination"
    assert about.latent == read_format(work / "latent").fingerprint
    assert about.facts["steps"] == 3
    assert "dev BLEU destination-1" in about.facts
    assert "nothing changed" in run("run", work / "recipe.yaml", "--data", work, "--work", work).stderr


def test_a_user_field_is_loaded_and_translates(work: Path) -> None:
    translator = Translator.load(work)
    assert translator.methods == ["prior", "delta", "destination"]
    assert str(translator.options()) == "destination-1"
    text = "Anna hat zwei Lampen."
    done = run("translate", "--model", work, "--method", "destination", "--steps", "2", "--device", "cpu", text)
    assert done.stdout.strip() == translator.translate(text, method="destination", steps=2)
    assert translator.trace(text, steps=2)[0].steps[2].number == 2


def test_a_user_field_is_exported(work: Path, tmp_path: Path) -> None:
    run("export", work, tmp_path, "--precision", "float16")
    torch_, onnx = (Translator.load(tmp_path, engine=engine) for engine in ("torch", "onnx"))
    assert torch_.methods == onnx.methods == ["prior", "delta", "destination"]
    text = "Anna hat zwei Lampen."
    assert torch_.translate(text, method="destination", steps=2) == onnx.translate(text, method="destination", steps=2)


def test_a_user_field_is_served(work: Path) -> None:
    translator = Translator.load(work)
    request = {"q": "Anna hat zwei Lampen.", "method": "destination", "steps": 2}
    with serving(lambda: translator) as client:
        assert client.get("/model")["methods"] == ["prior", "delta", "destination"]
        expected = translator.translate(str(request["q"]), method="destination", steps=2)
        assert client.post("/translate", **request)["translatedText"] == expected
        trace = client.post("/trace", **request)
    assert trace["options"] == "destination-2"
    assert [step["number"] for step in trace["sentences"][0]["steps"]] == [0, 1, 2]


def test_a_user_field_is_evaluated_and_reported(work: Path) -> None:
    sizes = ("--timed", 2, "--judged", 2, "--posterior-samples", 4, "--shown", 1, "--device", "cpu")
    run("report", work, *sizes)
    page = (work / "report" / "report.md").read_text()
    assert "| destination-1 |" in page
    assert "| destination Search |" in page
    assert (
        "destination"
        in (work / "report" / "figures" / "tradeoff.svg").parent.parent.joinpath("report.html").read_text()
    )
    test = [work / f"test.{side}" for side in ("de", "en")]
    evaluated = run("evaluate", "--model", work, "--src", test[0], "--ref", test[1], "--device", "cpu")
    assert {"L=0", "delta-1", "destination-1", "destination-4"} <= json.loads(evaluated.stdout.splitlines()[-1])[
        "results"
    ].keys()


def test_the_documentation_shows_this_field() -> None:
    source = Path(str(destination.__file__)).read_text().strip()
    assert f"```python\n{source}\n```" in (ROOT / "docs" / "extending.md").read_text()
