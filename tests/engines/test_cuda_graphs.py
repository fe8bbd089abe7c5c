"""Searches in fixed shapes equal eager ones. (On a CPU shapes are computed, not recorded.)"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import EOS, TokenizerConfig, train_tokenizer
from latentmt.engines import cuda_graphs as graphs
from latentmt.engines import torch_engine as engine_module
from latentmt.engines.cuda_graphs import Shape
from latentmt.engines.torch_engine import TorchEngine
from latentmt.errors import UserError
from latentmt.fields.learned import FieldConfig
from latentmt.fields.registry import field_network
from latentmt.infer.postprocess import PieceTable
from latentmt.infer.search import Networks
from latentmt.models.latent import LatentConfig, LatentModel
from latentmt.models.outputs import TokenOutput
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.nn import cuda_graph, fused
from latentmt.nn.ngrams import NgramTables
from latentmt.options import LENGTH_LIMIT, MAX_POSITIONS, DecodingOptions
from latentmt.results import Candidates
from latentmt.translator import Translator

VOCABULARY = 23
SIZE = {"preset": "tiny", "d_model": 16, "d_filter": 32, "layers": 1, "dropout": 0.0}
OPTIONS = [
    DecodingOptions("prior"),
    DecodingOptions("delta", 2),
    DecodingOptions("score", 1),
    DecodingOptions("energy", 1),
    DecodingOptions("score", 1, lengths=3, samples=2, rerank="teacher"),
    DecodingOptions("delta", 1, lengths=2, samples=3, rerank="marginal"),
    DecodingOptions("prior", samples=3, rerank="elbo", remove_repeats="none"),
    DecodingOptions("prior", samples=2, rerank="decoder", remove_repeats="pieces"),
    DecodingOptions("score", 3, adaptive=True),
    DecodingOptions("teacher", beam=1),
    DecodingOptions("teacher", beam=3),
]


def sentences(count: int, longest: int = 19) -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(0, longest, (count,), generator=generator).tolist()
    return [[*torch.randint(4, VOCABULARY, (n,), generator=generator).tolist(), EOS] for n in lengths]


def make_networks(dtype: torch.dtype = torch.float64, output: str = "tokens") -> Networks:
    """Random, but with heads so large that sentences differ in length and candidates in what they say."""
    torch.manual_seed(5)
    wide = {"output": "ctc", "encoder_width": 24, "source_input": True} if output == "ctc-wide" else {"output": output}
    config = LatentConfig(**SIZE, encoder_layers=1, latent_dim=3, **wide)
    latent = LatentModel(config, VOCABULARY)
    fields = {kind: field_network(FieldConfig(kind=kind, **SIZE), config) for kind in ("score", "energy")}
    with torch.no_grad():
        if isinstance(latent.output, TokenOutput):
            latent.output.length_head.weight *= 4
            latent.output.length_head.bias[LENGTH_LIMIT - 5 : LENGTH_LIMIT + 6] += 6
        torch.nn.init.normal_(fields["score"].head.weight)
    teacher = Teacher(TeacherConfig(**SIZE, encoder_layers=1), VOCABULARY)
    none, special = torch.zeros(VOCABULARY, dtype=torch.bool), torch.arange(VOCABULARY) < 4
    return Networks(
        latent.to(dtype).eval(),
        {kind: net.to(dtype).eval() for kind, net in fields.items()},
        teacher.to(dtype).eval(),
        PieceTable(none, special | (torch.arange(VOCABULARY) % 2 == 0), special, special),
    )


@functools.cache
def cached_networks(output: str) -> Networks:
    return make_networks(output=output)


@pytest.fixture(scope="module")
def networks() -> Networks:
    return cached_networks("tokens")


def same(left: list[Candidates], right: list[Candidates]) -> None:
    for one, other in zip(left, right, strict=True):
        assert one.best == other.best
        mine, theirs = one.all, other.all
        assert [(one.decoded, one.readable) for one in mine] == [(one.decoded, one.readable) for one in theirs]
        assert [one.score for one in mine] == pytest.approx([one.score for one in theirs], rel=1e-5)


@pytest.mark.parametrize("output", ["tokens", "ctc", "ctc-wide"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_graphed_equals_eager(options: DecodingOptions, output: str) -> None:
    networks = cached_networks(output)
    plain, graphed = TorchEngine(networks, graphs=False), TorchEngine(networks, graphs=True)
    for some in (sentences(1), sentences(5), sentences(5)[1:4], sentences(21)):
        same(graphed.candidates(some, options), plain.candidates(some, options))


@pytest.mark.parametrize(
    "options",
    [
        DecodingOptions("prior", lm_weight=0.5),
        DecodingOptions("delta", 2, lm_weight=1.0, beam=3),
        DecodingOptions("score", 1, lengths=2, rerank="teacher", lm_weight=0.5, beam=2),
    ],
    ids=str,
)
def test_graphed_equals_eager_with_a_language_model(options: DecodingOptions) -> None:
    """In fixed shapes there are more places than a sentence has."""
    from grams import random_model  # which the process that compiles would not find

    networks = replace(cached_networks("ctc"), language_model=NgramTables(random_model(1, VOCABULARY, 3)))
    plain, graphed = TorchEngine(networks, graphs=False), TorchEngine(networks, graphs=True)
    changed = 0
    for some in (sentences(1, 9), sentences(9, 9)[1:8]):
        found = graphed.candidates(some, options)
        same(found, plain.candidates(some, options))
        without = plain.candidates(some, replace(options, lm_weight=0.0))
        changed += sum(one.all != other.all for one, other in zip(found, without, strict=True))
    assert changed > 2


def test_the_compared_options_give_different_results(networks: Networks) -> None:
    found = {options: TorchEngine(networks).candidates(sentences(21), options) for options in OPTIONS}
    assert len({str([one.readable for one in candidates[0].all]) for candidates in found.values()}) > 5
    assert len({len(one.all[one.best].decoded) for one in found[OPTIONS[0]]}) > 3
    assert {one.best for one in found[OPTIONS[4]]} != {0}


def test_a_seed_gives_the_same_candidates_in_every_shape(networks: Networks) -> None:
    plain, graphed = TorchEngine(networks, graphs=False), TorchEngine(networks, graphs=True)
    options_by_seed = [DecodingOptions("score", 1, samples=4, rerank="decoder", seed=seed) for seed in (1, 2, 1)]
    first, second, again = (graphed.candidates(sentences(6), options) for options in options_by_seed)
    same(first, again)
    same(second, plain.candidates(sentences(6), options_by_seed[1]))
    assert [one.all for one in first] != [one.all for one in second]


def test_truncated_targets_are_searched_again_with_a_larger_width(
    networks: Networks, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = DecodingOptions("delta", 1, lengths=2, rerank="decoder", length_bias=1.0)
    shapes: list[Shape] = []
    made = graphs._Search.__init__

    def noted(self: graphs._Search, *arguments: object) -> None:
        shapes.append(arguments[2])  # type: ignore[arg-type]
        made(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(graphs._Search, "__init__", noted)
    monkeypatch.setattr(Shape, "from_sentences", staticmethod(lambda sentences, room: Shape(4, 24, 8)))
    found = TorchEngine(networks, graphs=True).candidates(sentences(4), options)
    same(found, TorchEngine(networks, graphs=False).candidates(sentences(4), options))
    assert len(shapes) > 1
    assert [shape.target for shape in shapes] == sorted(shape.target for shape in shapes)
    assert max(len(one.decoded) for candidates in found for one in candidates.all) > shapes[0].target


def test_shapes_are_few_and_large_enough(networks: Networks) -> None:
    assert networks.latent
    room = networks.latent.output.room
    assert Shape.from_sentences([[EOS]], room) == Shape(1, 8, 16)
    assert Shape.from_sentences([[EOS] * 9] * 3, room) == Shape(4, 16, 24)
    assert Shape.from_sentences([[EOS] * 9] * 3, partial(room, bias=0.5)) == Shape(4, 16, 32)
    for count in range(1, 40):
        for length in range(1, 130):
            shape = Shape.from_sentences([[EOS] * length] * count, room)
            assert count <= shape.sentences < 2 * count
            assert length <= shape.source < length + 8
            assert shape.target >= shape.source
    assert Shape(1, 512, 400).with_longer_targets().target == MAX_POSITIONS


def test_ctc_has_room_for_its_places_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fits on the first try is not searched again."""
    engine, searched = TorchEngine(cached_networks("ctc"), graphs=True), []
    real = graphs._Search.__call__

    def noted(self: graphs._Search, *given: Any) -> Any:
        searched.append(self._shape)
        return real(self, *given)

    monkeypatch.setattr(graphs._Search, "__call__", noted)
    for options in (
        DecodingOptions("prior"),
        DecodingOptions("delta", 1, lengths=5, rerank="decoder", length_bias=0.3),
    ):
        for length in (1, 7, 8, 9, 24):
            engine.best([[7] * (length - 1) + [EOS]], options)
    assert len(searched) == 10
    assert {shape.target for shape in searched[:5]} == {16, 32, 48}


def test_likelihoods_that_loop_over_places_are_not_compiled() -> None:
    for rerank, compiles in (("teacher", True), ("decoder", False), ("elbo", False), ("marginal", False)):
        options = DecodingOptions("score", 1, samples=2, rerank=rerank)
        assert cached_networks("ctc").compiles(options) == compiles
        assert cached_networks("tokens").compiles(options)
    assert not cached_networks("ctc").compiles(DecodingOptions("prior", lm_weight=0.5))
    assert cached_networks("ctc").compiles(DecodingOptions("prior", beam=9))


def test_only_the_most_recently_used_shapes_are_kept(networks: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_SHAPES", 2)
    engine = TorchEngine(networks, graphs=True)
    for length in (3, 11, 3, 19, 3):
        engine.best([[7] * length + [EOS]], DecodingOptions("prior"))
    assert engine._graphs is not None
    assert [key[1].source for key in engine._graphs._searches] == [24, 8]


def test_concurrent_threads_get_the_results_of_one(networks: Networks) -> None:
    engine, some = TorchEngine(networks, graphs=True), sentences(24)
    expected = [engine.best([one], DecodingOptions("score", 1))[0] for one in some]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda one: engine.best([one], DecodingOptions("score", 1))[0], some)) == expected


def test_a_first_call_in_inference_mode_changes_no_later_result(networks: Networks) -> None:
    engine = TorchEngine(networks, graphs=True)
    for options in (DecodingOptions("score", 1), DecodingOptions("teacher", beam=2)):
        with torch.inference_mode():
            inside = engine.best(sentences(3), options)
        assert engine.best(sentences(3), options) == inside


def compare_compiled(
    networks: Networks, options: DecodingOptions, counts: Sequence[int], before: Callable[[], object]
) -> None:
    plain, engine = TorchEngine(networks, graphs=False), TorchEngine(networks, graphs=True)
    expected = [plain.candidates(sentences(count), options) for count in counts]
    same(engine.candidates(sentences(counts[0]), options), expected[0])
    before()
    engine.warmup(options, max_length=9, batches=counts[:2])
    assert engine._graphs is not None
    assert [key.method for key in engine._graphs._compiled] == [options.method]
    for count, found in zip(counts, expected, strict=True):
        same(engine.candidates(sentences(count), options), found)


def test_compiled_equals_eager() -> None:
    """In another process: the checks of shapes that tests are imported with cannot be compiled."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "not compiled" not in done.stderr


def test_warmup_makes_every_shape(networks: Networks) -> None:
    engine = TorchEngine(networks, graphs=True)
    engine.warmup(DecodingOptions("score", 1), max_length=20, batches=[1, 3], compiled=False)
    assert engine._graphs is not None
    shapes = {key[1] for key in engine._graphs._searches}
    assert {(shape.sentences, shape.source) for shape in shapes} == {(n, s) for n in (1, 4) for s in (8, 16, 24)}
    TorchEngine(networks, graphs=False).warmup(DecodingOptions("score", 1), max_length=20)  # nothing to do


def test_warming_up_more_shapes_than_are_kept_is_an_error(networks: Networks) -> None:
    with pytest.raises(UserError, match="72 shapes: only 64 are kept"):
        TorchEngine(networks, graphs=True).warmup(DecodingOptions("score", 1), max_length=64, batches=range(1, 10))


def test_a_search_that_fails_to_compile_runs_uncompiled(networks: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    def unable(*_: object, **__: object) -> object:
        raise RuntimeError("no compiler\nand more of this")

    monkeypatch.setattr(graphs, "compiled", lambda *_, **__: unable)
    engine, plain = TorchEngine(networks, graphs=True), TorchEngine(networks, graphs=False)
    with pytest.warns(RuntimeWarning, match="not compiled: no compiler$"):
        engine.warmup(DecodingOptions("score", 1), max_length=8)
    same(
        engine.candidates(sentences(3), DecodingOptions("score", 1)),
        plain.candidates(sentences(3), DecodingOptions("score", 1)),
    )


def test_a_large_search_is_not_recorded(networks: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "BATCH_TOKENS", 40)
    monkeypatch.setattr(engine_module, "TEACHER_TOKENS", 20)
    engine = TorchEngine(networks, graphs=True)
    for options, most in ((DecodingOptions("score", 1), 40), (DecodingOptions("teacher"), 20)):
        engine.best([[7] * most + [EOS]], options)
        assert engine._graphs is not None
        assert not engine._graphs._searches
        engine.best([[7] * (most - 1) + [EOS]], options)
        assert engine._graphs._searches.popitem()[0][0].method == options.method


def test_a_full_batch_is_recorded(networks: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TorchEngine(networks, graphs=True)
    monkeypatch.setattr(type(engine), "batch_tokens", engine_module.BATCH_TOKENS)  # a GPU's
    engine.best([[7] * 15 + [EOS]] * 257, DecodingOptions("prior", 0))
    assert engine._graphs is not None
    assert {shape.sentences for _, shape in engine._graphs._searches} == {256, 1}


def test_a_search_with_chunked_logits_is_not_compiled(networks: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler would begin anew for each number of them."""
    widths: list[int] = []

    def noting(function: Callable[..., Any], **_: object) -> Callable[..., Any]:
        def run(rows: Tensor, noise: Tensor, width: int) -> Tensor:
            widths.append(len(rows) * width)
            return function(rows, noise, width)

        return run

    monkeypatch.setattr(graphs, "compiled", noting)
    monkeypatch.setattr(graphs, "LOGITS_CHUNK", 64)
    engine, plain = TorchEngine(networks, graphs=True), TorchEngine(networks, graphs=False)
    engine.compile(DecodingOptions("score", 1))
    for count in (1, 2, 3, 4, 9):
        some = [[7, 8, EOS]] * count
        same(engine.candidates(some, DecodingOptions("score", 1)), plain.candidates(some, DecodingOptions("score", 1)))
    assert widths
    assert max(widths) <= 64


def test_a_translator_warms_up_for_its_maximum_length(networks: Networks) -> None:
    tokenizer = train_tokenizer(["ein Satz", "a sentence"] * 20, TokenizerConfig(vocab_size=400))
    latent = LatentModel(LatentConfig(**SIZE, encoder_layers=1, latent_dim=3), tokenizer.size).eval()
    rules = (TextRules(), TextRules())
    translator = Translator.from_networks(tokenizer, rules, latent=latent, max_length=12, graphs=True)
    translator.warmup(compiled=False, method="delta", steps=1)
    assert translator.backend._graphs is not None
    assert {(options.method, shape.source) for options, shape in translator.backend._graphs._searches} == {
        ("delta", 8),
        ("delta", 16),
    }


def test_an_energy_is_not_compiled(networks: Networks) -> None:
    engine = TorchEngine(networks, graphs=True)
    engine.warmup(DecodingOptions("energy", 1), max_length=8)
    assert engine._graphs is not None
    assert not engine._graphs._compiled


if __name__ == "__main__":
    cuda_graph.BACKEND = "aot_eager"  # all of compiling but the writing of kernels
    # Tracing is what takes long. One sentence is traced by itself, several are traced once for all numbers of them.
    compare_compiled(
        make_networks(), DecodingOptions("score", 1, lengths=2, rerank="decoder"), [2, 9], before=lambda: None
    )
    compare_compiled(make_networks(output="ctc"), DecodingOptions("delta", 1), [1, 2], before=lambda: None)
    compare_compiled(make_networks(), DecodingOptions("teacher", beam=2), [1, 2], before=lambda: None)
    by_kernels = partial(fused._CAPABLE.__setitem__, ("cpu", None), True)
    compare_compiled(make_networks(torch.float32), DecodingOptions("score", 1), [1], before=by_kernels)
