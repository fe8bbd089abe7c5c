"""Estimates against what requests really compute, counted in operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from latentmt.engines.backend import never_cancelled
from latentmt.engines.onnx.engine import OnnxEngine
from latentmt.engines.onnx.graphs import Graphs
from latentmt.serve import costs as module
from latentmt.serve.admission import Limits
from latentmt.serve.costs import CANDIDATES, LONG, SHORT, Costs, Part, costs_from, measure_costs
from latentmt.serve.facts import ModelFacts
from latentmt.serve.models import Models
from latentmt.serve.schemas import TraceRequest, TranslateRequest
from latentmt.serve.service import Request, Service
from latentmt.translator import Translator

LIMITS = Limits(timeout=1e9)
TEXTS = (
    "Ein kleiner Satz steht hier.",
    "Ein kleiner Satz steht hier, und noch einer dort, und wir haben viele Bücher gelesen.",
    "Ein kleiner Satz steht hier. Wir haben Bücher gelesen! Und noch einer dort. Haben wir viele gelesen? Ein Satz.",
)
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"method": "prior"},
    {"method": "score", "steps": 8},
    {"method": "delta", "steps": 4},
    {"lengths": 5, "samples": 5, "rerank": "teacher"},
    {"lengths": 5, "samples": 5, "rerank": "decoder"},
    {"lengths": 3, "samples": 2, "rerank": "elbo"},
    {"lengths": 3, "rerank": "marginal"},
    {"lengths": 8, "samples": 8, "steps": 4, "rerank": "marginal"},
)


@contextmanager
def counted(translator: Translator) -> Iterator[Callable[[], float]]:
    """A clock that runs as operations are done: multiplications in torch, and tokens through each ONNX graph."""
    if not isinstance(translator.backend, OnnxEngine):
        with FlopCounterMode(display=False) as counter:
            yield lambda: 1e-9 * counter.get_total_flops()
        return
    total, original = 0.0, Graphs.run

    def run(self: Graphs, name: str, inputs: dict[str, Any], *shapes: Any) -> Any:
        nonlocal total
        outputs = original(self, name, inputs, *shapes)
        rows, width = (*outputs[0].shape(), 1)[:2]
        total += 1e-4 + 1e-5 * rows * width
        return outputs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Graphs, "run", run)
        yield lambda: total


@pytest.fixture(scope="module")
def measured(translator: Translator) -> Costs:
    """Costs, measured by that clock."""
    with pytest.MonkeyPatch.context() as patch, counted(translator) as clock:
        patch.setattr(module, "time", SimpleNamespace(perf_counter=clock, process_time=clock))
        return measure_costs(translator)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_estimates_are_within_a_factor_of_two(translator: Translator, measured: Costs, way: dict[str, Any]) -> None:
    facts, options = ModelFacts.of(translator, measured), translator.options(**way)
    service = Service(translator, facts.pair, Models([facts]), LIMITS)

    def ratio(request: Request) -> float:
        plan = service.plan(request, options, never_cancelled)
        with counted(translator) as clock:
            list(service.run([plan], options, never_cancelled))
            return plan.seconds / clock()

    for text in TEXTS:
        assert 0.5 <= ratio(TranslateRequest(q=text)) <= 2
        assert 0.5 <= ratio(TranslateRequest(q=f"<p>{text}</p>", format="html")) <= 2
        assert 0.5 <= ratio(TraceRequest(q=text)) <= 2


@pytest.mark.parametrize("beam", [1, 4, 8])
def test_beam_search_is_estimated_for_targets_as_long_as_the_source(
    translator: Translator, measured: Costs, beam: int
) -> None:
    source, options = translator.sentences(TEXTS[1])[0], translator.options(method="teacher", beam=beam)
    with counted(translator) as clock:
        (found,) = translator.backend.best([source], options)  # an untrained teacher writes more than it should
        truth = clock() * len(source) / (len(found.decoded) + 1)
    assert 0.5 <= measured.seconds([len(source)], options) / truth <= 2


constant = st.floats(0, 10)


@given(constant, constant, constant, st.integers(1, 5))
def test_parts_are_recovered_from_times(fixed: float, source: float, target: float, passes: int) -> None:
    part = Part(fixed, source, target)
    short, long = part.seconds(1, SHORT, SHORT), part.seconds(1, LONG, LONG)
    measured = Part.measured(short, long, part.seconds(passes, LONG, CANDIDATES * LONG), passes)
    assert asdict(measured) == pytest.approx(asdict(part), abs=1e-6)
    single = Part.measured(short, long)
    assert single.seconds(3, 100, 100) == pytest.approx(part.seconds(3, 100, 100))


@given(st.floats(-1, 10), st.floats(-1, 10), st.floats(-1, 10))
def test_noise_makes_nothing_negative(short: float, long: float, many: float) -> None:
    assert min(asdict(Part.measured(short, long, many)).values()) >= 0


def test_passes_are_shared_where_sentences_are_translated_together(translator: Translator) -> None:
    searches, options = {"none": Part(fixed=1.0)}, translator.options(method="prior")
    lengths = [10] * 50
    assert Costs(searches, batch_tokens=1).seconds(lengths, options) == 50
    assert Costs(searches, batch_tokens=256).seconds(lengths, options) == 2
    assert Costs(searches, batch_tokens=256).seconds(lengths, options, traced=True) == 50


def test_an_estimate_before_encoding_counts_bytes(translator: Translator) -> None:
    costs, options = Costs({"none": Part(target=1.0)}), translator.options(method="prior")
    plain = costs.estimate(["a" * 350], options)
    assert 90 <= plain <= 110
    assert costs.estimate(["😀" * 350], options) >= 3 * 350
    assert costs.estimate([], options) == 0 < costs.estimate([""], options)


def test_costs_are_sent_as_json() -> None:
    costs = Costs({"none": Part(1.0, 2.0, 3.0)}, {"score": Part(0.5)}, character=1e-6, batch_tokens=256)
    assert costs_from(asdict(costs)) == costs
