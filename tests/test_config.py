import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from pydantic import Field

from latentmt.config import Section, current_names, from_dict, from_yaml, load, original_names, to_dict, to_yaml
from latentmt.errors import UserError
from latentmt.recipe import Recipe, load_recipe, recipe_name

ROOT = Path(__file__).parent.parent

RECIPES = sorted(Path(__file__).parent.parent.glob("recipes/*/recipe.yaml"))


@dataclass(frozen=True, kw_only=True)
class Inner(Section):
    aliases: ClassVar[Mapping[str, str]] = {"speed": "rate"}
    size: Annotated[int, Field(ge=1)] = 3
    rate: float = 0.1
    path: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Outer(Section):
    inner: Inner = field(default_factory=Inner)
    several: tuple[Inner, ...] = ()
    named: dict[str, Inner] = field(default_factory=dict)
    maybe: tuple[Inner, ...] | None = None
    name: str


def loaded(tmp_path: Path, text: str, *overrides: str) -> Outer:
    path = tmp_path / "file.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, Outer, overrides)


def complaint(tmp_path: Path, text: str, *overrides: str) -> str:
    with pytest.raises(UserError) as error:
        loaded(tmp_path, text, *overrides)
    assert "\n" not in str(error.value)
    return str(error.value).replace(f"{tmp_path}/", "")


def test_values_become_typed_objects(tmp_path: Path) -> None:
    got = loaded(tmp_path, "name: x\ninner: {size: 5, rate: 1e-4, path: a/b}\nseveral: [{size: 1}, {}]")
    assert got == Outer(name="x", inner=Inner(size=5, rate=1e-4, path=Path("a/b")), several=(Inner(size=1), Inner()))


def test_an_integer_is_a_number_too(tmp_path: Path) -> None:
    assert loaded(tmp_path, "name: x\ninner: {rate: 2}").inner.rate == 2.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: x\ninner: {sise: 3}", "file.yaml: unknown key inner.sise (did you mean size?)"),
        ("name: x\nseveral: [{}, {pat: 3}]", "file.yaml: unknown key several.1.pat (did you mean path?)"),
        ("name: x\nother: 3", "file.yaml: unknown key other"),
        ("inner: {size: 3}", "file.yaml: missing key name"),
        (
            "name: x\ninner: {size: many}",
            'file.yaml: inner.size: input should be a valid integer, got "many"',
        ),
        ("name: x\ninner: {size: '3'}", 'file.yaml: inner.size: input should be a valid integer, got "3"'),
        ("name: x\ninner: {size: true}", "file.yaml: inner.size: input should be a valid integer, got true"),
        (
            "name: x\ninner: {size: 0}",
            "file.yaml: inner.size: input should be greater than or equal to 1, got 0",
        ),
        ("name: x\ninner: {size: 0, rate: a}", "got 0 (and 1 more)"),
        ("name: x\nname: y", "file.yaml, line 2: key 'name' is given twice"),
        ("name: [x", "file.yaml, line 1: "),
        ("name: x\ninner: 2020-13-45", "file.yaml: "),
        ("name: &a [*a]", "file.yaml: "),
        ("name: x\nseveral: " + "[" * 100, "file.yaml, line 2: too many sections inside each other"),
        ("name: x #" + "x" * (1 << 18), "file.yaml: larger than 262,144 bytes"),
        ("name: x\n? {a: b}\n: c", "file.yaml"),
        ("- 1", "file.yaml: expected keys and values, found [1]"),
        ("", "file.yaml: expected keys and values, found nothing"),
    ],
)
def test_an_error_is_one_line_with_key_and_file(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in complaint(tmp_path, text)


def test_overrides(tmp_path: Path) -> None:
    got = loaded(tmp_path, "name: x", "inner.size=7", "inner.rate=1e-2", "name=y")
    assert (got.inner.size, got.inner.rate, got.name) == (7, 0.01, "y")
    assert "unknown key inner.sze (did you mean size?)" in complaint(tmp_path, "name: x", "inner.sze=7")
    assert "expected section.key=value" in complaint(tmp_path, "name: x", "inner.size")
    assert "name is a value, not a section" in complaint(tmp_path, "name: x", "name.size=3")


def test_an_override_does_not_change_a_shared_yaml_anchor(tmp_path: Path) -> None:
    got = loaded(tmp_path, "{name: x, several: [&same {size: 2}], inner: *same}", "inner.size=7")
    assert (got.inner.size, got.several[0].size) == (7, 2)


def test_missing_and_undecodable_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.yaml: no such file"):
        load(tmp_path / "nothing.yaml", Outer)
    (tmp_path / "file.yaml").write_bytes(b"name: \xff")
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / "file.yaml", Outer)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("score={model: {kind: energy}, train: {}}", "score.model.kind is energy"),
        ("teacher=null", "distill needs a teacher"),
        ("teacher.train.adam_betas=[0.9, 1.0]", "teacher.train.adam_betas.1: input should be less than 1, got 1.0"),
        ("teacher.train.seed=20260101123", "teacher.train.seed: input should be less than 4294967296"),
        ("teacher.model.heads=7", "d_model 256 is not even and a multiple of heads 7"),
    ],
)
def test_inconsistent_settings_are_an_error_of_one_line(override: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        load_recipe(Path(__file__).parent.parent / "recipes" / "ted_deen", [override])
    assert message in str(error.value)
    assert len(str(error.value)) < 200


def test_written_yaml_is_read_back_equal(tmp_path: Path) -> None:
    config = Outer(name="ä", inner=Inner(rate=1e-9, path=Path("a")), several=(Inner(size=9),))
    assert from_dict(to_dict(config), Outer, "") == config
    assert loaded(tmp_path, to_yaml(config)) == config


def test_old_names_load_at_any_depth_with_one_warning(tmp_path: Path) -> None:
    old = "{name: x, inner: {speed: 1.0}, several: [{}, {speed: 2.0}], named: {a: {speed: 3.0}}, maybe: [{speed: 4.0}]}"
    path, warnings = tmp_path / "file.yaml", []
    path.write_text(old)
    config = load(path, Outer, warn=warnings.append)
    assert config == loaded(tmp_path, old.replace("speed", "rate"))
    assert config.maybe == (Inner(rate=4.0),)
    sections = [f"{section}.speed is now {section}.rate" for section in ("inner", "several", "a", "maybe")]
    assert warnings == [f"{path}: {', '.join(sections)}; the old names go with 0.3"]
    assert from_dict({"name": "x", "inner": {"speed": 1.0}}, Outer, "") == Outer(name="x", inner=Inner(rate=1.0))


def test_old_names_in_overrides_replace_new_names_in_the_file(tmp_path: Path) -> None:
    path, warnings = tmp_path / "file.yaml", []
    path.write_text("{name: x, inner: {rate: 1.0}}")
    assert load(path, Outer, ["inner.speed=2.0"], warn=warnings.append).inner.rate == 2.0
    assert warnings == ["--set inner.speed=2.0: inner.speed is now inner.rate; the old name goes with 0.3"]
    assert load(path, Outer, ["inner={speed: 3.0}"]).inner.rate == 3.0


def test_old_and_new_name_together_are_an_error_of_one_line(tmp_path: Path) -> None:
    message = "file.yaml: inner.speed is the old name of inner.rate, and both are given"
    assert complaint(tmp_path, "{name: x, inner: {rate: 1.0, speed: 1.0}}") == message


def test_a_section_that_contains_itself_is_an_error_of_one_line(tmp_path: Path) -> None:
    assert complaint(tmp_path, "name: x\nseveral: &a [*a]") == "file.yaml: too many sections inside each other"


def test_aliases_are_refused_in_files_that_may_be_anybodys() -> None:
    with pytest.raises(UserError, match=r"x, line 1: \*same: aliases are refused"):
        from_yaml(b"{name: x, several: [&same {size: 2}], inner: *same}", Outer, "x")


def test_original_names_are_the_inverse_of_current_names() -> None:
    config = to_dict(Outer(name="x", several=(Inner(),), named={"a": Inner(rate=3.0)}))
    original = original_names(config, Outer)
    assert original["several"] == [{"size": 3, "speed": 0.1, "path": None}]
    assert current_names(original, Outer, "") == config


OLD_RECIPE = """
data:
  languages: [de, en]
  train: [{source: [train.de], target: [train.en]}]
  dev: {source: [dev.de], target: [dev.en]}
  tokenizer: {vocabulary: 700}
teacher:
  model: {preset: tiny}
  train: {batch_rows: 16, parts: 2, rate: 6e-3, betas: [0.8, 0.9], epsilon: 1e-8, clip: 2.0, average: 0.9}
distill: {part_batches: 3}
"""


def test_a_recipe_of_version_0_1_loads_equal_to_the_present_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(OLD_RECIPE)
    recipe, warning = load_recipe(path), capsys.readouterr().err
    assert recipe.teacher
    assert recipe.teacher.train.learning_rate == 6e-3
    assert warning.count("\n") == 1
    assert f"{path}: tokenizer.vocabulary is now tokenizer.vocab_size, train.parts is now" in warning
    path.write_text(to_yaml(recipe))
    assert load_recipe(path) == recipe
    assert capsys.readouterr().err == ""
    names = {"vocabulary": "vocab_size", "parts": "grad_accumulation", "rate": "learning_rate", "betas": "adam_betas"}
    names |= {
        "epsilon": "adam_epsilon",
        "clip": "max_grad_norm",
        "average": "ema_decay",
        "part_batches": "shard_batches",
    }
    present = OLD_RECIPE
    for old, new in names.items():
        present = present.replace(f" {old}:", f" {new}:").replace(f"{{{old}:", f"{{{new}:")
    path.write_text(present)
    assert load_recipe(path) == recipe
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.parent.name)
def test_every_recipe_is_valid(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = load_recipe(path.parent)
    assert capsys.readouterr().err == ""  # no old name of a key
    assert isinstance(recipe, Recipe)
    assert recipe_name(path.parent) == recipe_name(path) == path.parent.name
    assert (path.parent / "README.md").exists()


@pytest.mark.parametrize("path", sorted(set((ROOT / "recipes").rglob("*.yaml")) - set(RECIPES)), ids=str)
def test_every_other_yaml_file_beside_a_recipe_is_a_recipe(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(load_recipe(path), Recipe)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "path", sorted((ROOT / "recipes" / "deen" / "trials").glob("*.yaml")), ids=lambda path: path.stem
)
def test_a_trial_differs_from_the_control_in_its_latent_model_only(path: Path) -> None:
    """Text and teacher are those of the recipe beside it, so that they are made once for all trials."""
    trial, control = load_recipe(path), load_recipe(path.with_name("control.yaml"))
    deen = load_recipe(path.parent.parent)
    assert (trial.data, trial.teacher, trial.distill) == (deen.data, deen.teacher, deen.distill)
    assert trial.fields == control.fields
    assert trial.latent
    assert control.latent
    assert trial.latent.train == control.latent.train
    assert (trial.latent == control.latent) == (path.stem == "control")
    assert f"({path.name})" in (path.parent / "README.md").read_text()


def test_all_documented_recipes_exist() -> None:
    names = {path.parent.name for path in RECIPES}
    assert names >= {"numbers", "ted_deen", "tatoeba_europarl_deen", "wmt14_ende", "wmt16_roen"}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("fields.score.model.foo=1", "--set: fields.score.model: unknown key foo"),
        ("fields.score.model.dropuot=0.2", "unknown key dropuot (did you mean dropout?)"),
        ("fields.score.train.stepz=3", "unknown key fields.score.train.stepz (did you mean steps?)"),
        ("fields.scor.train.steps=3", "--set: unknown field fields.scor (did you mean score?)"),
        ("fields=3", "fields: input should be an object"),
        ("fields.score.model.kind=energy", "fields.score.model.kind is energy"),
    ],
)
def test_mistakes_in_a_fields_section_are_named_by_their_place(override: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe(ROOT / "recipes" / "numbers", [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fields_at_the_top_still_load_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = load_recipe(ROOT / "recipes" / "numbers")
    assert capsys.readouterr().err == ""
    text = (ROOT / "recipes" / "numbers" / "recipe.yaml").read_text()
    head, _, field = text.partition("fields:\n")
    old = tmp_path / "recipe.yaml"
    old.write_text(
        head + textwrap.dedent(field).replace("model: {", "model: {kind: score, ").replace("learning_rate", "rate")
    )
    assert load_recipe(old).fields == new.fields
    assert "score is now fields.score; the old place goes with 0.3" in capsys.readouterr().err
    assert load_recipe(old, ["score.train.rate=1e-4"]).fields["score"].train.learning_rate == 1e-4
    assert load_recipe(old, ["fields.score.train.learning_rate=1e-4"]).fields["score"].train.learning_rate == 1e-4
    assert load_recipe(old, ["score=null"]).fields == {}
