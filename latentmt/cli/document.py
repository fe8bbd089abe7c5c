"""`document`: files with their formatting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from latentmt.cli.options import (
    AUTO,
    DeviceOption,
    EngineOption,
    FromOption,
    GlossaryOption,
    ModelOption,
    ThreadsOption,
    ToOption,
    decoding_options,
)

if TYPE_CHECKING:
    from latentmt.documents.job import Job, Outputs


@decoding_options()
def document(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A document, or a folder of documents.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write. Default: beside it, with the language in its name."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write over an output that exists.")] = False,
    bilingual: Annotated[
        bool, typer.Option("--bilingual", help="Write a page with source and translation side by side, too.")
    ] = False,
    json_: Annotated[
        Path | None,
        typer.Option("--json", help="Write scores, tokens and alignment of each text to this file, too: JSON lines."),
    ] = None,
    copy_others: Annotated[
        bool, typer.Option("--copy-others", help="Copy files of a folder that are no documents.")
    ] = False,
    glossary: GlossaryOption = None,
    model: ModelOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    *,
    options: dict[str, Any],
    device: DeviceOption = AUTO,
    engine: EngineOption = AUTO,
    threads: ThreadsOption = None,
) -> None:
    """Translate documents and keep their formatting. Killed at any moment, the same command goes on where it was."""
    from latentmt.documents.formats import FORMATS, format_of
    from latentmt.documents.job import Job, read_file
    from latentmt.errors import UserError
    from latentmt.installed import find_model
    from latentmt.text.glossary import Glossary
    from latentmt.translator import Translator

    if source.is_dir() and json_:
        raise UserError("--json: only for a single document")
    if not source.is_dir():
        read_file(source)
        format_of(source)
        if output and format_of(source) != FORMATS.get(output.suffix.lower()):
            raise UserError(f"{output}: the output has the type of the input, {source.suffix}")
    terms = Glossary.read(glossary) if glossary else None
    translator = Translator.load(find_model(model, from_, to), device, threads, engine=engine)
    job = Job(translator, translator.options(**options), terms, details=json_ is not None)
    target = output or _default_output(source, translator.languages)
    if source.is_dir():
        _folder(job, source, target, bilingual, replace, copy_others)
    else:
        _file(job, source, _outputs(target, bilingual, json_), replace)


def _default_output(source: Path, languages: tuple[str, str] | None) -> Path:
    """The name with the target language in it, in place of the source language if it has that: report.en.md."""
    from latentmt.errors import UserError

    if not languages:
        raise UserError("-o is needed: the model does not say which languages it translates")
    path = source.resolve() if source.name in ("", "..") else source
    suffix = "" if source.is_dir() else path.suffix
    stem = path.name.removesuffix(suffix)
    if stem == languages[0]:
        return path.with_name(f"{languages[1]}{suffix}")
    return path.with_name(f"{stem.removesuffix(f'.{languages[0]}')}.{languages[1]}{suffix}")


def _outputs(target: Path, bilingual: bool, json_: Path | None = None) -> Outputs:
    from latentmt.documents.job import Outputs

    return Outputs(target, target.with_name(f"{target.name}.bilingual.html") if bilingual else None, json_)


def _file(job: Job, source: Path, outputs: Outputs, replace: bool) -> None:
    from latentmt.display import ProgressBar, info
    from latentmt.documents.job import translate_file

    with ProgressBar(source.name, "texts") as bar:
        translate_file(job, source, outputs, replace=replace, progress=bar.reached)
    for path in outputs.paths:
        info(f"wrote {path}")


def _folder(job: Job, source: Path, target: Path, bilingual: bool, replace: bool, copy_others: bool) -> None:
    from latentmt.display import ProgressBar, info
    from latentmt.documents.folder import translate_folder
    from latentmt.errors import UserError

    with ProgressBar(source.name, "documents") as bar:
        summary = translate_folder(
            job,
            source,
            target,
            lambda path: _outputs(path, bilingual),
            replace=replace,
            copy_others=copy_others,
            progress=bar.reached,
            warn=lambda line: info(f"WARNING: {line}"),
        )
    what = "copied" if copy_others else "left out (--copy-others)"
    others = f", {summary.others} other files {what}" if summary.others else ""
    info(f"wrote {target}: {summary.translated} documents{others}")
    if summary.failed:
        raise UserError(f"{len(summary.failed)} documents could not be translated; the same command tries them again")
