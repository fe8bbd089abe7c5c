"""The fair queue: shares between clients, order within a client, bounds, and what is forgotten."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentmt.serve import fairness
from latentmt.serve.fairness import FairQueue, QueueFullError, Waiting

ALL = 1000


def queue(max_waiting: int = ALL, max_seconds: float = 1e9) -> FairQueue[Waiting]:
    return FairQueue(max_waiting, max_seconds)


def request(client: str, seconds: float = 1.0, created: float = 0.0, group: str = "", alone: bool = False) -> Waiting:
    return Waiting(client=client, seconds=seconds, created=created, group=group or object(), alone=alone)


def serve(fair: FairQueue[Waiting], seconds: float | None = None) -> Waiting | None:
    """Serve the next request alone, in its time."""
    first = fair.next(ALL)
    if first is None:
        return None
    fair.take(first, 0.0, ALL)
    fair.start([first.client])
    fair.charge(first.client, first.seconds if seconds is None else seconds)
    fair.finish([first.client])
    return first


def served(fair: FairQueue[Waiting], count: int) -> list[str]:
    return [one.client for _ in range(count) if (one := serve(fair))]


def test_clients_get_equal_shares_of_time_not_of_requests() -> None:
    fair = queue()
    for _ in range(10):
        fair.add(request("long", 4.0))
    for _ in range(40):
        fair.add(request("short", 1.0))
    assert served(fair, 25).count("short") == 20


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.01, 5.0)), min_size=1, max_size=60))
def test_no_client_is_ahead_of_a_waiting_one_by_more_than_a_request(requests: list[tuple[str, float]]) -> None:
    fair, used, last = queue(), dict.fromkeys("abc", 0.0), dict.fromkeys("abc", 0.0)
    for client, seconds in requests:
        fair.add(request(client, seconds))
        last[client] = max(last[client], seconds)
    while one := serve(fair):
        used[one.client] += one.seconds
        waiting = {other.client for other in fair} | {one.client}
        assert all(used[one.client] <= used[other] + last[one.client] + 1e-9 for other in waiting)
    assert used == pytest.approx({name: sum(s for client, s in requests if client == name) for name in "abc"})


def test_a_client_that_was_idle_has_saved_nothing_up() -> None:
    fair = queue()
    for _ in range(10):
        fair.add(request("busy"))
    served(fair, 5)
    for _ in range(10):
        fair.add(request("idle"))
    assert sorted(served(fair, 4)) == ["busy", "busy", "idle", "idle"]


def test_a_new_client_comes_before_those_who_have_used_more() -> None:
    fair = queue()
    for _ in range(10):
        fair.add(request("attacker", 5.0))
    served(fair, 3)
    fair.add(request("victim", 0.1))
    assert served(fair, 2) == ["victim", "attacker"]


def test_the_shortest_request_of_a_client_comes_first_unless_another_has_waited_long() -> None:
    fair = queue()
    fair.add(request("a", 5.0, created=0.0))
    fair.add(request("a", 0.1, created=1.0))
    fair.add(request("a", 0.2, created=12.0))
    order = [one.seconds for _ in range(3) if (one := serve(fair))]
    assert order == [0.1, 5.0, 0.2]


def test_requests_of_a_group_share_a_batch_within_its_seconds() -> None:
    fair = queue()
    first, same, other, large = (
        request("a", group="x"),
        request("b", group="x"),
        request("a"),
        request("c", 9.0, 0.0, "x"),
    )
    for one in (first, same, other, large):
        fair.add(one)
    assert fair.take(first, 2.5, ALL) == [first, same]
    assert list(fair) == [other, large]


def test_a_suspect_shares_no_batch() -> None:
    fair = queue()
    suspect, same = request("a", group="x", alone=True), request("b", group="x")
    fair.requeue(suspect)
    fair.add(same)
    assert fair.take(same, 9.0, ALL) == [same]
    assert fair.take(suspect, 9.0, ALL) == [suspect]


def test_running_batches_of_a_client_are_bounded() -> None:
    fair = queue()
    for client in ("a", "a", "b"):
        fair.add(request(client, group="x"))
    fair.start(["a"])
    fair.start(["a"])
    first = fair.next(max_started=2)
    assert first
    assert first.client == "b"
    assert fair.take(first, 9.0, max_started=2) == [first]
    assert fair.next(max_started=2) is None
    fair.finish(["a"])
    assert fair.next(max_started=2)


def test_only_short_requests_are_next_if_asked() -> None:
    fair = queue()
    fair.add(request("a", 5.0))
    fair.add(request("b", 0.5))
    short = fair.next(ALL, max_seconds=1.0)
    assert short
    assert short.client == "b"


@pytest.mark.parametrize(("max_waiting", "max_seconds"), [(10, 1e9), (ALL, 10.0)])
def test_the_client_with_most_in_a_full_queue_gives_way(max_waiting: int, max_seconds: float) -> None:
    fair = queue(max_waiting, max_seconds)
    attack = [request("attacker", created=float(number)) for number in range(10)]
    for one in attack:
        assert fair.add(one) == []
    assert not fair.has_room("attacker", 1.0)
    with pytest.raises(QueueFullError):
        fair.add(request("attacker"))
    assert fair.has_room("victim", 1.0)
    assert fair.add(request("victim")) == [attack[-1]]
    assert len(fair) == 10
    for _ in range(4):
        fair.add(request("victim"))
    with pytest.raises(QueueFullError):  # now it has as much as the other
        fair.add(request("victim"))
    assert len(fair) == 10


def test_nobody_gives_way_in_vain() -> None:
    fair = queue(max_seconds=10.0)
    for _ in range(3):
        fair.add(request("a", 3.0))
    with pytest.raises(QueueFullError):
        fair.add(request("b", 7.5))
    assert len(fair) == 3


def test_an_empty_queue_takes_any_request() -> None:
    fair = queue(max_seconds=1.0)
    assert fair.add(request("a", 100.0)) == []


STEPS = st.sampled_from(["add", "add", "add", "next", "remove", "finish"])


@given(st.lists(st.tuples(STEPS, st.sampled_from("abc")), max_size=60))
def test_who_waits_and_who_is_idle_is_known_at_any_time(steps: list[tuple[str, str]]) -> None:
    fair, running = queue(max_waiting=5), list[Waiting]()
    for step, client in steps:
        match step:
            case "add":
                with suppress(QueueFullError):
                    fair.add(request(client))
            case "next" if first := fair.next(ALL):
                running += fair.take(first, 0.0, ALL)
                fair.start([first.client])
                fair.charge(first.client, first.seconds)
            case "remove" if waiting := list(fair):
                fair.remove(waiting[0])
            case "finish" if running:
                fair.finish([running.pop().client])
        assert set(fair._active) == {name for name, one in fair._clients.items() if one.waiting}
        assert set(fair._idle) == {name for name, one in fair._clients.items() if one.idle}


def test_idle_clients_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "MAX_REMEMBERED", 100)
    fair = queue()
    for number in range(300):
        fair.add(request("a"))
        fair.add(request(f"b{number}", 0.001))
        serve(fair)
        assert len(fair._clients) <= 102
    while serve(fair):
        pass
    assert fair._clients == {}
