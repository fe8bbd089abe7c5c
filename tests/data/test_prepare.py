import dataclasses
import itertools
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latentmt.data.clean import CleanConfig
from latentmt.data.corpus import Corpus
from latentmt.data.normalise import TextRules, normalise
from latentmt.data.placeholders import PlaceholderConfig
from latentmt.data.prepare import DataConfig, _fingerprint, prepare
from latentmt.data.resample import ResampleConfig
from latentmt.data.text import Pair, ParallelText
from latentmt.data.tokenizer import PLACEHOLDERS, Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.errors import UserError

SAMPLE = Path(__file__).parent.parent / "fixtures" / "tatoeba"
TWO_FILES = ParallelText(source=("train.de",), target=("train.en",))
HELD_OUT = dataclasses.replace(TWO_FILES, limit=50)
CONFIG = DataConfig(
    languages=("de", "en"), train=(TWO_FILES,), dev=HELD_OUT, tokenizer=TokenizerConfig(vocab_size=1000)
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer((SAMPLE / "train.de").read_text("utf-8").splitlines(), TokenizerConfig(vocab_size=500))


def texts(corpus: Corpus, name: str) -> list[Pair]:
    split = corpus.split(name)
    sides = [
        corpus.tokenizer.decode([side[i].tolist() for i in range(len(side))]) for side in (split.source, split.target)
    ]
    return [Pair(*pair) for pair in zip(*sides, strict=True)]


def test_the_sample_corpus_is_complete_and_aligned(tmp_path: Path) -> None:
    corpus, written = prepare(CONFIG, SAMPLE, tmp_path / "corpus")
    assert written
    corpus.verify()
    source, target = ((SAMPLE / f"train.{side}").read_text("utf-8").splitlines() for side in ("de", "en"))
    expected = [Pair(*(normalise(text, TextRules()) for text in pair)) for pair in zip(source, target, strict=True)]
    assert texts(corpus, "dev") == corpus.text("dev") == expected[:50]
    facts = corpus.manifest.splits["train"]
    assert facts.read == 2000 == facts.pairs + sum(facts.dropped.values())
    kept = texts(corpus, "train")
    assert len(kept) == facts.pairs > 1900
    remaining = iter(expected)
    assert all(pair in remaining for pair in kept)  # a subsequence: nothing doubled, swapped or misaligned
    lengths = corpus.split("train").source.lengths
    assert lengths.max() <= CONFIG.clean.max_length
    assert lengths.sum() == facts.source_tokens


LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r\ufeff"), max_size=30)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=settings().max_examples // 2,
)
@given(lines=st.lists(st.tuples(LINE, LINE), min_size=1, max_size=20))
def test_any_text_is_kept_or_counted(tmp_path: Path, tokenizer: Tokenizer, lines: list[tuple[str, str]]) -> None:
    lines = [("ein Satz", "a sentence"), *lines]
    for name, side in zip(("a", "b"), zip(*lines, strict=True), strict=True):
        (tmp_path / name).write_bytes("".join(f"{line}\n" for line in side).encode())
    text = ParallelText(source=("a",), target=("b",))
    config = dataclasses.replace(CONFIG, train=(text,), dev=text)
    corpus, _ = prepare(config, tmp_path, tmp_path / "corpus", tokenizer)
    plain = [Pair(normalise(source, TextRules()), normalise(target, TextRules())) for source, target in lines]
    assert texts(corpus, "dev") == plain  # held-out text is never cleaned
    facts, kept = corpus.manifest.splits["train"], texts(corpus, "train")
    assert facts.read == len(lines) == len(kept) + sum(facts.dropped.values())
    acceptable = [pair for pair in dict.fromkeys(plain) if pair.source and pair.target]
    assert [pair for pair in acceptable if pair in kept] == kept
    assert len(acceptable) == len(kept) + facts.dropped.get("too many tokens", 0) + facts.dropped.get("length ratio", 0)


def test_an_unchanged_corpus_is_not_written_again(tmp_path: Path, tokenizer: Tokenizer) -> None:
    shutil.copytree(SAMPLE, tmp_path / "text")
    corpus, _ = prepare(CONFIG, tmp_path / "text", tmp_path / "corpus", tokenizer)
    again, written = prepare(CONFIG, tmp_path / "text", tmp_path / "corpus", tokenizer)
    assert not written
    assert again.manifest == corpus.manifest
    other_rules = dataclasses.replace(CONFIG, target=TextRules(lowercase=True))
    changed, written = prepare(other_rules, tmp_path / "text", tmp_path / "corpus", tokenizer)
    assert written
    assert all(pair.target == pair.target.lower() for pair in texts(changed, "train"))
    with (tmp_path / "text" / "train.de").open("a") as source, (tmp_path / "text" / "train.en").open("a") as target:
        source.write("Noch ein Satz.\n")
        target.write("One more sentence.\n")
    assert prepare(other_rules, tmp_path / "text", tmp_path / "corpus", tokenizer)[1]
    assert len(list((tmp_path / "corpus").iterdir())) == 2  # the manifest and one data folder


def test_a_damaged_corpus_is_named_and_prepared_again(tmp_path: Path, tokenizer: Tokenizer) -> None:
    corpus, _ = prepare(CONFIG, SAMPLE, tmp_path / "corpus", tokenizer)
    data = tmp_path / "corpus" / corpus.manifest.data
    content = (data / "train.source.ids").read_bytes()
    (data / "train.source.ids").write_bytes(bytes(len(content)))
    with pytest.raises(UserError, match=r"train\.source\.ids: altered"):
        Corpus.load(tmp_path / "corpus").verify()
    (data / "train.source.ids").write_bytes(content[:-2])
    with pytest.raises(UserError, match=r"train\.source\.ids: truncated \(\d+ bytes, \d+ expected\)"):
        Corpus.load(tmp_path / "corpus")
    (data / "train.source.ids").unlink()
    with pytest.raises(UserError, match=r"train\.source\.ids: missing"):
        Corpus.load(tmp_path / "corpus")
    for damage in (lambda path: None, lambda path: path.write_bytes(bytes(path.stat().st_size))):
        damage(data / "train.source.ids")
        mended, written = prepare(CONFIG, SAMPLE, tmp_path / "corpus", tokenizer)
        assert written
        mended.verify()
        data = tmp_path / "corpus" / mended.manifest.data
    assert not prepare(CONFIG, SAMPLE, tmp_path / "corpus", tokenizer)[1]


def test_other_formats_and_other_folders_are_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match="not a corpus"):
        Corpus.load(tmp_path)
    prepare(CONFIG, SAMPLE, tmp_path, tokenizer)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    with pytest.raises(UserError, match="corpus format 99, this version reads 1"):
        Corpus.load(tmp_path)
    manifest.write_text("{")
    with pytest.raises(UserError, match=r"manifest\.json: cannot be read"):
        Corpus.load(tmp_path)


def test_bad_lines_are_an_error_or_counted(tmp_path: Path, tokenizer: Tokenizer) -> None:
    shutil.copytree(SAMPLE, tmp_path / "text")
    lines = (SAMPLE / "train.de").read_bytes().split(b"\n")
    lines[99] += b"\xff"
    (tmp_path / "text" / "train.de").write_bytes(b"\n".join(lines))
    with pytest.raises(UserError, match=r"train\.de, line 100: invalid UTF-8"):
        prepare(CONFIG, tmp_path / "text", tmp_path / "corpus", tokenizer)
    assert not list((tmp_path / "corpus").iterdir())
    dropping = dataclasses.replace(CONFIG, clean=CleanConfig(bad_lines="drop"))
    corpus, _ = prepare(dropping, tmp_path / "text", tmp_path / "corpus", tokenizer)
    assert corpus.manifest.splits["train"].dropped["not text"] == 1
    held_out = dataclasses.replace(dropping, dev=TWO_FILES)
    with pytest.raises(UserError, match=r"train\.de, line 100: invalid UTF-8"):
        prepare(held_out, tmp_path / "text", tmp_path / "corpus", tokenizer)
    Corpus.load(tmp_path / "corpus").verify()


def test_too_narrow_rows_and_empty_training_data_are_errors(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match="row_width 32 has no room for max_length 64"):
        prepare(dataclasses.replace(CONFIG, row_width=32), SAMPLE, tmp_path, tokenizer)
    with pytest.raises(UserError, match="no training pair is left"):
        prepare(dataclasses.replace(CONFIG, clean=CleanConfig(max_characters=1)), SAMPLE, tmp_path, tokenizer)
    (tmp_path / "empty").touch()
    config = dataclasses.replace(CONFIG, dev=ParallelText(source=("empty",), target=("empty",)))
    shutil.copy(SAMPLE / "train.de", tmp_path)
    shutil.copy(SAMPLE / "train.en", tmp_path)
    with pytest.raises(UserError, match="the dev split is empty: empty"):
        prepare(config, tmp_path, tmp_path / "corpus", tokenizer)


@pytest.mark.parametrize("kills", [2, pytest.param(34, marks=pytest.mark.long)])
def test_a_writer_killed_at_any_moment_leaves_a_complete_corpus(
    tmp_path: Path, tokenizer: Tokenizer, kills: int
) -> None:
    """SIGKILL at random moments: what can be loaded is the old corpus or the new one, never a mixture."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "data: {languages: [de, en], train: [{source: [train.de], target: [train.en]}], "
        "dev: {source: [train.de], target: [train.en], limit: 50}}"
    )
    (tmp_path / "tokenizer.model").write_bytes(tokenizer.model)

    def start(ratio: float) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "latentmt", "prepare", str(recipe), "--data", str(SAMPLE)]
        command += ["--work", str(tmp_path), "--tokenizer", str(tmp_path / "tokenizer.model")]
        command += ["--set", f"data.clean.max_ratio={ratio}"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    began = time.monotonic()
    assert start(2.0).wait() == 0
    duration = time.monotonic() - began
    whole = {Corpus.load(tmp_path / "corpus").manifest.fingerprint}
    rng = random.Random(kills)
    killed, attempts = 0, itertools.count()
    while killed < kills:  # one that was done before does not count
        process = start(2.1 + next(attempts) / 10)
        time.sleep(duration * rng.uniform(0.7, 1.05))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        corpus = Corpus.load(tmp_path / "corpus")
        corpus.verify()
        assert len(texts(corpus, "train")) == corpus.manifest.splits["train"].pairs
        whole.add(corpus.manifest.fingerprint)
    assert start(99.0).wait() == 0
    assert len(list((tmp_path / "corpus").iterdir())) == 2  # what the killed ones left is swept away


def test_resampled_copies_are_the_same_pairs_with_other_segmentations(tmp_path: Path) -> None:
    plain, _ = prepare(CONFIG, SAMPLE, tmp_path / "plain")
    copied, _ = prepare(
        dataclasses.replace(CONFIG, resample=ResampleConfig(copies=2)), SAMPLE, tmp_path / "copied", plain.tokenizer
    )
    facts, pairs = copied.manifest.splits["train"], texts(plain, "train")
    assert facts.pairs - facts.resampled == len(pairs)
    assert facts.read - sum(facts.dropped.values()) == len(pairs)
    assert 1.9 * len(pairs) < facts.resampled <= 2 * len(pairs)  # those that became too long are missing
    again = texts(copied, "train")
    assert again[: len(pairs)] == pairs
    assert set(again) == set(pairs)
    sides = [[tuple(side[i].tolist()) for i in range(len(side))] for side in vars(copied.split("train")).values()]
    assert len(set(sides[0])) > 2 * len(pairs)
    assert len(set(sides[1])) <= len(pairs)
    assert max(map(len, sides[0])) <= CONFIG.clean.max_length
    assert texts(copied, "dev") == texts(plain, "dev")
    assert len(copied.split("dev")) == 50


def test_repeat_uses_a_text_several_times(tmp_path: Path) -> None:
    short = dataclasses.replace(TWO_FILES, limit=100)
    config = dataclasses.replace(
        CONFIG, train=(dataclasses.replace(short, repeat=3), dataclasses.replace(short, limit=7))
    )
    once, _ = prepare(dataclasses.replace(CONFIG, train=(short,)), SAMPLE, tmp_path / "once")
    often, _ = prepare(config, SAMPLE, tmp_path / "often", once.tokenizer)
    assert texts(often, "train") == 3 * texts(once, "train")  # and the seven are duplicates
    facts = often.manifest.splits["train"]
    assert facts.pairs == facts.read + facts.repeated - sum(facts.dropped.values())


def test_placeholders_are_in_training_text_only(tmp_path: Path) -> None:
    lines = [f"Siehe www.a{number}.de mit Peter, Nummer {number}." for number in range(300)]
    for side in ("de", "en"):
        (tmp_path / f"x.{side}").write_text("\n".join(lines), "utf-8")
    text = ParallelText(source=("x.de",), target=("x.en",))
    config = DataConfig(
        languages=("de", "en"),
        train=(text,),
        dev=dataclasses.replace(text, limit=9),
        monolingual=("x.de",),
        tokenizer=TokenizerConfig(vocab_size=400, placeholders=3),
        placeholders=PlaceholderConfig(share=0.5),
    )
    corpus, _ = prepare(config, tmp_path, tmp_path / "corpus")
    assert corpus.tokenizer.placeholders == PLACEHOLDERS[:3]
    assert [pair.source for pair in texts(corpus, "dev")] == lines[:9]
    train = texts(corpus, "train")
    assert all(pair.source == pair.target for pair in train)
    assert not any("www" in pair.source for pair in train)
    assert 60 < sum("Peter" in pair.source for pair in train) < 299  # some names went, too
    sources = [pair.source for pair in texts(corpus, "monolingual")]
    assert not any("www" in source for source in sources)
    assert all("Peter" in source for source in sources)


def test_another_number_of_placeholders_than_the_tokenizers_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, tokenizer=TokenizerConfig(vocab_size=500, placeholders=2))
    with pytest.raises(UserError, match="reserves 0 placeholders"):
        prepare(config, SAMPLE, tmp_path, tokenizer)


def test_unused_keys_do_not_change_the_fingerprint(tmp_path: Path) -> None:
    prepare(CONFIG, SAMPLE, tmp_path / "corpus")
    for same in (
        dataclasses.replace(CONFIG, placeholders=PlaceholderConfig(share=0.9)),
        dataclasses.replace(CONFIG, resample=ResampleConfig(alpha=0.9)),
    ):
        assert not prepare(same, SAMPLE, tmp_path / "corpus")[1]


def test_the_fingerprint_of_a_corpus_is_that_of_version_0_1() -> None:
    text = ParallelText(source=("a.de",), target=("a.en",))
    tokenizer = TokenizerConfig(vocab_size=500, sample=9)
    config = DataConfig(languages=("de", "en"), train=(text,), dev=text, tokenizer=tokenizer)
    fingerprint = _fingerprint(config, {"a.de": "0", "a.en": "1"}, None)
    assert fingerprint == "4cfe2eb125a9d308d21b4ab3c599d2e2cecde6d681a1eba7b72d3f46cd5b4671"
    config = dataclasses.replace(config, tokenizer=dataclasses.replace(tokenizer, placeholders=2))
    fingerprint = _fingerprint(config, {"a.de": "0", "a.en": "1"}, None)
    assert fingerprint == "c6768a20436a6990b8797eabe7fc16d88c514371f1f002eb7fa333746c390116"
