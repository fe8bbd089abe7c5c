"""Commands that translate: `translate` and `trace`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

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

JsonOption = Annotated[
    bool, typer.Option("--json", help="Write JSON, an object a line: source, translation and the options used.")
]


@decoding_options()
def translate(
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Sentences; without any, lines of standard input.")
    ] = None,
    model: ModelOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    input_: Annotated[
        Path | None, typer.Option("--input", help="A file of lines (.gz and .xz are decompressed) instead.")
    ] = None,
    bad_lines: Annotated[
        Literal["replace", "skip", "stop"],
        typer.Option(help="A line that is not UTF-8: replace its bad bytes, skip it, or stop there."),
    ] = "replace",
    glossary: GlossaryOption = None,
    *,
    options: dict[str, Any],
    device: DeviceOption = AUTO,
    engine: EngineOption = AUTO,
    threads: ThreadsOption = None,
    json_: JsonOption = False,
) -> None:
    """Translate lines: each comes out as one line, as soon as it is there."""
    from latentmt.installed import find_model
    from latentmt.text.glossary import Glossary
    from latentmt.text.stream import input_batches, write_lines
    from latentmt.translator import Translator

    terms = Glossary.read(glossary) if glossary else None
    batches = input_batches(texts, input_, bad_lines)
    translator = Translator.load(find_model(model, from_, to), device, threads, engine=engine)
    chosen = translator.options(**options)
    for lines in batches:
        found = [translation.text for translation in translator.translations(lines, chosen, glossary=terms)]
        if json_:
            facts = [{"source": line, "translation": text} for line, text in zip(lines, found, strict=True)]
            found = [json.dumps(fact | {"options": str(chosen)}, ensure_ascii=False) for fact in facts]
        write_lines(found)


@decoding_options("method", "steps", "lengths", "samples", "rerank", "seed", "lm_weight")
def trace(
    texts: Annotated[list[str], typer.Argument(help="What to translate.", show_default=False)],
    model: ModelOption = None,
    from_: FromOption = None,
    to: ToOption = None,
    *,
    options: dict[str, Any],
    device: DeviceOption = AUTO,
    engine: EngineOption = AUTO,
    threads: ThreadsOption = None,
    json_: JsonOption = False,
) -> None:
    """Show every sentence after each refinement step (4 unless given), changes marked, and the mean confidence."""
    from latentmt.display import output
    from latentmt.installed import find_model
    from latentmt.refinement import show_trace, trace_to_dict
    from latentmt.translator import Translator

    translator = Translator.load(find_model(model, from_, to), device, threads, engine=engine)
    chosen = translator.options(**({"steps": 4} | options))
    for text in texts:
        traces = translator.traces(text, chosen)
        if json_:
            print(json.dumps(trace_to_dict(translator, text, chosen, traces), ensure_ascii=False))
        else:
            show_trace(translator, chosen, traces, output())
