"""A model that gives every sentence another text (`lively`), servers of it, and their page in a browser."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from browser import Browser, find_browser
from faults import GRACE, environment
from lively import save_lively_model
from pages import REQUIRED
from process import Running, Start
from serving import Serving
from serving import serving as directly

from latentmt.translator import Translator


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of bundles: German to English, with a score and a teacher."""
    return save_lively_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def reverse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same from English to German, with other weights."""
    return save_lively_model(tmp_path_factory.mktemp("reverse"), ("en", "de"), seed=7)


@pytest.fixture(scope="session", params=["onnx", "torch"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def translator(model: Path, engine: str) -> Translator:
    return Translator.load(model, threads=1, engine=engine)


@pytest.fixture(scope="session")
def english(reverse: Path, engine: str) -> Translator:
    """The translator from English to German."""
    return Translator.load(reverse, threads=1, engine=engine)


@pytest.fixture(scope="module", params=[False, True], ids=["alone", "front"])
def serving(request: pytest.FixtureRequest) -> Serving:
    """`serving`, with and without a front process, which makes no difference."""
    return partial(directly, through_front=request.param)


@pytest.fixture(scope="session")
def start(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Starts a server with options of the command line, by default with one model. With `faults`, some sentences make
    its workers fail, which are killed after `grace` seconds."""

    @contextlib.contextmanager
    def started(
        *options: object, models: Sequence[Path] = (model,), faults: bool = False, grace: float = GRACE
    ) -> Iterator[Running]:
        log = tmp_path_factory.mktemp("log") / "server"
        command = [sys.executable, "-m", "latentmt", "serve", "--port", 0, "--device", "cpu"]
        command += [option for each in models for option in ("--model", each)]
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


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = find_browser()
    if program is None and REQUIRED not in os.environ:
        pytest.skip("no Chromium here (apt-get install chromium)")
    assert program, f"{REQUIRED} is set, but there is no Chromium"
    with Browser(program) as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, running: Running) -> Iterator[Browser]:
    """The page. It has to ask nobody but its server, and to have no errors."""
    browser.window(1180, 900)
    browser.errors.clear()
    browser.requests.clear()
    browser.open(running.address)
    browser.wait("document.querySelectorAll('#examples button').length > 0")
    yield browser
    assert browser.errors == []
    assert {request.split("/")[2] for request in browser.requests if not request.startswith("data:")} == {
        running.address.removeprefix("http://")
    }
