"""A pool of Ray actors that work off tasks. A lost actor is replaced, and its task is done again.

A worker is a class with two methods: `ready()` loads what it needs, `run(task, losses)` does a task that has lost
`losses` actors before. A task is done again only if its actor was lost, so `run` must give the same result each time.
Errors that `run` raises are raised here. Tasks wait in this process: nothing is lost with a node.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from latentmt.cluster.session import Cluster
from latentmt.display import info
from latentmt.errors import UserError

MAX_LOSSES = 10
"""Actors that a task may lose, or that may be lost one after the other before any has done something."""

_TICK = 1.0
"""Seconds between looks at the cluster while nothing is finished."""
_TASK_SECONDS = 3600.0
"""A task that takes longer is taken from its actor, which is ended."""
_WAITING_SECONDS = 30.0
"""Seconds between lines that say that actors have not started yet."""

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Attempt(Generic[Task]):
    task: Task
    losses: int = 0


@dataclass(frozen=True)
class _Call(Generic[Task]):
    """What an actor is doing: an attempt, or starting."""

    actor: Any
    attempt: _Attempt[Task] | None
    started: float


class Pool(Generic[Task, Result]):
    """Actors of one worker class, made with the same arguments."""

    def __init__(self, cluster: Cluster, worker: type, *arguments: Any) -> None:
        self._cluster = cluster
        remote: Any = ray.remote(worker).options(**cluster.options())
        self._make: Callable[[], Any] = lambda: remote.remote(*arguments)
        self._size = cluster.actors
        self._idle: list[Any] = []
        self._calls: dict[Any, _Call[Task]] = {}
        self._waiting: deque[_Attempt[Task]] = deque()
        self._lost_in_a_row = 0
        self.lost = 0
        """Actors that were lost so far."""
        self._said = time.monotonic()

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """Do the tasks; each with its result, as soon as it is done. They are taken only when an actor is free."""
        source = iter(tasks)
        while True:
            self._fill(source)
            if not self._waiting and all(call.attempt is None for call in self._calls.values()):
                return
            done, _ = ray.wait([*self._calls], timeout=_TICK)
            if not done:
                self._check()
            for reference in done:
                call = self._calls.pop(reference)
                try:
                    result = ray.get(reference)
                except RayTaskError as error:
                    raise _cause(error) from None
                except (RayActorError, RayError) as error:
                    self._replace(call, str(error))
                    continue
                self._idle.append(call.actor)
                self._lost_in_a_row = 0
                if call.attempt is not None:
                    yield call.attempt.task, result

    def _fill(self, source: Iterator[Task]) -> None:
        """Give every idle actor a task. If one is left, start the actors that are missing."""
        while self._waiting or self._read(source):
            if not self._idle:
                break
            actor, attempt = self._idle.pop(), self._waiting.popleft()
            call = actor.run.remote(attempt.task, attempt.losses)
            self._calls[call] = _Call(actor, attempt, time.monotonic())
        else:
            return
        for _ in range(self._size - len(self._calls)):
            actor = self._make()
            self._calls[actor.ready.remote()] = _Call(actor, None, time.monotonic())

    def _read(self, source: Iterator[Task]) -> bool:
        """Take the next task, if there is one, while the actors work."""
        self._waiting.extend(_Attempt(task) for task in itertools.islice(source, 1))
        return bool(self._waiting)

    def _replace(self, call: _Call[Task], why: str) -> None:
        self.lost += 1
        self._lost_in_a_row += 1
        losses = call.attempt.losses + 1 if call.attempt else 0
        if max(losses, self._lost_in_a_row) > MAX_LOSSES + self._size:
            raise UserError(f"actors die again and again ({why.splitlines()[0]}); run the same command to go on")
        if call.attempt is not None:
            self._waiting.append(_Attempt(call.attempt.task, losses))

    def _check(self) -> None:
        """Look for what would keep us waiting for ever."""
        if self._cluster.lost():
            self._waiting.extend(call.attempt for call in self._calls.values() if call.attempt)
            self._calls.clear()
            self._idle.clear()
            self._cluster.restart()
            return
        now = time.monotonic()
        for call in self._calls.values():
            if call.attempt is not None and now - call.started > _TASK_SECONDS:
                ray.kill(call.actor)  # the call then ends with an error, as for any lost actor
        starting = sum(call.attempt is None for call in self._calls.values())
        if starting and now - self._said > _WAITING_SECONDS:
            self._said = now
            info(f"{starting} of {self._size} actors have not started yet")


def _cause(error: RayTaskError) -> BaseException:
    """What the worker raised. Of an unexpected error, Ray's own has the traceback."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, UserError | OSError) else error
