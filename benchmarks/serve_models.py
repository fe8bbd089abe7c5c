"""Measures a server of one model against a server of two: start-up, memory, and the latency of one client.

    python benchmarks/serve_models.py --src test.de [--model NAME] [--sentences 300] [--rounds 5]

SRC is plain text, a sentence per line (such as `tests/fixtures/tatoeba/train.de`). The second model is a copy of the
first with its languages exchanged, so that both do the same work. Both servers run side by side, and each sentence goes
to each of them in turn, so that all meet the same conditions. Each round has new servers. The last line is JSON.

- first: the server of two models is asked for the first one only.
- in turn: it is asked for one model after the other.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from latentmt.bundle import BundleHeader, fingerprint, kinds_in, read_format
from latentmt.config import from_yaml, to_json, to_yaml
from latentmt.display import output, table
from latentmt.installed import find_model
from latentmt.verified import FileFacts

WARM = 20
"""Sentences that are translated before times count."""


def exchanged(model: Path, folder: Path) -> tuple[str, str]:
    """Copy a model with its languages exchanged. Returns the languages of the copy."""
    shutil.copytree(model, folder)
    latent = None
    for kind in kinds_in(folder):  # the latent model first
        bundle = folder / kind
        about, config = read_format(bundle), bundle / "config.yaml"
        header = from_yaml(config.read_bytes(), BundleHeader, str(config))
        header = replace(header, languages=header.languages[::-1], rules=header.rules[::-1])
        config.write_text(to_yaml(header), encoding="utf-8")
        files = {**about.files, config.name: FileFacts.of(config)}
        own = fingerprint(files)
        latent = own if kind == "latent" else latent
        about = replace(about, files=files, fingerprint=own, latent=latent if about.latent else None)
        (bundle / "format.json").write_text(to_json(about), encoding="utf-8")
    return header.languages


class Server:
    """A server in its own process, and one connection to it."""

    def __init__(self, process: subprocess.Popen[str], port: int, seconds: float) -> None:
        self.process, self.seconds = process, seconds
        self._connection = http.client.HTTPConnection("127.0.0.1", port)

    def translate(self, text: str, source: str, target: str) -> float:
        """The milliseconds that a request takes."""
        body = json.dumps({"q": text, "source": source, "target": target})
        start = time.perf_counter()
        self._connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        content = response.read()
        took = 1000 * (time.perf_counter() - start)
        assert response.status == 200, content
        return took

    @property
    def megabytes(self) -> tuple[float, float]:
        """Resident memory of the server and its workers: summed, and with shared pages in shares."""
        pids = [self.process.pid]
        pids += map(int, Path(f"/proc/{pids[0]}/task/{pids[0]}/children").read_text().split())
        rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
        resident, shares = (
            sum(int(re.findall(rf"^{name}:\s+(\d+)", rollup, re.MULTILINE)[0]) for rollup in rollups) / 1000
            for name in ("Rss", "Pss")
        )
        return resident, shares


@contextmanager
def started(*models: Path) -> Iterator[Server]:
    """A server of these models."""
    command = [sys.executable, "-m", "latentmt", "serve", "--port", "0", "--device", "cpu"]
    command += [option for model in models for option in ("--model", str(model))]
    start = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    line = process.stderr.readline()
    seconds = time.perf_counter() - start
    match = re.search(r"http://\S+:(\d+)", line)
    assert match, line
    try:
        yield Server(process, int(match[1]), seconds)
    finally:
        process.terminate()
        process.wait(60)


@dataclass
class Measured:
    """What one round found."""

    start: dict[str, float]
    """Seconds, by server."""
    memory: dict[str, tuple[float, float]]
    latency: dict[str, tuple[float, float]]
    """The medians in milliseconds of one model alone and of two, by way."""


def measure(texts: Sequence[str], languages: tuple[str, str], model: Path, copy: Path, turned: bool) -> Measured:
    """A round with servers of its own. If it is turned, that of two models is started first."""
    pairs = (languages, languages[::-1])
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        for name, models in sorted({"alone": [model], "both": [model, copy]}.items(), reverse=turned):
            servers[name] = stack.enter_context(started(*models))
        alone, both = servers["alone"], servers["both"]
        latency = {}
        for way, used in (("first", 1), ("in turn", 2)):
            times: dict[Server, list[float]] = {alone: [], both: []}
            for number, text in enumerate([*texts[:WARM], *texts]):
                for server in (alone, both) if number // 2 % 2 else (both, alone):
                    pair = pairs[number % used if server is both else 0]
                    times[server].append(server.translate(text, *pair))
            latency[way] = (statistics.median(times[alone][WARM:]), statistics.median(times[both][WARM:]))
        return Measured(
            {name: server.seconds for name, server in servers.items()},
            {name: server.megabytes for name, server in servers.items()},
            latency,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--model")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    texts = arguments.src.read_text(encoding="utf-8").splitlines()[: arguments.sentences]
    model, load = find_model(arguments.model), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "exchanged"
        target, source = exchanged(model, copy)
        rounds = [measure(texts, (source, target), model, copy, bool(n % 2)) for n in range(arguments.rounds)]
    rows = []
    for way in rounds[0].latency:
        alone, both = (statistics.median(each.latency[way][which] for each in rounds) for which in (0, 1))
        changes = [each.latency[way][1] / each.latency[way][0] - 1 for each in rounds]
        spread = f"{min(changes):+.1%} to {max(changes):+.1%}"
        rows.append((way, f"{alone:.2f} ms", f"{both:.2f} ms", f"{statistics.median(changes):+.1%}", spread))
    title = f"One client, p50 of {len(texts)} sentences, median of {len(rounds)} rounds"
    output().print(table(title, ["", "one model", "two", "change", "rounds"], rows))
    servers = []
    for name in ("alone", "both"):
        starts = [each.start[name] for each in rounds]
        resident, shares = (statistics.median(each.memory[name][kind] for each in rounds) for kind in (0, 1))
        servers.append((name, f"{statistics.median(starts):.1f} s", f"{resident:.0f} MB", f"{shares:.0f} MB"))
    output().print(table("Server", ["", "start-up", "resident", "with shared pages in shares"], servers))
    print(json.dumps({"rounds": list(map(asdict, rounds)), "load": [load, os.getloadavg()[0]]}))


if __name__ == "__main__":
    main()
