"""The teacher over a corpus: a corpus of the same sources with the teacher's translations as targets.

    out/parts/00012.npz     the translations of a few batches, there until the corpus is
    out/manifest.json …     the new corpus

Batches depend on the corpus and the configuration alone. So any number of ranks may share the parts, and a run that
was killed goes on with the parts it lacks. Parts come in random order: the first few are a fair sample of the corpus.
A source that occurs several times is translated once. A translation that a model could not be trained on (empty,
without an end, too long for a row) is replaced by the reference and counted; a monolingual source, which has none, is
left out. How a teacher is hashed and how ranks wait for each other are the caller's business.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt32, UInt64
from pydantic import Field

from latentmt.config import Section, original_names, to_tree
from latentmt.data.batches import padded_batches
from latentmt.data.corpus import MONOLINGUAL, SIDES, Corpus, CorpusWriter, Sentences, Split, SplitWriter
from latentmt.data.tokens import Tokens
from latentmt.display import Counting
from latentmt.errors import UserError
from latentmt.files import make_folder, remove, write_atomically
from latentmt.infer.beam import BeamConfig, beam_search
from latentmt.models.presets import Count
from latentmt.models.teacher import Teacher

FORMAT = 2
"""Raised whenever the same configuration would make another corpus, or a part written before could be misread."""

_Batches = list[Int[np.ndarray, "_"]]
"""The numbers of the sentences in each batch."""

_CHUNK = 16_384
"""Pairs written at a time."""


@dataclass(frozen=True, kw_only=True)
class DistillConfig(Section):
    """How the teacher translates the training sources."""

    aliases: ClassVar[Mapping[str, str]] = {"part_batches": "shard_batches"}

    beam: BeamConfig = field(default_factory=BeamConfig)
    batch_tokens: Annotated[int, Field(ge=1)] = 131_072
    """Tokens of a batch, each sentence counted as the batch's longest source and `max_extra` tokens more."""
    shard_batches: Count = 1
    """Batches in a part: what a rank takes at a time, and what a killed run loses at most."""
    bf16: bool = True
    """On a GPU, translate in bfloat16."""


@dataclass(frozen=True)
class DistillFacts:
    """What came of it."""

    pairs: int
    """Training pairs, those from monolingual sources among them."""
    replaced: int
    """Pairs that kept their reference."""
    translated: int
    """Sentences that this call translated; the others had been before, or were another rank's."""


@dataclass(frozen=True)
class _Part:
    """The translations of some sources, in the order of the batches; empty where there is no usable one."""

    ids: UInt32[np.ndarray, tokens]
    lengths: Int64[np.ndarray, n]


class _Sources:
    """What is translated: training sources, then monolingual ones, numbered in this order."""

    def __init__(self, corpus: Corpus) -> None:
        names = ["train"] + [MONOLINGUAL] * (MONOLINGUAL in corpus.manifest.splits)
        self._splits = [corpus.split(name).source for name in names]
        self.training = len(self._splits[0])
        """How many have a reference."""
        self.lengths = np.concatenate([side.lengths for side in self._splits])
        hashes = np.concatenate([_hashes(side, corpus.manifest.vocab_size) for side in self._splits])
        _, first, self.of = np.unique(hashes, return_index=True, return_inverse=True)
        self.distinct = first
        """The first of each set of equals."""

    def __getitem__(self, number: int) -> list[int]:
        side, place = (0, number) if number < self.training else (1, number - self.training)
        ids: list[int] = self._splits[side][place].tolist()
        return ids

    def __len__(self) -> int:
        return len(self.lengths)


def _hashes(sentences: Sentences, vocab_size: int) -> UInt64[np.ndarray, n]:
    """A 64-bit hash of each sentence. Two that differ collide in about n²/2⁶⁵ of all corpora."""
    if not len(sentences):
        return np.zeros(0, dtype=np.uint64)
    random = np.random.default_rng(0)
    of_id = random.integers(2**64, size=vocab_size, dtype=np.uint64)
    of_place = random.integers(2**64, size=int(sentences.lengths.max()), dtype=np.uint64) | np.uint64(1)
    starts = sentences.offsets[:-1]
    place = np.arange(len(sentences.ids)) - np.repeat(starts, sentences.lengths)
    return np.add.reduceat(of_id[sentences.ids] * of_place[place], starts)


def distill(
    teacher: Teacher,
    corpus: Corpus,
    out: Path,
    config: DistillConfig,
    *,
    teacher_hash: str,
    device: torch.device | str,
    rank: int = 0,
    ranks: int = 1,
    barrier: Callable[[], object] = lambda: None,
    make_room: Callable[[str, Mapping[str, Any]], None] = lambda fingerprint, settings: None,
) -> tuple[Corpus, DistillFacts]:
    """The corpus with distilled targets, written to `out` unless it is there already; and what came of it.

    Every rank calls this with the same arguments but its own `rank`; `barrier` returns when all ranks have called
    it. Training pairs stay in their order, held-out splits are copied. `make_room` is called once it is known which
    corpus is wanted.
    """
    if out.resolve() == corpus.folder.resolve():
        raise UserError(f"{out}: the distilled corpus needs a folder of its own")
    pieces = len(teacher.embedding.weight)
    if pieces != corpus.manifest.vocab_size:
        raise UserError(f"{corpus.folder}: has {corpus.manifest.vocab_size} pieces, the teacher knows {pieces}")
    settings = {"distill": _deciding(config), "corpus": corpus.manifest.fingerprint, "teacher": teacher_hash}
    fingerprint = _fingerprint(corpus, teacher_hash, config)
    make_room(fingerprint, settings)
    distilled = Corpus.existing(out, fingerprint)
    translated = 0
    if distilled is None:
        sources = _Sources(corpus)
        parts = _Parts(out / "parts", f"{fingerprint} by {config.shard_batches}", _plan(sources, config))
        todo = [number for number in range(rank, len(parts), ranks) if parts.read(number) is None]
        if todo:
            search = _Search(teacher, sources, corpus.manifest.row_width, config, torch.device(device))
            translated = _translate(search, parts, todo, show=rank == 0)
        barrier()
        if rank == 0:
            _assemble(corpus, sources, out, parts, fingerprint, settings)
        barrier()
        distilled = Corpus.load(out)
    if rank == 0:
        remove(out / "parts")  # here, so that those of a run that was killed after its commit go too
    facts = distilled.manifest.splits["train"]
    return distilled, DistillFacts(facts.pairs, facts.replaced, translated)


class _Search:
    """A teacher made ready: a copy, so that the caller's stays as it is."""

    def __init__(
        self, teacher: Teacher, sources: _Sources, row_width: int, config: DistillConfig, device: torch.device
    ) -> None:
        dtype = torch.bfloat16 if config.bf16 and device.type == "cuda" else None
        self._teacher = copy.deepcopy(teacher).to(device=device, dtype=dtype).eval()
        # What does not fit into a row is not used, so there is no point in searching for it.
        self._beam = replace(config.beam, max_length=min(config.beam.max_length, row_width))
        self._sources, self._device = sources, device

    def __call__(self, batches: _Batches) -> _Part:
        """The translations of the numbered sources."""
        targets: list[tuple[int, ...]] = []
        for numbers in (batch.tolist() for batch in batches):
            source = Tokens.padded([self._sources[number] for number in numbers])
            for found in beam_search(self._teacher, source.to(self._device), self._beam):
                usable = found.finished and len(found.ids) > 1  # more than its end
                targets.append(found.ids if usable else ())
        return _Part(
            np.fromiter((id_ for ids in targets for id_ in ids), dtype=np.uint32),
            np.array([len(ids) for ids in targets], dtype=np.int64),
        )


class _Parts:
    """The files that hold the translations until they are all there."""

    def __init__(self, folder: Path, fingerprint: str, plan: list[_Batches]) -> None:
        self.folder = make_folder(folder)
        self.fingerprint = fingerprint
        """Of the corpus they are for, and how it is cut into them; it is in every file."""
        self.plan = plan
        """Which sentences each part holds, batch by batch."""

    def __len__(self) -> int:
        return len(self.plan)

    def size(self, number: int) -> int:
        """How many sentences a part holds."""
        return sum(len(batch) for batch in self.plan[number])

    def write(self, number: int, part: _Part) -> None:
        content = io.BytesIO()
        np.savez(content, fingerprint=self.fingerprint, ids=part.ids, lengths=part.lengths)
        write_atomically(self._path(number), content.getvalue())

    def read(self, number: int) -> _Part | None:
        """A part; None if it is not there, is damaged or belongs to another corpus."""
        try:
            with np.load(io.BytesIO(self._path(number).read_bytes()), allow_pickle=False) as file:
                if file["fingerprint"] != self.fingerprint or len(file["lengths"]) != self.size(number):
                    return None
                return _Part(file["ids"], file["lengths"])
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
            return None

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.npz"


def _translate(search: _Search, parts: _Parts, todo: list[int], show: bool) -> int:
    """Make the parts that are to do; the number of sentences translated."""
    total = sum(parts.size(number) for number in todo)
    counting = Counting("distilling", "sentences", total) if show else None
    with counting or contextlib.nullcontext():
        for number in todo:
            parts.write(number, search(parts.plan[number]))
            if counting:
                counting.advance(parts.size(number))
    return total


def _assemble(
    corpus: Corpus, sources: _Sources, out: Path, parts: _Parts, fingerprint: str, settings: Mapping[str, Any]
) -> None:
    """Put the parts together: the corpus with other targets, and pairs of what had none."""
    manifest, split, translations = corpus.manifest, corpus.split("train"), _translations(parts, sources)
    with CorpusWriter(out, corpus.tokenizer) as writer:
        train, replaced = writer.split("train"), 0
        for start in range(0, len(sources), _CHUNK):
            some = range(start, min(start + _CHUNK, len(sources)))
            targets = [translations[int(sources.of[number])].tolist() for number in some]
            for place, number in enumerate(some):
                if not targets[place] and number < sources.training:
                    targets[place] = split.target[number].tolist()
                    replaced += 1
            pairs = [(sources[number], ids) for number, ids in zip(some, targets, strict=True) if ids]
            train.append([source for source, _ in pairs], [target for _, target in pairs])
        facts = replace(
            manifest.splits["train"],
            pairs=train.pairs,
            source_tokens=train.tokens[0],
            target_tokens=train.tokens[1],
            replaced=replaced,
        )
        splits = {name: facts for name, facts in manifest.splits.items() if name != MONOLINGUAL} | {"train": facts}
        for name in splits.keys() - {"train"}:
            _append(writer.split(name), corpus.split(name))
            for side, file in zip(SIDES, writer.text(name), strict=True):
                file.write((corpus.folder / manifest.data / f"{name}.{side}.txt").read_bytes())
        writer.commit(
            fingerprint=fingerprint,
            settings=settings,
            languages=manifest.languages,
            rules=manifest.rules,
            row_width=manifest.row_width,
            sources=manifest.sources | {"teacher": settings["teacher"]},
            splits=splits,
        )


def _translations(parts: _Parts, sources: _Sources) -> Sentences:
    """The translations of the distinct sources, in their order."""
    rank = np.empty(len(sources), dtype=np.int64)
    rank[sources.distinct] = np.arange(len(sources.distinct))
    lengths = np.zeros(len(sources.distinct), dtype=np.int64)
    read: list[tuple[_Part, Int[np.ndarray, "_"]]] = []
    for number, batches in enumerate(parts.plan):
        part = parts.read(number)
        if part is None:
            raise UserError(f"{parts.folder}: part {number} of {len(parts)} is missing; distil again")
        places = rank[np.concatenate(batches)]
        lengths[places] = part.lengths
        read.append((part, places))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.zeros(offsets[-1], dtype=np.uint32)
    for part, places in read:
        ends = np.cumsum(part.lengths)
        for place, start, end in zip(places, ends - part.lengths, ends, strict=True):
            ids[offsets[place] : offsets[place + 1]] = part.ids[start:end]
    return Sentences(ids, offsets)


def _append(writer: SplitWriter, split: Split) -> None:
    for start in range(0, len(split), _CHUNK):
        some = range(start, min(start + _CHUNK, len(split)))
        writer.append(*([side[i].tolist() for i in some] for side in (split.source, split.target)))


def _plan(sources: _Sources, config: DistillConfig) -> list[_Batches]:
    """Which sentences each part holds: a function of the corpus and the configuration alone."""
    lengths = sources.lengths[sources.distinct] + config.beam.max_extra  # else there are very many short ones
    batches = [sources.distinct[batch] for batch in padded_batches(lengths, config.batch_tokens)]
    batches = [batches[i] for i in np.random.default_rng(0).permutation(len(batches))]
    return [batches[start : start + config.shard_batches] for start in range(0, len(batches), config.shard_batches)]


def _deciding(config: DistillConfig) -> dict[str, Any]:
    return to_tree(replace(config, shard_batches=1))  # how much is written at a time decides nothing


def _fingerprint(corpus: Corpus, teacher_hash: str, config: DistillConfig) -> str:
    facts = {
        "distilled": FORMAT,
        "corpus": corpus.manifest.fingerprint,
        "teacher": teacher_hash,
        "config": original_names(_deciding(config), DistillConfig),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
