"""Sequence-level distillation: a corpus of the same sources with the teacher's translations as targets.

    out/parts/00012.npz     a shard: the translations of a few batches, removed once the corpus is written
    out/manifest.json …     the new corpus

Batches depend on the corpus and the configuration alone. So any number of ranks may share the shards, and a run that
was killed resumes with the missing shards. Shards are in random order: the first few are a fair sample of the corpus.
A source that occurs several times is translated once. A translation that is unusable for training (empty, without EOS,
too long for a row) is replaced by the reference and counted. A monolingual source has no reference and is left out.
The caller computes the teacher's hash and provides the barrier between ranks.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import itertools
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt32, UInt64
from pydantic import Field

from latentmt.config import Section, original_names, to_dict
from latentmt.data.batches import padded_batches
from latentmt.data.corpus import MONOLINGUAL, SIDES, Corpus, CorpusWriter, Sentences, Split, SplitWriter
from latentmt.data.tokens import Tokens
from latentmt.display import ProgressBar, info
from latentmt.errors import Stopped, UserError
from latentmt.files import make_folder, remove_files, write_atomically
from latentmt.infer.beam import beam_search
from latentmt.models.presets import Count
from latentmt.models.teacher import Teacher
from latentmt.options import BeamConfig

FORMAT = 2
"""Raised whenever the same configuration would give another corpus, or an old shard could be misread."""

_Batches = list[Int[np.ndarray, "_"]]
"""The numbers of the sentences in each batch."""

_CHUNK = 16_384
"""Pairs written at a time."""

_SHARD = re.compile(r"\d{5,}\.npz|\.\d{5,}\.npz\.\S+\.writing")
"""The names of the files of shards, and of those that a killed process left half written."""


@dataclass(frozen=True, kw_only=True)
class DistillConfig(Section):
    """How the teacher translates the training sources."""

    aliases: ClassVar[Mapping[str, str]] = {"part_batches": "shard_batches"}

    beam: BeamConfig = field(default_factory=BeamConfig)
    batch_tokens: Annotated[int, Field(ge=1)] = 131_072
    """Tokens per batch. Each sentence counts as the longest source of the batch plus `max_extra`."""
    shard_batches: Count = 1
    """Batches per shard: the unit of work of a rank, and the most that a killed run loses."""
    bf16: bool = True
    """Translate in bfloat16 on a GPU."""


@dataclass(frozen=True)
class DistillFacts:
    """Counts of a distillation."""

    pairs: int
    """Training pairs, including those from monolingual sources."""
    replaced: int
    """Pairs that kept their reference."""
    translated: int
    """Sentences translated by this call. The others were translated before, or by another rank."""


@dataclass(frozen=True)
class Shard:
    """The translations of the sources of some batches, in order. An unusable one is empty."""

    ids: UInt32[np.ndarray, tokens]
    lengths: Int64[np.ndarray, n]


@dataclass(frozen=True)
class ShardTask:
    """The sources of a shard, batch by batch."""

    number: int
    batches: list[list[list[int]]]


Translate = Callable[[Iterable[ShardTask]], Iterable[tuple[ShardTask, Shard]]]
"""Translates shards, in any order."""


class _Sources:
    """The sentences to translate: training sources, then monolingual ones, numbered in this order."""

    def __init__(self, corpus: Corpus) -> None:
        names = ["train"] + [MONOLINGUAL] * (MONOLINGUAL in corpus.manifest.splits)
        self._splits = [corpus.split(name).source for name in names]
        self.training = len(self._splits[0])
        """The number of sources with a reference."""
        self.lengths = np.concatenate([side.lengths for side in self._splits])
        hashes = np.concatenate([_hashes(side, corpus.manifest.vocab_size) for side in self._splits])
        _, self.distinct, self.index = np.unique(hashes, return_index=True, return_inverse=True)
        """The number of the first of each set of equal sources, and for each source the index of its set."""

    def __getitem__(self, number: int) -> list[int]:
        side, position = (0, number) if number < self.training else (1, number - self.training)
        ids: list[int] = self._splits[side][position].tolist()
        return ids

    def __len__(self) -> int:
        return len(self.lengths)


def _hashes(sentences: Sentences, vocab_size: int) -> UInt64[np.ndarray, n]:
    """A 64-bit hash of each sentence. The probability of a collision is about n²/2⁶⁵."""
    if not len(sentences):
        return np.zeros(0, dtype=np.uint64)
    random = np.random.default_rng(0)
    of_id = random.integers(2**64, size=vocab_size, dtype=np.uint64)
    of_position = random.integers(2**64, size=int(sentences.lengths.max()), dtype=np.uint64) | np.uint64(1)
    starts = sentences.offsets[:-1]
    position = np.arange(len(sentences.ids)) - np.repeat(starts, sentences.lengths)
    return np.add.reduceat(of_id[sentences.ids] * of_position[position], starts)


def distill(
    teacher: Teacher,
    corpus: Corpus,
    out: Path,
    config: DistillConfig,
    *,
    teacher_hash: str,
    device: torch.device | str,
    rank: int = 0,
    world_size: int = 1,
    barrier: Callable[[], object] = lambda: None,
    translate: Translate | None = None,
    stop: Callable[[], bool] = lambda: False,
    any_rank: Callable[[bool], bool] = bool,
    before_write: Callable[[str, Mapping[str, Any]], None] = lambda fingerprint, settings: None,
) -> tuple[Corpus, DistillFacts]:
    """The corpus with distilled targets, written to `out` unless it exists, and its counts.

    Every rank calls this with the same arguments except `rank`. `barrier` returns when all ranks have called it.
    `translate` translates the shards instead of this process. `stop` is asked before each shard: whether this rank has
    to stop. `any_rank` tells all ranks whether any has to. Training pairs keep their order. Held-out splits are copied.
    `before_write` is called with the fingerprint and the settings of the corpus before anything is written.
    """
    if out.resolve() == corpus.folder.resolve():
        raise UserError(f"{out}: the distilled corpus needs a folder of its own")
    pieces = len(teacher.embedding.weight)
    if pieces != corpus.manifest.vocab_size:
        raise UserError(f"{corpus.folder}: has {corpus.manifest.vocab_size} pieces, the teacher knows {pieces}")
    settings = {"distill": _deciding(config), "corpus": corpus.manifest.fingerprint, "teacher": teacher_hash}
    fingerprint = _fingerprint(corpus, teacher_hash, config)
    before_write(fingerprint, settings)
    distilled = Corpus.existing(out, fingerprint)
    translated = 0
    if distilled is None:
        sources = _Sources(corpus)
        shards = _Shards(out / "parts", f"{fingerprint} by {config.shard_batches}", _plan(sources, config))
        todo = [number for number in range(rank, len(shards), world_size) if shards.read(number) is None]
        if todo:
            row_width = corpus.manifest.row_width
            translate = translate or TeacherSearch(teacher, row_width, config, torch.device(device)).translate
            translated = _translate(translate, sources, shards, todo, stop, show_progress=rank == 0)
        if any_rank(stop()):
            raise Stopped
        barrier()
        if rank == 0:
            _assemble(corpus, sources, out, shards, fingerprint, settings)
        barrier()
        distilled = Corpus.load(out)
    if rank == 0:
        _remove_shards(out / "parts")  # also after a run that was killed between commit and removal
    facts = distilled.manifest.splits["train"]
    return distilled, DistillFacts(facts.pairs, facts.replaced, translated)


class TeacherSearch:
    """Beam search with a copy of the teacher, so that the caller's network is not changed."""

    def __init__(self, teacher: Teacher, row_width: int, config: DistillConfig, device: torch.device) -> None:
        dtype = torch.bfloat16 if config.bf16 and device.type == "cuda" else None
        self._teacher = copy.deepcopy(teacher).to(device=device, dtype=dtype).eval()
        # A translation that does not fit into a row is unusable, so it is not searched for.
        self._beam = replace(config.beam, max_length=min(config.beam.max_length, row_width))
        self._device = device

    def translate(self, tasks: Iterable[ShardTask]) -> Iterator[tuple[ShardTask, Shard]]:
        """The translations of shards, one after the other."""
        for task in tasks:
            yield task, self(task)

    def __call__(self, task: ShardTask) -> Shard:
        """The translations of a shard."""
        targets: list[tuple[int, ...]] = []
        for batch in task.batches:
            source = Tokens.padded(batch)
            for hypothesis in beam_search(self._teacher, source.to(self._device), self._beam):
                usable = hypothesis.finished and len(hypothesis.ids) > 1  # more than EOS
                targets.append(hypothesis.ids if usable else ())
        return Shard(
            np.fromiter((id_ for ids in targets for id_ in ids), dtype=np.uint32),
            np.array([len(ids) for ids in targets], dtype=np.int64),
        )


class _Shards:
    """The files that hold the translations until the corpus is written."""

    def __init__(self, folder: Path, fingerprint: str, plan: list[_Batches]) -> None:
        self.folder = make_folder(folder)
        if foreign := [path.name for path in sorted(folder.iterdir()) if not _SHARD.fullmatch(path.name)]:
            raise UserError(f"{folder}: holds {foreign[0]}, which is not part of a distillation; move it away")
        self.fingerprint = fingerprint
        """Identifies the corpus and how it is split into shards. It is stored in every file."""
        self.plan = plan
        """The sentences of each shard, batch by batch."""

    def __len__(self) -> int:
        return len(self.plan)

    def size(self, number: int) -> int:
        """The number of sentences in a shard."""
        return sum(len(batch) for batch in self.plan[number])

    def write(self, number: int, shard: Shard) -> None:
        content = io.BytesIO()
        np.savez(content, fingerprint=self.fingerprint, ids=shard.ids, lengths=shard.lengths)
        write_atomically(self._path(number), content.getvalue())

    def read(self, number: int) -> Shard | None:
        """A shard; None if it is missing, damaged or of another corpus."""
        try:
            with np.load(io.BytesIO(self._path(number).read_bytes()), allow_pickle=False) as file:
                if file["fingerprint"] != self.fingerprint or len(file["lengths"]) != self.size(number):
                    return None
                return Shard(file["ids"], file["lengths"])
        except (OSError, EOFError, KeyError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error):
            return None

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.npz"


def _remove_shards(folder: Path) -> None:
    if left := remove_files(folder, _SHARD.fullmatch):
        info(f"{folder}: kept, since it holds {left[0]}")


def _translate(
    translate: Translate,
    sources: _Sources,
    shards: _Shards,
    todo: list[int],
    stop: Callable[[], bool],
    show_progress: bool,
) -> int:
    """Translate the missing shards, until a stop is requested. Returns the number of sentences translated."""
    tasks = (
        ShardTask(number, [[sources[sentence] for sentence in batch.tolist()] for batch in shards.plan[number]])
        for number in itertools.takewhile(lambda _: not stop(), todo)
    )
    total, translated = sum(shards.size(number) for number in todo), 0
    progress = ProgressBar("distilling", "sentences", total) if show_progress else None
    with progress or contextlib.nullcontext():
        for task, shard in translate(tasks):
            shards.write(task.number, shard)
            translated += shards.size(task.number)
            if progress:
                progress.advance(shards.size(task.number))
    return translated


def _assemble(
    corpus: Corpus, sources: _Sources, out: Path, shards: _Shards, fingerprint: str, settings: Mapping[str, Any]
) -> None:
    """Write the corpus from the shards: new targets, and new pairs from monolingual sources."""
    manifest, split, translations = corpus.manifest, corpus.split("train"), _translations(shards, sources)
    with CorpusWriter(out, corpus.tokenizer) as writer:
        train, replaced = writer.split("train"), 0
        for start in range(0, len(sources), _CHUNK):
            numbers = range(start, min(start + _CHUNK, len(sources)))
            targets = [translations[int(sources.index[number])].tolist() for number in numbers]
            for position, number in enumerate(numbers):
                if not targets[position] and number < sources.training:
                    targets[position] = split.target[number].tolist()
                    replaced += 1
            pairs = [(sources[number], ids) for number, ids in zip(numbers, targets, strict=True) if ids]
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
                file.write(corpus.files.read(f"{name}.{side}.txt"))
        writer.commit(
            fingerprint=fingerprint,
            settings=settings,
            languages=manifest.languages,
            rules=manifest.rules,
            row_width=manifest.row_width,
            sources=manifest.sources | {"teacher": settings["teacher"]},
            splits=splits,
        )


def _translations(shards: _Shards, sources: _Sources) -> Sentences:
    """The translations of the distinct sources, in their order."""
    rank = np.empty(len(sources), dtype=np.int64)
    rank[sources.distinct] = np.arange(len(sources.distinct))
    lengths = np.zeros(len(sources.distinct), dtype=np.int64)
    read: list[tuple[Shard, Int[np.ndarray, "_"]]] = []
    for number, batches in enumerate(shards.plan):
        shard = shards.read(number)
        if shard is None:
            raise UserError(f"{shards.folder}: shard {number} of {len(shards)} is missing; distil again")
        positions = rank[np.concatenate(batches)]
        lengths[positions] = shard.lengths
        read.append((shard, positions))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.zeros(offsets[-1], dtype=np.uint32)
    for shard, positions in read:
        ends = np.cumsum(shard.lengths)
        for position, start, end in zip(positions, ends - shard.lengths, ends, strict=True):
            ids[offsets[position] : offsets[position + 1]] = shard.ids[start:end]
    return Sentences(ids, offsets)


def _append(writer: SplitWriter, split: Split) -> None:
    for start in range(0, len(split), _CHUNK):
        numbers = range(start, min(start + _CHUNK, len(split)))
        writer.append(*([side[i].tolist() for i in numbers] for side in (split.source, split.target)))


def _plan(sources: _Sources, config: DistillConfig) -> list[_Batches]:
    """The sentences of each shard: a function of the corpus and the configuration alone."""
    # Targets may be `max_extra` longer. Without it, a batch could hold too many short sources.
    lengths = sources.lengths[sources.distinct] + config.beam.max_extra
    batches = [sources.distinct[batch] for batch in padded_batches(lengths, config.batch_tokens)]
    batches = [batches[i] for i in np.random.default_rng(0).permutation(len(batches))]
    return [batches[start : start + config.shard_batches] for start in range(0, len(batches), config.shard_batches)]


def _deciding(config: DistillConfig) -> dict[str, Any]:
    return to_dict(replace(config, shard_batches=1))  # the size of shards does not affect the result


def _fingerprint(corpus: Corpus, teacher_hash: str, config: DistillConfig) -> str:
    facts = {
        "distilled": FORMAT,
        "corpus": corpus.manifest.fingerprint,
        "teacher": teacher_hash,
        "config": original_names(_deciding(config), DistillConfig),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
