"""Which requests the server accepts: its limits, its API keys and the bounds of its queue.

`Admission` is the only place that refuses a request with 403, 413 or 429. Everything else asks it.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from latentmt.errors import UserError
from latentmt.options import DecodingOptions
from latentmt.text.sentences import split_line

_TRACE_CANDIDATES = 7
"""A trace runs sentence by sentence. It costs as much as this many additional candidates."""
_CHARACTERS_PER_TOKEN = 4
_STEPS_PER_PASS = 8
"""This many refinement steps cost as much as encoding, prior and decoding together."""
_BYTES_PER_CHARACTER = 12
"""The most a character takes in a form, or escaped in JSON."""
_BODY_OVERHEAD = 4096
"""Bytes of a body that are not text."""
_SPEED_MOMENTUM = 0.2
"""Weight of the newest batch in the moving average of the speed."""


class RefusedError(Exception):
    """A request is not accepted. `retry_after`: in how many seconds it may be, if waiting helps."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a server. Tokens are counted by `estimate_tokens`."""

    max_characters: int = 10_000
    """Per request, all texts and tags together."""
    max_sentences: int = 256
    """Per request."""
    max_candidates: int = 64
    """Per sentence."""
    max_steps: int = 32
    max_tokens: int = 25_000
    """Per request. One CPU core translates them within `timeout`."""
    max_waiting: int = 128
    """Requests in the queue."""
    max_waiting_tokens: int = 50_000
    """Tokens in the queue."""
    batch_tokens: int | None = None
    """Per batch. A request is never split. The default depends on the device."""
    timeout: float = 30.0
    """Seconds until a request must be answered, waiting included."""
    read_timeout: float = 10.0
    """Seconds a client may take to send a request's head, and as many again for its body."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and not 0 < value < math.inf:
                raise UserError(f"{name} {value}: expected more than 0, and a finite number")

    @property
    def max_bytes(self) -> int:
        """Of a request's body."""
        return _BYTES_PER_CHARACTER * self.max_characters + _BODY_OVERHEAD


@dataclass
class _Quota:
    """A token bucket: requests per minute, of which a minute's worth may be saved up."""

    rate: float
    left: float
    updated: float

    def take(self, now: float) -> float:
        """Count a request. Returns the seconds to wait if there is none left, else 0."""
        if self.rate == math.inf:
            return 0.0
        self.left = min(self.rate, self.left + (now - self.updated) * self.rate / 60)
        self.updated = now
        if self.left < 1:
            return (1 - self.left) * 60 / self.rate
        self.left -= 1
        return 0.0


class Admission:
    """Accepts or refuses requests. Only for use from the event loop's thread.

    `api_keys` maps each key to its requests per minute. Without it no key is required.
    """

    def __init__(
        self,
        limits: Limits,
        api_keys: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.requires_key = api_keys is not None
        self._clock = clock
        self._quotas = {_hash(key): _Quota(rate, rate, clock()) for key, rate in (api_keys or {}).items()}
        self.waiting = 0
        """Requests in the queue."""
        self.waiting_tokens = 0
        """Tokens in the queue."""
        self._tokens_per_second = 1000.0

    def check_key(self, key: str) -> None:
        """Refuse an unknown key (403), or one that has used up its requests per minute (429)."""
        if not self.requires_key:
            return
        quota = self._quotas.get(_hash(key))
        if quota is None:
            message = "this API key is not known here" if key else "this server wants an API key: api_key"
            raise RefusedError(403, message)
        if wait := quota.take(self._clock()):
            raise RefusedError(429, f"this API key allows {quota.rate:g} requests a minute", math.ceil(wait))

    def check_body(self, size: int) -> None:
        """Refuse a body of too many bytes (413)."""
        if size > self.limits.max_bytes:
            raise RefusedError(413, f"the request is larger than {self.limits.max_bytes:,} bytes")

    def check_size(self, texts: Sequence[str]) -> None:
        """Refuse too many texts or characters (413)."""
        self._check_sentences(len(texts))
        characters = sum(map(len, texts))
        if characters > self.limits.max_characters:
            raise RefusedError(413, f"{characters:,} characters: this server allows {self.limits.max_characters:,}")

    def check_options(self, options: DecodingOptions) -> None:
        """Refuse too many steps or candidates (400)."""
        for name, count, limit in (
            ("steps", options.steps, self.limits.max_steps),
            ("candidates (lengths × samples)", options.candidates, self.limits.max_candidates),
        ):
            if count > limit:
                raise UserError(f"{count} {name}: this server allows {limit}")

    def check_work(self, texts: Sequence[str], options: DecodingOptions, traced: bool = False) -> int:
        """Refuse texts that are too much work with these options (413). Returns the work in tokens."""
        self.check_size(texts)
        self._check_sentences(sum(max(1, len(split_line(text, lambda _: True).parts)) for text in texts))
        tokens = estimate_tokens(texts, options, traced)
        if tokens > self.limits.max_tokens:
            raise RefusedError(413, "this is too much for one request: fewer characters, candidates or steps")
        return tokens

    def _check_sentences(self, sentences: int) -> None:
        if sentences > self.limits.max_sentences:
            raise RefusedError(413, f"{sentences:,} sentences: this server allows {self.limits.max_sentences:,}")

    @property
    def queue_full(self) -> bool:
        """Whether the queue accepts no request, however small."""
        return self.waiting >= self.limits.max_waiting or self.waiting_tokens >= self.limits.max_waiting_tokens

    def check_queue(self, tokens: int = 0) -> None:
        """Refuse a request that does not fit into the queue (429). An empty queue takes any request."""
        too_much = self.waiting > 0 and self.waiting_tokens + tokens > self.limits.max_waiting_tokens
        if self.queue_full or too_much:
            seconds = max(1, math.ceil(self.waiting_tokens / self._tokens_per_second))
            raise RefusedError(429, "the server is busy: too many requests are waiting", seconds)

    def enqueue(self, tokens: int) -> None:
        """Count a request into the queue, or refuse it (429)."""
        self.check_queue(tokens)
        self.waiting += 1
        self.waiting_tokens += tokens

    def dequeue(self, tokens: int) -> None:
        """Count a request out of the queue."""
        self.waiting -= 1
        self.waiting_tokens -= tokens

    def record_speed(self, tokens: int, seconds: float) -> None:
        """Update the estimate of the speed, from which Retry-After is computed."""
        self._tokens_per_second += _SPEED_MOMENTUM * (tokens / seconds - self._tokens_per_second)


def estimate_tokens(texts: Iterable[str], options: DecodingOptions, traced: bool = False) -> int:
    """The work of a request: roughly how many tokens with a single candidate and no refinement take as long."""
    tokens = sum(1 + len(text) // _CHARACTERS_PER_TOKEN + _bytes_beyond_ascii(text) for text in texts)
    if options.method == "teacher":
        return tokens * (4 + options.beam)
    passes = 1 + (options.steps / _STEPS_PER_PASS if options.refines else 0)
    return round(tokens * (options.candidates + _TRACE_CANDIDATES * traced) * passes)


def _bytes_beyond_ascii(text: str) -> int:
    """The bytes of a text in excess of one per character. Unknown characters are tokenized as bytes."""
    return len(text.encode("utf-8", "surrogatepass")) - len(text)


def read_api_keys(path: Path, default_rate: float = math.inf) -> dict[str, float]:
    """Read API keys from a file: one per line, optionally followed by its requests per minute.

    `#` begins a comment, at the start of a line or after white space.
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
                rates[key] = default_rate
            case [key, rate] if rate.isdecimal() and int(rate) > 0:
                rates[key] = float(rate)
            case _:
                raise UserError(f"{path}, line {number}: expected a key, or a key and its requests a minute")
    if not rates:
        raise UserError(f"{path}: holds no key")
    return rates


def _hash(key: str) -> bytes:
    """Keys are looked up by their hash, so that the time it takes reveals nothing about them."""
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()
