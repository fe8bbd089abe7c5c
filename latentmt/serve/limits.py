"""How much a server takes on: of one request, and of all that wait. It enforces nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from latentmt.errors import UserError
from latentmt.options import DecodingOptions

_TRACING = 7
"""A trace, which takes sentences one by one, costs as much as so many candidates more."""
_CHARACTERS_A_TOKEN = 4
_STEPS_A_PASS = 8
"""So many refinement steps take as long as all the rest."""
_BYTES_A_CHARACTER = 12
"""In a form, or escaped in JSON; …"""
_BYTES_BESIDE = 4096
"""… and for everything that is not text."""


class TooMuchError(Exception):
    """A request is larger than is accepted."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is accepted."""

    characters: int = 10_000
    """Of one request, all its texts together, tags counted."""
    sentences: int = 256
    """Of one request."""
    candidates: int = 64
    """Of a sentence."""
    steps: int = 32
    batch: int | None = None
    """Tokens translated together, as `work` counts them; one request is never split. By default as many as the device
    likes."""
    request: int = 25_000
    """Tokens of one request, as `work` counts them: a core of a CPU is done with them within `seconds`."""
    waiting: int = 128
    """Requests that may wait."""
    work: int = 50_000
    """Tokens that may wait, as `work` counts them."""
    seconds: float = 30.0
    """How long a request may take, waiting included."""
    reading: float = 10.0
    """How many seconds a client may take to send a request's head, and then its body."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not 0 < value < math.inf:
                raise UserError(f"{name} {value}: expected more than 0, and a finite number")

    @property
    def bytes(self) -> int:
        """Of one request's body."""
        return _BYTES_A_CHARACTER * self.characters + _BYTES_BESIDE


def work(texts: Iterable[str], options: DecodingOptions, traced: bool = False) -> int:
    """Roughly how many tokens a plain translation would have that takes as long."""
    tokens = sum(1 + len(text) // _CHARACTERS_A_TOKEN + _beyond_ascii(text) for text in texts)
    if options.method == "teacher":
        return tokens * (4 + options.beam)
    passes = 1 + (options.steps / _STEPS_A_PASS if options.refines else 0)
    return round(tokens * (options.candidates + _TRACING * traced) * passes)


def _beyond_ascii(text: str) -> int:
    """The bytes that a text has beside one for each character: what a tokenizer does not know is spelt in bytes."""
    return len(text.encode("utf-8", "surrogatepass")) - len(text)
