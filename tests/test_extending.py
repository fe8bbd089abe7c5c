"""A field that the package has never heard of: defined here, it trains, loads, translates, serves and is reported.

docs/extending.md shows the part between the marks; a test below keeps it so.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

# [field
from jaxtyping import Float
from tiny import SIZE, write_corpus
from torch import Tensor
from typer.testing import CliRunner, Result

from latentmt.bundle import read_format
from latentmt.cli import app
from latentmt.data.tokens import Layout
from latentmt.fields.base import Style
from latentmt.fields.learned import FieldConfig, FieldNetwork, LearnedField
from latentmt.fields.registry import register_field
from latentmt.models.latent import LatentConfig
from latentmt.nn.attention import Memory
from latentmt.nn.transformer import Readout
from latentmt.translator import Translator


class DestinationNetwork(FieldNetwork):
    """Predicts where delta inference ends, not how far away that is."""

    def __init__(self, config: FieldConfig, latent: LatentConfig) -> None:
        super().__init__(config, latent)
        self.head = Readout(config.size.d_model, latent.latent_dim)

    def forward(self, z: Float[Tensor, "r t D"], layout: Layout, memory: Memory) -> Float[Tensor, "r t D"]:
        destination = self.head(self.hidden(z, layout, memory))
        return (destination - z) * layout.real[..., None]


@register_field
class Destination(LearnedField):
    """z ← the predicted destination."""

    name = "destination"
    style = Style("destination", "#CC79A7", "P")
    network = DestinationNetwork


# field]


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


def test_it_is_trained_and_saved(work: Path) -> None:
    about = read_format(work / "destination")
    assert about.kind == "destination"
    assert about.latent == read_format(work / "latent").fingerprint
    assert about.facts["steps"] == 3
    assert "dev BLEU destination-1" in about.facts
    assert "nothing changed" in run("run", work / "recipe.yaml", "--data", work, "--work", work).stderr


def test_it_is_loaded_and_translates(work: Path) -> None:
    translator = Translator.load(work)
    assert translator.methods == ["prior", "delta", "destination"]
    assert str(translator.options()) == "destination-1"
    text = "Anna hat zwei Lampen."
    done = run("translate", "--model", work, "--method", "destination", "--steps", "2", "--device", "cpu", text)
    assert done.stdout.strip() == translator.translate(text, method="destination", steps=2)
    assert translator.trace(text, steps=2)[0].steps[2].number == 2


def test_it_is_released(work: Path, tmp_path: Path) -> None:
    run("release", work, tmp_path)
    assert Translator.load(tmp_path).methods == ["prior", "delta", "destination"]


def test_it_is_served(work: Path) -> None:
    from latentmt.serve.admission import Limits

    from latentmt.serve.app import make_app
    from latentmt.serve.service import Service

    translator = Translator.load(work)
    with TestClient(make_app(Service([translator], Limits()))) as client:
        assert client.get("/model").json()["methods"] == ["prior", "delta", "destination"]
        question = {"q": "Anna hat zwei Lampen.", "method": "destination", "steps": 2}
        answer = client.post("/translate", json=question).json()
        assert answer["translatedText"] == translator.translate(question["q"], method="destination", steps=2)
        trace = client.post("/trace", json=question).json()
        assert trace["options"] == "destination-2"


def test_it_is_evaluated_and_reported(work: Path) -> None:
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
    source = Path(__file__).read_text()
    field = source[source.index("# [field\n") + len("# [field\n") : source.index("# field]\n")].strip()
    assert f"```python\n{field}\n```" in (ROOT / "docs" / "extending.md").read_text()
