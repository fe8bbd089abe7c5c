from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from latentmt.config import Section, from_tree, load, to_tree, to_yaml
from latentmt.errors import UserError
from latentmt.recipe import Recipe, load_recipe, recipe_name

RECIPES = sorted(Path(__file__).parent.parent.glob("recipes/*/recipe.yaml"))


@dataclass(frozen=True, kw_only=True)
class Inner(Section):
    size: Annotated[int, Field(ge=1)] = 3
    rate: float = 0.1
    path: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Outer(Section):
    inner: Inner = field(default_factory=Inner)
    several: tuple[Inner, ...] = ()
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
        ("name: x\n? {a: b}\n: c", "file.yaml"),
        ("- 1", "file.yaml: expected keys and values, found [1]"),
        ("", "file.yaml: expected keys and values, found nothing"),
    ],
)
def test_a_mistake_is_one_line_naming_key_and_file(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in complaint(tmp_path, text)


def test_overrides(tmp_path: Path) -> None:
    got = loaded(tmp_path, "name: x", "inner.size=7", "inner.rate=1e-2", "name=y")
    assert (got.inner.size, got.inner.rate, got.name) == (7, 0.01, "y")
    assert "unknown key inner.sze (did you mean size?)" in complaint(tmp_path, "name: x", "inner.sze=7")
    assert "expected section.key=value" in complaint(tmp_path, "name: x", "inner.size")
    assert "name is a value, not a section" in complaint(tmp_path, "name: x", "name.size=3")


def test_an_override_leaves_aliases_alone(tmp_path: Path) -> None:
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
        ("teacher.train.betas=[0.9, 1.0]", "teacher.train.betas.1: input should be less than 1, got 1.0"),
        ("teacher.train.seed=20260101123", "teacher.train.seed: input should be less than 4294967296"),
        ("teacher.model.heads=7", "d_model 256 is not even and a multiple of heads 7"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(override: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        load_recipe(Path(__file__).parent.parent / "recipes" / "ted_deen", [override])
    assert message in str(error.value)
    assert len(str(error.value)) < 200


def test_what_is_written_reads_back_equal(tmp_path: Path) -> None:
    config = Outer(name="ä", inner=Inner(rate=1e-9, path=Path("a")), several=(Inner(size=9),))
    assert from_tree(to_tree(config), Outer, "") == config
    assert loaded(tmp_path, to_yaml(config)) == config


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.parent.name)
def test_every_recipe_is_valid(path: Path) -> None:
    recipe = load_recipe(path.parent)
    assert isinstance(recipe, Recipe)
    assert recipe_name(path.parent) == recipe_name(path) == path.parent.name
    assert (path.parent / "README.md").exists()


@pytest.mark.parametrize("path", sorted(set(RECIPES[0].parent.parent.glob("*/*.yaml")) - set(RECIPES)), ids=str)
def test_what_lies_beside_a_recipe_is_one_too(path: Path) -> None:
    assert isinstance(load_recipe(path), Recipe)


def test_all_promised_recipes_are_there() -> None:
    names = {path.parent.name for path in RECIPES}
    assert names >= {"numbers", "ted_deen", "tatoeba_europarl_deen", "wmt14_ende", "wmt16_roen"}
