"""Arguments and options of commands that take a recipe, and the folders they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentmt.errors import UserError

RecipeArgument = Annotated[Path, typer.Argument(help="A recipe: a YAML file, or a folder with recipe.yaml.")]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", help="The folder with the recipe's text files. Default: the recipe's folder."),
]
WorkOption = Annotated[
    Path | None, typer.Option("--work", help="Where the recipe's results go. Default: runs/<recipe>.")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a key of the recipe.")
]


def data_folder(recipe: Path, data: Path | None) -> Path:
    """Where a recipe's text is."""
    from latentmt.recipe import recipe_file

    folder = data or recipe_file(recipe).parent
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    return folder


def work_folder(recipe: Path, work: Path | None) -> Path:
    """Where a recipe's results go."""
    from latentmt.recipe import recipe_name

    return work or Path("runs") / recipe_name(recipe)
