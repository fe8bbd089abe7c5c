"""What a stage begins with: the encoder of its teacher."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from tiny import RECIPE, write_corpus

from latentmt.bundle import read_format
from latentmt.data.corpus import Corpus
from latentmt.errors import UserError
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.networks import BundleConfig, save_bundle
from latentmt.recipe import Recipe, load_recipe
from latentmt.stages import make_plan
from latentmt.train.ranks import Ranks

TEACHER = TeacherConfig(preset="tiny", d_model=48, d_filter=40, layers=1, encoder_layers=2, heads=4)
STAGES = """
teacher:
  model: {{preset: tiny}}
  train: {{steps: 1}}
latent:
  teacher_encoder: true
  model: {{preset: tiny, d_model: 32, heads: 2, encoder_layers: 2,
    encoder_width: {width}, encoder_filter: 40, encoder_heads: 4}}
  train: {{steps: 1}}
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("work"), held_out=10).folder.parent


@pytest.fixture
def teacher(work: Path) -> Teacher:
    """A teacher of its own for each test, in the work folder."""
    corpus = Corpus.load(work / "corpus")
    teacher = Teacher(TEACHER, corpus.tokenizer.size)
    config = BundleConfig(languages=("de", "en"), rules=corpus.manifest.rules, teacher=TEACHER)
    save_bundle(work / "teacher", config, corpus.tokenizer, teacher.state_dict())
    return teacher


def recipe(work: Path, width: int = 48) -> Recipe:
    path = work / "latent.yaml"
    path.write_text(RECIPE + STAGES.format(width=width))
    return load_recipe(path)


def test_the_latent_model_begins_with_the_teachers_encoder(work: Path, teacher: Teacher) -> None:
    plan = make_plan(recipe(work), work, "latent", Ranks())
    model = plan.task.network
    for name, weight in teacher.encoder.state_dict().items():
        assert torch.equal(model.encoder.state_dict()[name], weight)
    assert torch.equal(model.own_source_embedding.weight, teacher.embedding.weight)
    assert model.embedding.weight.shape[1] == 32
    assert plan.identity["teacher"] == read_format(work / "teacher").fingerprint
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_another_teacher_makes_another_run(work: Path, teacher: Teacher) -> None:
    before = make_plan(recipe(work), work, "latent", Ranks()).run
    assert make_plan(recipe(work), work, "latent", Ranks()).run == before
    corpus = Corpus.load(work / "corpus")
    torch.manual_seed(9)
    other = Teacher(TEACHER, corpus.tokenizer.size)
    config = BundleConfig(languages=("de", "en"), rules=corpus.manifest.rules, teacher=TEACHER)
    save_bundle(work / "teacher", config, corpus.tokenizer, other.state_dict())
    assert make_plan(recipe(work), work, "latent", Ranks()).run != before


def test_an_encoder_of_another_size_is_refused(work: Path, teacher: Teacher) -> None:
    with pytest.raises(
        UserError, match=r"^teacher_encoder: the encoder is 2 encoder_layers of 64 .*, that of the teacher 2 .* of 48"
    ):
        make_plan(recipe(work, width=64), work, "latent", Ranks())


def test_a_model_that_begins_with_other_weights_needs_no_teacher(work: Path) -> None:
    shutil.rmtree(work / "teacher", ignore_errors=True)
    with pytest.raises(UserError, match="train that stage first"):
        make_plan(recipe(work), work, "latent", Ranks())
    assert "teacher" not in make_plan(recipe(work), work, "latent", Ranks(), own_start=False).identity


def test_a_recipe_without_a_teacher_has_no_encoder_of_it(work: Path) -> None:
    path = work / "latent.yaml"
    path.write_text(RECIPE + STAGES[STAGES.index("latent:") :].format(width=48))
    with pytest.raises(UserError, match=r"latent\.teacher_encoder needs a teacher"):
        load_recipe(path)
