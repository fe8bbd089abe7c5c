"""What the server does alone, under load, under too much of it, with malformed requests, and when it is told to stop.

    python benchmarks/serve_load.py --src test.de [--model NAME] [--threads 1] [--workers 2] [--seconds 60]

SRC is plain text, a sentence a line (`tests/fixtures/tatoeba/train.de`, say). The server is started as `latentmt serve`
on this machine, so it shares its cores with whoever asks. What must hold is said in each line of the table; the exit
status is 1 where it does not. The last line is JSON.

- alone: every sentence is translated by a `Translator` in this process and over HTTP in turn, so that both meet the
  same machine; the difference of the medians is what the server adds.
- load: as many clients as asked for, each with one request after another, for some seconds.
- overload: many more clients than may wait, which come back in a fifth of a second when they are refused.
- malformed: wrong types, huge bodies, invalid UTF-8 and JSON, deep nesting, nonsense for HTTP, connections that dawdle.
- stop: SIGTERM under load; whoever has sent a request gets its answer.
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

MALFORMED = 2000
OVERLOAD_CLIENTS = 400
PATIENCE = 60.0
"""Seconds after which a client gives up; that would be a failure."""
FLAT = 32e6
"""Bytes by which memory may be larger after than before, and be called flat: allocators keep some."""


@dataclass
class Server:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    port: int

    @property
    def memory(self) -> int:
        """Bytes that it has in memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def served(options: Sequence[str]) -> Iterator[Server]:
    """A server with these options of the command."""
    with tempfile.NamedTemporaryFile("w") as log:
        command = [sys.executable, "-m", "latentmt", "serve", "--port", "0", *options]
        process = subprocess.Popen(command, stderr=log, text=True)
        try:
            while not (found := re.search(r"http://\S+:(\d+)\n", said := Path(log.name).read_text())):
                if process.poll() is not None:
                    sys.exit(said.strip())
                time.sleep(0.05)
            yield Server(process, int(found[1]))
        finally:
            process.terminate()
            process.wait(60)


class Client:
    """An HTTP client that costs little: one connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, text: str) -> int:
        """The status of a translation; 0 where the connection was closed, or time went by, without an answer."""
        body = json.dumps({"q": text, "source": "de", "target": "en"}).encode()
        head = "POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        return await self.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def send(self, request: bytes) -> int:
        """The status of the answer to a request."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        try:
            async with asyncio.timeout(PATIENCE):
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
class Answers:
    """What a number of clients were answered."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    """Of those that were translated."""

    def quantile(self, share: float) -> float:
        """Milliseconds."""
        return 1e3 * sorted(self.times)[int(share * (len(self.times) - 1))]

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds


async def load(port: int, texts: Sequence[str], clients: int, seconds: float, pause: float = 0.0) -> Answers:
    """Clients that ask one thing after another for a while. `pause`: about how long to wait when refused."""
    answers, start = Answers(), time.perf_counter()

    async def client(number: int) -> None:
        rng, one = random.Random(number), Client(port)
        while time.perf_counter() - start < seconds:
            begin = time.perf_counter()
            status = await one.ask(rng.choice(texts))
            answers.statuses[status] += 1
            if status == 200:
                answers.times.append(time.perf_counter() - begin)
            elif pause:
                await asyncio.sleep(pause * rng.uniform(0.5, 1.5))
        await one.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    answers.seconds = time.perf_counter() - start
    return answers


def alone(translator: Translator, port: int, texts: Sequence[str]) -> tuple[list[float], list[float]]:
    """Seconds that each text takes without the server and with it."""

    async def measure() -> tuple[list[float], list[float]]:
        client, without, with_ = Client(port), [], []
        for text in [*texts[:10], *texts]:
            start = time.perf_counter()
            translator.translate(text)
            middle = time.perf_counter()
            assert await client.ask(text) == 200
            without.append(middle - start)
            with_.append(time.perf_counter() - middle)
        await client.close()
        return without[10:], with_[10:]

    return asyncio.run(measure())


def _probe(port: int, stop: Pipe) -> None:
    """Ask for the server's health ten times a second, and then say how long that took."""

    async def probe() -> list[float]:
        took, client = [], Client(port)
        while not stop.poll():
            start = time.perf_counter()
            status = await client.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            took.append(time.perf_counter() - start if status == 200 else PATIENCE)
            await asyncio.sleep(0.1)
        return took

    stop.send(asyncio.run(probe()))


@contextlib.contextmanager
def healthy(port: int) -> Iterator[list[float]]:
    """Seconds that the server takes to say that it is well, asked by another process all the while."""
    took: list[float] = []
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_probe, args=(port, theirs))
    process.start()
    try:
        yield took
    finally:
        ours.send(None)
        took += ours.recv()
        process.join()


@contextlib.asynccontextmanager
async def dawdling(port: int, count: int) -> AsyncIterator[None]:
    """Connections that send a byte of a request now and then."""

    async def one() -> None:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            for byte in b"POST /translate HTTP/1.1\r\nX: " + b"a" * 100:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.2)

    tasks = [asyncio.create_task(one()) for _ in range(count)]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def malformed(rng: random.Random) -> bytes:
    """A request that cannot be followed."""
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
    head = f"POST /{path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n"
    broken = rng.random()
    if broken < 0.1:
        return rng.randbytes(rng.randrange(1, 400))
    if broken < 0.2:
        return f"{head}Content-Length: {rng.choice(['-1', 'x', '9' * 30])}\r\n\r\n".encode() + body
    return f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body


async def attack(port: int, count: int) -> Counter[int]:
    """The statuses that malformed requests are answered with; 0 where the connection was closed instead."""
    rng, statuses = random.Random(1), Counter[int]()
    requests = iter([malformed(rng) for _ in range(count)])

    async def one(request: bytes) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b""
        try:
            async with asyncio.timeout(PATIENCE):
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
            statuses[await one(request)] += 1

    async with dawdling(port, 50):
        await asyncio.gather(*(client() for _ in range(16)))
    return statuses


async def until_stopped(server: Server, texts: Sequence[str], clients: int) -> Answers:
    """What clients are answered until the server, told to stop, listens no more."""
    answers = Answers()

    async def client(number: int) -> None:
        rng, one = random.Random(number), Client(server.port)
        while True:
            try:
                status = await one.ask(rng.choice(texts))
            except OSError:  # it listens no more, so nothing was accepted
                return
            answers.statuses[status] += 1
            if status == 0:
                return

    tasks = [asyncio.create_task(client(number)) for number in range(clients)]
    await asyncio.sleep(3)
    server.process.send_signal(signal.SIGTERM)
    await asyncio.gather(*tasks)
    return answers


def counted(statuses: Counter[int]) -> str:
    return ", ".join(f"{count:,} × {status or 'closed'}" for status, count in sorted(statuses.items()))


@dataclass
class Findings:
    """What was measured, for people and as JSON."""

    facts: dict[str, Any]
    rows: list[tuple[str, str, str, bool]] = field(default_factory=list)

    def found(self, what: str, figure: str, wanted: str = "", holds: bool = True) -> None:
        """A line of the table; with what is wanted, whether that holds."""
        self.rows.append((what, figure, wanted, holds))
        print(f"{what}: {figure}", file=sys.stderr, flush=True)

    def memory(self, before: int, after: int) -> None:
        self.found("  memory", f"{before / 1e6:.0f} MB, {(after - before) / 1e6:+.0f}", "flat", after - before < FLAT)

    @property
    def hold(self) -> bool:
        return all(holds for *_, holds in self.rows)

    def show(self) -> None:
        shown = [
            (what, figure, f"{wanted}: {'yes' if holds else 'NO'}" if wanted else "")
            for what, figure, wanted, holds in self.rows
        ]
        output().print(table("latentmt serve", ("", "measured", "wanted"), shown))
        print(json.dumps(self.facts | {"holds": self.hold}))


def measure_alone(server: Server, texts: Sequence[str], translator: Translator, to: Findings) -> None:
    without, with_ = (1e3 * statistics.median(times) for times in alone(translator, server.port, texts[:200]))
    to.facts |= {"translator_ms": without, "alone_ms": with_}
    to.found("alone, median", f"{with_:.1f} ms; Translator {without:.1f}", "at most 5 ms more", with_ - without <= 5)


def measure_load(server: Server, texts: Sequence[str], clients: int, seconds: float, to: Findings) -> None:
    single = asyncio.run(load(server.port, texts, 1, seconds / 4))
    to.facts["memory_mb"] = server.memory / 1e6
    many = asyncio.run(load(server.port, texts, clients, seconds))
    p50, p99 = many.quantile(0.5), many.quantile(0.99)
    to.facts |= {"single_rate": single.rate, "rate": many.rate, "p50_ms": p50, "p99_ms": p99}
    to.found("one client", f"{single.rate:.1f} sentences/s", "only 200", set(single.statuses) == {200})
    ratio = many.rate / single.rate
    to.found(
        f"{clients} clients, {seconds:.0f} s", f"{many.rate:.1f} sentences/s, × {ratio:.2f}", "at least × 2", ratio >= 2
    )
    to.found("  latency", f"p50 {p50:.0f} ms, p99 {p99:.0f} ms")
    to.found("  answers", counted(many.statuses), "only 200", set(many.statuses) == {200})


def measure_overload(server: Server, texts: Sequence[str], seconds: float, to: Findings) -> None:
    before = server.memory
    with healthy(server.port) as took:
        over = asyncio.run(load(server.port, texts, OVERLOAD_CLIENTS, seconds, pause=0.2))
    after, worst = server.memory, 1e3 * max(took)
    to.facts |= {"overload": dict(over.statuses), "overload_rate": over.rate, "health_ms": worst}
    to.facts["overload_growth_mb"] = (after - before) / 1e6
    to.found(
        f"{OVERLOAD_CLIENTS} clients", counted(over.statuses), "only 200 and 429", set(over.statuses) <= {200, 429}
    )
    to.found("  throughput", f"{over.rate:.1f} sentences/s")
    to.memory(before, after)
    to.found("  health", f"{worst:.0f} ms at worst of {len(took)}", "under 200 ms", worst < 200)


def measure_malformed(server: Server, texts: Sequence[str], to: Findings) -> None:
    asyncio.run(attack(server.port, 200))  # what is kept after the first ones is not growth
    before = server.memory
    statuses = asyncio.run(attack(server.port, MALFORMED))
    after, alive = server.memory, asyncio.run(load(server.port, texts, 1, 0.5)).statuses
    to.facts |= {"malformed": dict(statuses), "malformed_growth_mb": (after - before) / 1e6}
    holds = max(statuses) < 500 and set(alive) == {200}
    to.found(f"{MALFORMED} malformed", counted(statuses), "nothing from 500 on", holds)
    to.memory(before, after)


def measure_stop(server: Server, texts: Sequence[str], clients: int, to: Findings) -> None:
    stopped = asyncio.run(until_stopped(server, texts, clients))
    code = server.process.wait(60)
    to.facts |= {"stopped": dict(stopped.statuses), "exit": code}
    holds = set(stopped.statuses) == {200} and not code
    to.found("SIGTERM", f"{counted(stopped.statuses)}; exit {code}", "all answered", holds)


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
    to = Findings({"benchmark": "serve_load"} | vars(arguments) | {"src": arguments.src.name})
    with served(options) as server:
        measure_alone(server, texts, Translator.load(arguments.model, arguments.device, arguments.threads), to)
        measure_load(server, texts, arguments.clients, arguments.seconds, to)
        measure_overload(server, texts, arguments.seconds / 2, to)
        measure_malformed(server, texts, to)
        measure_stop(server, texts, arguments.clients, to)
    to.show()
    sys.exit(not to.hold)


if __name__ == "__main__":
    main()
