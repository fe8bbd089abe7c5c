"""Decoding options: the one declaration of names, types, bounds and help, and of valid combinations.

Python, YAML, the command line and the server derive their options from the annotations of the dataclass. Which methods
and rerankers a model supports is checked by the translator.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal, TypedDict, get_args, get_type_hints

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from latentmt.config import Section
from latentmt.errors import UserError

Rerank = Literal["none", "teacher", "decoder", "elbo", "marginal"]
RERANKS: tuple[Rerank, ...] = get_args(Rerank)

RemoveRepeats = Literal["words", "pieces", "none"]
REMOVE_REPEATS: tuple[RemoveRepeats, ...] = get_args(RemoveRepeats)

MAX_CANDIDATES = 1000
MAX_POSITIONS = 512
"""The maximum length of a target in tokens. Positions from here on share one encoding."""
LENGTH_LIMIT = 50
"""Target length minus source length is predicted within ± this."""
MAX_UPSAMPLING = 16
"""The most places for each source token."""
ADAPTIVE_STEPS = 6
"""The default number of steps of adaptive refinement."""
STOP_RATIO = 1 / 16
"""A sentence has converged when its step is shorter than this times its first one."""
MARGINAL_SAMPLES = 16
"""Importance samples of a candidate that is reranked by the marginal."""

HINTS = {
    "prior": "no refinement: the first guess",
    "delta": "re-reads its own translation",
    "teacher": "the autoregressive teacher, word after word, instead",
}
"""What the methods that need no field of their own do, in a few words."""

SEARCH_OPTIONS = frozenset(("method", "steps", "adaptive", "lengths", "samples", "rerank"))
"""Options that are tuned together. If one of them is set, the model's defaults for the others are not used."""


def _from_bool(value: Any) -> Any:
    """Version 0.1 stored a bool: whether repetitions are removed."""
    return {True: "words", False: "none"}[value] if isinstance(value, bool) else value


@dataclass(frozen=True)
class DecodingOptions(Section):
    """How to translate."""

    method: Annotated[
        str, Field(description="What refines: nothing (prior), delta, a learned field, or the teacher instead.")
    ] = "score"
    steps: Annotated[int, Field(ge=0, le=1000, description="Refinement steps.")] = 1
    adaptive: Annotated[
        bool, Field(description="Let each sentence stop when its steps have become short; steps is then the maximum.")
    ] = False
    lengths: Annotated[int, Field(ge=1, le=101, description="How many of the likeliest lengths are tried.")] = 1
    samples: Annotated[
        int, Field(ge=1, le=MAX_CANDIDATES, description="Latents tried for each length: the prior's mode and samples.")
    ] = 1
    rerank: Annotated[
        Rerank,
        Field(
            description="What chooses between candidates: the teacher, or the latent model's decoder, ELBO, marginal."
        ),
    ] = "none"
    seed: Annotated[int, Field(ge=0, le=2**63 - 1, description="Seed of the samples.")] = 1
    length_bias: Annotated[
        float, Field(ge=-0.9, le=5, description="Added to every predicted length, as a share of the source's.")
    ] = 0.0
    remove_repeats: Annotated[
        RemoveRepeats,
        BeforeValidator(_from_bool),
        Field(description="Remove words that repeat the one before them, or pieces (as the paper does), or nothing."),
    ] = "words"
    verbatim: Annotated[
        bool, Field(description="Copy addresses, code, paths and emoji, and keep the digits of numbers.")
    ] = True
    lm_weight: Annotated[
        float, Field(ge=0, le=10, description="Weight of the language model, if the model has one; 0 for none.")
    ] = 0.0
    beam: Annotated[
        int,
        Field(ge=1, le=100, description="Hypotheses of the teacher, where it translates, or with a language model."),
    ] = 4

    def __post_init__(self) -> None:
        for name, adapter in _adapters().items():
            value = getattr(self, name)
            try:
                adapter.validate_python(value, strict=True)
            except ValidationError:
                raise UserError(f"{name} {_shown(name, value)}: expected {_expected(name, value)}") from None
        if self.candidates > MAX_CANDIDATES:
            raise UserError(f"candidates {self.candidates}: expected 1 to {MAX_CANDIDATES}")
        if self.method == "teacher":
            if self.candidates > 1 or self.rerank != "none":
                raise UserError("the teacher translates by beam search: it has no lengths, samples or rerank")
            if self.lm_weight:
                raise UserError("lm_weight: the teacher translates without a language model")
        elif self.candidates > 1 and self.rerank == "none":
            raise UserError(
                f"{self.candidates} candidates need a rerank to choose between them: {', '.join(RERANKS[1:])}"
            )

    @property
    def candidates(self) -> int:
        """The number of candidates per sentence."""
        return self.lengths * self.samples

    @property
    def refines(self) -> bool:
        """Whether latents are refined."""
        return self.method not in ("prior", "teacher") and self.steps > 0

    def __str__(self) -> str:
        if self.method == "teacher":
            return f"teacher beam {self.beam}" + ("" if self.verbatim else " raw")
        name = f"{self.method}-{self.steps}{'*' if self.adaptive else ''}" if self.refines else "L=0"
        if self.candidates > 1:
            name += f" {self.lengths}×{self.samples} by {self.rerank}"
        name += f" length {100 * self.length_bias:+g}%" if self.length_bias else ""
        name += f" lm {self.lm_weight:g}" if self.lm_weight else ""
        name += f" beam {self.beam}" if self.lm_weight and self.beam != DecodingOptions.beam else ""
        name += {"words": "", "pieces": " no repeated pieces", "none": " with repeats"}[self.remove_repeats]
        return name if self.verbatim else f"{name} raw"


@dataclass(frozen=True, kw_only=True)
class BeamConfig(Section):
    """Beam search with the teacher."""

    beam: Annotated[int, Field(ge=1)] = 4
    """Live hypotheses per sentence; 1 is greedy decoding."""
    length_penalty: Annotated[float, Field(ge=0)] = 1.0
    """The score is the log-probability divided by the length to this power."""
    max_ratio: Annotated[float, Field(ge=0)] = 2.0
    """The maximum length is this many times the length of the source, …"""
    max_extra: Annotated[int, Field(ge=1)] = 10
    """… plus this many tokens, …"""
    max_length: Annotated[int, Field(ge=1, le=MAX_POSITIONS)] = 256
    """… but not more than this."""

    def max_target_length(self, source: int) -> int:
        """The maximum length of a hypothesis for a source of a given length."""
        return min(int(self.max_ratio * source) + self.max_extra, self.max_length)


class OptionArguments(TypedDict, total=False):
    """`DecodingOptions` as keyword arguments, for type checkers and editors. A test compares the two."""

    method: str
    steps: int
    adaptive: bool
    lengths: int
    samples: int
    rerank: Rerank
    seed: int
    length_bias: float
    remove_repeats: RemoveRepeats
    verbatim: bool
    lm_weight: float
    beam: int


@dataclass(frozen=True)
class Abilities:
    """What options a model allows, and which it uses by default. Plain data, without the model."""

    methods: Sequence[str]
    default_method: str
    rerankers: Sequence[str]
    """`none` first."""
    default_options: DecodingOptions | None = None
    """The model's default options, if it has some."""
    language_model: bool = False
    """Whether translations can be read with a language model."""

    def options(self, options: Mapping[str, Any]) -> DecodingOptions:
        """Options that are valid for this model.

        Unless one of `SEARCH_OPTIONS` is given, the model's defaults are used, or else one step of its default method.
        The model's defaults were tuned together: they are not mixed with a given method, steps or candidates.
        """
        check_names(options)
        default: dict[str, Any] = {"method": self.default_method}
        if self.default_options and not SEARCH_OPTIONS & options.keys():
            default = asdict(self.default_options)
        if options.get("adaptive"):
            default["steps"] = ADAPTIVE_STEPS
        chosen = DecodingOptions(**(default | dict(options)))
        if chosen.method not in self.methods:
            raise UserError(f"method {chosen.method}: this model has only {', '.join(self.methods)}")
        if chosen.rerank not in self.rerankers:
            raise UserError(
                f"rerank {chosen.rerank}: this model has no {chosen.rerank}; decoder, elbo and marginal need none"
            )
        if chosen.lm_weight and not self.language_model:
            raise UserError(f"lm_weight {chosen.lm_weight:g}: this model has no language model")
        return chosen


def check_names(names: Iterable[str]) -> None:
    """Refuse options that do not exist."""
    known = [field.name for field in fields(DecodingOptions)]
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise UserError(f"unknown option {name} ({hint})")


@cache
def field_annotations() -> dict[str, Any]:
    """The annotated types of the options: base type, bounds and description."""
    hints = get_type_hints(DecodingOptions, include_extras=True)
    return {field.name: hints[field.name] for field in fields(DecodingOptions)}


@cache
def _adapters() -> dict[str, Any]:
    # Only files may have a bool for remove_repeats. There it is converted.
    return {name: TypeAdapter(_without_converter(hint)) for name, hint in field_annotations().items()}


def _without_converter(hint: Any) -> Any:
    base, *metadata = get_args(hint)
    kept = tuple(item for item in metadata if not isinstance(item, BeforeValidator))
    return Annotated[(base, *kept)]


def _shown(name: str, value: Any) -> str:
    return str(value) if isinstance(value, str) and get_args(field_annotations()[name])[0] is not int else repr(value)


def _expected(name: str, value: Any) -> str:
    base, *metadata = get_args(field_annotations()[name])
    if choices := get_args(base):
        return f"one of {', '.join(choices)}"
    if base is bool:
        return "True or False"
    if base is str:
        return "a name"
    if base is int and (isinstance(value, bool) or not isinstance(value, int)):
        return "a whole number"
    bounds = {type(bound).__name__: bound for item in metadata for bound in getattr(item, "metadata", ())}
    return f"{bounds['Ge'].ge:g} to {bounds['Le'].le}" if base is float else f"{bounds['Ge'].ge} to {bounds['Le'].le}"
