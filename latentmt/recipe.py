"""A recipe: everything that decides what is built, but for paths and devices. It builds nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from latentmt.config import Section, load
from latentmt.data.prepare import DataConfig
from latentmt.display import info
from latentmt.distill import DistillConfig
from latentmt.models.fields import FieldConfig
from latentmt.models.latent import LatentConfig
from latentmt.models.teacher import TeacherConfig
from latentmt.train.config import TrainConfig
from latentmt.train.tasks import DisplacementConfig, ElboConfig

Smoothing = Annotated[float, Field(ge=0, lt=1)]


@dataclass(frozen=True, kw_only=True)
class TeacherStage(Section):
    """The autoregressive teacher."""

    model: TeacherConfig
    train: TrainConfig
    smoothing: Smoothing = 0.1
    """Label smoothing."""


@dataclass(frozen=True, kw_only=True)
class LatentStage(Section):
    """The latent-variable model."""

    model: LatentConfig
    train: TrainConfig
    smoothing: Smoothing = 0.1
    """Label smoothing of the reconstruction."""
    elbo: ElboConfig = field(default_factory=ElboConfig)


@dataclass(frozen=True, kw_only=True)
class FieldStage(Section):
    """A learned field, score or energy."""

    model: FieldConfig
    train: TrainConfig
    displacement: DisplacementConfig = field(default_factory=DisplacementConfig)


@dataclass(frozen=True, kw_only=True)
class Recipe(Section):
    """Everything that decides what is built, but for paths and devices. A stage that is not named is not built."""

    data: DataConfig
    teacher: TeacherStage | None = None
    distill: DistillConfig | None = None
    """If named, the latent model learns from the teacher's translations."""
    latent: LatentStage | None = None
    score: FieldStage | None = None
    energy: FieldStage | None = None

    def __post_init__(self) -> None:
        for kind, stage in (("score", self.score), ("energy", self.energy)):
            if stage and stage.model.kind != kind:
                raise ValueError(f"{kind}.model.kind is {stage.model.kind}")
        if self.distill and not self.teacher:
            raise ValueError("distill needs a teacher")
        if (self.score or self.energy) and not self.latent:
            raise ValueError("a field needs a latent model")


def recipe_file(path: Path) -> Path:
    """A recipe is a YAML file, or a folder that holds `recipe.yaml`."""
    return path / "recipe.yaml" if path.is_dir() else path


def recipe_name(path: Path) -> str:
    """What a recipe is called: its folder's name, or its file's where that is not `recipe.yaml`."""
    file = recipe_file(path).resolve()
    return file.parent.name if file.name == "recipe.yaml" else file.stem


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe. Old names of keys are reported once."""
    return load(recipe_file(path), Recipe, overrides, warn=info)
