"""The server as a process: sockets, signals, and clients that are slow, send garbage or disconnect."""

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
from faults import SLOW
from libretranslatepy import LibreTranslateAPI
from process import Running, Start

from latentmt import cli
from latentmt.serve.listening import redact
from latentmt.translator import Translator

TEXT = "Ein kleiner Satz steht hier."


@pytest.fixture(scope="module", params=[1, 2])
def fronts(request: pytest.FixtureRequest) -> int:
    """How many front processes there are, which makes no difference."""
    return int(request.param)


@pytest.fixture(scope="module")
def either(start: Start, fronts: int) -> Iterator[Running]:
    with start("--front-processes", fronts) as server:
        yield server


def post(address: str, timeout: float = 30, **body: object) -> httpx.Response:
    return httpx.post(f"{address}/translate", json=body, timeout=timeout)


@contextmanager
def connected(server: Running) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        yield connection


def receive(connection: socket.socket) -> bytes:
    """Everything until the connection is closed."""
    received = b""
    try:
        while more := connection.recv(1 << 16):
            received += more
    except ConnectionResetError:
        pass
    return received


def test_libretranslates_client_works(running: Running, translator: Translator) -> None:
    client = LibreTranslateAPI(running.address)
    assert client.translate(TEXT, "de", "en") == translator.translate(TEXT)
    assert client.translate("Bücher & Sätze + 1 = 2?", "auto", "en") == translator.translate("Bücher & Sätze + 1 = 2?")
    assert client.detect("Das ist ein schöner Tag, und wir lesen Bücher.")[0]["language"] == "de"
    assert [language["code"] for language in client.languages()] == ["de", "en"]


def test_concurrent_requests_get_the_same_translations_as_single_ones(running: Running, translator: Translator) -> None:
    texts = [f"Satz {number} steht hier." for number in range(40)]
    alone = translator.translate(texts)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda text: post(running.address, q=text).json()["translatedText"], texts))
    assert results == alone


def test_unknown_methods_and_rerankers_are_400(running: Running) -> None:
    for name, message in (
        ("method", "method magic: this model has only prior, delta, score, teacher"),
        ("rerank", "rerank magic: expected one of none, teacher, decoder, elbo, marginal"),
    ):
        response = post(running.address, q=TEXT, **{name: "magic"})
        assert (response.status_code, response.json()) == (400, {"error": message})


def test_a_full_queue_is_429_with_retry_after(start: Start) -> None:
    with start("--max-waiting", 1) as server:
        slow = {"q": [TEXT] * 40, "lengths": 8, "samples": 8, "rerank": "teacher"}
        with ThreadPoolExecutor(6) as pool:
            responses = list(pool.map(lambda _: post(server.address, **slow), range(6)))
        assert {response.status_code for response in responses} == {200, 429}
        for response in responses:
            if response.status_code == 429:
                assert int(response.headers["retry-after"]) >= 1
                assert list(response.json()) == ["error"]
        assert post(server.address, q=TEXT).status_code == 200


def test_a_timeout_is_503_and_frees_the_queue(start: Start) -> None:
    with start("--timeout", 0.5, faults=True) as server:
        late = post(server.address, q=SLOW)
        assert (late.status_code, late.json()) == (503, {"error": "this took too long"})
        assert late.headers["retry-after"] == "1"
        until = time.monotonic() + 30
        while post(server.address, q=TEXT).status_code != 200:
            assert time.monotonic() < until
        assert "latentmt_requests_waiting 0.0" in httpx.get(f"{server.address}/metrics").text


def test_disconnecting_frees_the_queue(start: Start, fronts: int) -> None:
    with start("--max-waiting", 4, "--front-processes", fronts, faults=True) as server:
        body = json.dumps({"q": SLOW}).encode()
        head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += b"Content-Length: %d\r\n\r\n"
        for _ in range(12):  # three times as many as could wait
            with connected(server) as connection:
                connection.sendall(head % len(body) + body)
                time.sleep(0.03)
        assert post(server.address, q=TEXT).status_code == 200
        text = httpx.get(f"{server.address}/metrics").text
        assert 'status="499"' in text
        assert 'status="429"' not in text
        assert "latentmt_requests_waiting 0.0" in text


def test_sigterm_under_load_answers_every_accepted_request(start: Start, fronts: int) -> None:
    with start("--front-processes", fronts) as server:
        stop = threading.Event()
        failures: list[Exception] = []
        counts: list[int] = []

        def client(number: int) -> None:
            done = 0
            with httpx.Client(timeout=30) as session:
                while not stop.is_set():
                    try:
                        response = session.post(f"{server.address}/translate", json={"q": f"Satz {number} {done}"})
                        assert response.status_code == 200
                        done += 1
                        if response.headers.get("connection") == "close":
                            break
                    except httpx.ConnectError:  # it has stopped listening
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


def test_an_idle_connection_is_served_once_more_at_shutdown(start: Start, fronts: int) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with start("--front-processes", fronts) as server, connected(server) as idle, connected(server) as silent:
        idle.sendall(request)
        first = b""
        while not first.endswith(b"}"):
            first += idle.recv(1 << 16)
        assert b"connection: close" not in first
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        with pytest.raises(ConnectionRefusedError), connected(server):
            pass
        idle.sendall(request)
        response = receive(idle)
        assert response.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in response
        assert receive(silent) == b""
        assert server.process.wait(20) == 0


@contextmanager
def started(model: Path, read_timeout: float, files: int = 1024, fronts: int = 1) -> Iterator[Running]:
    """A server with this timeout for its clients, which may open so many files."""
    script = f"""
import resource
from latentmt.serve import server
from latentmt.serve.admission import Limits
resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))
server.serve(server.ServerConfig(models=[{str(model)!r}], port=0, limits=Limits(read_timeout={read_timeout}),
                                 front_processes={fronts}))
"""
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            yield Running(process.stderr.readline().split()[-1], process, Path())
        finally:
            process.terminate()
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


def test_slow_heads_bodies_and_readers_time_out(model: Path, fronts: int) -> None:
    with started(model, 0.5, fronts=fronts) as server:
        with connected(server) as head, connected(server) as body, connected(server) as silent:
            head.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nX-")
            body.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
            body.sendall(b'Content-Length: 1000\r\n\r\n{"q":')
            start = time.monotonic()
            assert receive(head) == b""
            assert receive(silent) == b""
            assert b"408 Request Timeout" in receive(body)
            assert time.monotonic() - start < 5
            assert post(server.address, q=TEXT).status_code == 200
        with connected(server) as deaf:
            count = 1000
            deaf.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * count)
            time.sleep(4)
            assert 0 < receive(deaf).count(b"HTTP/1.1 200") < count
        assert post(server.address, q=TEXT).status_code == 200


def test_pipelined_requests_are_answered_in_order_before_garbage_is_refused(either: Running) -> None:
    body = json.dumps({"q": TEXT}).encode()
    head = (
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    with connected(either) as connection:
        connection.sendall((head % len(body) + body) * 40 + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n\0\0")
        received = receive(connection)
    bodies = [json.loads(part.splitlines()[-1]) for part in received.split(b"HTTP/1.1 ")[1:]]
    assert len(bodies) == 42
    assert all("translatedText" in one for one in bodies[:40])
    assert bodies[40:] == [{"status": "ok"}, {"error": "this is no HTTP request"}]


def test_a_head_without_end_is_refused(either: Running) -> None:
    for endless in (
        b"GET /" + b"a" * 70_000,
        b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 12_000,
    ):
        with connected(either) as connection:
            connection.sendall(endless)
            assert receive(connection).startswith(b"HTTP/1.1 400")


def test_connections_beyond_the_maximum_are_closed(model: Path) -> None:
    with started(model, 60, files=160) as server:  # no timeout
        with ExitStack() as opened:
            for _ in range(32):
                opened.enter_context(connected(server))
            for _ in range(200):
                assert receive(opened.enter_context(connected(server))) == b""
        assert post(server.address, q=TEXT).status_code == 200


def test_garbage_is_400_in_json_or_closed_and_takes_no_memory(either: Running) -> None:
    rng = random.Random(5)
    good = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    garbage = [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA" + b"a" * 200_000,
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /%ff%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999\r\n\r\n" + b"x" * 300_000,
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n",
        good + b'{"q": "a' + b"\x00garbage after\r\n\r\n",
        *(rng.randbytes(300) for _ in range(30)),
    ]
    with connected(either) as connection:  # memory is taken once
        connection.sendall(garbage[3])
    before = either.memory
    for _ in range(5):
        for data in garbage:
            with connected(either) as connection:
                try:
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                except OSError:  # closed already
                    pass
                received = receive(connection)
            for response in received.split(b"HTTP/1.1 ")[1:]:
                head, _, body = response.partition(b"\r\n\r\n")
                assert head[:3] in (b"200", b"400", b"404", b"408", b"413"), received
                if head[:3] != b"200":
                    assert b"content-type: application/json" in head
                    assert list(json.loads(body)) == ["error"]
    assert either.memory - before < 20e6
    assert post(either.address, q=TEXT).status_code == 200
    assert "Traceback" not in either.log.read_text()


def test_logs_have_no_paths_and_no_stack_traces(capsys: pytest.CaptureFixture[str]) -> None:
    log, shown = logging.Logger("some"), logging.StreamHandler()
    log.addHandler(shown)
    log.addFilter(redact)
    try:
        raise RuntimeError(TEXT)
    except RuntimeError:
        log.exception("Exception in %s at /a/path.py:3\nhandle: <Handle /a/path.py>", "callback", stack_info=True)
    assert capsys.readouterr().err == "Exception in callback\n"


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: object) -> str:
    """The error of a command that does not start to serve."""
    monkeypatch.setattr(sys, "argv", ["latentmt", "serve", *map(str, options)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    return message.strip()


def test_user_errors_are_one_line(
    running: Running, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, message in (
        (["--port", running.port], f"127.0.0.1:{running.port}: Address already in use"),
        (["--host", "256.256.256.256"], "256.256.256.256:8000: Name or service not known"),
        (["--front-processes", 0], "front_processes 0: expected at least 1"),
        (["--workers", 0], "workers 0: expected at least 1"),
        (["--max-characters", 0], "max_characters 0: expected more than 0, and a finite number"),
        (["--timeout", "inf"], "timeout inf: expected more than 0, and a finite number"),
        (["--api-keys", "nowhere"], "nowhere: cannot be read (No such file or directory)"),
    ):
        assert refused(monkeypatch, capsys, "--model", model, *options) == f"error: {message}"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in [name for name in sys.modules if name.startswith("latentmt.serve")]:
        monkeypatch.delitem(sys.modules, name)
    assert refused(monkeypatch, capsys) == "error: this command needs uvicorn: pip install 'latentmt[serve]'"


def test_only_serving_imports_the_web_framework() -> None:
    heavy = ("fastapi", "uvicorn", "prometheus_client", "py3langid")
    code = f"import sys, latentmt.cli, latentmt.translator; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_refused_cors_preflight_is_answered_by_the_application(start: Start) -> None:
    preflight = {"Access-Control-Request-Method": "POST"}
    with start("--cors", "http://a.example") as server, httpx.Client() as client:
        allowed = client.options(f"{server.address}/translate", headers={**preflight, "Origin": "http://a.example"})
        assert allowed.status_code == 200
        refused = client.options(f"{server.address}/translate", headers={**preflight, "Origin": "http://b.example"})
        assert refused.status_code == 400
        assert "CORS" in refused.text
