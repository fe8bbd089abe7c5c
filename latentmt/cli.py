"""The command table: each command is a thin call of one function. It is long because there are many.

Results go to standard output, everything else to standard error. What a user can mend is one line and exit code 1.
"""

from __future__ import annotations

import errno
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import latentmt
from latentmt.errors import UserError

app = typer.Typer(
    help="Non-autoregressive machine translation that refines a continuous latent.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

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
TokenizerOption = Annotated[Path | None, typer.Option(help="Use this tokenizer instead of learning one.")]
DeviceOption = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 … Default: a GPU if there is one.")]
BudgetOption = Annotated[
    float | None, typer.Option(min=0, help="Make a new training run as long as this, instead of the recipe's steps.")
]
MaxOption = Annotated[float | None, typer.Option(min=0, help="Stop training after this, to be resumed.")]
StartOption = Annotated[
    str | None,
    typer.Option(help="Begin with the weights of this model, of its size and tokenizer; to resume, name it again."),
]
ReplaceOption = Annotated[
    bool,
    typer.Option(
        "--replace", help="Replace what is finished with other settings; it is kept aside until the new one is whole."
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="An installed model, or a folder of bundles: latent, score, energy, teacher. Default: the installed one.",
    ),
]


class Stage(StrEnum):
    """What can be trained."""

    teacher = "teacher"
    latent = "latent"
    score = "score"
    energy = "energy"


class Method(StrEnum):
    """What refines a translation: nothing (prior), delta inference, a learned field; or the teacher instead."""

    prior = "prior"
    delta = "delta"
    score = "score"
    energy = "energy"
    teacher = "teacher"


class Rerank(StrEnum):
    """What chooses between candidates: nothing, the teacher, or the latent model in one of three ways."""

    none = "none"
    teacher = "teacher"
    decoder = "decoder"
    elbo = "elbo"
    marginal = "marginal"


class RemoveRepeats(StrEnum):
    """What is left out where it repeats what is before it: words, pieces (as in the paper), or nothing."""

    words = "words"
    pieces = "pieces"
    none = "none"


MethodOption = Annotated[Method | None, typer.Option(help="Default: the model's own, or the best it has.")]
# What may be chosen, and what goes together, is `DecodingOptions`'s to say, in one line; so there are no bounds here.
TextsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="TEXT", help="Sentences; without any, lines of standard input.")
]
InputOption = Annotated[
    Path | None, typer.Option("--input", help="A file of lines (.gz and .xz are decompressed) instead.")
]
StepsOption = Annotated[int | None, typer.Option(help="Refinement steps. Default: the model's own, or 1.")]
AdaptiveOption = Annotated[
    bool, typer.Option("--adaptive", help="Let each sentence stop when its steps have become short.")
]
LengthsOption = Annotated[int | None, typer.Option(help="How many of the likeliest lengths are tried.")]
SamplesOption = Annotated[int | None, typer.Option(help="Latents tried for each length.")]
RerankOption = Annotated[Rerank | None, typer.Option(help="What chooses between several lengths and samples.")]
SeedOption = Annotated[int | None, typer.Option(help="Of the samples. Default: 1.")]
LengthBiasOption = Annotated[
    float | None, typer.Option(help="Added to every predicted length, as a share of the source's: 0.1, say.")
]
RemoveRepeatsOption = Annotated[
    RemoveRepeats | None,
    typer.Option(help="What goes where it is said twice in a row. Default: the model's, or words."),
]
RawOption = Annotated[bool, typer.Option("--raw", help="Let the model write addresses, code, emoji and numbers, too.")]
BeamOption = Annotated[int | None, typer.Option(help="The teacher's beam, where it translates. Default: 4.")]
ThreadsOption = Annotated[
    int | None,
    typer.Option(help="Cores for each batch. Default: one, and as many batches side by side as there are cores."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Write JSON, an object a line: source, translation and how it was made.")
]
SourceOption = Annotated[Path, typer.Option(help="Source sentences, a line each.")]
ReferencesOption = Annotated[list[Path], typer.Option(help="References, a line each; may be given several times.")]
MethodsOption = Annotated[
    list[Method] | None, typer.Option(help="May be given several times. Default: all the model has.")
]
StepsListOption = Annotated[
    list[int] | None, typer.Option(help="Refinement steps; may be given several times. Default: 1 and 4.")
]
JsonFileOption = Annotated[Path | None, typer.Option("--json", help="Write the results to this file as JSON, too.")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        print(f"latentmt {latentmt.__version__}")
        raise typer.Exit


@app.command()
def numbers(
    folder: Annotated[Path, typer.Argument(help="Where the text files go.")],
    train: Annotated[int, typer.Option(min=1, help="Training pairs.")] = 40_000,
    dev: Annotated[int, typer.Option(min=1, help="Development pairs.")] = 500,
    test: Annotated[int, typer.Option(min=1, help="Test pairs.")] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives other sentences.")] = 1,
) -> None:
    """Write the numbers corpus: German number words in sentences, in British or American English."""
    from latentmt.data.numbers import Sizes, write_numbers

    write_numbers(folder, Sizes(train=train, dev=dev, test=test), seed)


@app.command()
def prepare(
    recipe: RecipeArgument,
    data: DataOption = None,
    work: WorkOption = None,
    tokenizer: TokenizerOption = None,
    set_: SetOption = None,
    replace: ReplaceOption = False,
) -> None:
    """Clean and encode a recipe's text into a corpus on disk."""
    from latentmt.display import output, say
    from latentmt.inspection import show_dropped
    from latentmt.pipeline import prepare_corpus
    from latentmt.recipe import load_recipe

    loaded, folders = load_recipe(recipe, set_ or ()), (_data_folder(recipe, data), _work_folder(recipe, work))
    corpus, written = prepare_corpus(loaded, *folders, tokenizer, replace=replace)
    if written:
        show_dropped(corpus, output())
    say(f"{corpus.folder}: {'written' if written else 'nothing changed, nothing to do'}")


@app.command()
def run(
    recipe: RecipeArgument,
    data: DataOption = None,
    work: WorkOption = None,
    set_: SetOption = None,
    device: DeviceOption = None,
    budget_minutes: BudgetOption = None,
    max_minutes: MaxOption = None,
    tokenizer: TokenizerOption = None,
    replace: ReplaceOption = False,
) -> None:
    """Do what is missing of a recipe, in order: prepare, teacher, distill, latent, score, energy."""
    from latentmt.pipeline import run as run_recipe
    from latentmt.recipe import load_recipe
    from latentmt.train.halt import halting
    from latentmt.train.ranks import joined

    loaded, folders = load_recipe(recipe, set_ or ()), (_data_folder(recipe, data), _work_folder(recipe, work))
    with joined(device) as ranks, halting(max_minutes) as halt:
        done = run_recipe(
            loaded,
            *folders,
            ranks=ranks,
            halt=halt,
            budget_minutes=budget_minutes,
            tokenizer=tokenizer,
            replace=replace,
        )
    _leave(done, halt.signal)


@app.command()
def train(
    recipe: RecipeArgument,
    stage: Annotated[Stage, typer.Option(help="What to train.")],
    work: WorkOption = None,
    set_: SetOption = None,
    device: DeviceOption = None,
    budget_minutes: BudgetOption = None,
    max_minutes: MaxOption = None,
    start: StartOption = None,
    replace: ReplaceOption = False,
) -> None:
    """Train one stage of a recipe, or go on with it. Started by torchrun, on several processes."""
    from latentmt.pipeline import train_stage
    from latentmt.recipe import load_recipe
    from latentmt.train.halt import halting
    from latentmt.train.ranks import joined

    loaded, folder = load_recipe(recipe, set_ or ()), _work_folder(recipe, work)
    with joined(device) as ranks, halting(max_minutes) as halt:
        done = train_stage(
            loaded,
            folder,
            stage.value,
            ranks=ranks,
            halt=halt,
            budget_minutes=budget_minutes,
            start=start,
            replace=replace,
        )
    _leave(done, halt.signal)


@app.command()
def distill(
    recipe: RecipeArgument,
    work: WorkOption = None,
    set_: SetOption = None,
    device: DeviceOption = None,
    replace: ReplaceOption = False,
) -> None:
    """Translate the training sources with the teacher, for the latent model to learn from."""
    from latentmt.pipeline import distill_corpus
    from latentmt.recipe import load_recipe
    from latentmt.train.ranks import joined

    with joined(device) as ranks:
        distill_corpus(load_recipe(recipe, set_ or ()), _work_folder(recipe, work), ranks, replace=replace)


@app.command()
def translate(
    texts: TextsArgument = None,
    model: ModelOption = None,
    input_: InputOption = None,
    method: MethodOption = None,
    steps: StepsOption = None,
    adaptive: AdaptiveOption = False,
    lengths: LengthsOption = None,
    samples: SamplesOption = None,
    rerank: RerankOption = None,
    seed: SeedOption = None,
    length_bias: LengthBiasOption = None,
    remove_repeats: RemoveRepeatsOption = None,
    raw: RawOption = False,
    beam: BeamOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    json_: JsonOption = False,
) -> None:
    """Translate lines: each comes out as one line, as soon as it is there."""
    import json

    from latentmt.infer.stream import batches_of, write_lines
    from latentmt.infer.translator import Translator
    from latentmt.train.ranks import pick_device

    batches = batches_of(texts, input_)
    translator = Translator.load(model, pick_device(device), threads)
    choices = _given(
        method=method and method.value,
        steps=steps,
        adaptive=adaptive or None,
        lengths=lengths,
        samples=samples,
        rerank=rerank and rerank.value,
        seed=seed,
        length_bias=length_bias,
        remove_repeats=remove_repeats and remove_repeats.value,
        verbatim=False if raw else None,
        beam=beam,
    )
    options = translator.options(**choices)
    for lines in batches:
        found = [translation.text for translation in translator.translations(lines, options)]
        if json_:
            facts = [{"source": line, "translation": text} for line, text in zip(lines, found, strict=True)]
            found = [json.dumps(fact | {"options": str(options)}, ensure_ascii=False) for fact in facts]
        write_lines(found)


@app.command()
def trace(
    texts: Annotated[list[str], typer.Argument(help="What to translate.", show_default=False)],
    model: ModelOption = None,
    method: MethodOption = None,
    steps: Annotated[int, typer.Option(help="Refinement steps.")] = 4,
    lengths: LengthsOption = None,
    samples: SamplesOption = None,
    rerank: RerankOption = None,
    seed: SeedOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    json_: JsonOption = False,
) -> None:
    """Translate before your eyes: every sentence after each refinement step, changes marked, and its certainty."""
    import json

    from latentmt.display import output
    from latentmt.infer.translator import Translator
    from latentmt.refinement import show_trace, trace_tree
    from latentmt.train.ranks import pick_device

    translator = Translator.load(model, pick_device(device), threads)
    options = translator.options(
        steps=steps,
        **_given(
            method=method and method.value, lengths=lengths, samples=samples, rerank=rerank and rerank.value, seed=seed
        ),
    )
    for text in texts:
        traces = translator.traces(text, options)
        if json_:
            print(json.dumps(trace_tree(translator, text, options, traces), ensure_ascii=False))
        else:
            show_trace(translator, options, traces, output())


@app.command()
def evaluate(
    src: SourceOption,
    ref: ReferencesOption,
    model: ModelOption = None,
    method: MethodsOption = None,
    steps: StepsListOption = None,
    lengths: LengthsOption = None,
    samples: SamplesOption = None,
    rerank: RerankOption = None,
    seed: SeedOption = None,
    length_bias: LengthBiasOption = None,
    remove_repeats: RemoveRepeatsOption = None,
    raw: RawOption = False,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Also measure the best of several candidates, chosen by the references.")
    ] = False,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Test whether A is better than B, as named in the table: score-1 L=0, say."),
    ] = None,
    json_: JsonFileOption = None,
    device: DeviceOption = None,
) -> None:
    """Measure the ways a model can translate on a test set; with several lengths or samples, search too."""
    from latentmt.display import output
    from latentmt.infer.translator import Translator
    from latentmt.measure.evaluate import EvalSet, Wanted, show_evaluation
    from latentmt.measure.evaluate import evaluate as evaluate_translator
    from latentmt.measure.results import json_file
    from latentmt.train.ranks import pick_device

    choices = _given(
        methods=method and [one.value for one in method],
        steps=steps,
        lengths=lengths,
        samples=samples,
        rerank=rerank and rerank.value,
        seed=seed,
        length_bias=length_bias,
        remove_repeats=remove_repeats and remove_repeats.value,
        verbatim=False if raw else None,
        oracle=oracle,
        compare=compare and [compare],
    )
    wanted = Wanted(**choices)
    texts, out = EvalSet.read(src, ref), json_ and json_file(json_)
    found = evaluate_translator(Translator.load(model, pick_device(device)), texts, wanted)
    show_evaluation(found, output(), out)


@app.command()
def health(
    recipe: RecipeArgument, work: WorkOption = None, json_: JsonFileOption = None, device: DeviceOption = None
) -> None:
    """Look at a recipe's latent model after a short run, before a long one: is it worth refining? If not, exit 1."""
    from latentmt.data.corpus import Corpus
    from latentmt.display import output
    from latentmt.infer.translator import Translator
    from latentmt.measure.health import health as checks_of
    from latentmt.measure.health import show_health
    from latentmt.measure.results import json_file
    from latentmt.recipe import load_recipe
    from latentmt.train.ranks import pick_device

    distilled, folder = load_recipe(recipe).distill is not None, _work_folder(recipe, work)
    out = json_ and json_file(json_)
    translator = Translator.load(folder, pick_device(device))
    if not show_health(checks_of(translator, Corpus.load(folder / "corpus"), distilled), output(), out):
        raise typer.Exit(1)


@app.command()
def bench(
    src: SourceOption,
    model: ModelOption = None,
    sentences: Annotated[int, typer.Option(min=1, help="How many of its lines are translated.")] = 200,
    method: MethodsOption = None,
    steps: StepsListOption = None,
    lengths: LengthsOption = None,
    samples: SamplesOption = None,
    rerank: Annotated[
        list[Rerank] | None, typer.Option(help="What chooses between candidates; may be given several times.")
    ] = None,
    batches: Annotated[str, typer.Option(help="Batch sizes.")] = "1,2,4,8,16,32,64,128,256",
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Measure compiled searches, too: half a minute or more for each.")
    ] = False,
    json_: JsonFileOption = None,
    threads: ThreadsOption = None,
    device: DeviceOption = None,
) -> None:
    """Measure how fast the ways a model can translate are: one text at a time, and many sentences together."""
    from latentmt.display import output
    from latentmt.infer.translator import Translator
    from latentmt.measure.evaluate import Wanted
    from latentmt.measure.latency import choose_ways, measure_speed, parse_batches, read_source, show_speed
    from latentmt.measure.results import json_file
    from latentmt.train.ranks import pick_device

    sizes, out = parse_batches(batches), json_ and json_file(json_)
    translator = Translator.load(model, pick_device(device), threads)
    choices = _given(methods=method and [one.value for one in method], steps=steps, lengths=lengths, samples=samples)
    wanted = Wanted(**choices)
    ways = choose_ways(translator, wanted, [one.value for one in rerank or ()])
    source = read_source(translator, src, sentences)
    show_speed(measure_speed(translator, source, ways, sizes, compiled), output(), out)


@app.command()
def samples(
    src: SourceOption,
    ref: ReferencesOption,
    model: ModelOption = None,
    method: MethodOption = None,
    steps: StepsOption = None,
    seed: SeedOption = None,
    count: Annotated[int, typer.Option(min=1, help="How many are shown.")] = 10,
    html: Annotated[Path | None, typer.Option(help="Write a page to this file, too.")] = None,
    json_: JsonFileOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Translate from samples of the prior, before and after refinement: what has moved and changed, in colours."""
    from latentmt.display import output
    from latentmt.infer.translator import Translator
    from latentmt.measure.evaluate import EvalSet
    from latentmt.measure.results import json_file
    from latentmt.measure.samples import sampled, show_samples, take_samples
    from latentmt.report.make import write_samples
    from latentmt.train.ranks import pick_device

    texts, page, out = EvalSet.read(src, ref), html and json_file(html), json_ and json_file(json_)
    translator = Translator.load(model, pick_device(device), threads)
    options = sampled(translator, **_given(method=method and method.value, steps=steps, seed=seed))
    found = take_samples(translator, texts.sources, texts.references, count, options)
    if page:
        write_samples(found, page, options)
    show_samples(found, options, output(), out)


@app.command()
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
        str | None, typer.Option(help="A model with two latent entries (latent_dim: 2) and a score, for Figure 4.")
    ] = None,
    example: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SOURCE REFERENCE", help="The sentence of Figure 4. Default: one is chosen."),
    ] = None,
    lines: Annotated[int | None, typer.Option(help="Use only this many lines of the test set.")] = None,
    timed: Annotated[int | None, typer.Option(help="Texts that each way is timed on. Default: 200.")] = None,
    judged: Annotated[int | None, typer.Option(help="Sentences whose log p(y|x) is estimated. Default: 500.")] = None,
    posterior_samples: Annotated[int | None, typer.Option(help="Samples of each estimate. Default: 500.")] = None,
    shown: Annotated[int | None, typer.Option(help="Sample translations shown, 0 for none. Default: 8.")] = None,
    seed: SeedOption = None,
    length_bias: LengthBiasOption = None,
    compiled: Annotated[bool, typer.Option("--compiled", help="Time compiled searches, too.")] = False,
    times: Annotated[
        Path | None,
        typer.Option(help="Time nothing: take the times from this report, of models of the same sizes."),
    ] = None,
    json_: JsonFileOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Measure a model as the paper measures its own, what is missing of it, and write it up: HTML and Markdown."""
    from latentmt.display import output
    from latentmt.measure.report import Settings
    from latentmt.measure.results import json_file
    from latentmt.report.make import find_subject, is_report, make_report, show_report, write_report
    from latentmt.train.ranks import pick_device

    written = json_ and json_file(json_)
    if is_report(what):
        if times:
            raise UserError(f"{what}: is measured already, so --times has nothing to do")
        show_report(write_report(what), output(), written)
        return
    if times and (timed is not None or compiled):
        raise UserError("--times takes them from a report: leave out --timed and --compiled")
    subject = find_subject(what, src, ref or (), _work_folder(what, work), lines)
    sizes = {"timed": timed, "judged": judged, "posterior_samples": posterior_samples, "shown": shown}
    tree = make_report(
        subject,
        out or subject.out,
        Settings(**_given(**sizes, seed=seed, length_bias=length_bias, compiled=compiled or None)),
        plane=plane,
        example=example,
        times=times,
        device=pick_device(device),
        threads=threads,
        command=["latentmt", *sys.argv[1:]],
    )
    show_report(tree, output(), written)


@app.command()
def serve(
    model: ModelOption = None,
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 is all there are.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8000,
    device: Annotated[
        list[str] | None,
        typer.Option(help="cpu, cuda, cuda:1 …; several times for several GPUs. Default: a GPU if there is one."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Batches translated at the same time. Default: as many as a CPU has cores.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Cores for each of them. Default: 1.")] = None,
    max_characters: Annotated[int, typer.Option(help="Of one request.")] = 10_000,
    max_sentences: Annotated[int, typer.Option(help="Of one request.")] = 256,
    max_waiting: Annotated[int, typer.Option(help="Requests that may wait; more are answered with 429.")] = 128,
    timeout: Annotated[float, typer.Option(help="Seconds that a request may take, waiting included.")] = 30,
    api_keys: Annotated[
        Path | None, typer.Option(help="Serve only who has a key: a file of them, perhaps with requests a minute.")
    ] = None,
    cors: Annotated[list[str] | None, typer.Option(metavar="ORIGIN", help="Let pages from there ask, too.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log requests and stack traces, which may quote texts.")
    ] = False,
) -> None:
    """Serve translations over HTTP, in LibreTranslate's format, and a page that shows them being refined."""
    try:
        from latentmt.serve.server import ServerConfig
        from latentmt.serve.server import serve as serve_model
    except ModuleNotFoundError as error:
        raise UserError(f"serving needs {error.name}: pip install 'latentmt[serve]'") from None
    from latentmt.serve.admission import Limits, read_api_keys
    from latentmt.train.ranks import pick_device

    serve_model(
        ServerConfig(
            model=model,
            host=host,
            port=port,
            devices=[pick_device(one) for one in device] if device else [pick_device(None)],
            workers=workers,
            threads=threads,
            limits=Limits(
                max_characters=max_characters, max_sentences=max_sentences, max_waiting=max_waiting, timeout=timeout
            ),
            api_keys=read_api_keys(api_keys) if api_keys else None,
            cors=cors or (),
            verbose=verbose,
        )
    )


@app.command()
def models() -> None:
    """List the models that are installed."""
    from latentmt.display import output
    from latentmt.inspection import show_models

    show_models(output())


@app.command()
def release(
    model: Annotated[Path, typer.Argument(help="A folder of bundles.")],
    folder: Annotated[Path, typer.Argument(help="Where the released ones go.")],
    kind: Annotated[
        list[Stage] | None, typer.Option(help="What to release; may be given several times. Default: all there is.")
    ] = None,
) -> None:
    """Store a model's bundles in half precision, as they ship."""
    from latentmt.display import say
    from latentmt.release import release as release_model

    for name, size in release_model(model, folder, [one.value for one in kind or ()] or None).items():
        say(f"{folder / name}: {size / 1e6:.1f} MB")


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(help="A corpus, a bundle, a folder of bundles, or an installed model.")],
) -> None:
    """Show what a corpus or a model is, after checking that its files are whole."""
    from latentmt.display import output
    from latentmt.inspection import show

    show(path, output())


def _given(**choices: Any) -> dict[str, Any]:
    """The choices that were made; the others are left to whoever has the defaults."""
    return {name: choice for name, choice in choices.items() if choice is not None}


def _leave(done: bool, signal: int | None) -> None:
    """End as a shell expects of a process that was told to, where there is something left to do."""
    if not done and signal is not None:
        raise typer.Exit(128 + signal)


def _data_folder(recipe: Path, data: Path | None) -> Path:
    from latentmt.recipe import recipe_file

    folder = data or recipe_file(recipe).parent
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    return folder


def _work_folder(recipe: Path, work: Path | None) -> Path:
    from latentmt.recipe import recipe_name

    return work or Path("runs") / recipe_name(recipe)


_MENDABLE = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP),
)
"""Disks that are full, files that may not be written, and paths that lead nowhere."""


def main() -> None:
    """Run the command line; turn what a user can mend into one line."""
    try:
        app()
    except UserError as error:
        _fail(str(error))
    except BrokenPipeError:  # the reader of our output has gone, `| head` say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's; importing torch to ask would take seconds
            raise
        _fail("the GPU's memory is full: ask for fewer candidates, or use --device cpu")
    except OSError as error:
        if error.errno not in _MENDABLE:
            raise
        _fail(f"{error.filename or 'writing failed'}: {error.strerror}")


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(1)
