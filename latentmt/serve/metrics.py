"""Counters for Prometheus. They contain no texts, addresses or keys."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


@runtime_checkable
class Counting(Protocol):
    """What requests are counted by."""

    def answered(self, endpoint: str, status: int, seconds: float) -> None: ...

    def accepted(self, characters: int) -> None: ...


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "latentmt_requests", "Requests answered, by endpoint and status.", ["endpoint", "status"], registry=registry
        )
        self.seconds = Histogram(
            "latentmt_request_seconds", "How long requests took.", ["endpoint"], registry=registry, buckets=_SECONDS
        )
        self.characters = Counter("latentmt_characters", "Characters accepted for translation.", registry=registry)
        self.waiting = Gauge("latentmt_requests_waiting", "Requests that wait for a translator.", registry=registry)
        self.waited = Histogram("latentmt_waited_seconds", "How long they waited.", registry=registry, buckets=_SECONDS)
        self.workers = Gauge("latentmt_workers", "Workers that are ready.", registry=registry)
        self.lost = Counter("latentmt_workers_lost", "Workers that ended and were replaced.", registry=registry)
        self.fronts_lost = Counter(
            "latentmt_front_processes_lost", "Front processes that ended and were replaced.", registry=registry
        )
        self.worked = Counter("latentmt_worker_seconds", "Seconds that workers have worked.", registry=registry)
        self.batch = Histogram(
            "latentmt_batch_requests",
            "Requests translated together.",
            registry=registry,
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
        )

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self.requests.labels(endpoint, status).inc()
        self.seconds.labels(endpoint).observe(seconds)

    def accepted(self, characters: int) -> None:
        """A request was accepted that has so many characters."""
        self.characters.inc(characters)

    def text(self) -> bytes:
        """All counters in Prometheus' text format."""
        return generate_latest(self._registry)
