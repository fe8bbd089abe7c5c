"""Distillation by Ray actors: the same corpus, byte for byte, as by one process."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import write_corpus, write_models

DISTILL = """
teacher: {model: {preset: tiny, d_model: 32, d_filter: 32, layers: 1, heads: 2, encoder_layers: 1}, train: {steps: 1}}
distill: {beam: {beam: 2, max_ratio: 1, max_extra: 4}, batch_tokens: 400, shard_batches: 2}
"""


def distill(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "latentmt", "distill", str(folder), "--work", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    write_models(folder, write_corpus(folder, 3))
    with (folder / "recipe.yaml").open("a") as recipe:
        recipe.write(DISTILL)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a corpus, without the random name of its data folder."""
    data = json.loads((folder / "manifest.json").read_text())["data"].encode()
    return {path.name: path.read_bytes().replace(data, b"data") for path in folder.rglob("*") if path.is_file()}


def test_actors_write_the_corpus_of_one_process(work: Path, tmp_path: Path) -> None:
    alone = distill(work, "--device", "cpu")
    assert alone.returncode == 0, alone.stderr
    shutil.move(work / "distilled", tmp_path / "alone")
    together = distill(work, "--cluster", "--actors", "2")
    assert together.returncode == 0, together.stderr
    assert "distilling" in together.stderr
    assert files(work / "distilled") == files(tmp_path / "alone")
    assert len(files(work / "distilled")) > 3


def test_options_of_a_cluster_need_one(work: Path) -> None:
    done = distill(work, "--actors", "2")
    assert (done.returncode, done.stderr) == (1, "error: --address, --actors and --gpus-per-actor need --cluster\n")
