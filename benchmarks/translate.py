"""How fast translations are that `latentmt bench` does not make: with another vocabulary, in larger batches.

    python benchmarks/translate.py MODEL SOURCE [--vocabulary 32000] [--tokens 25 32] [--sentences 150] [--compiled]
    python benchmarks/translate.py MODEL SOURCE --batch-tokens 4096 8192 16384 [--sentences 1024]

MODEL has a teacher. The first pads the vocabulary with pieces that are never written and times one translation at a
time, as `bench` does. The second, on a GPU, changes how many tokens are searched together and says how many sentences
are translated a second in batches of 256: the first time through all of them, recordings included, and later. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from dataclasses import asdict, fields, replace
from pathlib import Path

import torch
from torch import nn

from latentmt.display import output
from latentmt.engines import torch_engine as engines
from latentmt.engines.torch_engine import TorchEngine, torch_engine
from latentmt.infer.postprocess import PieceTable
from latentmt.measure.latency import SourceSet, measure_speed, read_source, show_speed
from latentmt.measure.machine import Machine
from latentmt.options import DecodingOptions
from latentmt.train.ranks import pick_device
from latentmt.translator import Translator

BATCH = 256
LEAST_SECONDS = 1.0
SEARCH = DecodingOptions("score", 1, lengths=5, samples=5, rerank="teacher")
SINGLE = [
    DecodingOptions("prior", 0),
    *(DecodingOptions(method, steps) for steps in (1, 4) for method in ("score", "delta")),
]
WAYS = [  # for a model with a teacher
    *SINGLE,
    DecodingOptions("score", 1, lengths=2, rerank="teacher"),
    SEARCH,
    DecodingOptions("teacher", beam=1),
    DecodingOptions("teacher", beam=4),
]


def pad_vocabulary(translator: Translator, size: int) -> None:
    """Give the networks as many pieces, whose scores are 0."""
    engine = torch_engine(translator.backend)
    networks = engine.networks
    for network in (networks.latent, networks.teacher):
        assert network is not None
        weight = network.embedding.weight.data
        rows = weight.new_zeros(size - len(weight), weight.shape[1])
        network.embedding.weight = nn.Parameter(torch.cat((weight, rows)), requires_grad=False)
    known = networks.pieces
    parts = (getattr(known, field.name) for field in fields(known))
    table = PieceTable(*(torch.cat((part, part.new_zeros(size - len(part)))) for part in parts))
    translator.backend = TorchEngine(replace(networks, pieces=table), engine.graphed)


def rates(translator: Translator, sentences: list[list[int]], options: DecodingOptions) -> tuple[float, float]:
    """Sentences a second, the first time and once everything that can be recorded is."""
    engine = torch_engine(translator.backend)
    searching = engine.variant(engine.graphed)
    batches = [sentences[start : start + BATCH] for start in range(0, len(sentences), BATCH)]

    def through() -> float:
        start = time.perf_counter()
        for batch in batches:
            searching.best(batch, options)
        return time.perf_counter() - start

    first = through()
    for _ in range(2):
        through()
    times = [through()]
    while sum(times) < LEAST_SECONDS:
        times.append(through())
    return len(sentences) / first, len(sentences) * len(times) / sum(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="with a score and a teacher")
    parser.add_argument("source", type=Path)
    parser.add_argument("--vocabulary", type=int)
    parser.add_argument("--tokens", type=int, nargs=2, default=(25, 32), help="the length of the texts that are timed")
    parser.add_argument("--sentences", type=int, default=150)
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[])
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    translator = Translator.load(arguments.model, pick_device(arguments.device))
    if arguments.vocabulary:
        pad_vocabulary(translator, arguments.vocabulary)
    source = read_source(translator, arguments.source, 1_000_000)
    if not arguments.batch_tokens:
        low, high = arguments.tokens
        texts = [text for text in source.texts if len(text.sentences) == 1 and low <= text.tokens <= high]
        timed = SourceSet(texts[: arguments.sentences], source.files)
        show_speed(measure_speed(translator, timed, WAYS, [], arguments.compiled), output())
        return
    found = []
    sentences = [ids for text in source.texts for ids in text.sentences][: arguments.sentences]
    for options, tokens in itertools.product((SINGLE[0], SINGLE[1], SEARCH, WAYS[-1]), arguments.batch_tokens):
        engines.BATCH_TOKENS = tokens
        first, later = rates(translator, sentences, options)
        found.append({"way": str(options), "batch_tokens": tokens, "first": first, "later": later})
        print(f"{options!s:<26} {tokens:6} tokens together: {first:8,.0f} sentences/s, later {later:8,.0f}", flush=True)
    print(json.dumps(asdict(Machine.from_translator(translator)) | {"sentences": len(sentences), "results": found}))


if __name__ == "__main__":
    main()
