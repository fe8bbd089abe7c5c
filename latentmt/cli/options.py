"""Arguments and options that several commands share. Decoding options come from their one declaration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from latentmt.options import DecodingOptions, field_annotations

AUTO = "auto"
"""The device that is chosen where none is named: a GPU if there is one."""

DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …, or auto: a GPU if there is one.")]
EngineOption = Annotated[
    str, typer.Option(help="onnx, torch, or auto: ONNX for an exported model on a CPU, torch otherwise.")
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="An installed model, or a folder of bundles. Default: the first installed one."),
]
FromOption = Annotated[
    str | None, typer.Option("--from", help="The language of the text, as de: chooses an installed model.")
]
ToOption = Annotated[
    str | None, typer.Option("--to", help="The language of the translation, as en: chooses an installed model.")
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(help="Cores for each batch. Default: one, and as many batches side by side as there are cores."),
]
GlossaryOption = Annotated[
    Path | None,
    typer.Option("--glossary", help="Terms and their translations: a file with both in each line, a tab between them."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(help="A running Ray cluster: auto, or host and port. Default: Ray starts here and ends with the job."),
]
ActorsOption = Annotated[
    int | None, typer.Option(min=1, help="Actors, one CPU core each. Default: as many as there is room for.")
]
GpusOption = Annotated[
    float, typer.Option(min=0, help="GPUs of each actor, or a fraction of one. 0: actors run on CPU cores.")
]
SourceOption = Annotated[Path, typer.Option(help="Source sentences, a line each.")]
ReferencesOption = Annotated[list[Path], typer.Option(help="References, a line each; may be given several times.")]
JsonFileOption = Annotated[Path | None, typer.Option("--json", help="Write the results to this file as JSON, too.")]

_FLAGS = {"verbatim": "--verbatim/--raw"}
"""Flags that are not named after their option alone."""


def decoding_options(
    *names: str, several: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these decoding options, all if none are named, those of `several` as lists.

    The command is called with those that were given, as a dict: its parameter `options`.
    """
    chosen = names or tuple(field.name for field in fields(DecodingOptions))

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**arguments: Any) -> None:
            given = {name: value for name in chosen if (value := arguments.pop(name)) is not None}
            command(**arguments, options=given)

        hints = get_type_hints(command, include_extras=True)
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(command).parameters.items():
            if name == "options":
                parameters += [_parameter(option, option in several) for option in chosen]
            else:
                parameters.append(parameter.replace(annotation=hints[name]))
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _parameter(name: str, several: bool) -> inspect.Parameter:
    base, *metadata = get_args(field_annotations()[name])
    help_ = next(item.description for item in metadata if getattr(item, "description", None))
    flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
    option = typer.Option(flag, help=help_ + (" May be given several times." if several else ""))
    kind: Any = list[base] if several else base  # type: ignore[valid-type]
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def given(**arguments: Any) -> dict[str, Any]:
    """The arguments that were given; the others are left to whoever has the defaults."""
    return {name: value for name, value in arguments.items() if value is not None}
