"""The speed of `latentmt prepare` with a given tokenizer: pairs per second, seconds and peak memory.

    python benchmarks/prepare.py RECIPE --data FOLDER [--set …]

The tokenizer is trained first, in a separate run whose time is printed separately. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def timed(command: list[str]) -> tuple[float, float]:
    """Seconds and peak memory in MB of a command."""
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "latentmt", *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"failed: latentmt {' '.join(command)}")
    return time.monotonic() - start, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--data", required=True)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    arguments = parser.parse_args()
    common = [arguments.recipe, "--data", arguments.data]
    for override in arguments.overrides:
        common += ["--set", override]
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "learnt"), Path(folder, "given")
        learnt_seconds, learnt_memory = timed(["prepare", *common, "--work", str(first)])
        tokenizer = next(first.glob("corpus/data-*/tokenizer.model"))
        seconds, memory = timed(["prepare", *common, "--work", str(second), "--tokenizer", str(tokenizer)])
        manifest = json.loads((second / "corpus" / "manifest.json").read_text())
    train = manifest["splits"]["train"]
    print(f"learning the tokenizer added {learnt_seconds - seconds:.1f} s (peak {learnt_memory:.0f} MB)")
    print(f"{train['read']:,} pairs in {seconds:.1f} s, {train['read'] / seconds:,.0f} pairs/s, peak {memory:.0f} MB")
    result = {
        "benchmark": "prepare",
        "pairs": train["read"],
        "seconds": round(seconds, 1),
        "pairs_per_second": round(train["read"] / seconds),
        "peak_mb": round(memory),
        "tokenizer_seconds": round(learnt_seconds - seconds, 1),
        "cores": os.cpu_count(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
