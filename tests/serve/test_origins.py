"""Names under which a server answers, and pages that may use it."""

from __future__ import annotations

import pytest

from latentmt.serve.origins import Origins

LOCAL, OPEN = Origins.of("127.0.0.1"), Origins.of("0.0.0.0")
NAMED = Origins.of("0.0.0.0", ["mt.example"])


@pytest.mark.parametrize("host", ["localhost:8000", "LOCALHOST", "127.0.0.1:8000", "[::1]:8000", "10.1.2.3", ""])
@pytest.mark.parametrize("origins", [LOCAL, OPEN, NAMED, Origins.of("localhost"), Origins.of("::1")])
def test_addresses_and_localhost_are_always_names_of_the_server(origins: Origins, host: str) -> None:
    assert origins.refusal("GET", {"host": host}) is None


@pytest.mark.parametrize(
    ("origins", "host", "allowed"),
    [
        (LOCAL, "evil.example", False),
        (LOCAL, "127.0.0.1.evil.example:8000", False),
        (LOCAL, "[::1].evil.example", False),
        (OPEN, "evil.example", True),
        (NAMED, "mt.example:8000", True),
        (NAMED, "MT.example", True),
        (NAMED, "www.mt.example", False),
        (NAMED, "evil.example", False),
        (Origins.of("127.0.0.1", ["*"]), "any.example", True),
    ],
)
def test_names(origins: Origins, host: str, allowed: bool) -> None:
    refusal = origins.refusal("GET", {"host": host})
    assert (refusal is None) is allowed
    assert allowed or "--allowed-host" in str(refusal)


HOST = {"host": "mt.example:8000"}


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),  # no browser
        ({"origin": "http://mt.example:8000"}, True),
        ({"origin": "http://mt.example:8000", "sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "http://mt.example"}, False),  # another port
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"origin": "http://mt.example:8000", "sec-fetch-site": "cross-site"}, False),
    ],
)
def test_pages_of_other_sites_cannot_post(headers: dict[str, str], allowed: bool) -> None:
    assert (OPEN.refusal("POST", HOST | headers) is None) is allowed
    assert OPEN.refusal("GET", HOST | headers) is None


def test_cors_lets_pages_post() -> None:
    there = HOST | {"origin": "https://there.example", "sec-fetch-site": "cross-site"}
    assert Origins(cors=["https://there.example"]).refusal("POST", there) is None
    assert Origins(cors=["*"]).refusal("POST", there) is None
    assert Origins(cors=["https://elsewhere.example"]).refusal("POST", there) is not None
