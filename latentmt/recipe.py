"""A recipe: everything that decides what is built, but for paths and devices. It builds nothing itself."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from latentmt.bundle import LANGUAGE_MODEL
from latentmt.config import ALIASES_END, Section, Warn, added, current_names, from_dict, load
from latentmt.data.prepare import DataConfig
from latentmt.display import info
from latentmt.distill import DistillConfig
from latentmt.errors import UserError
from latentmt.fields.learned import DisplacementConfig
from latentmt.fields.registry import AnyFieldConfig, learned_fields
from latentmt.models.latent import LatentConfig
from latentmt.models.teacher import TeacherConfig
from latentmt.ngrams.estimate import NgramConfig
from latentmt.train.config import TrainConfig
from latentmt.train.tasks import ElboConfig

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
    teacher_encoder: Annotated[bool, added(False)] = False
    """Whether the encoder and the source's embedding begin with the teacher's weights, and so must have their size."""


@dataclass(frozen=True, kw_only=True)
class FieldStage(Section):
    """A learned field."""

    model: AnyFieldConfig
    train: TrainConfig
    displacement: DisplacementConfig = field(default_factory=DisplacementConfig)


DISTILL = "distill"
"""What makes the distilled corpus: no stage, since nothing is trained."""

Stage = TeacherStage | LatentStage | FieldStage


@dataclass(frozen=True, kw_only=True)
class Recipe(Section):
    """Everything that decides what is built, but for paths and devices. A stage that is not named is not built."""

    data: DataConfig
    teacher: TeacherStage | None = None
    distill: DistillConfig | None = None
    """If named, the latent model learns from the teacher's translations."""
    latent: LatentStage | None = None
    fields: dict[str, FieldStage] = field(default_factory=dict)
    """The learned fields by their registered names."""
    language_model: NgramConfig | None = None
    """An n-gram model of the corpus's targets, to read translations with."""

    def __post_init__(self) -> None:
        for name, stage in self.fields.items():
            if stage.model.kind != name:
                raise ValueError(f"fields.{name}.model.kind is {stage.model.kind}")
        if self.distill and not self.teacher:
            raise ValueError("distill needs a teacher")
        if self.latent and self.latent.teacher_encoder and not self.teacher:
            raise ValueError("latent.teacher_encoder needs a teacher")
        if self.fields and not self.latent:
            raise ValueError("a field needs a latent model")
        if self.language_model and not (self.latent and self.latent.model.output == "ctc"):
            raise ValueError("language_model needs a latent model with output: ctc")

    @property
    def needs_teacher(self) -> bool:
        """Whether the latent model depends on the teacher."""
        return self.distill is not None or (self.latent is not None and self.latent.teacher_encoder)

    @property
    def stages(self) -> dict[str, Stage]:
        """What is trained, in this order, by the kind of bundle it leaves."""
        first = {"teacher": self.teacher, "latent": self.latent}
        return {name: stage for name, stage in first.items() if stage} | self.fields

    @property
    def steps(self) -> list[str]:
        """The same by name, with what is no stage: the language model, and behind the teacher distillation."""
        names = list(self.stages)
        if self.distill:
            names.insert(names.index("teacher") + 1, DISTILL)
        return [*([LANGUAGE_MODEL] if self.language_model else []), *names]


def recipe_file(path: Path) -> Path:
    """A recipe is a YAML file, or a folder that holds `recipe.yaml`."""
    return path / "recipe.yaml" if path.is_dir() else path


def recipe_name(path: Path) -> str:
    """What a recipe is called: its folder's name, or its file's where that is not `recipe.yaml`."""
    file = recipe_file(path).resolve()
    return file.parent.name if file.name == "recipe.yaml" else file.stem


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe. Old names of keys are reported once."""
    return load(recipe_file(path), Recipe, overrides, info, _upgrade)


def _upgrade(values: dict[str, Any], where: str, warn: Warn) -> dict[str, Any]:
    """Fields under `fields`, each with its kind. Version 0.1 had them at the top."""
    moved = {name: values[name] for name in ("score", "energy") if name in values}
    if moved:
        names = ", ".join(f"{name} is now fields.{name}" for name in moved)
        warn(f"{where}: {names}; the old place goes with {ALIASES_END}")
    fields = values.get("fields") or {}
    if not isinstance(fields, dict):
        return values
    moved = current_names({"fields": moved}, Recipe, where)["fields"]
    stages = fields | {name: _merged(fields.get(name), stage) for name, stage in moved.items()}
    others = {name: value for name, value in values.items() if name not in moved}
    present = {name: _with_kind(name, stage, where) for name, stage in stages.items() if stage is not None}
    return others | {"fields": present}


def _with_kind(name: str, stage: Any, where: str) -> Any:
    """A field's stage with the kind of its model, which is checked here, where its place is known."""
    if name not in learned_fields():
        close = difflib.get_close_matches(name, learned_fields(), n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(learned_fields())}"
        raise UserError(f"{where}: unknown field fields.{name} ({hint})")
    stage = _merged({"model": {"kind": name}}, stage) if isinstance(stage, dict) else stage
    if isinstance(stage, dict) and isinstance(stage["model"], dict) and stage["model"]["kind"] == name:
        from_dict(stage["model"], learned_fields()[name].config, f"{where}: fields.{name}.model")
    return stage


def _merged(base: Any, over: Any) -> Any:
    """Both, section by section; where they differ, what is over the base."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return base | {key: _merged(base.get(key), value) for key, value in over.items()}
