"""One flipped bit in any file of an artefact is noticed when it is loaded, in one line that names the file."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from grams import save_language_model
from tiny import write_corpus, write_models

from latentmt.bundle import LANGUAGE_MODEL, open_bundle, open_model
from latentmt.data.corpus import Corpus
from latentmt.engines.load import load_language_model
from latentmt.engines.onnx.engine import OnnxEngine
from latentmt.engines.torch_engine import load_torch_engine
from latentmt.errors import UserError
from latentmt.export.model import export
from latentmt.networks import load_bundle
from latentmt.train.checkpoint import CHECKPOINT, Progress, load_checkpoint, read_progress, save_checkpoint

FLIPS = 25
TENSORS = {"weight.a": torch.arange(300.0), "average.a": torch.ones(7, 3)}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, bundles and a checkpoint."""
    folder = tmp_path_factory.mktemp("good")
    corpus = write_corpus(folder, held_out=5)
    text = {"languages": corpus.manifest.languages, "rules": corpus.manifest.rules}
    write_models(folder, corpus)
    export(folder, folder.parent / "exported", precision="float16", kinds=["latent", "score", "teacher"])
    (folder.parent / "exported").rename(folder / "exported")
    save_language_model(folder, corpus.tokenizer, [corpus.split("dev").target[0].tolist()], text)
    save_checkpoint(folder / "training" / CHECKPOINT, Progress(run="run", total=9, step=3), TENSORS)
    return folder


def load_corpus(folder: Path) -> None:
    corpus = Corpus.load(folder)
    for name in corpus.manifest.splits:
        corpus.split(name)
    for name in ("dev", "test"):
        corpus.text(name)


def load_exported(folder: Path) -> None:
    """By both engines, as far as an engine reads files."""
    OnnxEngine(open_model(folder))
    load_torch_engine(open_model(folder), "cpu", None, None, None)


def load_ngrams(folder: Path) -> None:
    assert load_language_model({LANGUAGE_MODEL: open_bundle(folder)})


def load_state(folder: Path) -> None:
    tensors = {name: torch.zeros_like(tensor) for name, tensor in TENSORS.items()}
    assert load_checkpoint(folder / CHECKPOINT, "run", tensors)
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


@pytest.mark.parametrize(
    ("artefact", "load"),
    [
        ("corpus", load_corpus),
        ("training", load_state),
        ("latent", load_bundle),
        ("exported", load_exported),
        ("language_model", load_ngrams),
    ],
)
def test_a_flipped_bit_is_noticed_and_its_file_named(
    good: Path, tmp_path: Path, artefact: str, load: Callable[[Path], object]
) -> None:
    folder = Path(shutil.copytree(good / artefact, tmp_path / artefact))
    load(folder)
    rng = random.Random(1)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for position in rng.sample(range(8 * len(content)), FLIPS):
            flipped = bytearray(content)
            flipped[position // 8] ^= 1 << position % 8
            path.write_bytes(flipped)
            with pytest.raises(UserError, match=path.name):
                load(folder)
        path.write_bytes(content)
    load(folder)


def test_a_mapped_file_is_the_one_that_was_hashed(good: Path, tmp_path: Path) -> None:
    """Another file with the same name and size changes nothing that was mapped before."""
    folder = Path(shutil.copytree(good / "corpus", tmp_path / "corpus"))
    corpus = Corpus.load(folder)
    before, path = corpus.split("train").source.ids, folder / corpus.manifest.data / "train.source.ids"
    expected = before.copy()
    (tmp_path / "other").write_bytes(bytes(path.stat().st_size))
    (tmp_path / "other").rename(path)
    assert np.array_equal(before, expected)
    with pytest.raises(UserError, match=r"train\.source\.ids: altered"):
        corpus.split("train")


def test_a_damaged_checkpoint_is_not_taken_for_a_missing_one(tmp_path: Path) -> None:
    path = tmp_path / CHECKPOINT
    assert read_progress(path) is None
    for content in (
        b"",
        b"\0" * 7,
        b"\0" * 100,
        b"\xff" * 100,
        b"\x02" + b"\0" * 7 + b"{}",
        b"\x02" + b"\0" * 7 + b"[]",
    ):
        path.write_bytes(content)
        for load in (read_progress, lambda path: load_checkpoint(path, "run", {})):
            with pytest.raises(UserError, match=r"state\.safetensors: damaged .*; remove it to start anew"):
                load(path)


def test_a_checkpoint_without_a_hash_loads(tmp_path: Path) -> None:
    """As version 0.1 wrote it."""
    from safetensors.torch import save_file

    progress = '{"run": "run", "total": 9, "step": 3}'
    save_file(TENSORS, tmp_path / CHECKPOINT, {"progress": progress})
    load_state(tmp_path)
