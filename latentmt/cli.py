"""The command table: each command is a thin call of one function.

Results go to standard output, everything else to standard error. What a user can mend is one line and exit code 1.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Annotated

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
    tokenizer: Annotated[Path | None, typer.Option(help="Use this tokenizer instead of learning one.")] = None,
    set_: SetOption = None,
) -> None:
    """Clean and encode a recipe's text into a corpus on disk."""
    from latentmt.display import output, say
    from latentmt.inspection import show_dropped
    from latentmt.pipeline import load_recipe, prepare_corpus

    corpus, written = prepare_corpus(
        load_recipe(recipe, set_ or ()), _data_folder(recipe, data), _work_folder(recipe, work), tokenizer
    )
    if written:
        show_dropped(corpus, output())
    say(f"{corpus.folder}: {'written' if written else 'nothing changed, nothing to do'}")


@app.command()
def inspect(path: Annotated[Path, typer.Argument(help="A corpus.")]) -> None:
    """Show what a corpus is: counts, what was dropped, lengths, packing, samples."""
    from latentmt.display import output
    from latentmt.inspection import show

    show(path, output())


def _data_folder(recipe: Path, data: Path | None) -> Path:
    from latentmt.pipeline import recipe_file

    folder = data or recipe_file(recipe).parent
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    return folder


def _work_folder(recipe: Path, work: Path | None) -> Path:
    from latentmt.pipeline import recipe_name

    return work or Path("runs") / recipe_name(recipe)


def main() -> None:
    """Run the command line; turn what a user can mend into one line."""
    try:
        app()
    except UserError as error:
        _fail(str(error))
    except BrokenPipeError:  # the reader of our output has gone, `| head` say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        _fail(f"{error.filename or 'writing failed'}: {error.strerror}")


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(1)
