"""Which requests the server accepts: its limits, its API keys, and who a client is.

`Admission` is the only place that refuses a request with 403 or 429, and with 413 before its texts are looked at. It
knows neither HTTP nor processes.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from latentmt.errors import UserError

_BYTES_PER_CHARACTER = 12
"""The most a character takes in a form, or escaped in JSON."""
_BODY_OVERHEAD = 4096
"""Bytes of a body that are not text."""
_KEY = "key "
"""What the names of clients with a key begin with."""


class RefusedError(Exception):
    """A request is not accepted. `retry_after`: in how many seconds it may be, if waiting helps."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a server."""

    max_characters: int = 10_000
    """Per request, all texts and tags together."""
    max_sentences: int = 256
    """Per request."""
    max_candidates: int = 64
    """Per sentence."""
    max_steps: int = 32
    max_waiting: int = 128
    """Requests in the queue."""
    timeout: float = 30.0
    """Seconds until a request must be answered, waiting included. One that would take longer is refused at once."""
    max_file_bytes: int = 10_000_000
    """Of a document."""
    max_document_characters: int = 1_000_000
    max_documents: int = 4
    """Of a client, at a time."""
    max_documents_in_all: int = 32
    read_timeout: float = 10.0
    """Seconds a client may take to send a request's head, and as many again for its body."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value < math.inf:
                raise UserError(f"{name} {value}: expected more than 0, and a finite number")

    @property
    def max_bytes(self) -> int:
        """Of a request's body."""
        return _BYTES_PER_CHARACTER * self.max_characters + _BODY_OVERHEAD

    @property
    def max_upload_bytes(self) -> int:
        """Of a body with a document."""
        return self.max_file_bytes + _BODY_OVERHEAD


@dataclass(frozen=True)
class ApiKeys:
    """Who may use a server."""

    rates: dict[str, float]
    """Requests per minute of each key."""
    metrics: frozenset[str] = frozenset()
    """Keys that read /metrics, and nothing else."""
    seconds_per_request: float | None = None
    """A request that takes longer counts as several, one for each so many seconds."""


@dataclass
class _Quota:
    """A token bucket: requests per minute, of which a minute's worth may be saved up. It may be overdrawn."""

    rate: float
    left: float
    updated: float

    def refill(self, now: float) -> None:
        self.left = min(self.rate, self.left + (now - self.updated) * self.rate / 60)
        self.updated = now

    @property
    def wait(self) -> float:
        """Seconds until there is a request left."""
        return max(0.0, (1 - self.left) * 60 / self.rate)


@dataclass(frozen=True)
class Client:
    """Who sent a request: what it is queued by, and what it is charged to."""

    name: str
    quota: _Quota | None = field(default=None, repr=False)


class Admission:
    """Accepts or refuses requests. Only for use from one thread. Without `keys` none is required."""

    def __init__(
        self, limits: Limits, keys: ApiKeys | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self.requires_key = keys is not None
        self._clock = clock
        keys = keys or ApiKeys({})
        self._quotas = {_hash(key): _Quota(rate, rate, clock()) for key, rate in keys.rates.items()}
        self._metrics = {_hash(key) for key in keys.metrics}
        self._seconds_per_request = keys.seconds_per_request

    def client(self, address: str, key: str = "") -> Client:
        """The client at an address, counting a request of it.

        Refuses an unknown key (403), or one that has used up its requests per minute (429).
        """
        if not self.requires_key:
            return Client(client_at(address))
        hashed = _hash(key)
        quota = self._quotas.get(hashed)
        if quota is None:
            message = "this API key is not known here" if key else "this server wants an API key: api_key"
            raise RefusedError(403, message)
        if quota.rate < math.inf:
            quota.refill(self._clock())
            if wait := quota.wait:
                raise RefusedError(429, f"this API key allows {quota.rate:g} requests a minute", math.ceil(wait))
            quota.left -= 1
        return Client(_KEY + hashed.hex(), quota)

    def known(self, name: str) -> Client:
        """A client that was accepted before, by its name."""
        return Client(name, self._quotas[bytes.fromhex(name.removeprefix(_KEY))] if self.requires_key else None)

    def charge(self, client: Client, seconds: float) -> None:
        """Count a request that took so long as several, if the server does."""
        if client.quota and self._seconds_per_request and client.quota.rate < math.inf:
            client.quota.left -= max(0.0, seconds / self._seconds_per_request - 1)

    def count(self, client: Client, characters: int) -> None:
        """Count a document as several requests: one for each so many characters as a request may have."""
        if client.quota and client.quota.rate < math.inf:
            client.quota.left -= max(0.0, characters / self.limits.max_characters - 1)

    def check_key(self, key: str) -> None:
        """Refuse an unknown key, where keys are required (403), without counting a request."""
        if self.requires_key and _hash(key) not in self._quotas:
            raise RefusedError(403, "this API key is not known here")

    def check_metrics(self, key: str) -> None:
        """Refuse to show metrics to others, where keys are required (403)."""
        if self.requires_key and _hash(key) not in self._metrics:
            raise RefusedError(403, "metrics are for those with a key for them: Authorization: Bearer …")

    def check_body(self, size: int, is_upload: bool = False) -> None:
        """Refuse a body of too many bytes (413). One with a document may have more."""
        limit = self.limits.max_upload_bytes if is_upload else self.limits.max_bytes
        if size > limit:
            raise RefusedError(413, f"the request is larger than {limit:,} bytes")

    def check_size(self, texts: Sequence[str]) -> None:
        """Refuse too many texts or characters (413)."""
        if len(texts) > self.limits.max_sentences:
            raise RefusedError(413, f"{len(texts):,} sentences: this server allows {self.limits.max_sentences:,}")
        characters = sum(map(len, texts))
        if characters > self.limits.max_characters:
            raise RefusedError(413, f"{characters:,} characters: this server allows {self.limits.max_characters:,}")


@lru_cache(maxsize=1024)
def client_at(address: str) -> str:
    """The client at an address. Networks of 64 bits are given to one client, so IPv6 addresses in one count as one."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.ip_network((ip, 64), strict=False).network_address)


def read_api_keys(path: Path, default_rate: float = math.inf, seconds_per_request: float | None = None) -> ApiKeys:
    """Read API keys from a file: one per line, optionally followed by its requests per minute, or by `metrics`.

    `#` begins a comment, at the start of a line or after white space.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    rates, metrics = {}, set()
    for number, line in enumerate(lines, start=1):
        match re.split(r"(?:^|\s)#", line)[0].split():
            case []:
                continue
            case [key]:
                rates[key] = default_rate
            case [key, "metrics"]:
                metrics.add(key)
            case [key, rate] if rate.isdecimal() and int(rate) > 0:
                rates[key] = float(rate)
            case _:
                raise UserError(f"{path}, line {number}: expected a key, or a key and its requests a minute")
    if not rates:
        raise UserError(f"{path}: holds no key")
    if seconds_per_request is not None and not 0 < seconds_per_request < math.inf:
        raise UserError(f"req_time_cost {seconds_per_request}: expected more than 0, and a finite number")
    return ApiKeys(rates, frozenset(metrics), seconds_per_request)


def _hash(key: str) -> bytes:
    """Keys are looked up by their hash, so that the time it takes reveals nothing about them."""
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()
