"""The list of mutants is current: each can be applied, and its tests exist."""

import ast
import itertools

import pytest
from mutants import ROOT, main, mutants


def test_every_mutant_can_be_made() -> None:
    all_mutants = mutants()
    for mutant in all_mutants:
        mutated = mutant.applied(ROOT)
        ast.parse(mutated)
        assert mutated != (ROOT / mutant.file).read_text()
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in all_mutants}) == len(all_mutants) >= 80


def test_every_test_file_of_a_mutant_exists() -> None:
    for mutant in mutants():
        paths = list(itertools.takewhile(lambda argument: not argument.startswith("-"), mutant.tests))
        assert paths
        assert all((ROOT / path).is_file() for path in paths)


def test_a_name_that_matches_nothing_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no such mutant"]) == 2
    assert capsys.readouterr().err == "no mutant matches no such mutant\n"


def test_few_mutants_survive() -> None:
    all_mutants = mutants()
    assert sum(bool(mutant.survives) for mutant in all_mutants) <= 0.05 * len(all_mutants)
