"""The server's speed against that of bulk translation, and what its processes cost.

    python benchmarks/serve_speed.py --src test.de [--seconds 20] [--rounds 3] [--clients 32]
    python benchmarks/serve_speed.py --src test.de --recorded           # without the engine
    python benchmarks/serve_speed.py --src test.de --device cuda --clients 256 [--front-processes 4]

SRC is plain text, a sentence per line (such as `tests/fixtures/tatoeba/train.de`). In turn, for some rounds:

- bulk: `Translator.translations` in this process on all cores, as `latentmt translate` does it.
- clients: each sends one sentence after another to a server that was started as `latentmt serve`.
- lists: a few clients that send lists of 64 sentences.
- one client: its median latency. /healthz: the worst latency while the clients send.

Medians of the rounds are shown: sentences a second, the ratio to bulk translation, and milliseconds of CPU for each
sentence in the front (the server's own process: HTTP, queue), in the workers, and in the clients, which are a process
of their own. With several front processes, those are the front, and the server's own process is the broker. On a busy
machine only the CPU times mean something. With `--recorded`, engines answer from memory what they have translated
before, so that what remains is the time of everything else: what is left to gain on a GPU. `--recorded` has one worker,
as a GPU has. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from serve_load import HOST, Server, probe_health, start_server

from latentmt.display import output, table
from latentmt.text.stream import MAX_LINES
from latentmt.translator import Translator

LIST, LIST_CLIENTS = 64, 8
PROCESSES = ("bulk", "broker", "front", "workers", "clients")
RECORDED = """
from latentmt import translator
class Recorded:
    def __init__(self, backend):
        self._backend, self._found = backend, {}
    def __getattr__(self, name):
        return getattr(self._backend, name)
    @property
    def info(self):
        return self._backend.info | {"batch_tokens": 4096}  # as on a GPU
    def best(self, sentences, options, *others):
        keys = [(tuple(sentence), options) for sentence in sentences]
        new = [key for key in dict.fromkeys(keys) if key not in self._found]
        if new:
            found = self._backend.best([sentence for sentence, _ in new], options, *others)
            self._found.update(zip(new, found))
        return [self._found[key] for key in keys]
original = translator.load_backend
translator.load_backend = lambda *arguments: Recorded(original(*arguments))
"""
"""An engine that remembers, for servers that are started with it as `sitecustomize`."""


@dataclass
class Measured:
    """What was done in some seconds, and the seconds of CPU that processes took for it."""

    sentences: int
    seconds: float
    cpu: dict[str, float]
    latencies: list[float]

    @property
    def rate(self) -> float:
        return self.sentences / self.seconds

    def milliseconds(self, process: str) -> float:
        """Of CPU, for each sentence."""
        return 1e3 * self.cpu.get(process, 0.0) / self.sentences


def bulk(translator: Translator, texts: Sequence[str], seconds: float) -> Measured:
    """Translate in this process."""
    endless, done = itertools.cycle(texts), 0
    start, used = time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        done += len(translator.translations(list(itertools.islice(endless, MAX_LINES))))
    return Measured(done, time.perf_counter() - start, {"bulk": time.process_time() - used}, [])


class _Client(asyncio.Protocol):
    """Sends one request after another, and costs little."""

    def __init__(self, requests: Iterator[bytes], until: float) -> None:
        self._requests, self._until = requests, until
        self.latencies: list[float] = []
        self.finished = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._data += data
        head = self._data.find(b"\r\n\r\n")
        if head < 0:
            return
        size = int(self._data[self._data.index(b"content-length: ") + 16 :].split(b"\r\n", 1)[0])
        if len(self._data) < head + 4 + size:
            return
        if not self._data.startswith(b"HTTP/1.1 200"):
            self.finished.set_exception(RuntimeError(self._data.decode()))
            return
        self.latencies.append(time.perf_counter() - self._sent)
        if self._sent < self._until:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.finished.done():
            self.finished.set_result(None)

    def _send(self) -> None:
        self._data, self._sent = b"", time.perf_counter()
        self._transport.write(next(self._requests))


def _request(texts: str | list[str]) -> bytes:
    body = json.dumps({"q": texts, "source": "de", "target": "en"}).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _clients(port: int, requests: list[bytes], count: int, seconds: float) -> tuple[list[float], float, float]:
    """The latencies of a number of clients, and seconds, of time and of CPU."""

    async def run() -> list[float]:
        until, loop, shared = time.perf_counter() + seconds, asyncio.get_running_loop(), itertools.cycle(requests)
        pairs = [await loop.create_connection(lambda: _Client(shared, until), HOST, port) for _ in range(count)]
        await asyncio.gather(*(client.finished for _, client in pairs))
        return [latency for _, client in pairs for latency in client.latencies]

    start, used = time.perf_counter(), time.process_time()
    latencies = uvloop.run(run())
    return latencies, time.perf_counter() - start, time.process_time() - used


def _cpu(pid: int) -> float:
    """Seconds of CPU that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def served(server: Server, pool: Any, requests: list[bytes], each: int, count: int, seconds: float) -> Measured:
    """Clients, in a process of their own, that send requests of so many sentences each."""
    own, *children = server.processes
    fronts = [pid for pid in children if b"serve.front" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    before = {pid: _cpu(pid) for pid in (own, *children)}
    latencies, took, clients = pool.apply(_clients, (server.port, requests, count, seconds))
    used = {pid: _cpu(pid) - before[pid] for pid in before}
    of_fronts = sum(used[pid] for pid in fronts)
    cpu = {"broker": used[own], "front": of_fronts} if fronts else {"front": used[own]}
    cpu |= {"workers": sum(used.values()) - used[own] - of_fronts, "clients": clients}
    return Measured(len(latencies) * each, took, cpu, latencies)


@contextlib.contextmanager
def recorded(use: bool) -> Iterator[None]:
    """Servers that are started meanwhile have engines that remember."""
    before = os.environ.get("PYTHONPATH")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(RECORDED, encoding="utf-8")
        if use:
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, before)))
        yield


def row(name: str, runs: Sequence[Measured], bulk_rate: float | None) -> tuple[tuple[str, ...], dict[str, Any]]:
    """A line of the table, and its numbers."""
    rate = statistics.median(run.rate for run in runs)
    cpu = {process: statistics.median(run.milliseconds(process) for run in runs) for process in PROCESSES}
    numbers = {"rate": rate, "cpu_ms": cpu} | ({"ratio": rate / bulk_rate} if bulk_rate else {})
    latencies = sorted(latency for run in runs for latency in run.latencies)
    if latencies:
        numbers["p50_ms"], numbers["p99_ms"] = (1e3 * latencies[int(q * (len(latencies) - 1))] for q in (0.5, 0.99))
    shown = [f"{rate:,.1f}", f"{rate / bulk_rate:.1%}" if bulk_rate else ""]
    shown += [f"{numbers[key]:.1f}" if key in numbers else "" for key in ("p50_ms", "p99_ms")]
    return (name, *shown, *(f"{value:.3f}" if value else "" for value in cpu.values())), numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--front-processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--recorded", action="store_true", help="engines answer from memory")
    arguments = parser.parse_args()
    texts = [line for line in arguments.src.read_text(encoding="utf-8").splitlines() if line][:512]
    options = ["--device", arguments.device, "--max-characters", "100000", "--max-waiting", "1024"]
    options += ["--front-processes", str(arguments.front_processes)]
    workers = arguments.workers or (1 if arguments.recorded else None)
    options += ["--workers", str(workers)] if workers else []
    options += ["--model", arguments.model] if arguments.model else []
    singles = [_request(text) for text in texts]
    lists = [_request(texts[start : start + LIST]) for start in range(0, len(texts) - LIST + 1, LIST)]
    runs: dict[str, list[Measured]] = {}
    health: list[float] = []
    translator = None if arguments.recorded else Translator.load(arguments.model, arguments.device)
    with (
        recorded(arguments.recorded),
        start_server(options) as server,
        multiprocessing.get_context("spawn").Pool(1) as pool,
    ):
        served(server, pool, lists, LIST, 1, 3)  # every sentence has been translated
        for _ in range(arguments.rounds):
            if translator:
                translator.translations(texts[:LIST])
                runs.setdefault("bulk", []).append(bulk(translator, texts, arguments.seconds))
            name = f"{arguments.clients} clients"
            runs.setdefault(name, []).append(served(server, pool, singles, 1, arguments.clients, arguments.seconds))
            runs.setdefault(f"lists of {LIST}", []).append(
                served(server, pool, lists, LIST, LIST_CLIENTS, arguments.seconds)
            )
            runs.setdefault("one client", []).append(served(server, pool, singles, 1, 1, arguments.seconds / 4))
        with probe_health(server.port) as latencies:
            served(server, pool, singles, 1, arguments.clients, arguments.seconds / 2)
        health += latencies
    bulk_rate = statistics.median(run.rate for run in runs["bulk"]) if "bulk" in runs else None
    rows = {name: row(name, measured, bulk_rate) for name, measured in runs.items()}
    heading = (
        "",
        "sentences/s",
        "of bulk",
        "p50 ms",
        "p99 ms",
        *(f"CPU ms {who}" for who in PROCESSES),
    )
    output().print(table("latentmt serve", heading, [shown for shown, _ in rows.values()]))
    numbers = {"benchmark": "serve_speed"} | vars(arguments) | {"src": arguments.src.name}
    numbers |= {name: numbers_ for name, (_, numbers_) in rows.items()} | {"health_ms": 1e3 * max(health)}
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
