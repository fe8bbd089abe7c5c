"""The server as its clients meet it: a process, sockets, signals; clients that are slow, rude or gone."""

from __future__ import annotations

import json
import logging
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI
from process import Running, Start

from latentmt import cli
from latentmt.serve.server import discreet
from latentmt.translator import Translator

TEXT = "Ein kleiner Satz steht hier."


def post(address: str, timeout: float = 30, **body: object) -> httpx.Response:
    return httpx.post(f"{address}/translate", json=body, timeout=timeout)


@contextmanager
def connected(server: Running) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as one:
        yield one


def answer(one: socket.socket) -> bytes:
    """All that is said until the connection is closed."""
    found = b""
    try:
        while more := one.recv(1 << 16):
            found += more
    except ConnectionResetError:
        pass
    return found


def test_libretranslates_own_client(running: Running, translator: Translator) -> None:
    client = LibreTranslateAPI(running.address)
    assert client.translate(TEXT, "de", "en") == translator.translate(TEXT)
    assert client.translate("Bücher & Sätze + 1 = 2?", "auto", "en") == translator.translate("Bücher & Sätze + 1 = 2?")
    assert client.detect("Das ist ein schöner Tag, und wir lesen Bücher.")[0]["language"] == "de"
    assert [language["code"] for language in client.languages()] == ["de", "en"]


def test_many_at_once_get_what_one_alone_gets(running: Running, translator: Translator) -> None:
    texts = [f"Satz {number} steht hier." for number in range(40)]
    alone = translator.translate(texts)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: post(running.address, q=text).json()["translatedText"], texts))
    assert found == alone


def test_a_full_queue_answers_429_and_when_to_come_back(start: Start) -> None:
    with start("--max-waiting", 1) as server:
        slow = {"q": [TEXT] * 40, "lengths": 8, "samples": 8, "rerank": "teacher"}
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda _: post(server.address, **slow), range(6)))
        assert {one.status_code for one in answers} == {200, 429}
        for one in answers:
            if one.status_code == 429:
                assert int(one.headers["retry-after"]) >= 1
                assert list(one.json()) == ["error"]
        assert post(server.address, q=TEXT).status_code == 200


def test_too_slow_is_503_and_its_place_is_free(start: Start) -> None:
    with start("--timeout", 0.2) as server:
        late = post(server.address, q=[TEXT] * 40, lengths=8, samples=8, rerank="teacher")
        assert (late.status_code, late.json()) == (503, {"error": "this took too long"})
        until = time.monotonic() + 30
        while post(server.address, q=TEXT).status_code != 200:
            assert time.monotonic() < until
        assert "latentmt_requests_waiting 0.0" in httpx.get(f"{server.address}/metrics").text


def test_who_leaves_gives_up_the_place(start: Start) -> None:
    with start("--max-waiting", 4) as server:
        body = json.dumps({"q": [TEXT] * 40, "lengths": 8, "samples": 8, "rerank": "teacher"}).encode()
        head = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        for _ in range(12):  # three times as many as could wait
            with connected(server) as one:
                one.sendall(head % len(body) + body)
                time.sleep(0.03)
        assert post(server.address, q=TEXT).status_code == 200
        text = httpx.get(f"{server.address}/metrics").text
        assert 'status="499"' in text
        assert 'status="429"' not in text
        assert "latentmt_requests_waiting 0.0" in text


def test_sigterm_under_load_answers_everything_that_was_accepted(start: Start) -> None:
    with start() as server:
        stop = threading.Event()
        failures: list[Exception] = []
        counts: list[int] = []

        def client(number: int) -> None:
            done = 0
            with httpx.Client(timeout=30) as one:
                while not stop.is_set():
                    try:
                        found = one.post(f"{server.address}/translate", json={"q": f"Satz {number} {done}"})
                        assert found.status_code == 200
                        done += 1
                        if found.headers.get("connection") == "close":
                            break
                    except httpx.ConnectError:  # it listens no more
                        break
                    except Exception as error:
                        failures.append(error)
                        break
            counts.append(done)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(30)
        stop.set()
        assert server.process.wait(20) == 0
        assert failures == []
        assert min(counts) > 0
        assert server.log.read_text().count("\n") == 1  # the address; nothing of texts, paths or stacks


@contextmanager
def impatient(model: Path, seconds: float, files: int = 1024) -> Iterator[Running]:
    """A server that waits so many seconds for its clients, and may open so many files."""
    script = f"""
import resource
from latentmt.serve import server
from latentmt.serve.limits import Limits
resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))
server.serve(server.Serving(model={str(model)!r}, port=0, limits=Limits(reading={seconds})))
"""
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            yield Running(process.stderr.readline().split()[-1], process, Path())
        finally:
            process.terminate()
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


def test_a_slow_head_and_a_slow_body_are_not_waited_for(model: Path) -> None:
    with impatient(model, 0.5) as server:
        with connected(server) as head, connected(server) as body, connected(server) as silent:
            head.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nX-")
            body.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            body.sendall(b'Content-Length: 1000\r\n\r\n{"q":')
            start = time.monotonic()
            assert answer(head) == b""
            assert answer(silent) == b""
            assert b"408 Request Timeout" in answer(body)
            assert time.monotonic() - start < 5
            assert post(server.address, q=TEXT).status_code == 200
        with connected(server) as deaf:
            count = 1000
            deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * count)
            time.sleep(4)
            assert 0 < answer(deaf).count(b"HTTP/1.1 200") < count
        assert post(server.address, q=TEXT).status_code == 200


def test_more_connections_than_can_be_held_are_closed(model: Path) -> None:
    with impatient(model, 60, files=160) as server:  # it is not patience that ends
        with ExitStack() as opened:
            for _ in range(32):
                opened.enter_context(connected(server))
            for _ in range(200):
                assert answer(opened.enter_context(connected(server))) == b""
        assert post(server.address, q=TEXT).status_code == 200


def test_nonsense_is_400_or_nothing_and_costs_nothing(running: Running) -> None:
    rng = random.Random(5)
    good = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    nonsense = [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA" + b"a" * 200_000,
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /%ff%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n" + b"x" * 300_000,
        b"POST /translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n",
        good + b'{"q": "a' + b"\x00garbage after\r\n\r\n",
        *(rng.randbytes(300) for _ in range(30)),
    ]
    with connected(running) as one:  # memory is taken once
        one.sendall(nonsense[3])
    before = running.memory
    for _ in range(5):
        for some in nonsense:
            with connected(running) as one:
                try:
                    one.sendall(some)
                    one.shutdown(socket.SHUT_WR)
                except OSError:  # it has heard enough
                    pass
                found = answer(one)
            assert not found or found.split()[1] in (b"200", b"400", b"404", b"408", b"413"), found
            assert b"500" not in found[:16]
    assert running.memory - before < 20e6
    assert post(running.address, q=TEXT).status_code == 200
    assert "Traceback" not in running.log.read_text()


def test_what_is_logged_has_no_paths_and_no_stack_traces(capsys: pytest.CaptureFixture[str]) -> None:
    log, shown = logging.Logger("some"), logging.StreamHandler()
    log.addHandler(shown)
    log.addFilter(discreet)
    try:
        raise RuntimeError(TEXT)
    except RuntimeError:
        log.exception("Exception in %s at /a/path.py:3\nhandle: <Handle /a/path.py>", "callback", stack_info=True)
    assert capsys.readouterr().err == "Exception in callback\n"


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: object) -> str:
    """What the command says that does not begin to serve."""
    monkeypatch.setattr(sys, "argv", ["latentmt", "serve", *map(str, options)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said.strip()


def test_mistakes_are_one_line(
    running: Running, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, message in (
        (["--port", running.port], f"127.0.0.1:{running.port}: Address already in use"),
        (["--host", "256.256.256.256"], "256.256.256.256:8000: Name or service not known"),
        (["--workers", 0], "workers 0: expected at least 1"),
        (["--max-characters", 0], "characters 0: expected more than 0, and a finite number"),
        (["--timeout", "inf"], "seconds inf: expected more than 0, and a finite number"),
        (["--api-keys", "nowhere"], "nowhere: cannot be read (No such file or directory)"),
    ):
        assert refused(monkeypatch, capsys, "--model", model, *options) == f"error: {message}"


def test_without_the_extra_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in [name for name in sys.modules if name.startswith("latentmt.serve")]:
        monkeypatch.delitem(sys.modules, name)
    assert refused(monkeypatch, capsys) == "error: serving needs uvicorn: pip install 'latentmt[serve]'"


def test_only_serving_imports_the_web() -> None:
    heavy = ("fastapi", "uvicorn", "prometheus_client", "py3langid")
    code = f"import sys, latentmt.cli, latentmt.translator; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
