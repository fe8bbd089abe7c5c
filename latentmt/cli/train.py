"""Commands that make models: `run` and its stages, the `numbers` corpus, `names` and `health`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentmt.cli.options import AUTO, ActorsOption, AddressOption, DeviceOption, GpusOption, JsonFileOption
from latentmt.cli.recipes import DataOption, RecipeArgument, SetOption, WorkOption, data_folder, work_folder
from latentmt.errors import Stopped

TokenizerOption = Annotated[Path | None, typer.Option(help="Use this tokenizer instead of learning one.")]
BudgetOption = Annotated[
    float | None, typer.Option(min=0, help="Make a new training run as long as this, instead of the recipe's steps.")
]
MaxOption = Annotated[
    float | None, typer.Option(min=0, help="Stop after this, to be resumed by the same command. The exit code is 75.")
]
ReplaceOption = Annotated[
    bool,
    typer.Option(
        "--replace", help="Replace what is finished with other settings; it is kept aside until the new one is whole."
    ),
]


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


def names(
    file: Annotated[Path, typer.Argument(help="The file to write: names.npz beside the bundles of a model.")],
    source: Annotated[list[Path], typer.Option(help="A file of source text; may be given several times.")],
    target: Annotated[list[Path], typer.Option(help="Its translation, line by line.")],
) -> None:
    """Learn from parallel text what names look like that translations have as they are."""
    from latentmt.data.text import Pair, ParallelText, read_pairs
    from latentmt.display import info
    from latentmt.export.names import learn_names
    from latentmt.files import write_atomically

    text = ParallelText(source=tuple(map(str, source)), target=tuple(map(str, target)))
    content = learn_names(pair for pair in read_pairs(text, Path()) if isinstance(pair, Pair)).to_bytes()
    write_atomically(file, content)
    info(f"{file}: {len(content):,} bytes")


def prepare(
    recipe: RecipeArgument,
    data: DataOption = None,
    work: WorkOption = None,
    tokenizer: TokenizerOption = None,
    set_: SetOption = None,
    replace: ReplaceOption = False,
) -> None:
    """Clean and encode a recipe's text into a corpus on disk."""
    from latentmt.display import info, output
    from latentmt.inspection import show_dropped
    from latentmt.pipeline import prepare_corpus
    from latentmt.recipe import load_recipe
    from latentmt.train.stop import stop_on_signal

    loaded, folders = load_recipe(recipe, set_ or ()), (data_folder(recipe, data), work_folder(recipe, work))
    with stop_on_signal():
        corpus, written = prepare_corpus(loaded, *folders, tokenizer, replace=replace)
    if written:
        show_dropped(corpus, output())
    info(f"{corpus.folder}: {'written' if written else 'nothing changed, nothing to do'}")


def run(
    recipe: RecipeArgument,
    data: DataOption = None,
    work: WorkOption = None,
    set_: SetOption = None,
    device: DeviceOption = AUTO,
    budget_minutes: BudgetOption = None,
    max_minutes: MaxOption = None,
    tokenizer: TokenizerOption = None,
    replace: ReplaceOption = False,
) -> None:
    """Run what is not finished of a recipe: prepare, language model, teacher, distill, latent model, fields."""
    from latentmt.pipeline import run as run_recipe
    from latentmt.recipe import load_recipe
    from latentmt.train.ranks import init_distributed
    from latentmt.train.stop import stop_on_signal

    loaded, folders = load_recipe(recipe, set_ or ()), (data_folder(recipe, data), work_folder(recipe, work))
    with init_distributed(device) as ranks, stop_on_signal(max_minutes) as stop:
        done = run_recipe(
            loaded,
            *folders,
            ranks=ranks,
            stop=stop,
            budget_minutes=budget_minutes,
            tokenizer=tokenizer,
            replace=replace,
        )
    _exit(done)


def train(
    recipe: RecipeArgument,
    stage: Annotated[
        str, typer.Option(help="What to train: teacher, latent, language_model, or a field of the recipe.")
    ],
    work: WorkOption = None,
    set_: SetOption = None,
    device: DeviceOption = AUTO,
    budget_minutes: BudgetOption = None,
    max_minutes: MaxOption = None,
    start: Annotated[
        str | None,
        typer.Option(help="Begin with the weights of this model, of its size and tokenizer; to resume, name it again."),
    ] = None,
    replace: ReplaceOption = False,
) -> None:
    """Train one stage of a recipe, or go on with it. Started by torchrun, on several processes."""
    from latentmt.pipeline import train_stage
    from latentmt.recipe import load_recipe
    from latentmt.train.ranks import init_distributed
    from latentmt.train.stop import stop_on_signal

    loaded, folder = load_recipe(recipe, set_ or ()), work_folder(recipe, work)
    with init_distributed(device) as ranks, stop_on_signal(max_minutes) as stop:
        done = train_stage(
            loaded,
            folder,
            stage,
            ranks=ranks,
            stop=stop,
            budget_minutes=budget_minutes,
            start=start,
            replace=replace,
        )
    _exit(done)


def distill(
    recipe: RecipeArgument,
    work: WorkOption = None,
    set_: SetOption = None,
    device: DeviceOption = AUTO,
    max_minutes: MaxOption = None,
    replace: ReplaceOption = False,
    cluster: Annotated[bool, typer.Option("--cluster", help="Translate on Ray actors, here or on a cluster.")] = False,
    address: AddressOption = None,
    actors: ActorsOption = None,
    gpus_per_actor: GpusOption = 0.0,
) -> None:
    """Translate the training sources with the teacher, for the latent model to learn from."""
    from latentmt.cluster.config import ClusterConfig
    from latentmt.errors import UserError
    from latentmt.pipeline import distill_corpus
    from latentmt.recipe import load_recipe
    from latentmt.train.ranks import init_distributed
    from latentmt.train.stop import stop_on_signal

    if not cluster and (address or actors or gpus_per_actor):
        raise UserError("--address, --actors and --gpus-per-actor need --cluster")
    where = ClusterConfig(address, actors, gpus_per_actor) if cluster else None
    loaded, folder = load_recipe(recipe, set_ or ()), work_folder(recipe, work)
    with init_distributed("cpu" if cluster else device) as ranks, stop_on_signal(max_minutes) as stop:
        if cluster and ranks.world_size > 1:
            raise UserError("--cluster: Ray starts the processes; leave torchrun out")
        distill_corpus(loaded, folder, ranks, stop=stop, replace=replace, cluster=where)


def health(
    recipe: RecipeArgument, work: WorkOption = None, json_: JsonFileOption = None, device: DeviceOption = AUTO
) -> None:
    """Check a recipe's latent model after a short run, before a long one: is it worth refining? If not, exit 1."""
    from latentmt.data.corpus import Corpus
    from latentmt.display import output
    from latentmt.measure.health import health as checks_of
    from latentmt.measure.health import show_health
    from latentmt.measure.results import json_file
    from latentmt.recipe import load_recipe
    from latentmt.translator import Translator

    distilled, folder = load_recipe(recipe).distill is not None, work_folder(recipe, work)
    out = json_ and json_file(json_)
    translator = Translator.load(folder, device, engine="torch")
    if not show_health(checks_of(translator, Corpus.load(folder / "corpus"), distilled), output(), out):
        raise typer.Exit(1)


def _exit(done: bool) -> None:
    """Say by the exit code whether something is left to do."""
    if not done:
        raise Stopped
