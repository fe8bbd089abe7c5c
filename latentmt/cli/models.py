"""Commands about models on disk: `models`, `inspect` and `export`."""

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


def export(
    model: Annotated[Path, typer.Argument(help="A folder of bundles.")],
    folder: Annotated[Path, typer.Argument(help="Where the exported ones go.")],
    corpus: Annotated[
        Path | None,
        typer.Option(
            help="Its training set gives the shortlist, its development set is what the engines are compared on. "
            "Default: distilled or corpus in the model's folder."
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="What to export (latent, teacher, a field); may be given several times. Default: all."),
    ] = None,
    precision: Annotated[str, typer.Option(help="How matrices are stored: int8 or float16.")] = "int8",
) -> None:
    """Store a model as it ships, with graphs for the ONNX engine, after comparing it with what it was made from."""
    from latentmt.display import info, output, table
    from latentmt.export.model import export as export_model

    exported = export_model(model, folder, corpus, kind, precision)
    rows = [(each.options, f"{each.tokens:.2%}", f"{each.sentences:.1%}") for each in exported.agreements]
    output().print(table("The same as before", ["", "tokens", "sentences"], rows))
    for name, size in exported.sizes.items():
        info(f"{folder / name}: {size / 1e6:.1f} MB")
