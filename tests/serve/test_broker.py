"""The broker: who is translated with whom, and who comes next. Its workers' engine waits at a gate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import httpx
import pytest
from gate import FAILS, HELD, Gate, until
from serving import Client, Serving
from tiny import SENTENCES

from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.serve.admission import ApiKeys, Limits
from latentmt.serve.costs import Costs
from latentmt.translator import Translator

COSTS = Costs(character=1e-3)
"""By which no held sentence shares a batch with another."""
ATTACKER, VICTIM = "10.0.0.66", "10.0.0.1"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([*SENTENCES, *(text.upper() for text in SENTENCES)] * 20, TokenizerConfig(vocab_size=440))


@pytest.fixture
def gate(tokenizer: Tokenizer) -> Iterator[Gate]:
    gate = Gate(tokenizer)
    yield gate
    gate.open.set()


@pytest.fixture
def load(tokenizer: Tokenizer, gate: Gate) -> Callable[[], Translator]:
    return lambda: Translator(tokenizer, (TextRules(), TextRules()), gate, languages=("de", "en"))


Load = Callable[[], Translator]


def translate(client: Client, text: str, address: str = VICTIM, **body: Any) -> asyncio.Task[httpx.Response]:
    return asyncio.ensure_future(client.send("POST", "/translate", json={"q": text, **body}, address=address))


def text_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["translatedText"])


def waiting(client: Client) -> float:
    return float(client.gateway.metrics.waiting._value.get())


def run(client: Client, test: Coroutine[Any, Any, None]) -> None:
    client.runner.run(test)


def test_waiting_requests_of_all_clients_share_a_batch(serving: Serving, load: Load, gate: Gate) -> None:
    async def test(client: Client) -> None:
        held = translate(client, HELD)
        await until(lambda: gate.held == 1)
        gate.calls.clear()
        others = [translate(client, f"satz {number}", f"10.0.0.{number}") for number in range(2, 7)]
        assert [text_of(await other) for other in others] == [f"SATZ {number}" for number in range(2, 7)]
        gate.open.set()
        assert text_of(await held) == HELD.upper()

    with serving(load, costs=COSTS) as client:
        run(client, test(client))
        assert max(map(len, gate.calls)) > 1  # the engine had several of them at a time


def test_other_options_are_another_batch(serving: Serving, load: Load, gate: Gate) -> None:
    async def test(client: Client) -> None:
        held = translate(client, HELD)
        await until(lambda: gate.held == 1)
        gate.calls.clear()
        both = translate(client, "eins"), translate(client, "zwei", lengths=2, rerank="decoder")
        assert [text_of(await one) for one in both] == ["EINS", "ZWEI"]
        assert ["eins", "zwei"] not in gate.calls
        gate.open.set()
        await held

    with serving(load, costs=COSTS) as client:
        run(client, test(client))


def test_a_long_request_is_paused_for_a_short_one(serving: Serving, load: Load, gate: Gate) -> None:
    async def test(client: Client) -> None:
        long = [translate(client, f"{HELD} {number}", ATTACKER) for number in range(20)]
        await until(lambda: gate.held > 0)
        for number in range(10):
            assert text_of(await translate(client, f"satz {number}")) == f"SATZ {number}"
        assert not any(one.done() for one in long)
        gate.open.set()
        assert [text_of(await one) for one in long] == [f"{HELD} {number}".upper() for number in range(20)]

    with serving(load, costs=COSTS) as client:
        run(client, test(client))


def test_running_work_of_a_client_is_bounded(serving: Serving, load: Load, gate: Gate) -> None:
    async def test(client: Client) -> None:
        different = [  # options, so no two share a batch
            translate(client, HELD, ATTACKER, steps=steps) for steps in range(1, 9)
        ]
        await until(lambda: gate.held == 2)
        await asyncio.sleep(0.3)
        assert gate.held == 2
        assert waiting(client) == 6
        other = translate(client, HELD)
        await until(lambda: gate.held == 3)
        gate.open.set()
        await asyncio.gather(other, *different)

    with serving(load, costs=COSTS) as client:
        run(client, test(client))


def test_a_full_queue_refuses_the_client_that_filled_it(serving: Serving, load: Load, gate: Gate) -> None:
    async def test(client: Client) -> None:
        attack = [translate(client, HELD, ATTACKER, steps=steps) for steps in range(1, 12)]
        await until(lambda: sum(one.done() for one in attack) == 11 - 1 - 4)
        await until(lambda: gate.held == 2)
        assert waiting(client) == 3
        refused = [one for one in attack if one.done()]
        for one in refused:
            response = await one
            assert response.status_code == 429
            assert int(response.headers["retry-after"]) >= 1
        assert text_of(await translate(client, "satz")) == "SATZ"
        gate.open.set()
        assert {(await one).status_code for one in attack} == {200, 429}

    with serving(load, costs=COSTS, limits=Limits(max_waiting=4)) as client:
        run(client, test(client))


def test_cancelled_requests_are_not_translated(serving: Serving, load: Load, gate: Gate) -> None:
    async def test(client: Client) -> None:
        held = translate(client, HELD)
        await until(lambda: gate.held == 1)
        running = client.gateway.broker._batches
        assert len(running) == 1
        held.cancel()  # all of a batch: it stops
        await until(lambda: gate.held == 0 and not running)
        assert waiting(client) == 0
        assert text_of(await translate(client, "satz")) == "SATZ"

    with serving(load, costs=COSTS) as client:
        run(client, test(client))


def test_a_waiting_request_that_is_cancelled_leaves_the_queue(serving: Serving, load: Load, gate: Gate) -> None:
    async def test(client: Client) -> None:
        some = [translate(client, HELD, ATTACKER, steps=steps) for steps in range(1, 6)]
        await until(lambda: waiting(client) == 3)
        for one in some[2:]:
            one.cancel()
        await until(lambda: waiting(client) == 0)
        gate.open.set()
        assert [text_of(await one) for one in some[:2]] == [HELD.upper()] * 2

    with serving(load, costs=COSTS) as client:
        run(client, test(client))
        assert sum(HELD in text for call in gate.calls for text in call) == 2


def test_a_failing_request_does_not_fail_its_batch(serving: Serving, load: Load, gate: Gate) -> None:
    async def test(client: Client) -> None:
        held = translate(client, HELD)
        await until(lambda: gate.held == 1)
        mixed = [translate(client, text, f"10.0.1.{number}") for number, text in enumerate(("eins", FAILS, "zwei"))]
        eins, fails, zwei = [await one for one in mixed]
        assert (text_of(eins), text_of(zwei)) == ("EINS", "ZWEI")
        assert (fails.status_code, fails.json()) == (500, {"error": "something went wrong in the server"})
        gate.open.set()
        await held

    with serving(load, costs=COSTS) as client:
        run(client, test(client))


def test_several_workers_run_batches_at_the_same_time(serving: Serving, load: Load, gate: Gate) -> None:
    async def test(client: Client) -> None:
        both = translate(client, HELD, "10.0.0.1"), translate(client, HELD, "10.0.0.2", steps=2)
        await until(lambda: gate.held == 2)
        assert [load.running is not None for load in client.gateway.broker._loads.values()] == [True, True]
        gate.open.set()
        await asyncio.gather(*both)

    with serving(load, costs=COSTS, workers=2) as client:
        run(client, test(client))


def test_time_that_was_used_is_charged(serving: Serving, load: Load, gate: Gate) -> None:
    async def test(client: Client) -> None:
        long = translate(client, HELD, api_key="key")
        await until(lambda: gate.held == 1)
        await asyncio.sleep(0.5)
        gate.open.set()
        await long
        await until(lambda: not client.gateway.broker._batches)
        refused = await translate(client, "satz", api_key="key")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 10  # at least 50 requests' worth, of which a second brings one
        assert (await translate(client, "satz", api_key="other")).status_code == 200

    keys = ApiKeys({"key": 30.0, "other": 30.0}, seconds_per_request=0.01)
    with serving(load, costs=COSTS, keys=keys) as client:
        run(client, test(client))


def test_requests_of_a_lost_worker_are_given_to_another(serving: Serving, load: Load, gate: Gate) -> None:
    async def test(client: Client) -> None:
        some = [translate(client, HELD, f"10.0.0.{number}", steps=number) for number in range(1, 4)]
        await until(lambda: gate.held == 3)
        (worker,) = client.gateway.broker.pool.workers
        worker.channel.kill()
        await until(lambda: client.gateway.broker.pool.workers not in ([], [worker]))
        gate.open.set()
        assert [text_of(await one) for one in some] == [HELD.upper()] * 3

    with serving(load, costs=COSTS) as client:
        run(client, test(client))
