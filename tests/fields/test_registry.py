"""The registry of fields: unique names, plugins, and errors about unknown kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny import LATENT, SENTENCES, SIZE

from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import TokenizerConfig, train_tokenizer
from latentmt.errors import UserError
from latentmt.fields import registry
from latentmt.fields.base import Context, Field, FieldType, Style
from latentmt.fields.learned import FieldConfig
from latentmt.fields.registry import field_config, field_network, field_types, learned_fields, register_field
from latentmt.fields.score import Score, ScoreNetwork
from latentmt.networks import BundleConfig, load_bundle, save_bundle


class Still(FieldType):
    """Moves nothing."""

    name = "still"
    style = Style("still", "#000000", "o")

    def bind(self, context: Context, network: torch.nn.Module | None = None) -> Field:
        return torch.zeros_like


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A copy of the registry, so that no other test has these fields."""
    monkeypatch.setattr(registry, "_TYPES", dict(registry._TYPES))
    yield
    registry._load_plugins.cache_clear()


@pytest.mark.parametrize("name", ["score", "delta", "prior", "teacher", "latent"])
def test_a_taken_name_is_refused(name: str) -> None:
    taken = type("Taken", (Still,), {"name": name})
    with pytest.raises(UserError, match=f"^field {name}: the name is taken$"):
        register_field(taken)
    assert type(field_types()["score"]) is Score


def test_a_field_may_be_registered_again() -> None:
    assert register_field(Still) is register_field(Still) is Still
    assert list(field_types())[-1] == "still"
    assert "still" not in learned_fields()


def test_installed_plugins_are_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        def load(self) -> type[FieldType]:
            return Still

    groups: list[str] = []

    def entry_points(group: str) -> list[Entry]:
        groups.append(group)
        return [Entry()]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    registry._load_plugins.cache_clear()
    assert isinstance(field_types()["still"], Still)
    assert list(field_types())[:3] == ["delta", "score", "energy"]
    assert groups == ["latentmt.fields"]


def test_a_configuration_needs_a_known_kind() -> None:
    with pytest.raises(UserError, match=r"^field: missing key kind$"):
        field_config({"preset": "tiny"})
    with pytest.raises(UserError, match=r"^field nowhere: expected one of score, energy"):
        field_config({"kind": "nowhere"})


def test_a_bundle_of_an_unknown_kind_is_one_clear_line(tmp_path: Path) -> None:
    register_field(type("Elsewhere", (Score,), {"name": "elsewhere", "network": ScoreNetwork}))
    tokenizer = train_tokenizer(SENTENCES, TokenizerConfig(vocab_size=400))
    config = FieldConfig(kind="elsewhere", **SIZE)
    bundle = BundleConfig(languages=("de", "en"), rules=(TextRules(), TextRules()), latent=LATENT, field=config)
    network = field_network(config, LATENT)
    save_bundle(tmp_path / "field", bundle, tokenizer, network.state_dict(), latent="0" * 64)
    assert load_bundle(tmp_path / "field").config == replace(
        bundle, latent=load_bundle(tmp_path / "field").config.latent
    )
    del registry._TYPES["elsewhere"]
    with pytest.raises(UserError) as error:
        load_bundle(tmp_path / "field")
    message = str(error.value)
    assert "field elsewhere: expected one of score, energy" in message
    assert "config.yaml" in message
    assert "\n" not in message
