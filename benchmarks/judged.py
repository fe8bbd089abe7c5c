"""Sentences judged one by one: add a model's translations to the file, or print the means of its marks.

    python benchmarks/judged.py recipes/deen/judged.tsv --add deen-teacher --model models/deen-teacher
    python benchmarks/judged.py recipes/deen/judged.tsv

A line is a kind and a source, then for each system its translation, a mark from 1 to 5 and a reason. Mark and reason
are written by whoever judges; a mark that is missing is not counted.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from latentmt.display import output, table
from latentmt.errors import UserError
from latentmt.translator import Translator


def add(rows: list[list[str]], name: str, model: str) -> None:
    """Append a model's translations by its default options, and empty marks and reasons."""
    if name in rows[0]:
        raise UserError(f"{name}: has its columns already")
    translations = Translator.load(model, "cpu").translations([row[1] for row in rows[1:]])
    rows[0] += [name, f"{name} mark", f"{name} reason"]
    for row, translation in zip(rows[1:], translations, strict=True):
        row += [translation.text, "", ""]


def means(rows: list[list[str]]) -> list[list[str]]:
    """Each kind, then all of them, with the mean mark of every system."""
    head, *body = rows
    kinds = list(dict.fromkeys(row[0] for row in body))
    marks = [column for column, name in enumerate(head) if name.endswith(" mark")]

    def mean(chosen: list[list[str]], column: int) -> str:
        given = [int(row[column]) for row in chosen if row[column]]
        return f"{statistics.fmean(given):.2f}" if given else "–"

    groups = {kind: [row for row in body if row[0] == kind] for kind in kinds} | {"all": body}
    return [[name, *(mean(chosen, column) for column in marks)] for name, chosen in groups.items()]


def main() -> None:
    """Add columns to the file, or print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--add", metavar="NAME", help="the name of the new columns")
    parser.add_argument("--model", default="deen")
    arguments = parser.parse_args()
    rows = [line.split("\t") for line in arguments.file.read_text(encoding="utf-8").splitlines()]
    if arguments.add:
        add(rows, arguments.add, arguments.model)
        arguments.file.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    else:
        systems = [name.removesuffix(" mark") for name in rows[0] if name.endswith(" mark")]
        output().print(table("Marks", ["kind", *systems], means(rows)))


if __name__ == "__main__":
    main()
