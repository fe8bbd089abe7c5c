"""`bulk`: files of any size, on one machine or on many."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from latentmt.cli.options import ActorsOption, AddressOption, EngineOption, GpusOption, ModelOption, decoding_options


@decoding_options()
def bulk(
    input_: Annotated[
        str, typer.Argument(metavar="INPUT", help="Parquet, JSON lines, CSV or text: a file, a folder, or a URL.")
    ],
    output: Annotated[
        str, typer.Argument(metavar="OUTPUT", help="A folder, or a URL. To go on with a job, name its folder again.")
    ],
    model: ModelOption = None,
    column: Annotated[str | None, typer.Option(help="The column with the text. Default: text.")] = None,
    to: Annotated[
        str | None, typer.Option(help="parquet, jsonl or text. Default: parquet for Parquet, else jsonl.")
    ] = None,
    *,
    options: dict[str, Any],
    address: AddressOption = None,
    actors: ActorsOption = None,
    gpus_per_actor: GpusOption = 0.0,
    engine: EngineOption = "auto",
    rows_per_part: Annotated[int, typer.Option(min=1, help="Rows of each file of the output.")] = 2048,
    max_chars: Annotated[int, typer.Option(min=1, help="Rows with more characters are not translated.")] = 10_000,
) -> None:
    """Translate files of any size on Ray actors. Killed at any moment, the same command goes on where it was."""
    from latentmt.bulk.choice import ModelChoice
    from latentmt.bulk.job import BulkConfig, run_job, show_summary
    from latentmt.bulk.writing import EXTENSIONS
    from latentmt.cluster.config import ClusterConfig
    from latentmt.display import output as console
    from latentmt.errors import UserError

    if to is not None and to not in EXTENSIONS:
        raise UserError(f"--to {to}: expected one of {', '.join(EXTENSIONS)}")
    cluster = ClusterConfig(address, actors, gpus_per_actor)
    choice = ModelChoice(model, cluster.device, engine, options)
    summary = run_job(BulkConfig(input_, output, choice, column, to, rows_per_part, max_chars), cluster)
    show_summary(summary, console())
    if summary.damaged:
        raise UserError(f"{len(summary.damaged)} files could not be read to their end")
