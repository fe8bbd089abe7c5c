"""Mixed load for minutes while workers are killed, and then a server that is killed again and again.

    python benchmarks/serve_endurance.py --src test.de [--minutes 30] [--kill-every 60] [--server-kills 25]

SRC is plain text, a sentence per line. The server is started as `latentmt serve` with two workers on this machine, so
it shares its cores with the clients. Each line of the table says what is expected. The exit status is 1 if anything
fails. The last line is JSON.

- load: eight clients at eight addresses send sentences, lists, HTML, traces, texts in unknown languages and expensive
  searches, one after another. A worker is killed (SIGKILL) every so many seconds, and in the middle the model is loaded
  again (SIGHUP). A client that gets no answer, 429 or 503 tries again after half a second. More than one retry fails.
- memory: resident bytes of the server and its workers, every five seconds when two workers are ready. The second half
  may need no more than the first.
- server kills: a server is killed under load (SIGKILL). Its workers must end, too, and the next server must translate
  as the first one did.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serve_load import HOST, MAX_GROWTH, Client, Results, Server, format_counts, load, start_server

WORKERS = 2
CLIENTS = 8
PAUSE = 0.5
"""Seconds until a client tries again."""
SAMPLE_SECONDS = 5.0


@dataclass
class Seen:
    """What clients and memory were like."""

    statuses: Counter[int] = field(default_factory=Counter)
    retries: Counter[int] = field(default_factory=Counter)
    """How often requests were tried again: number of retries → requests."""
    times: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    kills: int = 0


def mixed(rng: random.Random, texts: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """A path and a request."""
    text = rng.choice(texts)
    requests: list[tuple[str, dict[str, Any]]] = [
        ("/translate", {"q": text}),
        ("/translate", {"q": text}),
        ("/translate", {"q": rng.sample(texts, 5)}),
        ("/translate", {"q": f"<p>{text}</p><p>Ein <b>Haus</b>.</p>", "format": "html"}),
        ("/translate", {"q": text, "source": "auto"}),
        ("/translate", {"q": text, "lengths": 5, "samples": 5, "rerank": "decoder"}),
        ("/translate", {"q": " ".join(rng.sample(texts, 20))}),
        ("/trace", {"q": text, "sentence": 0, "token": 1}),
        ("/detect", {"q": text}),
    ]
    return rng.choice(requests)


async def client(number: int, port: int, texts: Sequence[str], end: float, seen: Seen) -> None:
    rng, connection = random.Random(number), Client(port, f"127.0.0.{number + 2}")
    while time.monotonic() < end:
        path, request = mixed(rng, texts)
        start, tries = time.monotonic(), 0
        while True:
            try:
                status = await connection.post(path, **request)
            except OSError:
                status = 0
            seen.statuses[status] += 1
            if status not in (0, 429, 503):
                break
            tries += 1
            await asyncio.sleep(PAUSE)
        seen.retries[tries] += 1
        seen.times.append(time.monotonic() - start)
        await asyncio.sleep(rng.uniform(0.0, 0.3))
    await connection.close()


async def kill_workers(server: Server, every: float, end: float, seen: Seen) -> None:
    rng = random.Random(1)
    while time.monotonic() + every < end:
        await asyncio.sleep(every)
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(rng.choice(server.processes[1:]), signal.SIGKILL)
            seen.kills += 1


async def watch_memory(server: Server, end: float, seen: Seen) -> None:
    while time.monotonic() < end:
        await asyncio.sleep(SAMPLE_SECONDS)
        if len(server.processes) == WORKERS + 1:
            seen.memory.append(server.memory)


async def endure(server: Server, texts: Sequence[str], seconds: float, every: float) -> Seen:
    seen, end = Seen(), time.monotonic() + seconds
    reload = asyncio.get_running_loop().call_later(seconds / 2, server.process.send_signal, signal.SIGHUP)
    await asyncio.gather(
        kill_workers(server, every, end, seen),
        watch_memory(server, end, seen),
        *(client(number, server.port, texts, end, seen) for number in range(CLIENTS)),
    )
    reload.cancel()
    return seen


def measure_endurance(texts: Sequence[str], seconds: float, every: float, results: Results, options: list[str]) -> None:
    with start_server(options) as server:
        asyncio.run(load(server.port, texts, CLIENTS, 10.0))  # memory that is allocated once is not growth
        seen = asyncio.run(endure(server, texts, seconds, every))
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(60)
    half = len(seen.memory) // 2
    first, second = (statistics.median(part) for part in (seen.memory[:half], seen.memory[half:]))
    results.numbers |= {"statuses": dict(seen.statuses), "retries": dict(seen.retries), "kills": seen.kills}
    results.numbers["memory_mb"] = [round(sample / 1e6) for sample in seen.memory]
    shown = f"{sum(seen.retries.values()):,} requests, {seen.kills} workers killed"
    results.add(f"{seconds / 60:.0f} minutes", shown)
    allowed = set(seen.statuses) <= {200, 429, 503}
    results.add("  answers", format_counts(seen.statuses), "200, or a retry", allowed)
    tried = ", ".join(f"{count:,} × {tries}" for tries, count in sorted(seen.retries.items()))
    results.add("  retries", tried, "at most one", max(seen.retries) <= 1)
    p50, p99 = (1e3 * sorted(seen.times)[int(share * (len(seen.times) - 1))] for share in (0.5, 0.99))
    results.add("  latency", f"p50 {p50:,.0f} ms, p99 {p99:,.0f} ms, worst {1e3 * max(seen.times):,.0f} ms")
    grown = f"{first / 1e6:.0f} MB in the first half, {second / 1e6:.0f} in the second"
    results.add("  memory", f"{grown}, {max(seen.memory) / 1e6:.0f} at most", "flat", second - first < MAX_GROWTH)
    results.add("  SIGTERM", f"exit {code}", "0", code == 0)


def translation(port: int, text: str) -> str:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    connection.request("POST", "/translate", json.dumps({"q": text}), {"Content-Type": "application/json"})
    return str(json.loads(connection.getresponse().read())["translatedText"])


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def measure_server_kills(texts: Sequence[str], count: int, results: Results, options: list[str]) -> None:
    rng, same, left, expected = random.Random(2), 0, 0, ""
    for _ in range(count):
        with start_server(options) as server:
            found = translation(server.port, texts[0])
            expected = expected or found
            same += found == expected
            workers = server.processes[1:]
            killing = time.monotonic() + rng.uniform(0.0, 1.0)

            async def attack(server: Server = server, killing: float = killing) -> None:
                tasks = [asyncio.create_task(client(n, server.port, texts, killing + 9, Seen())) for n in range(4)]
                await asyncio.sleep(max(0.0, killing - time.monotonic()))
                server.process.kill()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

            asyncio.run(attack())
            server.process.wait()
            time.sleep(1.0)
            left += sum(not has_ended(pid) for pid in workers)
    results.numbers |= {"server_kills": count, "same": same, "left": left}
    figure = f"{count} kills: {same} servers translated as the first, {left} workers left behind"
    results.add("server killed", figure, "nothing lost", same == count and not left)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--model")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--kill-every", type=float, default=60)
    parser.add_argument("--server-kills", type=int, default=25)
    arguments = parser.parse_args()
    texts = [line for line in arguments.src.read_text(encoding="utf-8").splitlines() if line][:500]
    options = ["--device", "cpu", "--workers", str(WORKERS), "--threads", "1", "--engine", arguments.engine]
    options += ["--model", arguments.model] if arguments.model else []
    results = Results({"benchmark": "serve_endurance"} | vars(arguments) | {"src": arguments.src.name})
    if arguments.minutes:
        measure_endurance(texts, 60 * arguments.minutes, arguments.kill_every, results, options)
    if arguments.server_kills:
        measure_server_kills(texts, arguments.server_kills, results, options)
    results.show()
    sys.exit(not results.passed)


if __name__ == "__main__":
    main()
