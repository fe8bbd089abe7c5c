"""Commands that measure: `evaluate`, `bench`, `samples` and `report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from latentmt.cli.options import (
    AUTO,
    DeviceOption,
    EngineOption,
    JsonFileOption,
    ModelOption,
    ReferencesOption,
    SourceOption,
    ThreadsOption,
    decoding_options,
    given,
)
from latentmt.cli.recipes import WorkOption, work_folder
from latentmt.errors import UserError


@decoding_options(
    *(
        "method",
        "steps",
        "lengths",
        "samples",
        "rerank",
        "seed",
        "length_bias",
        "remove_repeats",
        "verbatim",
        "lm_weight",
    ),
    several=("method", "steps"),
)
def evaluate(
    src: SourceOption,
    ref: ReferencesOption,
    model: ModelOption = None,
    *,
    options: dict[str, Any],
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Also measure the best of several candidates, chosen by the references.")
    ] = False,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Test whether A is better than B, as named in the table: score-1 L=0, say."),
    ] = None,
    words: Annotated[
        list[Path] | None,
        typer.Option(help="Text whose words are known, such as the training targets; may be given several times."),
    ] = None,
    json_: JsonFileOption = None,
    device: DeviceOption = AUTO,
    engine: EngineOption = AUTO,
) -> None:
    """Measure a model's methods on a test set: by default all, with 1 and 4 steps; with several candidates, search."""
    from latentmt.display import output
    from latentmt.measure.evaluate import EvalSet, Sweep, show_evaluation
    from latentmt.measure.evaluate import evaluate as evaluate_translator
    from latentmt.measure.results import json_file
    from latentmt.translator import Translator

    lists = given(methods=options.pop("method", None), steps=options.pop("steps", None), compare=compare and [compare])
    sweep = Sweep(options=options, oracle=oracle, **lists)
    texts, out = EvalSet.read(src, ref, words or ()), json_ and json_file(json_)
    show_evaluation(evaluate_translator(Translator.load(model, device, engine=engine), texts, sweep), output(), out)


@decoding_options("method", "steps", "lengths", "samples", "lm_weight", several=("method", "steps"))
def bench(
    src: SourceOption,
    model: ModelOption = None,
    sentences: Annotated[int, typer.Option(min=1, help="How many of its lines are translated.")] = 200,
    *,
    options: dict[str, Any],
    rerank: Annotated[
        list[str] | None,
        typer.Option(help="What chooses between candidates (see translate); may be given several times."),
    ] = None,
    batches: Annotated[str, typer.Option(help="Batch sizes.")] = "1,2,4,8,16,32,64,128,256",
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Measure compiled searches, too: half a minute or more for each.")
    ] = False,
    json_: JsonFileOption = None,
    threads: ThreadsOption = None,
    device: DeviceOption = AUTO,
    engine: EngineOption = AUTO,
) -> None:
    """Measure the speed of a model's methods: one text at a time, and many sentences together."""
    from latentmt.display import output
    from latentmt.measure.evaluate import Sweep
    from latentmt.measure.latency import benchmark_options, measure_speed, parse_batches, read_source, show_speed
    from latentmt.measure.results import json_file
    from latentmt.translator import Translator

    sizes, out = parse_batches(batches), json_ and json_file(json_)
    translator = Translator.load(model, device, threads, engine=engine)
    lists = given(methods=options.pop("method", None), steps=options.pop("steps", None))
    all_options = benchmark_options(translator, Sweep(options=options, **lists), rerank or ())
    source = read_source(translator, src, sentences)
    show_speed(measure_speed(translator, source, all_options, sizes, compiled), output(), out)


@decoding_options("method", "steps", "seed", "lm_weight")
def samples(
    src: SourceOption,
    ref: ReferencesOption,
    model: ModelOption = None,
    *,
    options: dict[str, Any],
    count: Annotated[int, typer.Option(min=1, help="How many are shown.")] = 10,
    html: Annotated[Path | None, typer.Option(help="Write a page to this file, too.")] = None,
    json_: JsonFileOption = None,
    device: DeviceOption = AUTO,
    threads: ThreadsOption = None,
) -> None:
    """Translate from samples of the prior, before and after refinement: what has moved and changed, in colours."""
    from latentmt.display import output
    from latentmt.measure.evaluate import EvalSet
    from latentmt.measure.results import json_file
    from latentmt.measure.samples import sample_options, show_samples, take_samples
    from latentmt.report.make import html_file, write_samples
    from latentmt.translator import Translator

    texts, page, out = EvalSet.read(src, ref), html and html_file(html), json_ and json_file(json_)
    translator = Translator.load(model, device, threads, engine="torch")
    chosen = sample_options(translator, **options)
    found = take_samples(translator, texts.sources, texts.references, count, chosen)
    if page:
        write_samples(found, page, chosen)
    show_samples(found, chosen, output(), out)


@decoding_options("seed", "length_bias")
def report(
    what: Annotated[
        Path, typer.Argument(help="A model (see --model elsewhere), a recipe, or a report to write again.")
    ],
    src: Annotated[Path | None, typer.Option(help="Test sources. Default: the test set of the model's corpus.")] = None,
    ref: Annotated[list[Path] | None, typer.Option(help="References; may be given several times.")] = None,
    work: WorkOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the report goes. Default: report/ in the model's folder.")
    ] = None,
    plane: Annotated[
        str | None, typer.Option(help="A model with latent_dim: 2 and a learned field, for Figure 4.")
    ] = None,
    example: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SOURCE REFERENCE", help="The sentence of Figure 4. Default: one is chosen."),
    ] = None,
    lines: Annotated[int | None, typer.Option(help="Use only this many lines of the test set.")] = None,
    timed: Annotated[int | None, typer.Option(help="Texts that each row is timed on. Default: 200.")] = None,
    judged: Annotated[int | None, typer.Option(help="Sentences whose log p(y|x) is estimated. Default: 500.")] = None,
    posterior_samples: Annotated[int | None, typer.Option(help="Samples of each estimate. Default: 500.")] = None,
    shown: Annotated[int | None, typer.Option(help="Sample translations shown, 0 for none. Default: 8.")] = None,
    *,
    options: dict[str, Any],
    compiled: Annotated[bool, typer.Option("--compiled", help="Time compiled searches, too.")] = False,
    times: Annotated[
        Path | None,
        typer.Option(help="Time nothing: take the times from this report, of models of the same sizes."),
    ] = None,
    json_: JsonFileOption = None,
    device: DeviceOption = AUTO,
    threads: ThreadsOption = None,
) -> None:
    """Write a report like the paper's evaluation, as HTML and Markdown. Only what is missing is measured."""
    from latentmt.display import output
    from latentmt.measure.report import Settings
    from latentmt.measure.results import json_file
    from latentmt.report.make import find_subject, is_report, make_report, show_report, write_report

    written = json_ and json_file(json_)
    if is_report(what):
        if times:
            raise UserError(f"{what}: is measured already, so --times has nothing to do")
        show_report(write_report(what), output(), written)
        return
    if times and (timed is not None or compiled):
        raise UserError("--times takes them from a report: leave out --timed and --compiled")
    subject = find_subject(what, src, ref or (), work_folder(what, work), lines)
    sizes = given(timed=timed, judged=judged, posterior_samples=posterior_samples, shown=shown)
    made = make_report(
        subject,
        out or subject.out,
        Settings(**sizes, **options, compiled=compiled),
        plane=plane,
        example=example,
        times=times,
        device=device,
        threads=threads,
        command=["latentmt", *sys.argv[1:]],
    )
    show_report(made, output(), written)
