"""Decoding options: valid combinations, bounds and names."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jaxtyping
import pytest

from latentmt.config import from_dict, load, to_dict
from latentmt.errors import UserError
from latentmt.options import (
    MAX_CANDIDATES,
    RERANKS,
    Abilities,
    DecodingOptions,
    OptionArguments,
    check_names,
    field_annotations,
)

METHODS = ("prior", "delta", "score", "energy", "teacher")


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is for a user: the types of arguments are not checked."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def test_defaults_are_one_candidate_and_one_step() -> None:
    options = DecodingOptions()
    assert (options.method, options.steps, options.candidates, options.rerank) == ("score", 1, 1, "none")
    assert not options.adaptive
    assert options.remove_repeats == "words"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"method": 3}, "method 3: expected a name"),
        ({"rerank": "bleu"}, "rerank bleu: expected one of none, teacher, decoder, elbo, marginal"),
        ({"remove_repeats": "letters"}, "remove_repeats letters: expected one of words, pieces, none"),
        ({"remove_repeats": True}, "remove_repeats True: expected one of words, pieces, none"),
        ({"steps": -1}, "steps -1: expected 0 to 1000"),
        ({"steps": "3"}, "steps '3': expected a whole number"),
        ({"samples": 2.0}, "samples 2.0: expected a whole number"),
        ({"steps": 1001}, "steps 1001: expected 0 to 1000"),
        ({"lengths": 0, "rerank": "elbo"}, "lengths 0: expected 1 to 101"),
        ({"lengths": 102, "rerank": "elbo"}, "lengths 102: expected 1 to 101"),
        ({"samples": 0}, "samples 0: expected 1 to 1000"),
        ({"samples": 1001, "rerank": "elbo"}, "samples 1001: expected 1 to 1000"),
        ({"lengths": 77, "samples": 13, "rerank": "elbo"}, "candidates 1001: expected 1 to 1000"),
        ({"seed": -1}, "seed -1: expected 0 to 9223372036854775807"),
        ({"seed": 2**63}, "seed 9223372036854775808: expected 0 to"),
        ({"beam": 0}, "beam 0: expected 1 to 100"),
        ({"beam": 101}, "beam 101: expected 1 to 100"),
        ({"length_bias": -0.91}, "length_bias -0.91: expected -0.9 to 5"),
        ({"length_bias": 5.01}, "length_bias 5.01: expected -0.9 to 5"),
        ({"length_bias": math.nan}, "length_bias nan: expected -0.9 to 5"),
        ({"lm_weight": -0.1}, "lm_weight -0.1: expected 0 to 10"),
        ({"lm_weight": 10.1}, "lm_weight 10.1: expected 0 to 10"),
        ({"lm_weight": math.nan}, "lm_weight nan: expected 0 to 10"),
        ({"lm_weight": math.inf}, "lm_weight inf: expected 0 to 10"),
        ({"method": "teacher", "lm_weight": 0.5}, "lm_weight: the teacher translates without a language model"),
        ({"lengths": 2}, "2 candidates need a rerank to choose between them: teacher, decoder, elbo, marginal"),
        ({"samples": 3, "lengths": 5}, "15 candidates need a rerank"),
        ({"method": "teacher", "samples": 2}, "the teacher translates by beam search: it has no lengths, samples"),
        ({"method": "teacher", "lengths": 2, "rerank": "teacher"}, "the teacher translates by beam search"),
        ({"method": "teacher", "rerank": "decoder"}, "the teacher translates by beam search"),
    ],
)
def test_invalid_combinations_are_refused_in_one_line(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        DecodingOptions(**choices)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_bounds_are_inclusive() -> None:
    for name, largest in {"steps": 1000, "lengths": 101, "samples": 1000, "beam": 100, "seed": 2**63 - 1}.items():
        for value in (0 if name in ("steps", "seed") else 1, largest):
            assert getattr(DecodingOptions(**{name: value}, rerank="decoder"), name) == value
    assert DecodingOptions(lengths=100, samples=10, rerank="decoder").candidates == MAX_CANDIDATES
    for bias in (-0.9, 5.0):
        assert DecodingOptions(length_bias=bias).length_bias == bias


def test_every_method_and_rerank_is_allowed() -> None:
    for method in METHODS:
        assert DecodingOptions(method).method == method
        for rerank in RERANKS[1:]:
            if method != "teacher":
                assert DecodingOptions(method, lengths=2, samples=3, rerank=rerank).candidates == 6
    assert DecodingOptions(rerank="teacher").candidates == 1  # one candidate may have a rerank that changes nothing


def test_only_a_field_with_steps_refines() -> None:
    moving = {method for method in METHODS if DecodingOptions(method, 2).refines}
    assert moving == {"delta", "score", "energy"}
    assert not any(DecodingOptions(method, 0).refines for method in METHODS)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (DecodingOptions(), "score-1"),
        (DecodingOptions("prior"), "L=0"),
        (DecodingOptions("prior", 4), "L=0"),
        (DecodingOptions("energy", 0), "L=0"),
        (DecodingOptions("delta", 4), "delta-4"),
        (DecodingOptions("energy", 6, adaptive=True), "energy-6*"),
        (DecodingOptions("score", 0, adaptive=True), "L=0"),
        (DecodingOptions("score", 1, lengths=5, samples=3, rerank="teacher"), "score-1 5×3 by teacher"),
        (DecodingOptions("prior", samples=2, rerank="elbo"), "L=0 1×2 by elbo"),
        (DecodingOptions("delta", 2, rerank="decoder"), "delta-2"),
        (DecodingOptions("delta", 2, length_bias=0.06), "delta-2 length +6%"),
        (DecodingOptions("delta", 2, length_bias=0.055), "delta-2 length +5.5%"),
        (DecodingOptions("prior", lengths=3, rerank="marginal", length_bias=-0.1), "L=0 3×1 by marginal length -10%"),
        (DecodingOptions("delta", 2, remove_repeats="words"), "delta-2"),
        (DecodingOptions("delta", 2, remove_repeats="pieces"), "delta-2 no repeated pieces"),
        (DecodingOptions("delta", 2, length_bias=0.06, remove_repeats="none"), "delta-2 length +6% with repeats"),
        (DecodingOptions("prior", lm_weight=0.25), "L=0 lm 0.25"),
        (DecodingOptions("prior", lm_weight=0.25, beam=4), "L=0 lm 0.25"),
        (DecodingOptions("delta", 2, lm_weight=1.0, beam=8, length_bias=0.06), "delta-2 length +6% lm 1 beam 8"),
        (DecodingOptions("prior", beam=8), "L=0"),
        (DecodingOptions("teacher"), "teacher beam 4"),
        (DecodingOptions("teacher", beam=1), "teacher beam 1"),
    ],
)
def test_the_name_lists_what_differs_from_the_defaults(options: DecodingOptions, name: str) -> None:
    assert str(options) == name


def test_a_language_model_has_to_be_there() -> None:
    for exists in (False, True):
        abilities = Abilities(METHODS, "score", RERANKS, DecodingOptions("delta", 3), exists)
        assert abilities.options({"lm_weight": 0.0}) == DecodingOptions("delta", 3)
        assert abilities.options({"method": "teacher"}).method == "teacher"
        if exists:
            assert abilities.options({"lm_weight": 0.5}).lm_weight == 0.5
        else:
            with pytest.raises(UserError, match=r"^lm_weight 0\.5: this model has no language model$"):
                abilities.options({"lm_weight": 0.5})


def test_options_are_frozen_and_validated_when_replaced() -> None:
    options = DecodingOptions(samples=2, rerank="elbo")
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.rerank = "none"  # type: ignore[misc]
    with pytest.raises(UserError, match="2 candidates"):
        dataclasses.replace(options, rerank="none")
    assert len({options, DecodingOptions(samples=2, rerank="elbo"), DecodingOptions()}) == 2


def test_keyword_arguments_are_those_of_the_dataclass() -> None:
    base = {name: get_args(hint)[0] for name, hint in field_annotations().items()}
    assert get_type_hints(OptionArguments) == base
    assert list(OptionArguments.__annotations__) == [field.name for field in dataclasses.fields(DecodingOptions)]


def test_an_unknown_option_is_named_with_the_closest_one() -> None:
    check_names(["steps", "beam"])
    with pytest.raises(UserError, match=r"unknown option step \(did you mean steps\?\)"):
        check_names(["step"])
    with pytest.raises(UserError, match=r"unknown option colour \(there are method, steps"):
        check_names(["colour"])


def test_remove_repeats_in_files_may_be_a_bool(tmp_path: Path) -> None:
    for written, removed in (("words", "words"), ("pieces", "pieces"), ("none", "none"), ("true", "words")):
        (tmp_path / "options.yaml").write_text(f"remove_repeats: {written}")
        assert load(tmp_path / "options.yaml", DecodingOptions).remove_repeats == removed
    (tmp_path / "options.yaml").write_text("remove_repeats: false")
    options = load(tmp_path / "options.yaml", DecodingOptions)
    assert options.remove_repeats == "none"
    assert from_dict(to_dict(options), DecodingOptions, "again") == options
    (tmp_path / "options.yaml").write_text("remove_repeats: 1")
    with pytest.raises(UserError, match=r"options\.yaml: remove_repeats: .*'words', 'pieces' or 'none'"):
        load(tmp_path / "options.yaml", DecodingOptions)
