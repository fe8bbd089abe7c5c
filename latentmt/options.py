"""How to translate: the choices a user has, and which of them go together. It translates nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from latentmt.config import Section
from latentmt.errors import UserError

Method = Literal["prior", "delta", "score", "energy", "teacher"]
METHODS: tuple[Method, ...] = ("prior", "delta", "score", "energy", "teacher")

Rerank = Literal["none", "teacher", "decoder", "elbo", "marginal"]
RERANKS: tuple[Rerank, ...] = ("none", "teacher", "decoder", "elbo", "marginal")

RemoveRepeats = Literal["words", "pieces", "none"]
REMOVE_REPEATS: tuple[RemoveRepeats, ...] = ("words", "pieces", "none")


def _named_removal(value: Any) -> Any:
    """Files may still say whether repetitions are removed; now it has a name what is removed."""
    return {True: "words", False: "none"}[value] if isinstance(value, bool) else value


MOST = {"steps": 1000, "lengths": 101, "samples": 1000, "candidates": 1000, "beam": 100, "seed": 2**63 - 1}
"""The most there may be of each."""

WAY = frozenset(("method", "steps", "adaptive", "lengths", "samples", "rerank"))
"""The choices that make a way to translate; the others go with any."""


@dataclass(frozen=True)
class DecodingOptions(Section):
    """How to translate."""

    method: Method = "score"
    """What refines: nothing (`prior`), `delta`, `score` or `energy`; or the autoregressive `teacher` instead."""
    steps: int = 1
    """Refinement steps."""
    adaptive: bool = False
    """Let each sentence stop when its steps have become short; `steps` is then the most there are."""
    lengths: int = 1
    """How many of the likeliest lengths are tried."""
    samples: int = 1
    """Latents tried for each length: the prior's mean, and samples of the prior."""
    rerank: Rerank = "none"
    """Which candidate is kept: the one the `teacher` finds likeliest, the latent model's own `decoder` (given z),
    `elbo` or `marginal`; each per token."""
    seed: int = 1
    """Of the samples."""
    length_bias: float = 0.0
    """Added to every predicted length, as a share of the source's."""
    remove_repeats: Annotated[RemoveRepeats, BeforeValidator(_named_removal)] = "words"
    """Leave out `words` that repeat the one before them, or `pieces`, as the paper does, or nothing (`none`)."""
    verbatim: bool = True
    """Repeat what needs no translation (addresses, code, paths, emoji …), and keep the digits of numbers."""
    beam: int = 4
    """The teacher's, where it translates; 1 is greedy."""

    def __post_init__(self) -> None:
        for name, known in (("method", METHODS), ("rerank", RERANKS), ("remove_repeats", REMOVE_REPEATS)):
            if getattr(self, name) not in known:
                raise UserError(f"{name} {getattr(self, name)}: expected one of {', '.join(known)}")
        for name, most in MOST.items():
            least = 0 if name in ("steps", "seed") else 1
            if not isinstance(getattr(self, name), int):
                raise UserError(f"{name} {getattr(self, name)!r}: expected a whole number")
            if not least <= getattr(self, name) <= most:
                raise UserError(f"{name} {getattr(self, name)}: expected {least} to {most}")
        for name in ("adaptive", "verbatim"):
            if not isinstance(getattr(self, name), bool):
                raise UserError(f"{name} {getattr(self, name)!r}: expected True or False")
        if not isinstance(self.length_bias, int | float) or not -0.9 <= self.length_bias <= 5:
            raise UserError(f"length_bias {self.length_bias}: expected -0.9 to 5")
        if self.method == "teacher":
            if self.candidates > 1 or self.rerank != "none":
                raise UserError("the teacher translates by beam search: it has no lengths, samples or rerank")
        elif self.candidates > 1 and self.rerank == "none":
            raise UserError(
                f"{self.candidates} candidates need a rerank to choose between them: {', '.join(RERANKS[1:])}"
            )

    @property
    def candidates(self) -> int:
        """How many translations of a sentence are made."""
        return self.lengths * self.samples

    @property
    def refines(self) -> bool:
        """Whether latents are refined at all."""
        return self.method not in ("prior", "teacher") and self.steps > 0

    def __str__(self) -> str:
        if self.method == "teacher":
            return f"teacher beam {self.beam}" + ("" if self.verbatim else " raw")
        name = f"{self.method}-{self.steps}{'*' if self.adaptive else ''}" if self.refines else "L=0"
        if self.candidates > 1:
            name += f" {self.lengths}×{self.samples} by {self.rerank}"
        name += f" length {100 * self.length_bias:+g}%" if self.length_bias else ""
        name += {"words": "", "pieces": " no repeated pieces", "none": " with repeats"}[self.remove_repeats]
        return name if self.verbatim else f"{name} raw"


def check_names(choices: Iterable[str]) -> None:
    """Refuse a choice that there is not."""
    known = [field.name for field in fields(DecodingOptions)]
    for name in choices:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise UserError(f"unknown choice {name} ({meant})")


def default_method(methods: Sequence[Method]) -> Method:
    """The one to use when none is asked for."""
    return next(method for method in ("score", "energy", "delta", "teacher") if method in methods)
