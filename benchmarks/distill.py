"""The speed of distillation, from plain beam search to `latentmt distill`, one improvement at a time.

    python benchmarks/distill.py TEACHER CORPUS [--sentences 100000] [--plain-sentences 2000] [--beam 4] [--device cuda]

TEACHER is a teacher's bundle, CORPUS a folder written by `latentmt prepare`. The first sentences of its training split
are distilled into a temporary folder by `latentmt.distill`, including all files. The plain search, which is slow, gets
fewer of them. "In search" is the share of time spent in `beam_search`. The host reads and writes sentences in the rest.
"As plain" is the share of targets equal to those of the plain search. "Replaced" are those without a usable
translation, which keep the reference. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from latentmt import distill as distilling
from latentmt.data.corpus import Corpus, CorpusWriter, Sentences
from latentmt.distill import DistillConfig, distill
from latentmt.engines.torch_engine import device_name
from latentmt.infer import beam
from latentmt.infer.beam import Hypothesis
from latentmt.models.teacher import Teacher
from latentmt.networks import load_bundle
from latentmt.options import BeamConfig
from latentmt.train.ranks import pick_device

PLAIN_TOKENS = 4096
"""Tokens of a plain batch."""
WARM_UP = 64
"""Sentences distilled before the clock starts, so that kernels are loaded."""


@dataclass(frozen=True)
class Variant:
    """A way to distil."""

    name: str
    batch_tokens: int
    bf16: bool
    compact: bool
    """Whether done sentences are taken out of the batch."""


def variants(batch_tokens: int, device: torch.device) -> list[Variant]:
    """Each has what the one before has, and one thing more. bf16 is for GPUs."""
    found = [Variant("plain", PLAIN_TOKENS, False, False), Variant("+ large batches", batch_tokens, False, False)]
    if device.type == "cuda":
        found.append(Variant("+ bf16", batch_tokens, True, False))
    return [*found, replace(found[-1], name="+ done sentences out", compact=True)]


def first_sentences(corpus: Corpus, count: int, folder: Path) -> Corpus:
    """A corpus of the first training pairs, and nothing else."""
    manifest, split = corpus.manifest, corpus.split("train")
    pairs = min(count, len(split))
    with CorpusWriter(folder, corpus.tokenizer) as writer:
        train = writer.split("train")
        train.append(*([side[i].tolist() for i in range(pairs)] for side in (split.source, split.target)))
        facts = replace(
            manifest.splits["train"], pairs=pairs, source_tokens=train.tokens[0], target_tokens=train.tokens[1]
        )
        writer.commit(
            fingerprint=f"the first {pairs} pairs of {manifest.fingerprint}",
            settings=manifest.settings,
            languages=manifest.languages,
            rules=manifest.rules,
            row_width=manifest.row_width,
            sources=manifest.sources,
            splits={"train": facts},
        )
    return Corpus.load(folder)


@contextlib.contextmanager
def searching(compact: bool) -> Iterator[list[float]]:
    """Let distillation search with or without compaction; the seconds of each search, as they come."""
    search, below, seconds = beam.beam_search, beam._COMPACT_BELOW, []

    def timed(*arguments: Any) -> list[Hypothesis]:
        began = time.perf_counter()
        found = search(*arguments)  # as lists: it has waited for the device
        seconds.append(time.perf_counter() - began)
        return found

    if not compact:
        beam._COMPACT_BELOW = 0.0
    distilling.beam_search = timed  # type: ignore[assignment,attr-defined]
    try:
        yield seconds
    finally:
        beam._COMPACT_BELOW = below
        distilling.beam_search = search  # type: ignore[attr-defined]


def measure(
    variant: Variant, teacher: Teacher, corpus: Corpus, search: BeamConfig, device: torch.device
) -> tuple[dict[str, float], Sentences]:
    """How fast a corpus is distilled, and the targets that come of it."""
    config = DistillConfig(beam=search, batch_tokens=variant.batch_tokens, bf16=variant.bf16)
    peak = 0.0
    with tempfile.TemporaryDirectory() as folder, searching(variant.compact) as seconds:
        few = first_sentences(corpus, WARM_UP, Path(folder, "few"))
        distill(teacher, few, Path(folder, "warm"), config, teacher_hash="", device=device)
        seconds.clear()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        began = time.perf_counter()
        distilled, facts = distill(teacher, corpus, Path(folder, "out"), config, teacher_hash="", device=device)
        whole = time.perf_counter() - began
        if device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(device) / 2**30
        target = distilled.split("train").target
        kept = Sentences(target.ids.copy(), target.offsets.copy())
    found = {"sentences": facts.pairs, "seconds": whole, "per_s": facts.pairs / whole, "replaced": facts.replaced}
    found["source_tokens_per_s"] = corpus.manifest.splits["train"].source_tokens / whole
    return found | {"in_search": sum(seconds) / whole, "batches": len(seconds), "peak_gib": peak}, kept


def equal(left: Sentences, right: Sentences) -> float:
    """The share of sentences that are the same, as far as both go."""
    count = min(len(left), len(right))
    same: list[bool] = [left[i].tolist() == right[i].tolist() for i in range(count)]
    return sum(same) / max(1, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--sentences", type=int, default=100_000)
    parser.add_argument("--plain-sentences", type=int, default=2_000)
    parser.add_argument("--batch-tokens", type=int, default=131_072)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    device, search = pick_device(arguments.device), BeamConfig(beam=arguments.beam)
    teacher = cast(Teacher, load_bundle(arguments.teacher, device, "teacher").network)
    results: dict[str, Any] = {}
    plain: Sentences | None = None
    with tempfile.TemporaryDirectory() as folder:
        whole = first_sentences(Corpus.load(arguments.corpus), arguments.sentences, Path(folder, "whole"))
        few = first_sentences(whole, arguments.plain_sentences, Path(folder, "few"))
        for variant in variants(arguments.batch_tokens, device):
            found, targets = measure(variant, teacher, few if plain is None else whole, search, device)
            plain = targets if plain is None else plain
            found["as_plain"] = equal(plain, targets)
            results[variant.name] = found
            found["ratio"] = found["per_s"] / results["plain"]["per_s"]
            print(_line(variant.name, found), flush=True)
    facts = {"beam": arguments.beam, "batch_tokens": arguments.batch_tokens, "torch": torch.__version__}
    print(json.dumps(facts | {"device": device_name(device), "results": results}))


def _line(name: str, found: dict[str, float]) -> str:
    return (
        f"{name:<21} {found['sentences']:>8,} sentences {found['per_s']:>8,.0f}/s  {found['ratio']:6.2f} × plain  "
        f"{found['in_search']:4.0%} in search  {found['as_plain']:6.1%} as plain  {found['replaced']:>6,} replaced  "
        f"{found['peak_gib']:5.1f} GiB"
    )


if __name__ == "__main__":
    main()
