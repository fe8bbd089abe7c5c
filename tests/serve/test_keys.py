"""Keys from a file, and how many requests a minute each is good for."""

from pathlib import Path

import pytest

from latentmt.errors import UserError
from latentmt.serve.keys import Keys, RefusedError
from latentmt.serve.languages import detect, name


def test_a_file_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# ours\nfirst\nsecond 2   # a trial\nthi#rd\n\n")
    keys = Keys.read(path)
    for _ in range(100):
        keys.take("first")
    keys.take("second")
    keys.take("second")
    with pytest.raises(RefusedError, match="good for 2 requests a minute"):
        keys.take("second")
    keys.take("thi#rd")
    for unknown in ("# ours", "thi"):
        with pytest.raises(RefusedError, match="not known"):
            keys.take(unknown)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no key"),
        ("key -1", "line 1: expected a key"),
        ("key ²", "line 1: expected"),
        ("a\nb c d", "line 2: expected"),
        (b"\xff", "read"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = tmp_path / "keys"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message):
        Keys.read(path)


def test_requests_come_back_with_time() -> None:
    now = 0.0
    keys = Keys({"key": 6.0}, clock=lambda: now)
    for _ in range(6):
        keys.take("key")
    with pytest.raises(RefusedError) as refused:
        keys.take("key")
    assert refused.value.seconds == 10
    now = 10.0
    keys.take("key")
    with pytest.raises(RefusedError):
        keys.take("key")
    now = 1000.0
    for _ in range(6):
        keys.take("key")
    with pytest.raises(RefusedError):
        keys.take("key")


def test_languages() -> None:
    assert (name("de"), name("xx")) == ("German", "xx")
    assert detect("Das ist ein schöner Tag, und wir lesen Bücher.")[0].language == "de"
    assert {guess.language for guess in detect("123", ("de", "en"))} == {"de", "en"}
    assert [guess.confidence for guess in detect("123", ("de", "en"))] == [50.0, 50.0]
    assert detect("The day is fine, and we read books.", ("de", "xx"))[0].language == "de"  # one it has never heard of
