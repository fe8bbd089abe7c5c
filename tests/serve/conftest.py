"""An untrained model whose heads are so large that every sentence and method gives another text; and servers of it.

It is exported, so it runs on both engines.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from faults import GRACE, environment
from process import Running, Start
from tiny import SENTENCES, enliven

from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import TokenizerConfig, train_tokenizer
from latentmt.export.model import graph_files
from latentmt.fields.learned import FieldConfig
from latentmt.models.latent import LatentConfig
from latentmt.models.teacher import TeacherConfig
from latentmt.networks import BundleConfig, save_bundle
from latentmt.translator import Translator

SIZE: dict[str, Any] = {"preset": "tiny", "d_model": 16, "d_filter": 32, "layers": 1, "heads": 2, "dropout": 0.0}
LATENT = LatentConfig(**SIZE, encoder_layers=1, latent_dim=3)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of bundles: German to English, with a score and a teacher."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer(SENTENCES * 20, TokenizerConfig(vocab_size=440))
    common: dict[str, Any] = {"languages": ("de", "en"), "rules": (TextRules(), TextRules())}
    torch.manual_seed(6)

    def save(config: BundleConfig, latent: str | None = None) -> str:
        network = config.network(tokenizer.size)
        enliven(network)  # type: ignore[arg-type]
        files = graph_files(network, config.kind, set())
        weights = network.state_dict()
        return save_bundle(folder / config.kind, config, tokenizer, weights, latent=latent, files=files).fingerprint

    fingerprint = save(BundleConfig(**common, latent=LATENT))
    save(BundleConfig(**common, latent=LATENT, field=FieldConfig(kind="score", **SIZE)), fingerprint)
    save(BundleConfig(**common, teacher=TeacherConfig(**SIZE, encoder_layers=1)))
    return folder


@pytest.fixture(scope="session", params=["onnx", "torch"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def translator(model: Path, engine: str) -> Translator:
    return Translator.load(model, threads=1, engine=engine)


@pytest.fixture(scope="session")
def start(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Starts a server with options of the command line. With `faults`, some sentences make its workers fail, which
    are killed after `grace` seconds."""

    @contextlib.contextmanager
    def started(*options: object, faults: bool = False, grace: float = GRACE) -> Iterator[Running]:
        log = tmp_path_factory.mktemp("log") / "server"
        command = [sys.executable, "-m", "latentmt", "serve", "--model", model, "--port", 0, "--device", "cpu"]
        command += ["--threads", 1, "--workers", 1, *options]
        env = environment(log.parent, grace) if faults else None
        with log.open("w") as file:
            process = subprocess.Popen(list(map(str, command)), stderr=file, stdout=file, text=True, env=env)
        try:
            while not (match := re.search(r"http://\S+", log.read_text())):
                assert process.poll() is None, log.read_text()
                time.sleep(0.02)
            yield Running(match[0], process, log)
        finally:
            process.terminate()
            process.wait(60)

    return started


@pytest.fixture(scope="session")
def running(start: Start, engine: str) -> Iterator[Running]:
    """A server that tests share."""
    with start("--engine", engine) as server:
        yield server
