"""Raw text → a corpus on disk: read, normalise, clean, learn the tokenizer, encode, write.

Text is streamed in chunks, so memory does not grow with the corpus, except for the hashes that find duplicates. The
result is a function of the configuration, the files and the tokenizer. Their fingerprint tells whether the corpus
exists already.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from latentmt.config import Section, original_names, to_dict
from latentmt.data.clean import CleanConfig, CleanCounts, Cleaner, keep_lengths
from latentmt.data.corpus import FORMAT, MAX_ROW_WIDTH, MONOLINGUAL, Corpus, CorpusWriter, SplitFacts, SplitWriter
from latentmt.data.normalise import TextRules, normalise
from latentmt.data.placeholders import PairMasker, PlaceholderConfig
from latentmt.data.resample import ResampleConfig, Resampler
from latentmt.data.text import BadLine, Pair, ParallelText, read_lines, read_pairs
from latentmt.data.tokenizer import EOS, PLACEHOLDERS, Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.display import ProgressBar, info
from latentmt.errors import UserError
from latentmt.files import sha256

_CHUNK = 16_384
"""Pairs processed at a time."""


@dataclass(frozen=True, kw_only=True)
class DataConfig(Section):
    """A recipe's corpus. File names are relative to the data folder."""

    languages: tuple[str, str]
    """Source and target language, as ISO 639-1 codes."""
    train: tuple[ParallelText, ...]
    """Training text. It is cleaned."""
    dev: ParallelText
    """The development set. It is not cleaned."""
    test: ParallelText | None = None
    """The test set. It is not cleaned."""
    monolingual: tuple[str, ...] = ()
    """Files of source sentences without a translation, for distillation. They are cleaned."""
    source: TextRules = field(default_factory=TextRules)
    target: TextRules = field(default_factory=TextRules)
    clean: CleanConfig = field(default_factory=CleanConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    placeholders: PlaceholderConfig = field(default_factory=PlaceholderConfig)
    resample: ResampleConfig = field(default_factory=ResampleConfig)
    row_width: Annotated[int, Field(ge=2, le=MAX_ROW_WIDTH)] = 64
    """Tokens on either side of a packed training row."""

    def held_out(self) -> dict[str, ParallelText]:
        return {"dev": self.dev} | ({"test": self.test} if self.test else {})


def prepare(
    config: DataConfig,
    folder: Path,
    out: Path,
    tokenizer: Tokenizer | None = None,
    before_write: Callable[[str, Mapping[str, Any]], None] = lambda fingerprint, settings: None,
) -> tuple[Corpus, bool]:
    """The corpus of a configuration, written to `out` unless it exists, and whether it was written.

    Without a tokenizer, one is trained on the cleaned training text. `before_write` is called with the fingerprint and
    the settings of the corpus before anything is written.
    """
    if config.row_width < config.clean.max_length:
        raise UserError(f"row_width {config.row_width} has no room for max_length {config.clean.max_length}")
    texts = [*config.train, *config.held_out().values()]
    files = [name for text in texts for name in text.files()] + list(config.monolingual)
    sources = {name: sha256(folder / name) for name in files}
    fingerprint = _fingerprint(config, sources, tokenizer)
    given = tokenizer.fingerprint if tokenizer else None
    settings = {"data": _deciding(config), "files": sources, "tokenizer": given}
    before_write(fingerprint, settings)
    if corpus := Corpus.existing(out, fingerprint):
        return corpus, False
    if tokenizer is None:
        tokenizer = _learn_tokenizer(config, folder)
    if len(tokenizer.placeholders) != config.tokenizer.placeholders:
        reserved, expected = len(tokenizer.placeholders), config.tokenizer.placeholders
        raise UserError(f"the tokenizer reserves {reserved} placeholders, the recipe's data.tokenizer says {expected}")
    with CorpusWriter(out, tokenizer) as writer:
        splits = {"train": _write_train(config, folder, tokenizer, writer.split("train"))}
        for name, text in config.held_out().items():
            splits[name] = _write_held_out(config, text, folder, tokenizer, writer, name)
        if not splits["train"].pairs:
            raise UserError("no training pair is left after cleaning")
        if config.monolingual:
            splits[MONOLINGUAL] = _write_monolingual(config, folder, tokenizer, writer.split(MONOLINGUAL))
        writer.commit(
            fingerprint=fingerprint,
            settings=settings,
            languages=config.languages,
            rules=(config.source, config.target),
            row_width=config.row_width,
            sources=sources,
            splits=splits,
        )
    return Corpus.load(out), True


def _fingerprint(config: DataConfig, sources: dict[str, str], tokenizer: Tokenizer | None) -> str:
    facts = {
        "format": FORMAT,
        "config": original_names(_deciding(config), DataConfig),
        "sources": sources,
        "tokenizer": tokenizer.fingerprint if tokenizer else None,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _deciding(config: DataConfig) -> dict[str, Any]:
    """The settings that affect the corpus. Unused keys are left out, so fingerprints older than a key stay valid."""
    settings = to_dict(config)
    if not config.resample.copies:
        del settings["resample"]
    if not config.tokenizer.placeholders:
        del settings["placeholders"], settings["tokenizer"]["placeholders"]
    if not config.monolingual:
        del settings["monolingual"]
    for text in [*settings["train"], settings["dev"], settings["test"]]:
        if text and text["repeat"] == 1:
            del text["repeat"]
    return settings


def _learn_tokenizer(config: DataConfig, folder: Path) -> Tokenizer:
    def sentences() -> Iterator[str]:
        for pair in itertools.chain.from_iterable(_clean_train(config, folder, CleanCounts())):
            yield pair.source
            yield pair.target

    start = time.monotonic()
    tokenizer = train_tokenizer(sentences(), config.tokenizer)
    info(f"tokenizer: {tokenizer.size:,} pieces learnt in {time.monotonic() - start:.1f} s")
    return tokenizer


def _clean_train(config: DataConfig, folder: Path, counts: CleanCounts) -> Iterator[list[Pair]]:
    """The training pairs that pass the rules on text, in chunks, each as often as `repeat` says."""
    cleaner, mask = Cleaner(config.clean), _masker(config)
    for text in config.train:
        for chunk in _chunks(read_pairs(text, folder)):
            counts.read += len(chunk)
            pairs = _valid_pairs(chunk, config, counts)
            kept = cleaner.keep_text([_normalised(pair, config) for pair in pairs], counts)
            counts.repeated += (text.repeat - 1) * len(kept)
            for _ in range(text.repeat):
                yield [mask(pair) for pair in kept]


def _masker(config: DataConfig) -> PairMasker:
    return PairMasker(PLACEHOLDERS[: config.tokenizer.placeholders], config.placeholders)


def _write_train(config: DataConfig, folder: Path, tokenizer: Tokenizer, writer: SplitWriter) -> SplitFacts:
    counts, resample = CleanCounts(), Resampler(tokenizer, config.resample)
    with ProgressBar("train", "pairs") as progress:
        for pairs in _clean_train(config, folder, counts):
            source, target = _encode(pairs, tokenizer)
            lengths = [np.array([len(ids) for ids in side], dtype=np.int64) for side in (source, target)]
            keep = np.flatnonzero(keep_lengths(lengths[0], lengths[1], config.clean, counts))
            writer.append([source[i] for i in keep], [target[i] for i in keep])
            for _ in range(config.resample.copies):
                resampled = ((resample(pairs[i].source), target[i]) for i in keep)
                fitting = [(ids, target_ids) for ids, target_ids in resampled if len(ids) <= config.clean.max_length]
                writer.append([ids for ids, _ in fitting], [target_ids for _, target_ids in fitting])
            progress.advance(counts.read - progress.done)
    facts = _facts(writer, counts)
    return replace(facts, resampled=facts.pairs - (counts.read + counts.repeated - sum(counts.dropped.values())))


def _write_monolingual(config: DataConfig, folder: Path, tokenizer: Tokenizer, writer: SplitWriter) -> SplitFacts:
    """Sources without a translation. They are cleaned as pairs of equal sides and written with empty targets."""
    # No random names are masked: with equal sides every capitalised word would be one.
    counts, mask = CleanCounts(), _masker(replace(config, placeholders=replace(config.placeholders, share=0.0)))
    languages = config.clean.languages and (config.clean.languages[0],) * 2
    cleaner = Cleaner(replace(config.clean, languages=languages))
    lines = read_lines([folder / name for name in config.monolingual])
    with ProgressBar(MONOLINGUAL, "sentences") as progress:
        for chunk in _chunks(Pair(line, line) if isinstance(line, str) else line for line in lines):
            counts.read += len(chunk)
            pairs = _valid_pairs(chunk, config, counts)
            normalised = [normalise(pair.source, config.source) for pair in pairs]
            kept = cleaner.keep_text([Pair(text, text) for text in normalised], counts)
            source = tokenizer.encode([mask(pair).source for pair in kept], os.cpu_count() or 1)
            lengths = np.array([len(ids) for ids in source], dtype=np.int64)
            keep = np.flatnonzero(keep_lengths(lengths, lengths, config.clean, counts))
            writer.append([source[i] for i in keep], [[EOS]] * len(keep))
            progress.advance(len(chunk))
    return _facts(writer, counts)


def _valid_pairs(chunk: list[Pair | BadLine], config: DataConfig, counts: CleanCounts) -> list[Pair]:
    """The valid pairs of a chunk. Bad lines are an error or are counted, as the configuration says."""
    pairs = [pair for pair in chunk if isinstance(pair, Pair)]
    if len(pairs) < len(chunk) and config.clean.bad_lines == "error":
        raise UserError(next(line.message for line in chunk if isinstance(line, BadLine)))
    counts.dropped["not text"] += len(chunk) - len(pairs)
    return pairs


def _write_held_out(
    config: DataConfig,
    text: ParallelText,
    folder: Path,
    tokenizer: Tokenizer,
    writer: CorpusWriter,
    name: str,
) -> SplitFacts:
    counts = CleanCounts()
    ids, lines = writer.split(name), writer.text(name)
    for chunk in _chunks(read_pairs(text, folder)):
        pairs = []
        for pair in chunk:
            if isinstance(pair, BadLine):  # a dropped line would misalign the references
                raise UserError(pair.message)
            pairs.append(_normalised(pair, config))
        counts.read += len(pairs)
        ids.append(*_encode(pairs, tokenizer))
        for file, side in zip(lines, ([p.source for p in pairs], [p.target for p in pairs]), strict=True):
            file.write("".join(f"{line}\n" for line in side).encode())
    if not counts.read:
        raise UserError(f"the {name} split is empty: {', '.join(text.files())}")
    return _facts(ids, counts)


def _normalised(pair: Pair, config: DataConfig) -> Pair:
    return Pair(normalise(pair.source, config.source), normalise(pair.target, config.target))


def _encode(pairs: list[Pair], tokenizer: Tokenizer) -> tuple[list[list[int]], list[list[int]]]:
    threads = os.cpu_count() or 1
    source = tokenizer.encode([pair.source for pair in pairs], threads)
    return source, tokenizer.encode([pair.target for pair in pairs], threads)


def _facts(writer: SplitWriter, counts: CleanCounts) -> SplitFacts:
    return SplitFacts(
        pairs=writer.pairs,
        source_tokens=writer.tokens[0],
        target_tokens=writer.tokens[1],
        read=counts.read,
        dropped={rule: count for rule, count in counts.dropped.items() if count},
        repeated=counts.repeated,
    )


def _chunks(pairs: Iterable[Pair | BadLine]) -> Iterator[list[Pair | BadLine]]:
    pairs = iter(pairs)
    while chunk := list(itertools.islice(pairs, _CHUNK)):
        yield chunk
