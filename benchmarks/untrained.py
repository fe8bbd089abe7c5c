"""What models cost on a CPU core before anybody trains them: milliseconds and multiplications a sentence.

    pip install ctranslate2
    python benchmarks/untrained.py models/deen-teacher/teacher --set NAME dev.de dev.en --json untrained.json

Candidates have random weights and the tokenizer of the bundle that is named: latent models with CTC and a score on the
ONNX engine, autoregressive students in CTranslate2, all in int8 and of preset `small`. They take turns as in `cpu.py`.
With CTC the number of places follows from the source, so random weights cost what trained ones do; a random student is
made to write as many pieces as its source has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from cpu import System, TestSet, take_turns

from latentmt.data.text import all_text, read_lines
from latentmt.data.tokenizer import Tokenizer
from latentmt.export.graph import quantisable
from latentmt.export.model import graph_files
from latentmt.fields.learned import FieldConfig
from latentmt.models.latent import LatentConfig
from latentmt.models.teacher import TeacherConfig
from latentmt.networks import BundleConfig, LoadedBundle, load_bundle, quantised, save_bundle

LATENT = ((6, 3), (6, 5), (6, 6))
STUDENTS = ((2, 1), (6, 2))
"""Layers of encoder and decoder."""
WAYS = ((1, "greedy"), (4, "beam 4"))
WIDTH, FILTER = 256, 1024
Sentences = Sequence[Sequence[int]]
L0: dict[str, Any] = {"method": "prior", "steps": 0, "verbatim": False}
SCORE: dict[str, Any] = {"method": "score", "steps": 1, "lengths": 1, "samples": 1, "rerank": "none", "verbatim": False}


@dataclass(frozen=True)
class Timed:
    """A system, and the multiplications of a sentence, the mean."""

    system: System
    multiplications: float


def write(folder: Path, config: BundleConfig, tokenizer: Tokenizer, latent: str | None = None) -> str:
    """A bundle with random weights, in int8; its fingerprint."""
    torch.manual_seed(1)
    network = config.network(tokenizer.size).eval()
    matrices = quantisable(network)
    files = {} if config.teacher else graph_files(network, config.kind, matrices)
    weights = quantised(network.state_dict(), matrices)
    return save_bundle(folder / config.kind, config, tokenizer, weights, latent=latent, files=files).fingerprint


def encoder(source: int, layers: int) -> int:
    """Multiplications of an encoder."""
    return layers * (source * (4 * WIDTH**2 + 2 * WIDTH * FILTER) + 2 * source**2 * WIDTH)


def decoder(places: int, source: int, layers: int, rows: int = 1, seen: float = 1.0) -> float:
    """Those of a decoder stack. `seen`: the share of the places that a place attends to, 1/2 step by step."""
    of_places = places * (6 * WIDTH**2 + 2 * WIDTH * FILTER) + 2 * places * (seen * places + source) * WIDTH
    return layers * (rows * of_places + 2 * source * WIDTH**2)


def student(source: int, target: int, layers: tuple[int, int], vocabulary: int, beam: int) -> float:
    """Those of an autoregressive model that writes so many pieces."""
    steps = decoder(target, source, layers[1], beam, 0.5)
    return encoder(source, layers[0]) + steps + beam * target * WIDTH * vocabulary


def latent(source: int, layers: tuple[int, int], vocabulary: int, places: int, score: bool, rows: int = 1) -> float:
    """Those of a latent model with three layers in prior and score."""
    stacks = (3, layers[1], *([3] if score else []))
    decoding = sum(decoder(places, source, number, rows) for number in stacks)
    return encoder(source, layers[0]) + decoding + rows * places * WIDTH * vocabulary


def latent_candidates(like: LoadedBundle, folder: Path, sentences: Sentences) -> list[Timed]:
    """Latent models with a score."""
    found = []
    for layers in LATENT:
        model = folder / "latent{}_{}".format(*layers)
        sizes: Any = {"preset": "small", "encoder_layers": layers[0], "decoder_layers": layers[1], "output": "ctc"}
        config = replace(like.config, teacher=None, latent=LatentConfig(**sizes))
        fingerprint = write(model, config, like.tokenizer)
        write(model, replace(config, field=FieldConfig(kind="score", preset="small")), like.tokenizer, fingerprint)
        for way, options, score in (("L=0", L0, False), ("score-1", SCORE, True)):
            costs = [latent(len(ids), layers, like.tokenizer.size, 2 * len(ids), score) for ids in sentences]
            name = "latent {}/{}, {}".format(*layers, way)
            found.append(Timed(System(name, "onnx", str(model), options, False), statistics.fmean(costs)))
    return found


def students(like: LoadedBundle, folder: Path, sentences: Sentences) -> list[Timed]:
    """Autoregressive models."""
    found = []
    for layers in STUDENTS:
        model = folder / "student{}_{}".format(*layers)
        teacher = TeacherConfig(preset="small", encoder_layers=layers[0], layers=layers[1], heads=4)
        write(model, replace(like.config, latent=None, teacher=teacher), like.tokenizer)
        for beam, way in WAYS:
            costs = [student(len(ids), len(ids), layers, like.tokenizer.size, beam) for ids in sentences]
            options = {"method": "teacher", "beam": beam, "verbatim": False}
            name = "CTranslate2, student {}/{}, {}".format(*layers, way)
            system = System(name, "ctranslate2", str(model), options, False, forced=True)
            found.append(Timed(system, statistics.fmean(costs)))
    return found


def main() -> None:
    """Write the candidates, time them, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("like", type=Path, help="a bundle with the tokenizer and languages of the candidates")
    parser.add_argument("--set", action="append", nargs=3, metavar=("NAME", "SRC", "REF"), required=True)
    parser.add_argument("--timed", type=int, default=100, help="how many of each set are timed")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sets = [
        TestSet(name, *(list(all_text(read_lines([Path(path)])))[: arguments.timed] for path in paths))
        for name, *paths in arguments.set
    ]
    texts = [source for each in sets for source in each.sources]
    like = load_bundle(arguments.like)
    sentences = like.tokenizer.encode(texts)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        timed = [*latent_candidates(like, folder, sentences), *students(like, folder, sentences)]
        rows = take_turns([each.system for each in timed], sets, arguments.timed, arguments.core)
    results = [asdict(row) | {"mmac": each.multiplications / 1e6} for row, each in zip(rows, timed, strict=True)]
    print(f"pieces a sentence: {statistics.fmean(map(len, sentences)):.1f}")
    for result in results:
        mean = statistics.fmean(result["milliseconds"].values())
        print(f"{result['name']:<38} {mean:6.2f} ms, {result['median']:6.2f} p50, {result['mmac']:7.0f} MMAC")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
