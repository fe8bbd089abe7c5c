"""Commands about models on disk: `models`, `inspect` and `release`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def models() -> None:
    """List the models that are installed."""
    from latentmt.display import output
    from latentmt.inspection import show_models

    show_models(output())


def inspect(
    path: Annotated[Path, typer.Argument(help="A corpus, a bundle, a folder of bundles, or an installed model.")],
) -> None:
    """Show what a corpus or a model is, after checking that its files are whole."""
    from latentmt.display import output
    from latentmt.inspection import show

    show(path, output())


def release(
    model: Annotated[Path, typer.Argument(help="A folder of bundles.")],
    folder: Annotated[Path, typer.Argument(help="Where the released ones go.")],
    kind: Annotated[
        list[str] | None,
        typer.Option(help="What to release (latent, teacher, a field); may be given several times. Default: all."),
    ] = None,
) -> None:
    """Store a model's bundles in half precision, as they ship."""
    from latentmt.display import info
    from latentmt.release import release as release_model

    for name, size in release_model(model, folder, kind).items():
        info(f"{folder / name}: {size / 1e6:.1f} MB")
