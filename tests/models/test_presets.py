from __future__ import annotations

import pytest

from latentmt.config import from_dict, to_dict
from latentmt.errors import UserError
from latentmt.fields.learned import FieldConfig
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.models.presets import resolved
from latentmt.models.teacher import TeacherConfig
from latentmt.networks import parameter_counts


def test_presets_are_the_papers() -> None:
    small, base = LatentConfig(preset="small").size, LatentConfig(preset="base").size
    assert (small.d_model, small.d_filter, small.layers, small.heads) == (256, 1024, 3, 4)
    assert small.encoder_layers == 5
    assert (base.d_model, base.d_filter, base.layers, base.heads) == (512, 2048, 6, 8)
    teacher = TeacherConfig(preset="small").size
    assert (teacher.d_model, teacher.d_filter, teacher.layers, teacher.heads) == (256, 1024, 5, 2)


def test_overrides_win_and_resolving_writes_every_field() -> None:
    config = from_dict({"preset": "tiny", "dropout": 0.0, "latent_dim": 2}, LatentConfig, "here")
    assert config.size.dropout == 0.0
    assert config.size.d_model == 128
    full = resolved(config)
    assert None not in to_dict(full).values()
    assert full.size == config.size
    assert from_dict(to_dict(full), LatentConfig, "there") == full == resolved(full)


@pytest.mark.parametrize(
    ("tree", "named"),
    [
        ({"preset": "huge"}, "preset"),
        ({"heads": 0}, "heads"),
        ({"heads": 3}, "heads 3"),
        ({"d_modle": 64}, "d_model"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_inconsistent_sizes_are_named(tree: dict[str, object], named: str) -> None:
    with pytest.raises(UserError, match=named):
        from_dict(tree, TeacherConfig, "here")


def test_a_field_config_has_no_encoder() -> None:
    assert "encoder_layers" not in to_dict(resolved(FieldConfig(kind="score")))
    with pytest.raises(UserError, match="encoder_layers"):
        from_dict({"kind": "score", "encoder_layers": 2}, FieldConfig, "here")


def test_each_stack_may_have_its_own_number_of_layers() -> None:
    config = from_dict({"preset": "tiny", "prior_layers": 1, "decoder_layers": 4}, LatentConfig, "here")
    model = LatentModel(config, 50)
    assert [len(stack.layers) for stack in (model.prior.stack, model.posterior_stack, model.decoder_stack)] == [1, 2, 4]
    assert from_dict(to_dict(resolved(config)), LatentConfig, "there") == resolved(config)


def test_a_stack_that_is_like_the_others_is_not_written() -> None:
    """So nothing that was made before stacks could differ is another model now."""
    plain = LatentConfig(preset="tiny")
    named = LatentConfig(preset="tiny", prior_layers=2, posterior_layers=2, decoder_layers=2)
    assert to_dict(resolved(named)) == to_dict(resolved(plain))
    assert list(to_dict(resolved(plain))) == [
        *("preset", "d_model", "d_filter", "layers", "heads", "dropout", "encoder_layers", "latent_dim")
    ]
    assert to_dict(resolved(LatentConfig(preset="tiny", layers=3, prior_layers=2)))["prior_layers"] == 2


def test_parameter_counts_add_up() -> None:
    model = LatentModel(LatentConfig(preset="tiny"), 50)
    counts = parameter_counts(model)
    assert sum(counts.values()) == sum(p.numel() for p in model.parameters())
    assert counts["embedding"] == 50 * 128
