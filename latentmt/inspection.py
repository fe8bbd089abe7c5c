"""Shows what a corpus or a model contains; every file is compared with its hash first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from latentmt.bundle import Bundle, kinds_in, open_bundle
from latentmt.data.corpus import Corpus, Split
from latentmt.data.pack import pack
from latentmt.display import table
from latentmt.errors import UserError
from latentmt.installed import find_model, installed

_PACKING_SEED = 0  # which pairs share a row changes no number shown here


def show(path: Path, console: Console) -> None:
    """Describe a corpus, a bundle, a folder of bundles, or an installed model by its name."""
    if (path / "format.json").exists():
        _show_bundle(open_bundle(path), console)
    elif (path / "manifest.json").exists():
        corpus = Corpus.load(path)
        corpus.verify()
        _show_corpus(corpus, console)
    elif kinds := kinds_in(folder := find_model(path)):
        for kind in kinds:
            _show_bundle(open_bundle(folder / kind), console)
    else:
        raise UserError(f"{path}: neither a corpus (manifest.json) nor a model (format.json)")


def show_models(console: Console) -> None:
    """Print the installed models."""
    rows = []
    for name, folder in installed().items():
        bundles = {kind: open_bundle(folder / kind) for kind in kinds_in(folder)}
        size = sum(facts.bytes for bundle in bundles.values() for facts in bundle.about.files.values())
        languages = " → ".join(next(iter(bundles.values())).header.languages)
        rows.append((name, languages, ", ".join(bundles), f"{size / 1e6:.1f} MB", str(folder)))
    if not rows:
        raise UserError("no model is installed")
    console.print(table("Installed models", ["name", "languages", "bundles", "size", "folder"], rows))


def _show_bundle(bundle: Bundle, console: Console) -> None:
    bundle.verify()
    about = bundle.about
    console.print(
        f"{about.kind} {about.fingerprint[:12]}, format {about.format}, {' → '.join(bundle.header.languages)}, "
        f"{bundle.tokenizer.size:,} pieces, written by latentmt {about.package}"
    )
    if about.latent:
        console.print(f"belongs to the latent model {about.latent[:12]}")
    counts = [*about.parameters.items(), ("all", sum(about.parameters.values()))]
    console.print(table("Parameters", ["part", "parameters"], counts))
    console.print(table("Facts", ["", "value"], [(name, str(value)) for name, value in about.facts.items()]))
    console.print(table("Files", ["file", "bytes"], [(name, facts.bytes) for name, facts in about.files.items()]))


def _show_corpus(corpus: Corpus, console: Console) -> None:
    manifest = corpus.manifest
    console.print(
        f"corpus {manifest.fingerprint[:12]}, format {manifest.format}, {' → '.join(manifest.languages)}, "
        f"{manifest.vocab_size:,} pieces"
    )
    rows = [
        (name, facts.pairs, facts.source_tokens, facts.target_tokens, sum(facts.dropped.values()))
        for name, facts in manifest.splits.items()
    ]
    console.print(table("Splits", ["split", "pairs", "source tokens", "target tokens", "dropped"], rows))
    show_dropped(corpus, console)
    train = corpus.split("train")
    console.print(table("Lengths in tokens (train)", ["up to", "source", "target", ""], _histogram(train)))
    packing = pack(train.source.lengths, train.target.lengths, manifest.row_width, _PACKING_SEED)
    real = int(train.source.lengths[packing.pairs].sum() + train.target.lengths[packing.pairs].sum())
    positions = 2 * manifest.row_width * len(packing)
    console.print(
        f"packing: {len(packing.pairs):,} pairs in {len(packing):,} rows of {manifest.row_width} + "
        f"{manifest.row_width} tokens, efficiency {real / positions:.3f}"
    )
    for index in np.linspace(0, len(train) - 1, min(3, len(train))).astype(int):
        for side, sentences in (("source", train.source), ("target", train.target)):
            pieces = corpus.tokenizer.pieces([int(id_) for id_ in sentences[index]])
            console.print(Text(f"{side}  {' '.join(pieces)}"))


def show_dropped(corpus: Corpus, console: Console) -> None:
    """Print how many training pairs each rule dropped."""
    facts = corpus.manifest.splits["train"]
    rows = [("read", facts.read, "")]
    rows += [(f"− {rule}", count, f"{count / facts.read:.2%}") for rule, count in facts.dropped.items()]
    rows += [("kept", facts.pairs - facts.resampled, "")]
    rows += [("+ cut into other pieces", facts.resampled, "")] if facts.resampled else []
    console.print(table("Cleaning (train)", ["", "pairs", "share"], rows))


def _histogram(split: Split) -> Iterator[tuple[int, int, int, str]]:
    source, target = split.source.lengths, split.target.lengths
    longest = int(max(source.max(), target.max()))
    width = -(-longest // 8)
    edges = np.arange(0, longest + width, width)
    counts = [np.histogram(side, bins=edges + 0.5)[0] for side in (source, target)]
    tallest = max(1, max(int(count.max()) for count in counts))
    for edge, of_source, of_target in zip(edges[1:], *counts, strict=True):
        yield int(edge), int(of_source), int(of_target), "█" * round(20 * int(of_target) / tallest)
