"""A hostile or damaged model is refused in one line, at once, without much memory, and the file is named."""

import json
import re
from dataclasses import replace
from pathlib import Path

import hostile_bundles
import pytest
import torch
from hostile_bundles import ATTACKS
from test_bundle import CONFIGS, saved

from latentmt.bundle import MEMORY_VARIABLE, check_memory, open_bundle
from latentmt.data.tokenizer import TokenizerConfig, train_tokenizer
from latentmt.errors import UserError
from latentmt.fields.learned import FieldConfig
from latentmt.models.latent import LatentConfig
from latentmt.models.teacher import TeacherConfig
from latentmt.networks import BundleConfig, load_bundle, parameter_counts
from latentmt.translator import Translator

Outcomes = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a latent model, a score network and a teacher."""
    folder = tmp_path_factory.mktemp("model")
    pieces = train_tokenizer(["ein kleiner Satz", "a small sentence"] * 20, TokenizerConfig(vocab_size=400))
    _, fingerprint = saved(folder / "latent", "latent", pieces)
    saved(folder / "score", "score", pieces, latent=fingerprint)
    saved(folder / "teacher", "teacher", pieces)
    return folder


@pytest.fixture(scope="module")
def outcomes(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """How each attack ended."""
    return hostile_bundles.outcomes("hostile_bundles.py", model, tmp_path_factory.mktemp("attacks"))


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_in_one_line(outcomes: Outcomes, attack: str) -> None:
    assert outcomes[attack]["ended"] == "refused", outcomes[attack]


def test_the_file_is_named(outcomes: Outcomes) -> None:
    for attack, found in outcomes.items():
        assert re.search(r"/attacks\d/", found["message"]), attack  # the folder of the attacks: a path is named


def test_the_model_that_the_attacks_change_is_good(model: Path) -> None:
    assert Translator.load(model).methods == ["prior", "delta", "score", "teacher"]


def test_every_flipped_bit_of_format_json_is_noticed(model: Path) -> None:
    path = model / "latent" / "format.json"
    content = path.read_bytes()
    try:
        for position in range(len(content)):
            path.write_bytes(
                content[:position] + bytes([content[position] ^ 1 << position % 8]) + content[position + 1 :]
            )
            with pytest.raises(UserError, match=r"format\.json"):
                open_bundle(path.parent)
    finally:
        path.write_bytes(content)


def test_a_bundle_without_a_checksum_loads(model: Path, tmp_path: Path) -> None:
    """As version 0.1 wrote it."""
    (tmp_path / "latent").mkdir()
    for path in (model / "latent").iterdir():
        (tmp_path / "latent" / path.name).write_bytes(path.read_bytes())
    about = json.loads((tmp_path / "latent" / "format.json").read_text())
    del about["checksum"]
    (tmp_path / "latent" / "format.json").write_text(json.dumps(about))
    load_bundle(tmp_path / "latent")


@pytest.mark.parametrize("preset", ["tiny", "small", "base"])
def test_the_memory_of_a_configuration_is_estimated_without_building_it(preset: str) -> None:
    text = {"languages": ("de", "en"), "rules": CONFIGS["latent"].rules}
    latent = LatentConfig(preset=preset)  # type: ignore[arg-type]
    wide = replace(latent, encoder_width=96, output="ctc", source_input=True, prior_layers=1, decoder_layers=40)
    for config in (
        BundleConfig(**text, teacher=TeacherConfig(preset=preset)),  # type: ignore[arg-type]
        BundleConfig(**text, latent=latent),  # type: ignore[arg-type]
        BundleConfig(**text, latent=wide),  # type: ignore[arg-type]
        BundleConfig(**text, latent=wide, field=FieldConfig(kind="score", preset=preset)),  # type: ignore[arg-type]
        BundleConfig(**text, latent=latent, field=FieldConfig(kind="score", preset=preset)),  # type: ignore[arg-type]
    ):
        with torch.device("meta"):
            counted = sum(parameter_counts(config.network(8000)).values())
        assert 0.8 * counted < config.parameters(8000) < 1.3 * counted


def test_the_allowed_memory_is_the_users_to_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"x: needs 9\.0 GB of 8 GB; LATENTMT_MAX_MODEL_GB allows more"):
        check_memory(9_000_000_000, "x")
    monkeypatch.setenv(MEMORY_VARIABLE, "10")
    check_memory(9_000_000_000, "x")
    monkeypatch.setenv(MEMORY_VARIABLE, "many")
    with pytest.raises(UserError, match="LATENTMT_MAX_MODEL_GB: expected a number"):
        check_memory(1, "x")
