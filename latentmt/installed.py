"""Finds the models that are installed with the package, by name or by their languages."""

from __future__ import annotations

from pathlib import Path

from latentmt.bundle import Bundle, kinds_in, read_format
from latentmt.errors import UserError

PRETRAINED = Path(__file__).parent / "pretrained"


def installed() -> dict[str, Path]:
    """The folders of the installed models, by name."""
    folders = sorted(PRETRAINED.iterdir()) if PRETRAINED.is_dir() else []
    return {folder.name: folder for folder in folders if any(folder.glob("*/format.json"))}


def find_model(name: Path | str | None = None, source: str | None = None, target: str | None = None) -> Path:
    """A model's folder: the given one, or the installed model of that name; without a name, the first installed one.

    With languages, the first installed one between these. A named model that is for other ones is refused.
    """
    folder = None if name is None else _named(name)
    if folder and not _translates(folder, source, target):
        raise UserError(f"{name}: translates {' → '.join(_languages(folder))}, not {_wanted(source, target)}")
    if folder:
        return folder
    models = installed()
    if not models:
        raise UserError("no model is installed; name a folder of bundles with --model")
    found = next((each for each in models.values() if _translates(each, source, target)), None)
    if found is None:
        known = ", ".join(f"{each} ({' → '.join(_languages(folder))})" for each, folder in models.items())
        raise UserError(f"no installed model translates {_wanted(source, target)}; there are {known}")
    return found


def _named(name: Path | str) -> Path:
    models = installed()
    known = f"installed: {', '.join(models)}" if models else "none is installed"
    if Path(name).is_dir():
        return Path(name)
    if str(name) in models:
        return models[str(name)]
    raise UserError(f"{name}: neither a folder nor the name of a model ({known})")


def _translates(folder: Path, source: str | None, target: str | None) -> bool:
    """Whether a model is for these languages. None is any."""
    if source is None and target is None:  # nothing has to be read
        return True
    languages = _languages(folder)
    return source in (None, languages[0]) and target in (None, languages[1])


def _languages(folder: Path) -> tuple[str, str]:
    """The languages of a model, as the first of its bundles has them."""
    kinds = kinds_in(folder)
    if not kinds:
        raise UserError(f"{folder}: no model")
    bundle = folder / kinds[0]
    return Bundle(bundle, read_format(bundle)).header.languages


def _wanted(source: str | None, target: str | None) -> str:
    return " ".join([*([f"from {source}"] if source else []), *([f"to {target}"] if target else [])])
