from __future__ import annotations

import copy
import dataclasses
import random
import shutil
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from latentmt import distill as module
from latentmt.data.clean import CleanConfig
from latentmt.data.corpus import Corpus
from latentmt.data.prepare import DataConfig, prepare
from latentmt.data.text import ParallelText
from latentmt.data.tokenizer import EOS, TokenizerConfig
from latentmt.data.tokens import Tokens
from latentmt.distill import DistillConfig, DistillFacts, Shard, _fingerprint, _Shards, distill
from latentmt.errors import UserError
from latentmt.infer.beam import Hypothesis, beam_search
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.objectives import smoothed_cross_entropy
from latentmt.options import BeamConfig

SAMPLE = Path(__file__).parent / "fixtures" / "tatoeba"
PAIRS = 160
ROW_WIDTH = 32
CONFIG = DistillConfig(beam=BeamConfig(beam=3), batch_tokens=300, shard_batches=2)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    text = ParallelText(source=("train.de",), target=("train.en",), limit=PAIRS)
    config = DataConfig(
        languages=("de", "en"),
        train=(text,),
        dev=dataclasses.replace(text, limit=7),
        test=dataclasses.replace(text, limit=5),
        tokenizer=TokenizerConfig(vocab_size=400),
        clean=CleanConfig(max_length=ROW_WIDTH),
        row_width=ROW_WIDTH,
    )
    return prepare(config, SAMPLE, tmp_path_factory.mktemp("corpus"))[0]


@pytest.fixture(scope="module")
def teacher(corpus: Corpus) -> Teacher:
    """Taught just enough to end its sentences; it drops out half of everything unless told to stop."""
    torch.manual_seed(0)
    teacher = Teacher(TeacherConfig(preset="tiny", d_model=32, d_filter=64, dropout=0.5), corpus.tokenizer.size).eval()
    split, adam = corpus.split("train"), torch.optim.Adam(teacher.parameters(), lr=1e-2)
    for step in range(90):
        some = range(step % 5, len(split), 5)
        source, target = (Tokens.padded([side[i].tolist() for i in some]) for side in (split.source, split.target))
        states = teacher.states(target, teacher.decoder_stack.project_kv(teacher.encode(source)))
        loss = smoothed_cross_entropy(states, teacher.embedding.weight, target.ids, target.layout.real)
        adam.zero_grad()
        (loss.loss / loss.count).backward()
        adam.step()
    return teacher.double().train()  # so exact that batches of another shape give the same


class Fake:
    """Stands in for the search: every source backwards, EOS last. Counts its batches; may die in one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches = self.sentences = 0
        self.dies_at = -1
        self.configs: set[BeamConfig] = set()
        self.answer: Callable[[list[int]], Hypothesis] = self.backwards
        monkeypatch.setattr(module, "beam_search", self)

    @staticmethod
    def backwards(source: list[int]) -> Hypothesis:
        return Hypothesis((*source[-2::-1], EOS), -1.0, -1.0, True)

    def __call__(self, teacher: Teacher, source: Tokens, config: BeamConfig) -> list[Hypothesis]:
        if self.batches == self.dies_at:
            raise KeyboardInterrupt
        self.batches += 1
        self.sentences += len(source.ids)
        self.configs.add(config)
        rows = zip(source.ids, source.layout.real, strict=True)
        return [self.answer(ids[real].tolist()) for ids, real in rows]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(monkeypatch)


def run(
    teacher: Teacher, corpus: Corpus, out: Path, config: DistillConfig = CONFIG, name: str = "a", **distributed: object
) -> tuple[Corpus, DistillFacts]:
    return distill(teacher, corpus, out, config, teacher_hash=name, device="cpu", **distributed)


def sentences(corpus: Corpus, name: str = "train") -> list[tuple[list[int], list[int]]]:
    split = corpus.split(name)
    return [(split.source[i].tolist(), split.target[i].tolist()) for i in range(len(split))]


def test_targets_are_the_teachers_translations(teacher: Teacher, corpus: Corpus, tmp_path: Path) -> None:
    distilled, facts = run(teacher, corpus, tmp_path)
    assert teacher.training  # the caller's teacher is left alone
    distilled.verify()
    before, after = sentences(corpus), sentences(distilled)
    beam = dataclasses.replace(CONFIG.beam, max_length=ROW_WIDTH)
    replaced = 0
    found = beam_search(copy.deepcopy(teacher).eval(), Tokens.padded([source for source, _ in before]), beam)
    for (source, reference), (same_source, target), best in zip(before, after, found, strict=True):
        assert same_source == source
        usable = best.finished and len(best.ids) > 1
        assert target == (list(best.ids) if usable else reference)
        replaced += not usable
    assert len({tuple(target) for _, target in after}) > 20
    assert facts == DistillFacts(len(before), replaced, len(before))
    manifest = distilled.manifest.splits["train"]
    assert manifest.replaced == replaced
    assert manifest.target_tokens == sum(len(target) for _, target in after)
    assert [
        path.name for path in tmp_path.iterdir() if path.name not in ("manifest.json", distilled.manifest.data)
    ] == []


def test_the_rest_of_the_corpus_is_copied(teacher: Teacher, corpus: Corpus, fake: Fake, tmp_path: Path) -> None:
    distilled, _ = run(teacher, corpus, tmp_path)
    for name, pairs in (("dev", 7), ("test", 5)):
        assert sentences(distilled, name) == sentences(corpus, name)
        assert len(sentences(distilled, name)) == pairs
        assert distilled.text(name) == corpus.text(name)
        assert distilled.manifest.splits[name] == corpus.manifest.splits[name]
    old, new = corpus.manifest, distilled.manifest
    assert list(new.splits) == list(old.splits)
    assert new.splits["train"].pairs == old.splits["train"].pairs
    assert new.splits["train"].dropped == old.splits["train"].dropped
    assert (new.tokenizer, new.languages, new.rules, new.row_width) == (
        old.tokenizer,
        old.languages,
        old.rules,
        old.row_width,
    )
    assert new.sources == old.sources | {"teacher": "a"}
    assert new.fingerprint != old.fingerprint
    assert sentences(distilled) == [(source, [*source[-2::-1], EOS]) for source, _ in sentences(corpus)]


def test_a_killed_run_resumes(teacher: Teacher, corpus: Corpus, fake: Fake, tmp_path: Path) -> None:
    whole, _ = run(teacher, corpus, tmp_path / "whole")
    batches, fake.batches = fake.batches, 0
    assert batches > 8
    fake.dies_at = 5
    with pytest.raises(KeyboardInterrupt):
        run(teacher, corpus, tmp_path / "killed")
    assert len(list((tmp_path / "killed" / "parts").iterdir())) == 2  # of two batches each; the fifth batch is lost
    with pytest.raises(UserError, match="not a corpus"):
        Corpus.load(tmp_path / "killed")
    fake.batches, fake.sentences, fake.dies_at = 0, 0, -1
    resumed, facts = run(teacher, corpus, tmp_path / "killed")
    assert fake.batches == batches - 4
    assert facts.translated == fake.sentences < facts.pairs
    assert resumed.manifest == dataclasses.replace(whole.manifest, data=resumed.manifest.data)  # files' hashes too


def test_damaged_and_foreign_shards_are_written_again(
    teacher: Teacher, corpus: Corpus, fake: Fake, tmp_path: Path
) -> None:
    whole, _ = run(teacher, corpus, tmp_path / "whole")
    batches, fake.batches, fake.dies_at = fake.batches, 0, 7
    with pytest.raises(KeyboardInterrupt):
        run(teacher, corpus, tmp_path / "out")
    parts = sorted((tmp_path / "out" / "parts").iterdir())
    parts[0].write_bytes(parts[0].read_bytes()[:-40])
    parts[1].write_bytes(b"")
    fake.batches, fake.dies_at = 0, -1
    mended, _ = run(teacher, corpus, tmp_path / "out")
    assert fake.batches == batches - 2  # only the third part could be kept
    assert mended.manifest.files == whole.manifest.files

    fake.batches, fake.dies_at = 0, 6
    with pytest.raises(KeyboardInterrupt):
        run(teacher, corpus, tmp_path / "out", name="b")
    assert Corpus.load(tmp_path / "out").manifest == mended.manifest  # still the old one, whole
    fake.batches, fake.dies_at = 0, -1
    fake.answer = lambda source: Hypothesis((*source[:-1], EOS), -1.0, -1.0, True)
    other, _ = run(teacher, corpus, tmp_path / "out", name="c")
    assert fake.batches == batches
    assert sentences(other) == [(source, source) for source, _ in sentences(corpus)]


def test_an_unchanged_corpus_is_not_written_again(teacher: Teacher, corpus: Corpus, fake: Fake, tmp_path: Path) -> None:
    first, facts = run(teacher, corpus, tmp_path)
    batches, fake.batches = fake.batches, 0
    (tmp_path / "parts").mkdir()  # as if killed after the commit
    again, nothing = run(teacher, corpus, tmp_path)
    assert fake.batches == 0
    assert again.manifest == first.manifest
    assert nothing == dataclasses.replace(facts, translated=0)
    assert not (tmp_path / "parts").exists()
    wider = dataclasses.replace(CONFIG, beam=BeamConfig(beam=4))
    for config, name in ((CONFIG, "b"), (wider, "b")):
        fake.batches = 0
        changed, _ = run(teacher, corpus, tmp_path, config, name)
        assert fake.batches == batches
        assert changed.manifest.fingerprint != first.manifest.fingerprint
    (tmp_path / changed.manifest.data / "train.target.ids").write_bytes(b"")
    fake.batches = 0
    mended, _ = run(teacher, corpus, tmp_path, wider, "b")
    assert fake.batches == batches
    mended.verify()


@pytest.mark.parametrize("world_size", [2, 3])
def test_several_ranks_give_the_result_of_one(
    teacher: Teacher, corpus: Corpus, fake: Fake, tmp_path: Path, world_size: int
) -> None:
    one, _ = run(teacher, corpus, tmp_path / "one")
    barrier = threading.Barrier(world_size, timeout=60)
    results: dict[int, tuple[Corpus, DistillFacts]] = {}

    def work(rank: int) -> None:
        results[rank] = run(teacher, corpus, tmp_path / "many", rank=rank, world_size=world_size, barrier=barrier.wait)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(world_size))
    for many, facts in results.values():
        assert many.manifest == dataclasses.replace(one.manifest, data=many.manifest.data)
        assert 0 < facts.translated < facts.pairs
    assert sum(facts.translated for _, facts in results.values()) == one.manifest.splits["train"].pairs


def test_a_flipped_bit_in_a_shard_never_changes_a_translation(tmp_path: Path) -> None:
    """The shard is translated again, unless the bit is of no importance."""
    shards = _Shards(tmp_path, "fingerprint", [[np.arange(3)]])
    shards.write(0, Shard(np.arange(6, dtype=np.uint32), np.array([1, 2, 3])))
    path = tmp_path / "00000.npz"
    content = path.read_bytes()
    for position in random.Random(1).sample(range(8 * len(content)), 1000):
        flipped = bytearray(content)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(flipped)
        with warnings.catch_warnings(action="ignore"):
            shard = shards.read(0)
        assert shard is None or (shard.ids.tolist(), shard.lengths.tolist()) == ([0, 1, 2, 3, 4, 5], [1, 2, 3])


def test_another_number_of_ranks_can_resume(teacher: Teacher, corpus: Corpus, fake: Fake, tmp_path: Path) -> None:
    one, _ = run(teacher, corpus, tmp_path / "one")
    batches, fake.batches = fake.batches, 0

    def killed() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # the second of two ranks does its share, then all are killed
        run(teacher, corpus, tmp_path / "out", rank=1, world_size=2, barrier=killed)
    share, fake.batches = fake.batches, 0
    assert 0 < share < batches
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    assert run(teacher, corpus, tmp_path / "out")[0].manifest.files == one.manifest.files
    assert fake.batches == batches - share
    with pytest.raises(UserError, match="shard 0 of"):  # a barrier that does not wait is found out
        run(
            teacher,
            corpus,
            tmp_path / "copy",
            rank=0,
            world_size=5,
            barrier=lambda: shutil.rmtree(tmp_path / "copy" / "parts"),
        )


@pytest.fixture(scope="module")
def with_monolingual(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Training pairs twice, and sources of their own: some new, some that training pairs have, too."""
    folder = tmp_path_factory.mktemp("text")
    for name in ("train.de", "train.en"):
        shutil.copy(SAMPLE / name, folder)
    lines = (SAMPLE / "train.de").read_text("utf-8").splitlines()
    (folder / "mono.de").write_text("\n".join([*lines[:5], *lines[PAIRS : PAIRS + 40]]), "utf-8")
    text = ParallelText(source=("train.de",), target=("train.en",), limit=PAIRS, repeat=2)
    config = DataConfig(
        languages=("de", "en"),
        train=(text,),
        dev=dataclasses.replace(text, limit=7, repeat=1),
        monolingual=("mono.de",),
        tokenizer=TokenizerConfig(vocab_size=400),
        clean=CleanConfig(max_length=ROW_WIDTH),
        row_width=ROW_WIDTH,
    )
    return prepare(config, folder, tmp_path_factory.mktemp("corpus"))[0]


def test_monolingual_sources_become_pairs(
    teacher: Teacher, with_monolingual: Corpus, fake: Fake, tmp_path: Path
) -> None:
    pairs, more = sentences(with_monolingual), sentences(with_monolingual, "monolingual")
    assert len(more) > 30
    assert {tuple(target) for _, target in more} == {(EOS,)}
    unusable = tuple(more[-1][0])
    fake.answer = lambda source: (
        Hypothesis((EOS,), -1.0, -1.0, True) if tuple(source) == unusable else Fake.backwards(source)
    )
    distilled, facts = run(teacher, with_monolingual, tmp_path)
    distilled.verify()
    expected = [(source, [*source[-2::-1], EOS]) for source, _ in pairs + more[:-1]]
    assert sentences(distilled) == expected
    assert (facts.pairs, facts.replaced) == (len(expected), 0)
    assert "monolingual" not in distilled.manifest.splits


def test_equal_sources_are_translated_once(
    teacher: Teacher, with_monolingual: Corpus, fake: Fake, tmp_path: Path
) -> None:
    run(teacher, with_monolingual, tmp_path)
    sources = [source for name in ("train", "monolingual") for source, _ in sentences(with_monolingual, name)]
    assert fake.sentences == len({tuple(source) for source in sources}) < len(sources) - PAIRS // 2


def test_the_same_words_in_another_order_are_another_source(teacher: Teacher, fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "x.de").write_text("a b\nb a\na a b\na b a\n", "utf-8")
    (tmp_path / "x.en").write_text("1\n2\n3\n4\n", "utf-8")
    text = ParallelText(source=("x.de",), target=("x.en",))
    config = DataConfig(languages=("de", "en"), train=(text,), dev=text, tokenizer=TokenizerConfig(vocab_size=400))
    corpus, _ = prepare(config, tmp_path, tmp_path / "corpus")
    sized = Teacher(TeacherConfig(preset="tiny", d_model=16, d_filter=32), corpus.tokenizer.size)
    distilled, _ = run(sized, corpus, tmp_path / "out")
    assert fake.sentences == 4
    assert sentences(distilled) == [(source, [*source[-2::-1], EOS]) for source, _ in sentences(corpus)]


def test_the_first_shards_are_a_random_sample(teacher: Teacher, corpus: Corpus, fake: Fake, tmp_path: Path) -> None:
    lengths: list[int] = []
    fake.answer = lambda source: lengths.append(len(source)) or Fake.backwards(source)
    run(teacher, corpus, tmp_path)
    half = lengths[: len(lengths) // 2]
    assert min(half) <= sorted(lengths)[len(lengths) // 10]
    assert max(half) >= sorted(lengths)[-len(lengths) // 10]


def test_unusable_translations_are_replaced_and_counted(
    teacher: Teacher, corpus: Corpus, fake: Fake, tmp_path: Path
) -> None:
    def answer(source: list[int]) -> Hypothesis:
        match len(source) % 3:
            case 0:
                return Hypothesis((EOS,), -1.0, -1.0, True)
            case 1:
                return Hypothesis(tuple(source[:-1]) * 2, -1.0, -1.0, False)
            case _:
                return Fake.backwards(source)

    fake.answer = answer
    distilled, facts = run(teacher, corpus, tmp_path)
    before, after = sentences(corpus), sentences(distilled)
    bad = [len(source) % 3 < 2 for source, _ in before]
    assert 0 < sum(bad) < len(bad)
    assert facts.replaced == distilled.manifest.splits["train"].replaced == sum(bad)
    for (source, reference), (_, target), unusable in zip(before, after, bad, strict=True):
        assert target == (reference if unusable else [*source[-2::-1], EOS])
    assert {config.max_length for config in fake.configs} == {ROW_WIDTH}  # no runaway is searched for


def test_a_teacher_without_eos_is_replaced_by_references(teacher: Teacher, corpus: Corpus, tmp_path: Path) -> None:
    endless = Teacher(TeacherConfig(preset="tiny", d_model=16, d_filter=32), corpus.tokenizer.size)
    with torch.no_grad():
        endless.embedding.weight[EOS] *= 0.0
        endless.decoder_stack.norm.bias.copy_(50 * endless.embedding.weight[7])
    distilled, facts = run(endless, corpus, tmp_path, dataclasses.replace(CONFIG, beam=BeamConfig(beam=1)))
    assert facts.replaced == facts.pairs
    assert sentences(distilled) == sentences(corpus)


def test_invalid_arguments_are_refused(teacher: Teacher, corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a folder of its own"):
        run(teacher, corpus, corpus.folder)
    stranger = Teacher(TeacherConfig(preset="tiny", d_model=16, d_filter=32), 17)
    with pytest.raises(UserError, match="the teacher knows 17"):
        run(stranger, corpus, tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is needed as a folder"):
        run(teacher, corpus, tmp_path / "file")


def test_the_fingerprint_of_a_distilled_corpus_is_that_of_version_0_1(corpus: Corpus) -> None:
    config = DistillConfig(beam=BeamConfig(beam=2), batch_tokens=77, shard_batches=3, bf16=False)
    source = dataclasses.replace(corpus, manifest=dataclasses.replace(corpus.manifest, fingerprint="c"))
    fingerprint = _fingerprint(source, "h", config)
    assert fingerprint == "293d3c705d50441749ba8cf7d70685dd1e467765e8903f72f0586b26585273cd"
