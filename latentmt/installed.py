"""Finds the models that are installed with the package."""

from __future__ import annotations

from pathlib import Path

from latentmt.errors import UserError

PRETRAINED = Path(__file__).parent / "pretrained"


def installed() -> dict[str, Path]:
    """The folders of the installed models, by name."""
    folders = sorted(PRETRAINED.iterdir()) if PRETRAINED.is_dir() else []
    return {folder.name: folder for folder in folders if any(folder.glob("*/format.json"))}


def find_model(name: Path | str | None = None) -> Path:
    """A model's folder: the given one, or the installed model of that name; without a name, the first installed one."""
    models = installed()
    known = f"installed: {', '.join(models)}" if models else "none is installed"
    if name is None:
        if not models:
            raise UserError("no model is installed; name a folder of bundles with --model")
        return next(iter(models.values()))
    if Path(name).is_dir():
        return Path(name)
    if str(name) in models:
        return models[str(name)]
    raise UserError(f"{name}: neither a folder nor the name of a model ({known})")
