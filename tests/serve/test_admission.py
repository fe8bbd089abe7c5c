"""API keys from a file and their rates, who a client is; and language detection."""

from pathlib import Path

import pytest

from latentmt.errors import UserError
from latentmt.serve.admission import Admission, ApiKeys, Limits, RefusedError, client_at, read_api_keys
from latentmt.serve.languages import detect, language_name

HOME = "10.0.0.1"


def test_api_keys_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# ours\nfirst\nsecond 2   # a trial\nthi#rd\nprometheus metrics\n\n")
    admission = Admission(Limits(), read_api_keys(path))
    for _ in range(100):
        admission.client(HOME, "first")
    admission.client(HOME, "second")
    admission.client(HOME, "second")
    with pytest.raises(RefusedError, match="allows 2 requests a minute"):
        admission.client(HOME, "second")
    admission.client(HOME, "thi#rd")
    for unknown in ("# ours", "thi", "prometheus"):
        with pytest.raises(RefusedError, match="not known"):
            admission.client(HOME, unknown)
    admission.check_metrics("prometheus")
    for other in ("first", "metrics", ""):
        with pytest.raises(RefusedError, match="metrics"):
            admission.check_metrics(other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no key"),
        ("key metrics", "holds no key"),
        ("key -1", "line 1: expected a key"),
        ("key ²", "line 1: expected"),
        ("a\nb c d", "line 2: expected"),
        (b"\xff", "read"),
    ],
)
def test_invalid_key_files_are_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = tmp_path / "keys"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message):
        read_api_keys(path)


def test_a_time_cost_must_be_a_number_of_seconds(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("key 6")
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UserError, match="req_time_cost"):
            read_api_keys(path, seconds_per_request=seconds)


def test_a_key_regains_requests_over_time() -> None:
    now = 0.0
    admission = Admission(Limits(), ApiKeys({"key": 6.0}), clock=lambda: now)
    for _ in range(6):
        admission.client(HOME, "key")
    with pytest.raises(RefusedError) as refused:
        admission.client(HOME, "key")
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "10"})
    now = 10.0
    admission.client(HOME, "key")
    with pytest.raises(RefusedError):
        admission.client(HOME, "key")
    now = 1000.0
    for _ in range(6):
        admission.client(HOME, "key")
    with pytest.raises(RefusedError):
        admission.client(HOME, "key")


def test_a_long_request_counts_as_several() -> None:
    now = 0.0
    admission = Admission(Limits(), ApiKeys({"key": 6.0}, seconds_per_request=0.5), clock=lambda: now)
    admission.charge(admission.client(HOME, "key"), 0.4)  # one
    admission.charge(admission.client(HOME, "key"), 2.0)  # four
    admission.charge(admission.client(HOME, "key"), 1.5)  # three, of which one was left: two are overdrawn
    with pytest.raises(RefusedError) as refused:
        admission.client(HOME, "key")
    assert refused.value.headers == {"Retry-After": "30"}
    now = 30.0
    admission.client(HOME, "key")


def test_without_a_time_cost_a_request_counts_as_one() -> None:
    admission = Admission(Limits(), ApiKeys({"key": 2.0}), clock=lambda: 0.0)
    admission.charge(admission.client(HOME, "key"), 1000.0)
    admission.client(HOME, "key")


def test_a_client_is_a_key_or_else_an_address() -> None:
    open_, closed = Admission(Limits()), Admission(Limits(), ApiKeys({"a": 9.0, "b": 9.0}))
    assert open_.client(HOME).name != open_.client("10.0.0.2").name
    assert open_.client(HOME, "a").name == open_.client(HOME, "b").name
    assert closed.client(HOME, "a").name == closed.client("10.0.0.2", "a").name != closed.client(HOME, "b").name
    assert "a" not in closed.client(HOME, "a").name.split()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("", "10.0.0.2", False),
    ],
)
def test_a_network_of_64_bits_is_one_client(one: str, other: str, same: bool) -> None:
    assert (client_at(one) == client_at(other)) is same


def test_language_names_and_detection() -> None:
    assert (language_name("de"), language_name("xx")) == ("German", "xx")
    assert detect("Das ist ein schöner Tag, und wir lesen Bücher.")[0].language == "de"
    assert {guess.language for guess in detect("123", ("de", "en"))} == {"de", "en"}
    assert [guess.confidence for guess in detect("123", ("de", "en"))] == [50.0, 50.0]
    assert detect("The day is fine, and we read books.", ("de", "xx"))[0].language == "de"  # one it has never heard of
