"""Translates the documents of a folder into another folder with the same tree.

A journal in the output says which are done. A document that cannot be read is reported, and the others go on.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from latentmt.documents.formats import FORMATS
from latentmt.documents.job import Job, Outputs, Progress, check_output, translate_file
from latentmt.documents.journal import Journal
from latentmt.errors import UserError
from latentmt.files import make_folder, sha256, temporary_name

JOURNAL = ".latentmt-partial"


@dataclass
class Summary:
    """What became of the files of a folder."""

    translated: int = 0
    """Documents, those of earlier runs included."""
    others: int = 0
    """Files of other types."""
    failed: list[str] = field(default_factory=list)
    """Why documents could not be translated, a line each."""


def translate_folder(
    job: Job,
    source: Path,
    output: Path,
    outputs_of: Callable[[Path], Outputs],
    *,
    replace: bool = False,
    copy_others: bool = False,
    progress: Progress = lambda done, total: None,
    warn: Callable[[str], None] = lambda line: None,
) -> Summary:
    """Translate every document of a folder. `outputs_of`: what is written for a document, by its path in the output.

    `progress` is called with documents. Names that begin with a dot, and symbolic links, are left out.
    """
    here, there = source.resolve(), output.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise UserError(f"{output}: one of the two folders is inside the other; name another output (-o)")
    files = list(_files(source))
    documents = [path for path in files if path.suffix.lower() in FORMATS]
    if not documents:
        raise UserError(f"{source}: has no documents; expected {', '.join(FORMATS)}")
    identity = job.settings | {"folder": source.name}
    resumed = Journal.is_of(output / JOURNAL, identity)
    if output.is_dir() and any(output.iterdir()) and not (replace or resumed):
        raise UserError(f"{output}: not empty; --replace writes over the files in it")
    summary = Summary()
    with Journal(make_folder(output) / JOURNAL, identity, replace) as journal:
        done = dict(journal[number] for number in range(len(journal)))
        for number, path in enumerate(documents):
            progress(number, len(documents))
            name = str(path.relative_to(source))
            try:
                content = sha256(path)
                if done.get(name) != content or not (output / name).exists():
                    translate_file(job, path, outputs_of(output / name), replace=True)  # the folder is ours
                    journal.append([name, content])
                summary.translated += 1
            except UserError as error:
                summary.failed.append(str(error))
                warn(str(error))
        progress(len(documents), len(documents))
        others = [path for path in files if path.suffix.lower() not in FORMATS]
        for path in others if copy_others else ():
            _copy(path, output / path.relative_to(source))
        summary.others = len(others)
        if not summary.failed:  # else it is kept, and the same command tries these again
            journal.remove()
    return summary


def _files(folder: Path) -> Iterator[Path]:
    """The plain files of a tree, sorted."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(root, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


def _copy(source: Path, target: Path) -> None:
    check_output(target, source, replace=True)
    temporary = temporary_name(make_folder(target.parent) / target.name)
    try:
        shutil.copy2(source, temporary)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
