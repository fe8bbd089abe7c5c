"""Which pages may use the server from a browser, and under which names it answers.

A page of another site can send a form anywhere, and can give its own name the server's address (DNS rebinding). The
first is told by headers that browsers set, the second by the name in `Host`. An address in `Host` is no name, so it is
always right.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

ANY = "*"
_LOCAL = "localhost"
_LONGEST_ADDRESS = 64
"""Characters, with a zone. What is longer is not kept in a cache."""


@dataclass(frozen=True)
class Origins:
    """Who may use the server."""

    hosts: Sequence[str] = (ANY,)
    """The names under which it answers, without ports, beside `localhost`; `*`: under any."""
    cors: Sequence[str] = ()
    """Origins of other sites whose pages may use it; `*`: any."""

    @staticmethod
    def of(listening: str, hosts: Sequence[str] = (), cors: Sequence[str] = ()) -> Origins:
        """Those of a server that listens at an address. Unless names are given, it has none if only this machine can
        reach it, and any if others can."""
        if hosts:
            return Origins(hosts, cors)
        return Origins(() if _is_loopback(listening) else (ANY,), cors)

    def refusal(self, method: str, headers: Mapping[str, str]) -> str | None:
        """Why a request is refused, if it is."""
        host = headers.get("host", "")
        if not self._is_known(host):
            return f"host {_name(host)}: this server does not answer to that name (see --allowed-host)"
        if method not in ("GET", "HEAD", "OPTIONS") and not self._is_same_site(host, headers):
            return "this request comes from a page of another site (see --cors)"
        return None

    def _is_known(self, host: str) -> bool:
        name = _name(host)
        return (
            not name or name == _LOCAL or ANY in self.hosts or name in map(str.lower, self.hosts) or _is_address(name)
        )

    def _is_same_site(self, host: str, headers: Mapping[str, str]) -> bool:
        """Whether it comes from our own page, from one that may use us, or from no page at all."""
        origin, site = headers.get("origin", ""), headers.get("sec-fetch-site", "")
        if ANY in self.cors or (origin and origin in self.cors) or site in ("same-origin", "none"):
            return True
        return not site and (not origin or urlsplit(origin).netloc.lower() == host.lower())


def _name(host: str) -> str:
    """The name in a `Host`, without the port; an IPv6 address without its brackets."""
    name, colon, port = host.lower().rpartition(":")
    if not colon or not (port.isdecimal() or not port):
        name = host.lower()
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name


def _is_address(name: str) -> bool:
    return len(name) <= _LONGEST_ADDRESS and _parses_as_address(name)


@lru_cache(maxsize=1024)
def _parses_as_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == _LOCAL or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
