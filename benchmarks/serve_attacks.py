"""Attacks a server and measures what others notice.

    python benchmarks/serve_attacks.py --src test.de [--only NAME] [--seconds 20]

SRC is plain text, a sentence per line. Each attack gets a server of its own, started as `latentmt serve` with two
workers on this machine, so it shares its cores with the clients. Attackers and victims come from different addresses of
the loopback network (127.0.0.2, 127.0.0.3 …). The script also runs on versions before these attacks were mended. The
last line is JSON.

- freeze: a loop of one request whose text was slow to split, to parse or to normalise. Measured: the worst /healthz,
  and the median latency of another client.
- cost: the most expensive request that is accepted. Measured: the seconds of CPU that it takes.
- fairness: two attackers with eight connections each send long and expensive requests. Measured: the latency of a third
  client, against its latency alone.
- hang, crash: a sentence that hangs or ends the engine, injected by a `sitecustomize`. Measured: what another client
  and /readyz see, and how long SIGTERM takes.
- browser: a foreign name in `Host`, a form from another site, /metrics without a token, an absolute redirect.
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
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serve_load import HOST, Client, Server, probe_health, start_server

from latentmt.display import output, table

ATTACKERS = ("127.0.0.2", "127.0.0.3")
VICTIM = "127.0.0.4"
CONNECTIONS = 8
"""Of each attacker."""
PATIENCE = 60.0
"""Seconds after which a victim gives up."""
STOP_LIMIT = 75.0
"""Seconds after which a server that does not stop is killed."""

FREEZES: dict[str, dict[str, Any]] = {
    "。• × 5,000": {"q": "。•" * 5000},
    "<a × 3,333, HTML": {"q": "<a " * 3333, "format": "html"},
    "10,000 combining marks": {"q": "a" + "\u0301\u0316" * 4999},
    "100,000 combining marks": {"q": "a" + "\u0301\u0316" * 49_999},
}
LONG = 100_000
"""Characters that a server is told to allow, where a text is longer than usual."""
WORD = "Haus und Hof, "
GREEDY: tuple[dict[str, Any], ...] = (
    {"lengths": 8, "samples": 8, "rerank": "marginal", "steps": 32},
    {"lengths": 8, "samples": 8, "rerank": "marginal"},
    {"lengths": 8, "samples": 8, "rerank": "teacher", "steps": 32},
    {"lengths": 5, "samples": 5, "rerank": "teacher"},
    {"method": "teacher"},
    {"steps": 32},
    {},
)
"""From the most expensive options down."""
INJECTED = """
import os, time
from latentmt import translator
original = translator.Translator._segment
def injected(self, text, *others, **options):
    if "hang hang hang" in text:
        time.sleep(3600)
    if "crash crash crash" in text:
        os.abort()
    return original(self, text, *others, **options)
translator.Translator._segment = injected
"""


@dataclass
class Report:
    """What was measured, as a table and as JSON."""

    numbers: dict[str, Any] = field(default_factory=dict)
    rows: list[tuple[str, str]] = field(default_factory=list)

    def add(self, what: str, figure: str, **numbers: Any) -> None:
        self.rows.append((what, figure))
        self.numbers[what] = numbers or figure
        print(f"{what}: {figure}", file=sys.stderr, flush=True)

    def show(self) -> None:
        output().print(table("latentmt serve under attack", ("attack", "what others notice"), self.rows))
        print(json.dumps({"benchmark": "serve_attacks", **self.numbers}, ensure_ascii=False))


def quantile(times: Sequence[float], share: float) -> float:
    """Milliseconds."""
    return 1e3 * sorted(times)[int(share * (len(times) - 1))]


async def repeat(port: int, source: str, choose: Callable[[], dict[str, Any]], until: Callable[[], bool]) -> None:
    """One request after another."""
    client = Client(port, source)
    while not until():
        with contextlib.suppress(OSError):
            if await client.post("/translate", **choose()) in (429, 503):
                await asyncio.sleep(0.1)
    await client.close()


async def victim(port: int, texts: Sequence[str], seconds: float) -> tuple[list[float], Counter[int]]:
    """Seconds until each answer of a client that sends a sentence now and then, and all statuses.

    If it is refused, it tries again after a tenth of a second.
    """
    client, rng, times, statuses = Client(port, VICTIM), random.Random(7), list[float](), Counter[int]()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        begin, status = time.perf_counter(), -1
        while status != 200 and time.perf_counter() - begin < PATIENCE:
            if status >= 0:
                await asyncio.sleep(0.1)
            status = await client.translate(rng.choice(texts))
            statuses[status] += 1
        times.append(time.perf_counter() - begin)
        await asyncio.sleep(0.05)
    await client.close()
    return times, statuses


async def attacked(
    port: int, texts: Sequence[str], seconds: float, attacks: Sequence[tuple[str, Callable[[], dict[str, Any]]]]
) -> tuple[list[float], Counter[int]]:
    """What a victim sees while these requests are repeated, each from an address."""
    done = False
    tasks = [asyncio.create_task(repeat(port, source, choose, lambda: done)) for source, choose in attacks]
    await asyncio.sleep(1.0)
    result = await victim(port, texts, seconds)
    done = True
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return result


def cpu_seconds(server: Server) -> float:
    """Of the server and its processes."""
    total = 0
    for pid in server.processes:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def freeze(texts: Sequence[str], seconds: float, report: Report, options: Sequence[str]) -> None:
    for name, request in FREEZES.items():
        limit = ["--max-characters", str(LONG)] if len(request["q"]) > 10_000 else []
        with start_server([*options, *limit]) as server:
            alone, _ = asyncio.run(victim(server.port, texts, seconds / 2))
            with probe_health(server.port) as health:
                attacks = [(ATTACKERS[0], lambda r=request: r)]
                times, statuses = asyncio.run(attacked(server.port, texts, seconds, attacks))
            figures = [quantile(alone, 0.5), quantile(times, 0.5), 1e3 * max(health)]
            report.add(
                f"freeze: {name}",
                f"another's median {figures[1]:,.0f} ms (alone {figures[0]:,.0f}), /healthz {figures[2]:,.0f} ms",
                **dict(zip(("alone_ms", "median_ms", "health_ms"), figures, strict=True)),
                statuses=dict(statuses),
            )


def cost(_: Sequence[str], __: float, report: Report, options: Sequence[str]) -> None:
    with start_server(options) as server:
        for request in GREEDY:
            for characters in (10_000, 5_000, 2_500, 1_200, 600, 300, 150, 75, 35):
                text = (WORD * characters)[:characters]
                before, start = cpu_seconds(server), time.perf_counter()
                status = asyncio.run(Client(server.port).post("/translate", q=text, **request))
                if status != 413:
                    break
            took = time.perf_counter() - start
            time.sleep(1.0)  # what is cancelled ends within a batch
            used = cpu_seconds(server) - before
            name = ", ".join(f"{name} {value}" for name, value in request.items()) or "as it comes"
            report.add(
                f"cost: {name}",
                f"{characters:,} characters: {status} after {took:.1f} s, {used:.1f} s of CPU",
                characters=characters,
                status=status,
                seconds=took,
                cpu=used,
            )


def expensive(rng: random.Random) -> dict[str, Any]:
    """A long text, many candidates, or HTML with many tags."""
    characters = rng.choice([300, 2_000, 10_000])
    text = (WORD * characters)[:characters]
    if rng.random() < 0.2:
        return {"q": "<b>Haus</b> <i>Hof</i> " * (characters // 25), "format": "html"}
    return {"q": text, **rng.choice(GREEDY)}


def fairness(texts: Sequence[str], seconds: float, report: Report, options: Sequence[str]) -> None:
    rng = random.Random(3)
    with start_server(options) as server:
        alone, _ = asyncio.run(victim(server.port, texts, seconds))
        attacks = [(source, lambda: expensive(rng)) for source in ATTACKERS for _ in range(CONNECTIONS)]
        times, statuses = asyncio.run(attacked(server.port, texts, 2 * seconds, attacks))
    idle, p50, p99 = quantile(alone, 0.99), quantile(times, 0.5), quantile(times, 0.99)
    report.add(
        "fairness: two attackers, a third client",
        f"p50 {p50:,.0f} ms, p99 {p99:,.0f} ms; alone p99 {idle:,.0f}: × {p99 / idle:.1f}; {dict(statuses)}",
        alone_ms=[round(1e3 * t, 2) for t in alone],
        attacked_ms=[round(1e3 * t, 2) for t in times],
        ratio=p99 / idle,
        statuses=dict(statuses),
    )


@contextlib.contextmanager
def injected() -> Iterator[None]:
    """Servers started meanwhile hang or crash at certain sentences."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(INJECTED)
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, before)))
        try:
            yield
        finally:
            os.environ.pop("PYTHONPATH")
            if before:
                os.environ["PYTHONPATH"] = before


def get(
    port: int, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status, {name.lower(): value for name, value in response.getheaders()}


def stop(server: Server) -> str:
    """How long SIGTERM takes."""
    start = time.perf_counter()
    server.process.send_signal(signal.SIGTERM)
    try:
        server.process.wait(STOP_LIMIT)
    except subprocess.TimeoutExpired:
        server.process.kill()
        return f"not within {STOP_LIMIT:.0f} s"
    return f"{time.perf_counter() - start:.1f} s"


async def break_workers(port: int, kind: str, texts: Sequence[str]) -> tuple[Counter[int], Counter[int], list[float]]:
    """Send what breaks the workers, twice; and then what a victim sees."""
    broken = [asyncio.create_task(Client(port, source).translate(f"{kind} {kind} {kind}")) for source in ATTACKERS]
    await asyncio.sleep(1.0)
    statuses, times, client = Counter[int](), list[float](), Client(port, VICTIM)
    for text in texts[:20]:
        start = time.perf_counter()
        try:
            statuses[await client.translate(text)] += 1
        except OSError:
            statuses[-1] += 1
        times.append(time.perf_counter() - start)
        if sum(times) > 60:
            break
    results = Counter(
        -1 if isinstance(status, BaseException) else status
        for status in await asyncio.gather(*broken, return_exceptions=True)
    )
    return results, statuses, times


def breakage(texts: Sequence[str], _: float, report: Report, options: Sequence[str]) -> None:
    for kind in ("hang", "crash"):
        with injected(), contextlib.suppress(ProcessLookupError), start_server(options) as server:
            results, statuses, times = asyncio.run(break_workers(server.port, kind, texts))
            try:
                ready = str(get(server.port, "/readyz")[0])
            except OSError:
                ready = "no answer"
            stopped = stop(server) if server.process.poll() is None else "it is gone"
            report.add(
                f"{kind}: both workers",
                f"the request itself {dict(results)}; another client {dict(statuses)}, {max(times):.1f} s at worst; "
                f"/readyz {ready}; SIGTERM {stopped}",
            )


def browser(_: Sequence[str], __: float, report: Report, options: Sequence[str]) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("secret\n")
        keys.flush()
        with start_server([*options, "--api-keys", keys.name]) as server:
            report.add("/metrics without a token, where keys are on", str(get(server.port, "/metrics")[0]))
    with start_server(options) as server:
        form = {"Content_Type": "application/x-www-form-urlencoded", "Origin": "https://evil.example"}
        report.add("Host: evil.example", str(get(server.port, "/model", Host="evil.example")[0]))
        report.add("a form from another site", str(get(server.port, "/translate", "POST", "q=Haus", **form)[0]))
        headers = get(server.port, "/translate/", "POST", "q=Haus", Host=f"127.0.0.1:{server.port}")[1]
        report.add("redirect of /translate/", headers.get("location", "none").replace(str(server.port), "PORT"))


ATTACKS = {"freeze": freeze, "cost": cost, "fairness": fairness, "breakage": breakage, "browser": browser}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--model")
    parser.add_argument("--only", choices=ATTACKS, action="append")
    parser.add_argument("--engine", help="Not in versions before there were two.")
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    texts = [line for line in arguments.src.read_text(encoding="utf-8").splitlines() if line][:500]
    options = ["--device", "cpu", "--workers", "2", "--threads", "1"]
    options += ["--model", arguments.model] if arguments.model else []
    options += ["--engine", arguments.engine] if arguments.engine else []
    report = Report()
    for name in arguments.only or ATTACKS:
        ATTACKS[name](texts, arguments.seconds, report, options)
    report.show()


if __name__ == "__main__":
    main()
