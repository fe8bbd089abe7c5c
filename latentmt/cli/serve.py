"""The command that serves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentmt.cli.options import AUTO, EngineOption


def serve(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="An installed model, or a folder of bundles; may be given several times, each for other languages. "
            "Default: all installed ones."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen at; 0.0.0.0 listens at all addresses.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8000,
    device: Annotated[
        list[str] | None,
        typer.Option(help="cpu, cuda, cuda:1 …; several times for several GPUs. Default: a GPU if there is one."),
    ] = None,
    engine: EngineOption = AUTO,
    workers: Annotated[
        int | None, typer.Option(help="Engine processes for each device. Default: as many as a CPU has cores.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Cores for each of them. Default: 1.")] = None,
    front_processes: Annotated[
        int, typer.Option(help="Processes that accept HTTP. More than one are for thousands of requests a second.")
    ] = 1,
    max_characters: Annotated[int, typer.Option(help="The most characters of one request.")] = 10_000,
    max_sentences: Annotated[int, typer.Option(help="The most sentences of one request.")] = 256,
    max_file_size: Annotated[float, typer.Option(help="The most megabytes of a document.")] = 10,
    max_waiting: Annotated[int, typer.Option(help="Requests that may wait; more are answered with 429.")] = 128,
    timeout: Annotated[float, typer.Option(help="Seconds that a request may take, waiting included.")] = 30,
    api_keys: Annotated[
        Path | None,
        typer.Option(
            help="Require an API key: a file with one key a line, optionally followed by its requests per minute, "
            "or by the word metrics for a key that reads /metrics."
        ),
    ] = None,
    req_time_cost: Annotated[
        float | None,
        typer.Option(help="A request counts as several if it takes longer: as one for each so many seconds."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Answer only under this name, may be given several times. Default: under none but localhost "
            "where only this machine can connect, and under any where others can. Addresses are always allowed.",
        ),
    ] = None,
    cors: Annotated[list[str] | None, typer.Option(metavar="ORIGIN", help="Allow requests from pages there.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log requests and stack traces, which may quote texts.")
    ] = False,
) -> None:
    """Serve translations over HTTP, in LibreTranslate's format, and a page that shows them being refined."""
    from latentmt.serve.admission import Limits, read_api_keys
    from latentmt.serve.server import ServerConfig
    from latentmt.serve.server import serve as serve_model

    serve_model(
        ServerConfig(
            models=model or (),
            host=host,
            port=port,
            devices=device or [AUTO],
            engine=engine,
            workers=workers,
            threads=threads,
            front_processes=front_processes,
            limits=Limits(
                max_characters=max_characters,
                max_sentences=max_sentences,
                max_file_bytes=round(1e6 * max_file_size),
                max_waiting=max_waiting,
                timeout=timeout,
            ),
            api_keys=read_api_keys(api_keys, seconds_per_request=req_time_cost) if api_keys else None,
            allowed_hosts=allowed_host or (),
            cors=cors or (),
            verbose=verbose,
        )
    )
