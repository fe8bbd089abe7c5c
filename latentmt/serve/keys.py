"""Who may ask, and how often. Keys come from a file; nothing is known of what is asked."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable
from pathlib import Path

from latentmt.errors import UserError


class RefusedError(Exception):
    """Why a request is not served; and when to ask again, if that would help."""

    def __init__(self, message: str, seconds: int | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds


class Keys:
    """Keys, each with the requests a minute it is good for; after a pause it is good for a minute's worth at once."""

    def __init__(self, rates: dict[str, float], clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = {_hash(key): rate for key, rate in rates.items()}
        self._clock = clock
        self._left = {key: (rate, clock()) for key, rate in self._rates.items()}
        """How many requests each key had left, and when that was."""

    @staticmethod
    def read(path: Path, rate: float = math.inf) -> Keys:
        """A file of keys, one a line, a number of requests a minute behind it or not.

        `#` begins a remark, at the start of a line or after white space.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
        rates = {}
        for number, line in enumerate(lines, start=1):
            match re.split(r"(?:^|\s)#", line)[0].split():
                case []:
                    continue
                case [key]:
                    rates[key] = rate
                case [key, figure] if figure.isdecimal() and int(figure) > 0:
                    rates[key] = float(figure)
                case _:
                    raise UserError(f"{path}, line {number}: expected a key, or a key and its requests a minute")
        if not rates:
            raise UserError(f"{path}: holds no key")
        return Keys(rates)

    def take(self, key: str) -> None:
        """Count a request, unless it is to be refused."""
        hashed = _hash(key)
        if hashed not in self._rates:
            raise RefusedError("this server wants an API key: api_key" if not key else "this API key is not known here")
        rate, now = self._rates[hashed], self._clock()
        if rate == math.inf:
            return
        left, then = self._left[hashed]
        left = min(rate, left + (now - then) * rate / 60)
        if left < 1:
            raise RefusedError(
                f"this API key is good for {rate:g} requests a minute", math.ceil((1 - left) * 60 / rate)
            )
        self._left[hashed] = (left - 1, now)


def _hash(key: str) -> bytes:
    """What is looked up, so that the time this takes says nothing about the key."""
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()
