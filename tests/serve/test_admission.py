"""API keys from a file and their rates, the bounds of the queue, the estimate of work; and language detection."""

from pathlib import Path

import pytest

from latentmt.errors import UserError
from latentmt.options import DecodingOptions
from latentmt.serve.admission import Admission, Limits, RefusedError, estimate_tokens, read_api_keys
from latentmt.serve.languages import detect, language_name

OPTIONS, MORE_STEPS = DecodingOptions(), DecodingOptions(steps=2)


def test_api_keys_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# ours\nfirst\nsecond 2   # a trial\nthi#rd\n\n")
    admission = Admission(Limits(), read_api_keys(path))
    for _ in range(100):
        admission.check_key("first")
    admission.check_key("second")
    admission.check_key("second")
    with pytest.raises(RefusedError, match="allows 2 requests a minute"):
        admission.check_key("second")
    admission.check_key("thi#rd")
    for unknown in ("# ours", "thi"):
        with pytest.raises(RefusedError, match="not known"):
            admission.check_key(unknown)


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
def test_invalid_key_files_are_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = tmp_path / "keys"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message):
        read_api_keys(path)


def test_a_key_regains_requests_over_time() -> None:
    now = 0.0
    admission = Admission(Limits(), {"key": 6.0}, clock=lambda: now)
    for _ in range(6):
        admission.check_key("key")
    with pytest.raises(RefusedError) as refused:
        admission.check_key("key")
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "10"})
    now = 10.0
    admission.check_key("key")
    with pytest.raises(RefusedError):
        admission.check_key("key")
    now = 1000.0
    for _ in range(6):
        admission.check_key("key")
    with pytest.raises(RefusedError):
        admission.check_key("key")


def test_estimated_tokens_grow_with_text_candidates_and_steps() -> None:
    texts = ["a" * 100] * 4
    assert (
        estimate_tokens(texts, DecodingOptions(method="prior"))
        < estimate_tokens(texts, OPTIONS)
        < estimate_tokens(texts, MORE_STEPS)
    )
    assert estimate_tokens(texts, DecodingOptions(lengths=5, samples=5, rerank="decoder")) > 20 * estimate_tokens(
        texts, DecodingOptions(method="prior")
    )
    assert estimate_tokens(texts, DecodingOptions(method="teacher")) > estimate_tokens(texts, OPTIONS)
    assert estimate_tokens([], OPTIONS) == 0 < estimate_tokens([""], OPTIONS)
    assert estimate_tokens(texts, OPTIONS, traced=True) > 4 * estimate_tokens(texts, OPTIONS)  # a sentence at a time
    assert estimate_tokens(["😀" * 100], DecodingOptions(method="prior")) > 300  # a byte, a token
    assert estimate_tokens(["Schöne Grüße aus Köln, und bis bald!"], OPTIONS) < 1.5 * estimate_tokens(
        ["Schone Grusse aus Koln, und bis bald"], OPTIONS
    )


def test_the_queue_is_bounded_in_requests_and_tokens() -> None:
    admission = Admission(Limits(max_waiting=2, max_waiting_tokens=100))
    admission.enqueue(1000)  # an empty queue takes any request
    assert admission.queue_full
    admission.dequeue(1000)
    admission.enqueue(60)
    assert not admission.queue_full
    with pytest.raises(RefusedError) as refused:
        admission.enqueue(41)
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "1"})
    admission.enqueue(40)
    assert (admission.waiting, admission.waiting_tokens) == (2, 100)
    admission.dequeue(60)
    admission.enqueue(1)
    with pytest.raises(RefusedError):
        admission.enqueue(1)


def test_retry_after_follows_the_measured_speed() -> None:
    admission = Admission(Limits(max_waiting=1))
    for _ in range(100):
        admission.record_speed(tokens=50, seconds=1.0)
    admission.enqueue(1000)
    with pytest.raises(RefusedError) as refused:
        admission.check_queue()
    assert refused.value.headers == {"Retry-After": "20"}


def test_language_names_and_detection() -> None:
    assert (language_name("de"), language_name("xx")) == ("German", "xx")
    assert detect("Das ist ein schöner Tag, und wir lesen Bücher.")[0].language == "de"
    assert {guess.language for guess in detect("123", ("de", "en"))} == {"de", "en"}
    assert [guess.confidence for guess in detect("123", ("de", "en"))] == [50.0, 50.0]
    assert detect("The day is fine, and we read books.", ("de", "xx"))[0].language == "de"  # one it has never heard of
