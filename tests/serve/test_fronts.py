"""Several front processes: one set of limits, keys and counters for all, and what happens when one of them ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from process import Running, Start

from latentmt.errors import UserError
from latentmt.serve import server as server_module
from latentmt.serve.server import ServerConfig, serve

TEXT = "Ein kleiner Satz steht hier."


def post(server: Running, text: str, key: str = "") -> httpx.Response:
    return httpx.post(f"{server.address}/translate", json={"q": text, "api_key": key}, timeout=60)


def metrics(server: Running, key: str = "none") -> str:
    return httpx.get(f"{server.address}/metrics", headers={"Authorization": f"Bearer {key}"}, timeout=60).text


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def state(pid: int) -> str:
    """What /proc says: T is stopped, Z has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return "Z"


@contextmanager
def busy(server: Running) -> Iterator[None]:
    """Let the worker do nothing meanwhile."""
    (worker,) = server.workers
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


@contextmanager
def only(server: Running, front: int) -> Iterator[None]:
    """Let one front process accept all connections."""
    others = [pid for pid in server.fronts if pid != front]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: all(state(pid) == "T" for pid in others))
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def two(start: Start) -> Iterator[Running]:
    with start("--front-processes", 2, "--max-waiting", 2, faults=True, grace=600.0) as server:
        yield server


def test_a_key_has_one_rate_at_all_fronts(start: Start, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("few 3\nprometheus metrics\n")
    with start("--front-processes", 2, "--api-keys", keys) as server:
        one, other = server.fronts
        with only(server, one):
            assert [post(server, TEXT, "few").status_code for _ in range(2)] == [200, 200]
            assert post(server, TEXT).status_code == 403
        with only(server, other):
            assert [post(server, TEXT, "few").status_code for _ in range(2)] == [200, 429]
            assert "retry-after" in post(server, TEXT, "few").headers
            assert post(server, TEXT, "prometheus").status_code == 403
            assert "latentmt_requests_total" in metrics(server, "prometheus")
            assert "latentmt_requests_total" not in metrics(server, "few")
        with only(server, one):
            assert post(server, TEXT, "few").status_code == 429


def test_there_is_one_queue_for_all_fronts(two: Running) -> None:
    one, other = two.fronts
    with ThreadPoolExecutor(3) as pool:
        with busy(two):
            with only(two, one):
                held = [pool.submit(post, two, TEXT) for _ in range(3)]
                until(lambda: "latentmt_requests_waiting 2.0" in metrics(two))
                assert post(two, TEXT).status_code == 429
            with only(two, other):
                assert "latentmt_requests_waiting 2.0" in metrics(two)
                assert post(two, TEXT).status_code == 429
        assert [each.result().status_code for each in held] == [200] * 3
    assert post(two, TEXT).status_code == 200


def test_counters_are_sums_over_all_fronts(start: Start) -> None:
    with start("--front-processes", 2) as server:
        for number, front in enumerate(server.fronts, 1):
            with only(server, front):
                for _ in range(2 * number):
                    assert post(server, TEXT).status_code == 200
                assert httpx.post(f"{server.address}/translate", json={}).status_code == 400
                assert httpx.get(f"{server.address}/nowhere").status_code == 404
                time.sleep(0.3)
        for front in server.fronts:
            with only(server, front):
                shown = metrics(server)
                assert 'latentmt_requests_total{endpoint="/translate",status="200"} 6.0' in shown
                assert 'latentmt_requests_total{endpoint="/translate",status="400"} 2.0' in shown
                assert 'latentmt_requests_total{endpoint="other",status="404"} 2.0' in shown
                assert 'latentmt_request_seconds_count{endpoint="/translate"} 8.0' in shown
                assert f"latentmt_characters_total {6.0 * len(TEXT)}" in shown


def test_a_document_is_fetched_through_another_front(two: Running) -> None:
    one, other = two.fronts
    content = "\n".join(f"Satz {number} steht hier." for number in range(300)).encode()  # several parts of a body
    with only(two, one):
        form = {"data": {"target_lang": "EN"}, "files": {"file": ("satz.txt", content)}}
        document = httpx.post(f"{two.address}/v2/document", timeout=60, **form).json()
    path = f"{two.address}/v2/document/{document['document_id']}"
    with only(two, other):
        until(lambda: httpx.post(path, json=document, timeout=60).json()["status"] == "done")
        result = httpx.post(f"{path}/result", json=document, timeout=60)
    with only(two, one):
        assert httpx.post(f"{path}/result", json=document, timeout=60).content == result.content
    assert len(result.text.splitlines()) == 300
    assert "satz.en.txt" in result.headers["content-disposition"]


def test_a_killed_front_is_replaced_and_takes_only_its_own_requests_along(start: Start) -> None:
    with start("--front-processes", 2, faults=True, grace=600.0) as server, ThreadPoolExecutor(8) as pool:
        victim, other = server.fronts
        with busy(server):
            with only(server, other):
                kept = pool.submit(post, server, TEXT)
                until(lambda: "latentmt_batch_requests_count 1.0" in metrics(server))
            with only(server, victim):
                lost = [pool.submit(post, server, TEXT) for _ in range(6)]
                until(lambda: "latentmt_requests_waiting 6.0" in metrics(server))
            os.kill(victim, signal.SIGKILL)
            until(lambda: "latentmt_requests_waiting 0.0" in metrics(server))
        assert kept.result().status_code == 200
        for each in lost:
            with pytest.raises(httpx.TransportError):
                each.result()
        assert "latentmt_batch_requests_sum 1.0" in metrics(server)  # they were not translated
        until(lambda: len(server.fronts) == 2 and victim not in server.fronts)
        new = next(pid for pid in server.fronts if pid != other)
        with only(server, new):
            assert post(server, TEXT).status_code == 200
        assert "latentmt_front_processes_lost_total 1.0" in metrics(server)
        assert server.log.read_text().splitlines()[1:] == ["a front process has ended and is replaced"]


def test_clients_wait_while_all_fronts_are_replaced(start: Start) -> None:
    with start("--front-processes", 2) as server:
        before = server.fronts
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        assert post(server, TEXT).status_code == 200
        until(lambda: len(server.fronts) == 2)
        assert not set(before) & set(server.fronts)


def test_sigterm_ends_a_front_that_hangs_and_one_that_is_being_replaced(start: Start) -> None:
    with start("--front-processes", 2, "--timeout", 1) as server:
        stuck, killed = server.fronts
        os.kill(stuck, signal.SIGSTOP)
        os.kill(killed, signal.SIGKILL)
        until(lambda: "is replaced" in server.log.read_text())
        fronts = server.fronts
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(1 + 10 + 5) == 0
        until(lambda: all(state(pid) == "Z" for pid in [stuck, *fronts]))


def test_fronts_end_with_a_server_that_is_killed(start: Start) -> None:
    with start("--front-processes", 2) as server:
        fronts = server.fronts
        server.process.kill()
        until(lambda: all(state(pid) == "Z" for pid in fronts))


def test_fronts_get_models_that_are_loaded_again(start: Start) -> None:
    with start("--front-processes", 2) as server:
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "the model was loaded again" in server.log.read_text())
        for front in server.fronts:
            with only(server, front):
                assert post(server, TEXT).status_code == 200


def test_where_a_socket_cannot_be_inherited_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "inherits_sockets", lambda: False)
    with pytest.raises(UserError, match=r"^front_processes 2: on this system there can only be one$"):
        serve(ServerConfig(front_processes=2))
