"""Workers that hang, crash or are killed: others notice nothing, and a new worker takes over."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from faults import CRASH, HANG, SLOW, STUCK
from process import Running, Start

from latentmt.translator import Translator

TEXT = "Ein kleiner Satz steht hier."


def post(server: Running, text: str, timeout: float = 60) -> httpx.Response:
    return httpx.post(f"{server.address}/translate", json={"q": text}, timeout=timeout)


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def gone(pid: int) -> bool:
    """Whether a process has ended, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@contextmanager
def load(server: Running, clients: int = 4) -> Iterator[Counter[int]]:
    """Clients that send one request after another meanwhile. The statuses that they get."""
    statuses, stop = Counter[int](), threading.Event()

    def client(number: int) -> None:
        with httpx.Client(timeout=60) as session:
            while not stop.is_set():
                text = f"Satz {number} steht hier."
                statuses[session.post(f"{server.address}/translate", json={"q": text}).status_code] += 1

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(client, number) for number in range(clients)]
        try:
            yield statuses
        finally:
            stop.set()
    for task in running:
        task.result()


@pytest.mark.parametrize("fault", [HANG, STUCK, CRASH])
def test_what_breaks_workers_is_503_and_others_are_served(start: Start, model: Path, fault: str) -> None:
    expected = Translator.load(model, threads=1).translate(TEXT)
    with start("--workers", 2, faults=True) as server, ThreadPoolExecutor(1) as pool:
        before = server.workers
        broken = pool.submit(post, server, fault)
        for _ in range(10):
            response = post(server, TEXT)
            assert (response.status_code, response.json()["translatedText"]) == (200, expected)
        response = broken.result()
        assert (response.status_code, response.json()) == (503, {"error": "this could not be translated"})
        assert response.headers["retry-after"] == "1"
        until(lambda: len(server.workers) == 2)
        assert not set(before) & set(server.workers)
        assert all(map(gone, before))
        assert post(server, TEXT).json()["translatedText"] == expected
        metrics = httpx.get(f"{server.address}/metrics").text
        assert "latentmt_workers_lost_total 2.0" in metrics
        assert fault not in server.log.read_text()


def test_a_broken_request_does_not_break_those_translated_with_it(start: Start) -> None:
    with start(faults=True, grace=600.0) as server, ThreadPoolExecutor(9) as pool:
        blocking = pool.submit(post, server, SLOW)  # so that the others wait, and share a batch
        time.sleep(0.2)
        broken = pool.submit(post, server, CRASH)
        others = [pool.submit(post, server, f"Satz {number} steht hier.") for number in range(7)]
        assert [other.result().status_code for other in others] == [200] * 7
        assert broken.result().status_code == 503
        assert blocking.result().status_code == 200


def test_no_request_is_lost_when_workers_are_killed(start: Start) -> None:
    with start("--workers", 2) as server:
        with load(server) as statuses:
            for _ in range(5):
                done = statuses[200]
                until(lambda done=done: statuses[200] > done + 20)  # type: ignore[misc]
                victim = server.workers[0]
                os.kill(victim, signal.SIGKILL)
                until(lambda victim=victim: gone(victim))  # type: ignore[misc]
        assert set(statuses) == {200}


def test_readiness_needs_a_worker_that_translates(start: Start) -> None:
    with start(faults=True, grace=600.0) as server:  # the watchdog would replace it
        ready, health = f"{server.address}/readyz", f"{server.address}/healthz"
        assert httpx.get(ready, timeout=30).json() == {"status": "ok"}
        os.kill(server.workers[0], signal.SIGSTOP)
        until(lambda: httpx.get(ready, timeout=30).status_code == 503)
        assert httpx.get(health).json() == {"status": "ok"}
        os.kill(server.workers[0], signal.SIGCONT)
        until(lambda: httpx.get(ready, timeout=30).status_code == 200)


@pytest.mark.parametrize("fault", [HANG, STUCK])
def test_sigterm_ends_within_a_bound_whatever_hangs(start: Start, fault: str) -> None:
    # The watchdog would come too late.
    with start("--timeout", 2, faults=True, grace=600.0) as server, ThreadPoolExecutor(1) as pool:
        broken, workers = pool.submit(post, server, fault), server.workers
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(2 + 10 + 5) == 0
        assert all(map(gone, workers))
        assert broken.result().status_code == 503


def test_sigterm_ends_a_server_that_is_stopped_while_it_starts(start: Start, model: Path) -> None:
    with start() as server:
        server.process.send_signal(signal.SIGHUP)  # loading again
        time.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0


def test_workers_end_with_a_server_that_is_killed(start: Start) -> None:
    with start("--workers", 2, faults=True) as server, ThreadPoolExecutor(1) as pool:
        workers = server.workers
        broken = pool.submit(post, server, STUCK)
        time.sleep(0.3)
        server.process.kill()
        until(lambda: all(map(gone, workers)))
        with pytest.raises(httpx.HTTPError):
            broken.result()


def test_sighup_loads_the_model_again_without_dropping_a_request(start: Start) -> None:
    with start("--workers", 2) as server:
        before = server.workers
        with load(server) as statuses:
            for times in (1, 2):
                until(lambda: statuses[200] > 20)
                server.process.send_signal(signal.SIGHUP)
                until(lambda times=times: server.log.read_text().count("the model was loaded again") == times)  # type: ignore[misc]
                done = statuses[200]
                until(lambda done=done: statuses[200] > done + 20)  # type: ignore[misc]
        assert set(statuses) == {200}
        until(lambda: len(server.workers) == 2)
        assert not set(before) & set(server.workers)
        assert all(map(gone, before))
        assert "latentmt_workers_lost_total 0.0" in httpx.get(f"{server.address}/metrics").text


def test_a_model_that_cannot_be_loaded_again_changes_nothing(start: Start, model: Path) -> None:
    with start() as server:
        before, config = server.workers, model / "latent" / "config.yaml"
        content = config.read_bytes()
        try:
            config.write_bytes(b"x" + content)
            server.process.send_signal(signal.SIGHUP)
            until(lambda: "the model was not loaded again: " in server.log.read_text())
        finally:
            config.write_bytes(content)
        assert "config.yaml" in server.log.read_text().splitlines()[-1]
        until(lambda: server.workers == before)  # the one that could not load it ends
        assert post(server, TEXT).status_code == 200


def test_a_worker_on_the_onnx_engine_has_no_torch(start: Start) -> None:
    with start() as server:
        (worker,) = server.workers
        for pid in (worker, server.process.pid):
            assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()
    with start("--engine", "torch") as server:
        (worker,) = server.workers
        assert "libtorch" in Path(f"/proc/{worker}/maps").read_text()
        assert "libtorch" not in Path(f"/proc/{server.process.pid}/maps").read_text()
