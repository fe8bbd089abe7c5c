"""`latentmt bulk` beside `latentmt translate` on the same lines: overhead, speed with more actors, hostile rows.

    python benchmarks/bulk.py speed german.txt --actors 2       # seconds and rows/s, each command in its own process
    python benchmarks/bulk.py hostile --rows 100000             # one row in a hundred is hostile; peak memory

`speed` counts everything from start to end of the command, and beside it the rows/s once actors work. `hostile` makes
its rows, and checks that each came out once and that only hostile ones have an error.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(pretty_exceptions_enable=False)
LATENTMT = [sys.executable, "-m", "latentmt"]
WORDS = ("Heute", "wir", "drei", "rote", "Äpfel", "und", "gehen", "ohne", "Eile", "durch", "den", "alten", "Park")


def main() -> None:
    app()


@app.command()
def speed(
    lines: Annotated[Path, typer.Argument(help="A file of lines.")],
    actors: Annotated[list[int], typer.Option(help="Numbers of actors.")],
    plain: Annotated[bool, typer.Option(help="Measure `translate`, too.")] = True,
    model: str = "deen",
) -> None:
    """Seconds of `translate` and of `bulk`, and the speed-up over the first number of actors."""
    rows = sum(1 for _ in lines.open("rb"))
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        if plain:
            out = Path(folder) / "plain"
            with out.open("wb") as file:
                command = [*LATENTMT, "translate", "--model", model, "--input", str(lines), "--engine", "onnx"]
                results["translate"] = _timed(command, rows, file)[0]
        for count in actors:
            output = Path(folder) / f"out{count}"
            command = [*LATENTMT, "bulk", str(lines), str(output), "--model", model, "--to", "text"]
            result, said = _timed([*command, "--actors", str(count)], rows, None)
            working = re.search(r"rows \(([\d,]+)/s\).* in ", said)
            results[f"bulk, {count} actors"] = (
                result | {"rows/s working": float(working[1].replace(",", ""))} if working else result
            )
            if plain:
                written = b"".join(part.read_bytes() for part in sorted(output.glob("part-*")))
                assert written == out.read_bytes(), "bulk and translate differ"
    first = next(name for name in results if name != "translate")
    for base in dict.fromkeys(["translate", first] if plain else [first]):
        for result in results.values():
            result[f"rows/s over {base}"] = round(result["rows/s"] / results[base]["rows/s"], 2)
    print(json.dumps({"rows": rows, **results}, indent=1))


def _timed(command: list[str], rows: int, stdout: Any) -> tuple[dict[str, float], str]:
    start = time.monotonic()
    with (
        subprocess.Popen(command, stdout=stdout or subprocess.DEVNULL, stderr=subprocess.PIPE) as process,
        _Usage(process.pid) as usage,
    ):
        said = process.communicate()[1].decode()
    assert process.returncode == 0, said
    seconds = time.monotonic() - start
    return {"seconds": round(seconds, 1), "CPU seconds": usage.cpu_seconds, "rows/s": round(rows / seconds, 1)}, said


@app.command()
def hostile(
    rows: int = 100_000,
    share: Annotated[float, typer.Option(help="The share of hostile rows.")] = 0.01,
    actors: int = 2,
    model: str = "deen",
    method: str = "prior",
    rows_per_part: int = 2048,
) -> None:
    """A job with hostile rows: what came out, and the peak memory of all its processes together and of the largest."""
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "in.jsonl", Path(folder) / "out"
        with source.open("wb") as file:
            bad = set()
            for number, (line, is_bad) in enumerate(_rows(rows, share)):
                file.write(line + b"\n")
                bad |= {number} if is_bad else set()
        command = [*LATENTMT, "bulk", str(source), str(output), "--model", model, "--method", method]
        command += ["--actors", str(actors), "--rows-per-part", str(rows_per_part), "--steps", "0"]
        start = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as job, _Usage(job.pid) as usage:
            assert job.wait() == 0
        seconds = time.monotonic() - start
        kinds: Counter[str] = Counter()
        count = 0
        for part in sorted(output.glob("part-*")):
            with part.open("rb") as file:
                for line in file:
                    row = json.loads(line)
                    assert row["row_id"] == count
                    assert (row["error"] is not None) <= (count in bad)
                    kinds[str(row["error"]).partition(":")[0]] += 1
                    count += 1
        assert count == rows
        facts = {"rows": count, "hostile": len(bad), "errors": dict(kinds), "input MB": source.stat().st_size >> 20}
        print(json.dumps(facts | {"seconds": round(seconds)} | usage.memory(), indent=1))


def _rows(count: int, share: float) -> Iterator[tuple[bytes, bool]]:
    chance = random.Random(1)
    for number in range(count):
        text = f"{' '.join(chance.sample(WORDS, 3))} {number}."
        if chance.random() >= share:
            yield json.dumps({"id": number, "text": text}, ensure_ascii=False).encode(), False
            continue
        bad: list[bytes] = [
            json.dumps({"text": "x" * 1_000_000}).encode(),
            b'{"text": "schl\xe4cht"}',
            b'{"text": ' + b"[" * 5000,
            b"",
            bytes(chance.randrange(11, 256) for _ in range(200)),
            b'{"text": null, "id": 1e999}',
            json.dumps({"text": "\ud800 \0 \u202e" + "a\u0301" * 300}).encode(),
            json.dumps({"text": "Wort" * 500}).encode(),
        ]
        yield chance.choices(bad, [1, 4, 4, 4, 4, 4, 4, 1])[0], True


class _Usage:
    """The memory and the CPU time of a process and of all that it has started, sampled while it runs."""

    def __init__(self, process: int) -> None:
        self._process, self._end = process, threading.Event()
        self._memory: list[Counter[str]] = []
        self._ticks: dict[int, int] = {}
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Usage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> float:
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> dict[str, Any]:
        """Megabytes: the peak of the sum and of each kind of process, over all the time and in each fifth of it."""
        count = len(self._memory)
        fifths = [self._memory[count * part // 5 : count * (part + 1) // 5] for part in range(5)]
        names = sorted({name for sample in self._memory for name in sample})
        return {
            "peak MB": max(sample.total() for sample in self._memory),
            "peak MB by fifth": [max(sample.total() for sample in fifth) for fifth in fifths],
            "peak MB by fifth and process": {
                name: [max(sample[name] for sample in fifth) for fifth in fifths] for name in names
            },
        }

    def _run(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._end.wait(0.2):
            found: dict[int, tuple[str, list[str], int]] = {}
            for status in Path("/proc").glob("[0-9]*/stat"):
                try:
                    name, _, rest = status.read_text().partition("(")[2].rpartition(")")
                    resident, shared = status.with_name("statm").read_text().split()[1:3]
                except OSError:  # it has ended
                    continue
                found[int(status.parent.name)] = name, rest.split(), (int(resident) - int(shared)) * page >> 20
            ours, before = {self._process}, 0
            while len(ours) > before:
                before = len(ours)
                ours |= {child for child, (_, fields, _) in found.items() if int(fields[1]) in ours}
            sample: Counter[str] = Counter()
            for number in ours & found.keys():
                name, fields, size = found[number]
                sample["driver" if number == self._process else name] += size
                self._ticks[number] = int(fields[11]) + int(fields[12])
            self._memory.append(sample)


if __name__ == "__main__":
    main()
