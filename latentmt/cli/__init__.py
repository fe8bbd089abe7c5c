"""The command line: the table of commands, and how errors end them. Each command is a thin call of one function.

Results go to standard output, everything else to standard error. What a user can correct is one line and exit code 1.
Work that was stopped before its end is exit code 75 (`errors.UNFINISHED`).
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated

import typer

import latentmt
from latentmt.cli import bulk, document, measure, models, serve, train, translate
from latentmt.errors import UNFINISHED, Stopped, UserError

app = typer.Typer(
    help="Non-autoregressive machine translation that refines a continuous latent.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

for _command in (
    *(translate.translate, translate.trace, document.document, bulk.bulk, serve.serve),
    *(models.models, models.inspect, models.export),
    *(train.run, train.prepare, train.train, train.distill, train.numbers, train.names, train.health),
    *(measure.evaluate, measure.bench, measure.samples, measure.report),
):
    app.command()(_command)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        print(f"latentmt {latentmt.__version__}")
        raise typer.Exit


_USER_ERRNOS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP),
)
"""Disks that are full, files that may not be written, and paths that lead nowhere."""


_EXTRAS = {
    **dict.fromkeys(("torch", "onnx"), "train"),
    **dict.fromkeys(("ray", "pyarrow", "fsspec", "zstandard"), "cluster"),
    **dict.fromkeys(("lxml", "markdown_it", "mdit_py_plugins", "selectolax"), "documents"),
    **dict.fromkeys(("fastapi", "httptools", "prometheus_client", "py3langid", "uvicorn", "uvloop"), "serve"),
    "matplotlib": "plots",
}
"""Packages that not every installation has, and the extra that brings them."""


def main() -> None:
    """Run the command line; turn what a user can correct into one line."""
    try:
        app()
    except Stopped:
        print("stopped; the same command goes on", file=sys.stderr, flush=True)
        os._exit(UNFINISHED)  # not exit: the thread in which a tokenizer is learnt cannot be ended otherwise
    except UserError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        _fail(f"this command needs {error.name}: pip install 'latentmt[{_EXTRAS[error.name]}]'")
    except BrokenPipeError:  # the reader of our output has gone, `| head` say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's; importing torch to ask would take seconds
            raise
        _fail("the GPU's memory is full: ask for fewer candidates, or use --device cpu")
    except OSError as error:
        if error.errno not in _USER_ERRNOS:
            raise
        _fail(f"{error.filename or 'writing failed'}: {error.strerror}")


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(1)
