"""Measures the server: latency, load, overload, malformed requests and shutdown.

    python benchmarks/serve_load.py --src test.de [--model NAME] [--threads 1] [--workers 2] [--seconds 60]

SRC is plain text, a sentence per line (such as `tests/fixtures/tatoeba/train.de`). The server is started as `latentmt
serve` on this machine, so it shares its cores with the clients. Each line of the table says what is expected. The exit
status is 1 if anything fails. The last line is JSON.

- alone: every sentence is translated by a `Translator` in this process and over HTTP in turn, so that both meet the
  same conditions. The difference of the medians is the overhead of the server.
- load: a number of clients, each with one request after another, for some seconds.
- overload: many more clients than may wait. They try again after a fifth of a second when they are refused.
- malformed: wrong types, huge bodies, invalid UTF-8 and JSON, deep nesting, garbage instead of HTTP, slow connections.
- stop: SIGTERM under load. Every accepted request must be answered.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from latentmt.display import output, table
from latentmt.translator import Translator

HOST = "127.0.0.1"
MALFORMED = 2000
OVERLOAD_CLIENTS = 400
CLIENT_TIMEOUT = 60.0
"""Seconds after which a client gives up, which is a failure."""
MAX_GROWTH = 32e6
"""Bytes by which memory may grow and still count as flat, since allocators keep some."""


@dataclass
class Server:
    """A server in its own process."""

    process: subprocess.Popen[str]
    port: int

    @property
    def processes(self) -> list[int]:
        """The server and its workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [self.process.pid, *map(int, children.split())]

    @property
    def memory(self) -> int:
        """Resident bytes of the server and its workers."""
        pages = 0
        for pid in self.processes:
            with contextlib.suppress(OSError):  # a worker may just have ended
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def start_server(options: Sequence[str]) -> Iterator[Server]:
    """Start a server with these options of the command line."""
    with tempfile.NamedTemporaryFile("w") as log:
        command = [sys.executable, "-m", "latentmt", "serve", "--port", "0", *options]
        process = subprocess.Popen(command, stderr=log, text=True)
        try:
            while not (match := re.search(r"http://\S+:(\d+)\n", log_text := Path(log.name).read_text())):
                if process.poll() is not None:
                    sys.exit(log_text.strip())
                time.sleep(0.05)
            yield Server(process, int(match[1]))
        finally:
            process.terminate()
            process.wait(60)


class Client:
    """A cheap HTTP client: one connection from an address of this machine, one request at a time."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self._port, self._source = port, source
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def translate(self, text: str) -> int:
        """The status of a translation, or 0 if the connection was closed or timed out without a response."""
        return await self.post("/translate", q=text, source="de", target="en")

    async def post(self, path: str, **fields: Any) -> int:
        """The status of a request with these fields."""
        body = json.dumps(fields).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        return await self.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def send(self, request: bytes) -> int:
        """The status of the response to a request."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self._port, local_addr=(self._source, 0))
        reader, writer = self._streams
        try:
            async with asyncio.timeout(CLIENT_TIMEOUT):
                writer.write(request)
                await writer.drain()
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))  # type: ignore[index]
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            await self.close()
            return 0
        if b"connection: close" in head:
            await self.close()
        return int(head.split()[1])

    async def close(self) -> None:
        if self._streams:
            self._streams[1].close()
            self._streams = None


@dataclass
class Responses:
    """The responses to a number of clients."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    """Seconds of each response with status 200."""

    def quantile(self, share: float) -> float:
        """Milliseconds."""
        return 1e3 * sorted(self.times)[int(share * (len(self.times) - 1))]

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds


async def load(port: int, texts: Sequence[str], clients: int, seconds: float, pause: float = 0.0) -> Responses:
    """Clients that send one request after another for a while. `pause`: about how long to wait when refused."""
    responses, start = Responses(), time.perf_counter()

    async def client(number: int) -> None:
        rng, connection = random.Random(number), Client(port)
        while time.perf_counter() - start < seconds:
            begin = time.perf_counter()
            status = await connection.translate(rng.choice(texts))
            responses.statuses[status] += 1
            if status == 200:
                responses.times.append(time.perf_counter() - begin)
            elif pause:
                await asyncio.sleep(pause * rng.uniform(0.5, 1.5))
        await connection.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    responses.seconds = time.perf_counter() - start
    return responses


def latency_alone(translator: Translator, port: int, texts: Sequence[str]) -> tuple[list[float], list[float]]:
    """Seconds per text, without the server and with it."""

    async def measure() -> tuple[list[float], list[float]]:
        client, direct, served = Client(port), [], []
        for text in [*texts[:10], *texts]:
            start = time.perf_counter()
            translator.translate(text)
            middle = time.perf_counter()
            assert await client.translate(text) == 200
            direct.append(middle - start)
            served.append(time.perf_counter() - middle)
        await client.close()
        return direct[10:], served[10:]

    return asyncio.run(measure())


def _probe(port: int, stop: Pipe) -> None:
    """Request /healthz ten times a second, and send the latencies back at the end."""

    async def probe() -> list[float]:
        latencies, client = [], Client(port)
        while not stop.poll():
            start = time.perf_counter()
            status = await client.send(f"GET /healthz HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            latencies.append(time.perf_counter() - start if status == 200 else CLIENT_TIMEOUT)
            await asyncio.sleep(0.1)
        return latencies

    stop.send(asyncio.run(probe()))


@contextlib.contextmanager
def probe_health(port: int) -> Iterator[list[float]]:
    """The latencies of /healthz in seconds, measured by another process in the meantime."""
    latencies: list[float] = []
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_probe, args=(port, theirs))
    process.start()
    try:
        yield latencies
    finally:
        ours.send(None)
        latencies += ours.recv()
        process.join()


@contextlib.asynccontextmanager
async def slow_connections(port: int, count: int) -> AsyncIterator[None]:
    """Connections that send a byte of a request now and then."""

    async def client() -> None:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(HOST, port)
            for byte in b"POST /translate HTTP/1.1\r\nX: " + b"a" * 100:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.2)

    tasks = [asyncio.create_task(client()) for _ in range(count)]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def malformed(rng: random.Random) -> bytes:
    """An invalid request."""
    kind = rng.choice(["application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "x"])
    values: list[Any] = [None, 3, -1, 1e300, [], [[]], {}, {"a": []}, "x" * 50, True, ["a", 3], "\ud800"]
    body = rng.choice(
        [
            lambda: json.dumps({rng.choice(["q", "steps", "method", "format", "source"]): rng.choice(values)}).encode(),
            lambda: rng.randbytes(rng.randrange(200)),
            lambda: b'{"q": "' + rng.randbytes(20) + b'"}',
            lambda: b'{"q":' * rng.randrange(5000),
            lambda: b"[" * 100_000,
            lambda: b"q=" + b"%ff" * rng.randrange(100) + b"&steps=" + rng.randbytes(3),
            lambda: b'{"q": "' + b"a" * rng.choice([10_001, 200_000, 3_000_000]) + b'"}',
        ]
    )()
    path = rng.choice(["translate", "trace", "detect", "translate/x"])
    head = f"POST /{path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: {kind}\r\n"
    broken = rng.random()
    if broken < 0.1:
        return rng.randbytes(rng.randrange(1, 400))
    if broken < 0.2:
        return f"{head}Content-Length: {rng.choice(['-1', 'x', '9' * 30])}\r\n\r\n".encode() + body
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def attack(port: int, count: int) -> Counter[int]:
    """The statuses of the responses to malformed requests, or 0 if the connection was closed instead."""
    rng, statuses = random.Random(1), Counter[int]()
    requests = iter([malformed(rng) for _ in range(count)])

    async def send(request: bytes) -> int:
        reader, writer = await asyncio.open_connection(HOST, port)
        head = b""
        try:
            async with asyncio.timeout(CLIENT_TIMEOUT):
                with contextlib.suppress(OSError):
                    writer.write(request)
                    await writer.drain()
                    writer.write_eof()
                with contextlib.suppress(OSError):
                    head = await reader.read(64)
        finally:
            writer.close()
        return int(head.split()[1]) if head else 0

    async def client() -> None:
        for request in requests:
            statuses[await send(request)] += 1

    async with slow_connections(port, 50):
        await asyncio.gather(*(client() for _ in range(16)))
    return statuses


async def load_until_stopped(server: Server, texts: Sequence[str], clients: int) -> Responses:
    """The responses to clients until the server, told to stop, has stopped listening."""
    responses = Responses()

    async def client(number: int) -> None:
        rng, connection = random.Random(number), Client(server.port)
        while True:
            try:
                status = await connection.translate(rng.choice(texts))
            except OSError:  # it has stopped listening, so nothing was accepted
                return
            responses.statuses[status] += 1
            if status == 0:
                return

    tasks = [asyncio.create_task(client(number)) for number in range(clients)]
    await asyncio.sleep(3)
    server.process.send_signal(signal.SIGTERM)
    await asyncio.gather(*tasks)
    return responses


def format_counts(statuses: Counter[int]) -> str:
    return ", ".join(f"{count:,} × {status or 'closed'}" for status, count in sorted(statuses.items()))


@dataclass
class Results:
    """What was measured, as a table and as JSON."""

    numbers: dict[str, Any]
    rows: list[tuple[str, str, str, bool]] = field(default_factory=list)

    def add(self, what: str, figure: str, expected: str = "", passed: bool = True) -> None:
        """Add a line to the table. `expected`: what is required, if anything. `passed`: whether it is met."""
        self.rows.append((what, figure, expected, passed))
        print(f"{what}: {figure}", file=sys.stderr, flush=True)

    def memory(self, before: int, after: int) -> None:
        growth = after - before
        self.add("  memory", f"{before / 1e6:.0f} MB, {growth / 1e6:+.0f}", "flat", growth < MAX_GROWTH)

    @property
    def passed(self) -> bool:
        return all(passed for *_, passed in self.rows)

    def show(self) -> None:
        shown = [
            (what, figure, f"{expected}: {'yes' if passed else 'NO'}" if expected else "")
            for what, figure, expected, passed in self.rows
        ]
        output().print(table("latentmt serve", ("", "measured", "expected"), shown))
        print(json.dumps(self.numbers | {"holds": self.passed}))


def measure_alone(server: Server, texts: Sequence[str], translator: Translator, results: Results) -> None:
    direct, served = (1e3 * statistics.median(times) for times in latency_alone(translator, server.port, texts[:200]))
    results.numbers |= {"translator_ms": direct, "alone_ms": served}
    results.add("alone, median", f"{served:.1f} ms; Translator {direct:.1f}", "at most 5 ms more", served - direct <= 5)


def measure_load(server: Server, texts: Sequence[str], clients: int, seconds: float, results: Results) -> None:
    single = asyncio.run(load(server.port, texts, 1, seconds / 4))
    results.numbers["memory_mb"] = server.memory / 1e6
    many = asyncio.run(load(server.port, texts, clients, seconds))
    p50, p99 = many.quantile(0.5), many.quantile(0.99)
    results.numbers |= {"single_rate": single.rate, "rate": many.rate, "p50_ms": p50, "p99_ms": p99}
    results.add("one client", f"{single.rate:.1f} sentences/s", "only 200", set(single.statuses) == {200})
    ratio = many.rate / single.rate
    results.add(
        f"{clients} clients, {seconds:.0f} s", f"{many.rate:.1f} sentences/s, × {ratio:.2f}", "at least × 2", ratio >= 2
    )
    results.add("  latency", f"p50 {p50:.0f} ms, p99 {p99:.0f} ms")
    results.add("  answers", format_counts(many.statuses), "only 200", set(many.statuses) == {200})


def measure_overload(server: Server, texts: Sequence[str], seconds: float, results: Results) -> None:
    before = server.memory
    with probe_health(server.port) as latencies:
        over = asyncio.run(load(server.port, texts, OVERLOAD_CLIENTS, seconds, pause=0.2))
    after, worst = server.memory, 1e3 * max(latencies)
    results.numbers |= {"overload": dict(over.statuses), "overload_rate": over.rate, "health_ms": worst}
    results.numbers["overload_growth_mb"] = (after - before) / 1e6
    results.add(
        f"{OVERLOAD_CLIENTS} clients",
        format_counts(over.statuses),
        "only 200 and 429",
        set(over.statuses) <= {200, 429},
    )
    results.add("  throughput", f"{over.rate:.1f} sentences/s")
    results.memory(before, after)
    results.add("  health", f"{worst:.0f} ms at worst of {len(latencies)}", "under 200 ms", worst < 200)


def measure_malformed(server: Server, texts: Sequence[str], results: Results) -> None:
    asyncio.run(attack(server.port, 200))  # memory that is allocated once is not growth
    before = server.memory
    statuses = asyncio.run(attack(server.port, MALFORMED))
    after, alive = server.memory, asyncio.run(load(server.port, texts, 1, 0.5)).statuses
    results.numbers |= {"malformed": dict(statuses), "malformed_growth_mb": (after - before) / 1e6}
    passed = max(statuses) < 500 and set(alive) == {200}
    results.add(f"{MALFORMED} malformed", format_counts(statuses), "nothing from 500 on", passed)
    results.memory(before, after)


def measure_stop(server: Server, texts: Sequence[str], clients: int, results: Results) -> None:
    stopped = asyncio.run(load_until_stopped(server, texts, clients))
    code = server.process.wait(60)
    results.numbers |= {"stopped": dict(stopped.statuses), "exit": code}
    passed = set(stopped.statuses) == {200} and not code
    results.add("SIGTERM", f"{format_counts(stopped.statuses)}; exit {code}", "all answered", passed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=32)
    arguments = parser.parse_args()
    texts = arguments.src.read_text(encoding="utf-8").splitlines()[:500]
    options = ["--device", arguments.device, "--threads", str(arguments.threads)]
    options += ["--workers", str(arguments.workers)] if arguments.workers else []
    options += ["--model", arguments.model] if arguments.model else []
    results = Results({"benchmark": "serve_load"} | vars(arguments) | {"src": arguments.src.name})
    with start_server(options) as server:
        measure_alone(server, texts, Translator.load(arguments.model, arguments.device, arguments.threads), results)
        measure_load(server, texts, arguments.clients, arguments.seconds, results)
        measure_overload(server, texts, arguments.seconds / 2, results)
        measure_malformed(server, texts, results)
        measure_stop(server, texts, arguments.clients, results)
    results.show()
    sys.exit(not results.passed)


if __name__ == "__main__":
    main()
