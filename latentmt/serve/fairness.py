"""Who is served next: a queue for each client, and equal shares of the workers' time between clients.

Within its share a client's shortest request comes first, unless another has waited long. Between clients the one that
has used least time comes next (start-time fair queueing: who returns after a pause has saved nothing up). Requests of a
kind are translated together, whoever sent them. If the queue is full, the client with most work in it gives way.

It knows neither HTTP nor processes, and its clock is what its callers say.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

PATIENCE = 2.0
"""A request is preferred to one that came this many times its own seconds later."""
MAX_REMEMBERED = 1000
"""Clients without requests whose use is remembered."""


class QueueFullError(Exception):
    """There is no room for a request. `seconds`: until there may be."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no room for {seconds:.1f} s")
        self.seconds = seconds


@dataclass(eq=False, kw_only=True)
class Waiting:
    """A request in the queue."""

    client: str
    seconds: float
    """How long it will take."""
    created: float
    group: Hashable
    """Requests of the same group may be translated together."""
    alone: bool = False
    """It is translated with no other, because it may be what ended a worker."""

    @property
    def rank(self) -> float:
        """The lowest comes first."""
        return self.created + PATIENCE * self.seconds


T = TypeVar("T", bound=Waiting)


@dataclass
class _Client:
    """A client that has requests."""

    used: float
    """Seconds of work, on a scale on which all clients begin where the others are."""
    waiting: list[Waiting] = field(default_factory=list)
    seconds: float = 0.0
    """Of waiting requests."""
    started: int = 0
    """Batches that are running or paused."""

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.started


class FairQueue(Generic[T]):
    """The requests that wait, and what each client has used."""

    def __init__(self, max_waiting: int, max_seconds: float) -> None:
        self.max_waiting, self.max_seconds = max_waiting, max_seconds
        self._clients: dict[str, _Client] = {}
        self._active: dict[str, _Client] = {}
        """Those with requests that wait."""
        self._idle: dict[str, None] = {}
        """Those with none, in the order in which their last one ended."""
        self._level = 0.0
        """What the client that was served last had used: where others begin."""
        self._waiting = 0
        self.seconds = 0.0
        """Of all requests that wait."""

    def __len__(self) -> int:
        return self._waiting

    def __iter__(self) -> Iterator[T]:
        return (request for client in self._active.values() for request in client.waiting)  # type: ignore[misc]

    def has_room(self, client: str, seconds: float = 0.0) -> bool:
        """Whether a request would be accepted."""
        return not self._is_full(seconds) or self._greediest(client, seconds) is not None

    def add(self, request: T) -> list[T]:
        """Queue a request. Returns those that must give way, which are no longer queued."""
        refused: list[T] = []
        while self._is_full(request.seconds):
            greediest = self._greediest(request.client, request.seconds)
            if greediest is None:
                for other in refused:  # nothing is gained by refusing them
                    self._push(other)
                client = self._clients.get(request.client)
                raise QueueFullError((client.seconds if client else self.seconds) * max(1, len(self._active)))
            last = max(greediest.waiting, key=lambda waiting: waiting.rank)
            self._pop(last)
            refused.append(last)  # type: ignore[arg-type]
        self._push(request)
        return refused

    def remove(self, request: T) -> None:
        """Take a request out of the queue."""
        self._pop(request)
        self._forget()

    def requeue(self, request: T) -> None:
        """Queue a request again that was accepted before, whether there is room or not."""
        self._push(request)

    def priority(self, clients: Iterable[str]) -> float:
        """What the client that has used least of these has used. Who has used less comes first."""
        return min((self._client(client).used for client in clients), default=math.inf)

    def next(self, max_started: int, max_seconds: float = math.inf) -> T | None:
        """The request that comes next, of a client with fewer batches, and of at most so many seconds."""
        for client in sorted(self._active.values(), key=lambda client: client.used):
            short = [request for request in client.waiting if request.seconds <= max_seconds]
            if short and client.started < max_started:
                return min(short, key=lambda request: request.rank)  # type: ignore[return-value]
        return None

    def take(self, first: T, seconds: float, max_started: int) -> list[T]:
        """Dequeue a request and those that can share a batch of so many seconds with it."""
        batch, room = [first], seconds - first.seconds
        if not first.alone:
            clients = sorted(self._active.values(), key=lambda client: client.used)
            others = [request for client in clients for request in sorted(client.waiting, key=lambda one: one.rank)]
            for other in others:
                same = other is not first and other.group == first.group and not other.alone
                if same and other.seconds <= room and self._client(other.client).started < max_started:
                    batch.append(other)  # type: ignore[arg-type]
                    room -= other.seconds
        self._level = max(self._level, self._client(first.client).used)
        for request in batch:
            self._pop(request)
        return batch

    def start(self, clients: Iterable[str]) -> None:
        """Count a batch of these clients' requests as started."""
        for client in set(clients):
            self._client(client).started += 1
            self._idle.pop(client, None)

    def finish(self, clients: Iterable[str]) -> None:
        """Count it as finished."""
        for client in set(clients):
            self._client(client).started -= 1
            self._note_idle(client)
        self._forget()

    def charge(self, client: str, seconds: float) -> None:
        """Count what a client has used."""
        self._client(client).used += seconds

    def _push(self, request: Waiting) -> None:
        client = self._client(request.client)
        client.waiting.append(request)
        self._active[request.client] = client
        self._idle.pop(request.client, None)
        client.seconds += request.seconds
        self.seconds += request.seconds
        self._waiting += 1

    def _pop(self, request: Waiting) -> None:
        client = self._clients[request.client]
        client.waiting.remove(request)
        self._waiting -= 1
        if not client.waiting:
            del self._active[request.client]
            self._note_idle(request.client)
        client.seconds = client.seconds - request.seconds if client.waiting else 0.0  # sums of floats drift
        self.seconds = self.seconds - request.seconds if self._waiting else 0.0

    def _client(self, name: str) -> _Client:
        if name not in self._clients:
            self._clients[name] = _Client(self._level)
            self._idle[name] = None
        client = self._clients[name]
        if client.idle:  # it has saved nothing up
            client.used = max(client.used, self._level)
        return client

    def _note_idle(self, name: str) -> None:
        if self._clients[name].idle:
            self._idle[name] = None

    def _forget(self) -> None:
        """Forget what idle clients have used if nobody has to wait for it, or if there are too many."""
        if len(self._idle) == len(self._clients):
            self._clients.clear()
            self._idle.clear()
            self._level = 0.0
        while len(self._idle) > MAX_REMEMBERED:
            name = next(iter(self._idle))
            del self._clients[name], self._idle[name]

    def _is_full(self, seconds: float) -> bool:
        waiting = len(self)
        return waiting >= self.max_waiting or (waiting > 0 and self.seconds + seconds > self.max_seconds)

    def _greediest(self, name: str, seconds: float) -> _Client | None:
        """The client with most in the queue, if that is more than another would have with a request of so many seconds.

        What is too much counts: requests or seconds.
        """
        by_number = len(self) >= self.max_waiting

        def amount(client: _Client) -> float:
            return float(len(client.waiting)) if by_number else client.seconds

        client, greediest = self._clients.get(name), max(self._active.values(), key=amount, default=None)
        if greediest is None or greediest is client:
            return None
        own = (amount(client) if client else 0.0) + (1 if by_number else seconds)
        return greediest if amount(greediest) > own else None
