"""The list of mutants does not rot: each can still be made, and what should notice it is there."""

import ast
import itertools

import pytest
from mutants import ROOT, main, mutants


def test_every_mutant_can_be_made() -> None:
    found = mutants()
    for mutant in found:
        made = mutant.applied(ROOT)
        ast.parse(made)
        assert made != (ROOT / mutant.file).read_text()
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in found}) == len(found) >= 80


def test_what_should_notice_it_is_there() -> None:
    for mutant in mutants():
        paths = list(itertools.takewhile(lambda argument: not argument.startswith("-"), mutant.tests))
        assert paths
        assert all((ROOT / path).is_file() for path in paths)


def test_a_name_that_matches_nothing_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no such mutant"]) == 2
    assert capsys.readouterr().err == "no mutant matches no such mutant\n"


def test_most_are_noticed() -> None:
    found = mutants()
    assert sum(bool(mutant.survives) for mutant in found) <= 0.05 * len(found)
