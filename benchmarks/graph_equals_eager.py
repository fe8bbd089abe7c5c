"""Whether decoding with CUDA graphs equals eager decoding, on the same sentences, in fp32 and bf16, for every method.

    python benchmarks/graph_equals_eager.py MODEL SOURCE [--sentences 500] [--dtypes float32 bfloat16]

Padding differs between the two, so the order of sums differs, and a token or a length may differ where two are almost
equally likely. In fp32 that must be rare. In bf16 it is not. For L=0, where differences do not propagate, the gap
between the two best logits at the first difference is shown, as a share of the larger one. Sentences of different
lengths are left out. bf16 cannot resolve 2⁻⁸ of a logit. The last line is JSON. The exit code is 1 if too much differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from latentmt.data.text import all_text, read_lines
from latentmt.data.tokens import Layout, Tokens
from latentmt.engines.torch_engine import torch_engine
from latentmt.infer.search import Networks
from latentmt.measure.methods import refining_methods
from latentmt.options import DecodingOptions, Rerank
from latentmt.train.ranks import pick_device
from latentmt.translator import Translator

ALONE = 20
"""Sentences that are also searched one by one."""
LEAST = {"float32": 0.98, "bfloat16": 0.7}
"""The share of sentences that must be equal."""


def ways(translator: Translator) -> list[DecodingOptions]:
    refining, has_teacher = refining_methods(translator), "teacher" in translator.methods
    rerank: Rerank = "teacher" if has_teacher else "decoder"
    options = [
        DecodingOptions("prior", 0),
        *(DecodingOptions(method, steps) for method in refining for steps in (1, 4)),
    ]
    options += [DecodingOptions(method, 1, lengths=5, samples=5, rerank=rerank) for method in refining]
    if translator.backend.has_language_model:
        options += [replace(way, lm_weight=0.3) for way in options if way.steps < 2 and way.candidates == 1]
    return options + ([DecodingOptions("teacher", beam=beam) for beam in (1, 4)] if has_teacher else [])


@torch.no_grad()
def gap(networks: Networks, sentence: Sequence[int], place: int, device: torch.device) -> float:
    """How close the two best tokens are at a place of L=0, relative to the better one's logit."""
    model = networks.latent
    assert model is not None
    source = model.encode(Tokens.padded([sentence]).to(device))
    lengths = model.output.predict_lengths(source)[:, 0]
    layout = Layout.from_lengths(lengths, int(lengths.max()))
    prior = model.prior(layout, model.prior.project_kv(source))
    states = model.decode(prior.mode, layout, model.decoder_stack.project_kv(source))
    first, second = model.embedding.logits(states[0, place]).float().topk(2).values.tolist()
    return float((first - second) / max(abs(first), 1e-9))


def compare(translator: Translator, sentences: list[list[int]], options: DecodingOptions) -> dict[str, Any]:
    engine = torch_engine(translator.backend)
    networks, device = engine.networks, engine.device
    eager, graphed = engine.variant(graphs=False), engine.variant(graphs=True)
    left = eager.best(sentences, options)
    alone, differing = [], []
    for _ in range(3):  # a shape is searched, then recorded, then replayed
        right = graphed.best(sentences, options)
        alone += [(left[i], graphed.best([sentence], options)[0]) for i, sentence in enumerate(sentences[:ALONE])]
        differing += [i for i, (a, b) in enumerate(zip(left, right, strict=True)) if a.decoded != b.decoded]
    gaps = []
    if options.method == "prior":
        for i in sorted({*differing}):
            pairs = list(zip(left[i].decoded, right[i].decoded, strict=False))
            place = next((place for place, (a, b) in enumerate(pairs) if a != b), None)
            if place is not None and len(left[i].decoded) == len(right[i].decoded):
                gaps.append(gap(networks, sentences[i], place, device))
    return {
        "equal": 1 - len(differing) / (3 * len(sentences)),
        "equal_alone": sum(a.decoded == b.decoded for a, b in alone) / len(alone),
        "largest_gap": max(gaps, default=0.0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--dtypes", nargs="+", choices=LEAST, default=[*LEAST])
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    device, results, enough = pick_device(arguments.device), {}, True
    for dtype in arguments.dtypes:
        translator = Translator.load(arguments.model, device, dtype=getattr(torch, dtype))
        texts = all_text(read_lines([arguments.source]))
        sentences = [ids for text in texts for ids in translator.sentences(text)][: arguments.sentences]
        for options in ways(translator):
            found = results[f"{dtype} {options}"] = compare(translator, sentences, options)
            enough &= min(found["equal"], found["equal_alone"]) >= LEAST[dtype]
            print(
                f"{dtype:<9} {options!s:<26} {found['equal']:7.2%} equal  one by one {found['equal_alone']:7.2%}  "
                f"largest gap {found['largest_gap']:.1e}",
                flush=True,
            )
    print(json.dumps({"torch": torch.__version__, "device": str(device), "enough": enough, "results": results}))
    sys.exit(not enough)


if __name__ == "__main__":
    main()
