"""An engine worker: a process with translators of its own that computes responses for the broker.

It reads messages from standard input and writes messages to standard output. The first one says what to load. A batch
of requests for one model runs until it is done, or until its time slice is over: then it pauses in its thread until the
broker resumes it, and the broker may start another batch in between. So one batch at a time is running, and the broker
alone decides which. If the broker ends, so does the worker.

    from the broker     start (once), run, resume, cancel
    from the worker     ready or failed (once), planned, result, yielded, done
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

from pydantic import TypeAdapter

from latentmt.errors import UserError
from latentmt.options import DecodingOptions
from latentmt.serve.admission import Limits, RefusedError
from latentmt.serve.costs import costs_from, measure_costs
from latentmt.serve.facts import ModelFacts, Pair, languages_of
from latentmt.serve.languages import detect, language_name
from latentmt.serve.messages import Message, MessageError, message, read
from latentmt.serve.models import Models
from latentmt.serve.service import REQUESTS, Plan, Service
from latentmt.system import end_with_parent, ignore_signals
from latentmt.translator import Translator

SLICE_SECONDS = 0.02
"""After this long, a batch lets the broker decide who goes on."""
MAX_THREADS = 64
"""Batches that may be paused at the same time, and the one that runs. The broker starts fewer."""

_log = logging.getLogger("latentmt.serve")


class CancelledError(Exception):
    """All requests of a batch were cancelled."""


@dataclass(eq=False)
class _Job:
    """A request of a batch."""

    number: int
    kind: str
    fields: dict[str, Any]
    cancelled: bool = False


@dataclass(eq=False)
class _Batch:
    """Requests for the same model and with the same options that are translated together."""

    number: int
    pair: Pair
    options: DecodingOptions
    jobs: list[_Job]
    send: Callable[[Message], None]
    turn: threading.Event = field(default_factory=threading.Event)
    """Set when a paused batch goes on."""
    resumed: float = field(default_factory=time.monotonic)
    """When the present slice began."""

    def check(self) -> None:
        """Pause if the slice is over."""
        if all(job.cancelled for job in self.jobs):
            raise CancelledError
        now = time.monotonic()
        if now - self.resumed >= SLICE_SECONDS:
            self.send(message("yielded", batch=self.number, seconds=now - self.resumed))
            self.turn.wait()
            self.turn.clear()
            self.resumed = time.monotonic()
            if all(job.cancelled for job in self.jobs):
                raise CancelledError


class Worker:
    """Runs batches with the services of its models, as messages say."""

    def __init__(self, services: Mapping[Pair, Service], output: BinaryIO, verbose: bool = False) -> None:
        self._services, self._output, self._verbose = services, output, verbose
        self._writing = threading.Lock()
        self._batches: dict[int, _Batch] = {}
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="batch")

    def serve(self, source: BinaryIO) -> None:
        """Do what messages say, until there are no more."""
        try:
            with suppress(MessageError):
                while True:
                    self._receive(read(source))
        finally:
            for batch in list(self._batches.values()):  # nobody would resume them
                for job in batch.jobs:
                    self._cancel(batch.number, job.number)

    def _receive(self, received: Message) -> None:
        match received.kind:
            case "run":
                self._start(received)
            case "resume":
                if batch := self._batches.get(received.header["batch"]):  # it may just have been cancelled
                    batch.turn.set()
            case "cancel":
                self._cancel(received.header["batch"], received.header["job"])

    def send(self, *messages: Message) -> None:
        """Send messages, all at once."""
        data = b"".join(map(bytes, messages))
        with self._writing:
            self._output.write(data)
            self._output.flush()

    def _start(self, received: Message) -> None:
        batch = _Batch(
            received.header["batch"],
            (received.header["pair"][0], received.header["pair"][1]),
            DecodingOptions(**received.header["options"]),
            [_Job(**job) for job in json.loads(received.body)],
            self.send,
        )
        self._batches[batch.number] = batch
        self._threads.submit(self._run, batch)

    def _cancel(self, batch_number: int, job_number: int) -> None:
        if batch := self._batches.get(batch_number):
            for job in batch.jobs:
                job.cancelled |= job.number == job_number
            if all(job.cancelled for job in batch.jobs):
                batch.turn.set()  # if it is paused, it ends now

    def _run(self, batch: _Batch) -> None:
        try:
            planned = [(job, plan) for job in batch.jobs if (plan := self._plan(batch, job))]
            self.send(
                message("planned", batch=batch.number, seconds={job.number: plan.seconds for job, plan in planned})
            )
            for together in self._groups(batch, planned):
                self._translate(batch, together)
        except CancelledError:
            pass
        except Exception as error:
            self._log_error(error)
        finally:
            del self._batches[batch.number]
            self.send(message("done", batch=batch.number, seconds=time.monotonic() - batch.resumed))

    def _service(self, batch: _Batch) -> Service:
        if batch.pair not in self._services:  # the request was accepted for a model that is there no longer
            raise RefusedError(503, "the models of this server have changed")
        return self._services[batch.pair]

    def _plan(self, batch: _Batch, job: _Job) -> Plan | None:
        """A request that is understood; None if it is refused, which is answered."""
        try:
            request = REQUESTS[job.kind].model_validate(job.fields)
            return self._service(batch).plan(request, batch.options, batch.check)
        except CancelledError:
            raise
        except Exception as error:
            self._fail(batch, job, error)
            return None

    def _groups(self, batch: _Batch, planned: Sequence[tuple[_Job, Plan]]) -> list[list[tuple[_Job, Plan]]]:
        """What is translated together. Requests that turn out to be long come last, one by one."""
        short = [pair for pair in planned if pair[1].seconds <= self._service(batch).batch_seconds]
        long = sorted((pair for pair in planned if pair not in short), key=lambda pair: pair[1].seconds)
        return [*([short] if short else []), *([pair] for pair in long)]

    def _translate(self, batch: _Batch, planned: Sequence[tuple[_Job, Plan]]) -> None:
        """Answer requests together. If that fails, one by one, so that only the one at fault fails."""
        try:
            results = list(self._service(batch).run([plan for _, plan in planned], batch.options, batch.check))
        except CancelledError:
            raise
        except Exception as error:
            if len(planned) == 1:
                self._fail(batch, planned[0][0], error)
                return
            for pair in planned:
                self._translate(batch, [pair])
            return
        self.send(*(self._result(batch, job, result) for (job, _), result in zip(planned, results, strict=True)))

    def _result(self, batch: _Batch, job: _Job, result: Any) -> Message:
        batch.check()
        body = _ANY.dump_json(result, exclude_none=job.kind == "translate")
        return message("result", body, batch=batch.number, job=job.number)

    def _fail(self, batch: _Batch, job: _Job, error: Exception) -> None:
        """Answer a request with an error. What a client did not cause is logged."""
        status = error.status if isinstance(error, RefusedError) else 400 if isinstance(error, UserError) else 500
        if status == 500:
            self._log_error(error)
        text = "something went wrong in the server" if status == 500 else str(error)
        self.send(message("result", batch=batch.number, job=job.number, status=status, error=text))

    def _log_error(self, error: Exception) -> None:
        _log.error("%s while answering", type(error).__name__, exc_info=error if self._verbose else None)


_ANY = TypeAdapter(Any)


def run(source: BinaryIO, output: BinaryIO, load: Callable[..., Translator] = Translator.load) -> None:
    """Be a worker until there are no more messages. The first one has what `load` is called with, for each model."""
    try:
        config = read(source).header
        translators = _load(config["models"], partial(load, **config["load"]))
        detect("Warm.")
        costs = map(costs_from, config["costs"]) if config["costs"] else map(measure_costs, translators.values())
        models = Models([ModelFacts.of(*each) for each in zip(translators.values(), costs, strict=True)])
    except MessageError:
        return
    except UserError as error:
        output.write(bytes(message("failed", error=str(error))))
        output.flush()
        return
    limits = Limits(**config["limits"])
    services = {pair: Service(translator, pair, models, limits) for pair, translator in translators.items()}
    worker = Worker(services, output, config["verbose"])
    worker.send(message("ready", models=[facts.to_dict() for facts in models.all]))
    worker.serve(source)


def _load(names: Sequence[str], load: Callable[[str], Translator]) -> dict[Pair, Translator]:
    """The translators of these models, ready to be used, by their languages."""
    translators: dict[Pair, Translator] = {}
    origins: dict[Pair, str] = {}
    for name in names:
        translator = load(name)
        pair = languages_of(translator)
        if pair in translators:
            what = " to ".join(map(language_name, pair))
            raise UserError(f"{origins[pair]} and {name} are both models from {what}: serve one of them")
        translators[pair], origins[pair] = translator, name
    for translator in translators.values():
        translator.warmup(compiled=False)
        translator.translate("Warm.")
    return translators


def main() -> None:
    """A worker as a process of its own."""
    ignore_signals(("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"))  # for the broker, which ends us when it is done
    end_with_parent()
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints does not disturb the messages
    try:
        run(sys.stdin.buffer, output)
    except Exception as error:  # a stack trace may quote texts
        print(f"error: {type(error).__name__} in a worker", file=sys.stderr)
    os._exit(0)  # whatever still runs


if __name__ == "__main__":
    main()
