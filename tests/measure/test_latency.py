"""Latency and throughput: the statistics are right, and every system is measured. Not how fast they are."""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

import latentmt
from latentmt.cli import app
from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import EOS, Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.engines.torch_engine import TorchEngine
from latentmt.errors import UserError
from latentmt.fields.learned import FieldConfig
from latentmt.measure import latency
from latentmt.measure.evaluate import Sweep
from latentmt.measure.latency import benchmark_options, measure_speed, parse_batches, read_source, show_speed, windows
from latentmt.measure.timing import (
    Crossover,
    Form,
    Rate,
    Speed,
    baseline_of,
    crossovers,
    length_group,
    overtakes,
    percentile,
    summary,
)
from latentmt.models.latent import LatentConfig
from latentmt.models.teacher import TeacherConfig
from latentmt.networks import BundleConfig, save_bundle
from latentmt.options import LENGTH_LIMIT, DecodingOptions
from latentmt.translator import Translator

SIZE: dict[str, Any] = {"preset": "tiny", "d_model": 32, "d_filter": 32, "layers": 1, "heads": 2}
COMMON: dict[str, Any] = {"languages": ("de", "en"), "rules": (TextRules(), TextRules())}
LATENT = LatentConfig(**SIZE, encoder_layers=1, latent_dim=3)
CONFIGS = {
    "latent": BundleConfig(**COMMON, latent=LATENT),
    "score": BundleConfig(**COMMON, latent=LATENT, field=FieldConfig(kind="score", **SIZE)),
    "teacher": BundleConfig(**COMMON, teacher=TeacherConfig(**SIZE, encoder_layers=1)),
}
SOURCE = """Ein Satz.

Ein kleiner Satz. Noch ein kleiner Satz!
\u200b \t
Ein sehr, sehr, sehr kleiner, aber doch ein wenig längerer Satz.
Satz
Dieser hier wird nicht mehr gelesen.
"""

milliseconds = st.floats(0.01, 1e4)


@given(st.lists(milliseconds, min_size=1, max_size=40), st.floats(0, 1))
def test_percentiles_equal_numpys(values: list[float], share: float) -> None:
    assert percentile(values, share) == pytest.approx(float(np.quantile(values, share)))


@given(st.lists(st.tuples(milliseconds, st.integers(1, 200)), min_size=1, max_size=40), milliseconds)
def test_a_summary_equals_numpys(measured: list[tuple[float, int]], base: float) -> None:
    times, tokens = [one[0] for one in measured], [one[1] for one in measured]
    found = summary(times, tokens, [base])
    assert found.count == len(times)
    assert [found.p50, found.p90, found.p99] == pytest.approx(list(np.percentile(times, [50, 90, 99])))
    assert [found.mean, found.std] == pytest.approx([np.mean(times), np.std(times)], abs=1e-6)
    assert found.speedup == pytest.approx(base / np.median(times))
    for name, p50 in found.p50_by_tokens.items():
        group = [time for time, count in measured if length_group(count) == name]
        assert p50 == pytest.approx(float(np.median(group)))


def test_texts_are_grouped_by_length() -> None:
    edges = [1, 8, 9, 16, 17, 24, 25, 32, 33, 48, 49, 64, 65, 1000]
    names = ["1-8", "9-16", "17-24", "25-32", "33-48", "49-64", "65+"]
    assert [length_group(tokens) for tokens in edges] == [name for name in names for _ in range(2)]
    found = summary([5.0, 1.0, 4.0, 2.0], [30, 3, 70, 8], [6.0])
    assert list(found.p50_by_tokens.items()) == [("1-8", 1.5), ("25-32", 5.0), ("65+", 4.0)]
    assert (found.p50, found.speedup) == (3.0, 2.0)


@pytest.mark.parametrize(
    ("teacher", "other", "batch"),
    [
        ({1: 1.0, 8: 20.0, 64: 90.0}, {1: 9.0, 8: 30.0, 64: 50.0}, 64),
        ({64: 90.0, 8: 40.0, 1: 1.0}, {64: 95.0, 1: 9.0, 8: 30.0}, 8),
        ({1: 9.5}, {1: 9.0}, 1),
        ({1: 9.0, 2: 9.0}, {1: 9.0, 2: 9.5}, None),
    ],
)
def test_the_batch_size_at_which_a_teacher_overtakes(
    teacher: dict[int, float], other: dict[int, float], batch: int | None
) -> None:
    assert overtakes(teacher, other) == batch


def speed(options: DecodingOptions, rates: dict[int, float], form: Form = "eager") -> Speed:
    name = f"{options}{'' if form == 'eager' else f', {form}'}"
    timing = summary([1.0], [1], [1.0])
    return Speed(name, options, form, timing, None, [Rate(batch, rate) for batch, rate in rates.items()])


def test_teachers_are_compared_with_the_default_system_of_the_same_form() -> None:
    greedy, beam = DecodingOptions("teacher", beam=1), DecodingOptions("teacher", beam=4)
    search = DecodingOptions("score", 1, lengths=2, rerank="decoder")
    speeds = [
        speed(DecodingOptions("prior", 0), {1: 999.0, 2: 999.0}),
        speed(DecodingOptions("delta", 1), {1: 1.0, 2: 1.0}),
        speed(DecodingOptions("score", 4), {1: 2.0, 2: 2.0}),
        speed(DecodingOptions("score", 1), {1: 8.0, 2: 9.0}),
        speed(search, {1: 0.5, 2: 0.5}),
        speed(greedy, {1: 7.0, 2: 10.0}),
        speed(beam, {1: 5.0, 2: 6.0}),
        speed(DecodingOptions("score", 1), {1: 80.0, 2: 90.0}, form="graphed"),
        speed(greedy, {1: 81.0, 2: 50.0}, form="graphed"),
    ]
    found = list(crossovers(speeds))
    assert found == [
        Crossover("teacher beam 1", "score-1", 2, 2),
        Crossover("teacher beam 4", "score-1", None, 2),
        Crossover("teacher beam 1, graphed", "score-1, graphed", 1, 2),
    ]
    assert [str(one) for one in found] == [
        "teacher beam 1 overtakes score-1 at batches of 2",
        "teacher beam 4 never overtakes score-1 (batches up to 2)",
        "teacher beam 1, graphed overtakes score-1, graphed at batches of 1",
    ]
    assert list(crossovers([speeds[0], speeds[5]])) == []


def test_the_baseline_of_speed_ups() -> None:
    all_options = [
        DecodingOptions("score", 1),
        DecodingOptions("prior", 0),
        DecodingOptions("teacher", beam=1),
        DecodingOptions("teacher", beam=4),
    ]
    assert baseline_of(all_options) == all_options[3]
    assert baseline_of(all_options[:3]) == all_options[1]
    assert baseline_of(all_options[:1]) == all_options[0]


@pytest.mark.parametrize(("count", "batch"), [(1, 1), (2, 5), (20, 1), (200, 1), (200, 4), (200, 256)])
def test_windows_cycle_through_the_file(count: int, batch: int) -> None:
    found = windows(count, batch)
    assert len(found) >= 3
    assert all(len(window) == batch for window in found)
    assert all(after == (before + 1) % count for window in found for before, after in itertools.pairwise(window))
    assert {number for window in found for number in window} <= set(range(count))
    assert sum(map(len, found)) >= min(count, 32)
    if len(found) <= count:
        assert len({window[0] for window in found}) == len(found)


def test_parsing_of_batch_sizes() -> None:
    assert parse_batches("8, 1,2,8") == [1, 2, 8]
    for wrong in ("", "1,,2", "0", "-1", "1,two", "1.5", "4097"):
        with pytest.raises(UserError, match=f"--batches {wrong}: expected numbers from 1 to 4096, as in 1,2,4"):
            parse_batches(wrong)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(["ein kleiner Satz", "a small sentence"] * 20, TokenizerConfig(vocab_size=400))


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of bundles with random weights, and source.de."""
    folder, latent = tmp_path_factory.mktemp("model"), None
    for kind, config in CONFIGS.items():
        torch.manual_seed(1)
        weights = config.network(tokenizer.size).state_dict()
        if kind == "teacher":  # nothing but the end, or its targets would be as long as they may
            weights["decoder_stack.norm.weight"].zero_()
            weights["decoder_stack.norm.bias"].copy_(weights["embedding.weight"][EOS])
        if kind == "latent":  # targets as long as their sources
            weights["output.length_head.weight"].zero_()
            weights["output.length_head.bias"][LENGTH_LIMIT] = 1.0
        about = save_bundle(folder / kind, config, tokenizer, weights, latent=latent if kind == "score" else None)
        latent = about.fingerprint if kind == "latent" else latent
    (folder / "source.de").write_text(SOURCE)
    return folder


@pytest.fixture(autouse=True)
def _soon_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "MIN_SECONDS", 0.0)


def test_empty_lines_of_the_source_are_left_out(model: Path) -> None:
    translator = Translator.load(model)
    source = read_source(translator, model / "source.de", 4)
    assert [text.text for text in source.texts] == [SOURCE.splitlines()[line] for line in (0, 2, 4, 5)]
    assert [len(text.sentences) for text in source.texts] == [1, 2, 1, 1]
    assert source.texts[3].sentences == translator.tokenizer.encode(["Satz"])
    assert source.texts[1].tokens == sum(
        map(len, translator.tokenizer.encode(["Ein kleiner Satz.", "Noch ein kleiner Satz!"]))
    )
    assert len(source.files[str(model / "source.de")]) == 64


def test_every_system_is_measured(model: Path, tmp_path: Path) -> None:
    translator = Translator.load(model)
    all_options = benchmark_options(
        translator, Sweep(steps=[1, 2], options={"lengths": 2, "samples": 2}), ["teacher", "decoder"]
    )
    source = read_source(translator, model / "source.de", 4)
    before = translator.backend
    benchmark = measure_speed(translator, source, all_options, [1, 2])
    assert translator.backend is before
    shown = io.StringIO()
    show_speed(benchmark, Console(file=shown, width=110), tmp_path / "speed.json")
    *text, last = shown.getvalue().splitlines()
    written = json.loads(last)
    assert written == json.loads((tmp_path / "speed.json").read_text()) == asdict(benchmark)

    names = ["L=0", "delta-1", "delta-2", "delta-1 2×2 by teacher", "score-1", "score-2", "score-1 2×2 by teacher"]
    names += ["teacher beam 1", "teacher beam 4", "delta-1 2×2 by decoder", "score-1 2×2 by decoder"]
    assert [speed["name"] for speed in written["results"]] == names
    assert (written["texts"], written["sentences"], written["baseline"]) == (4, 5, "teacher beam 4")
    assert (written["dtype"], written["threads"]) == ("float32", 1)
    assert written["versions"] == {"latentmt": latentmt.__version__, "torch": torch.__version__}
    assert written["device"].startswith("cpu (")
    assert written["models"] == translator.fingerprints
    for speed in written["results"]:
        assert set(speed["options"]) == {field.name for field in fields(DecodingOptions)}
        assert speed["form"] == "eager"
        assert (speed["text"]["count"], speed["model"]["count"]) == (4, 3)
        for timing in (speed["text"], speed["model"]):
            assert 0 < timing["p50"] <= timing["p90"] <= timing["p99"]
            assert min(timing["mean"], timing["speedup"], *timing["p50_by_tokens"].values()) > 0
        assert [rate["batch"] for rate in speed["rates"]] == [1, 2]
        assert all(rate["sentences_per_second"] > 0 for rate in speed["rates"])
    assert [one["teacher"] for one in written["crossovers"]] == ["teacher beam 1", "teacher beam 4"]
    titles = ["Text to text, ms", "Ids to ids, ms", "Text to text, p50 in ms by source tokens", "Sentences a second"]
    assert all(any(line.startswith(title) for line in text) for title in titles)
    assert sum("overtakes score-1" in line for line in text) == 2


def test_systems_take_turns_on_the_same_sentences(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every system gets the same work, and no two of them share an engine."""
    translator, calls = Translator.load(model), []
    best = TorchEngine.best

    def noted(engine: TorchEngine, sentences: Any, options: DecodingOptions, *more: Any) -> Any:
        calls.append((id(engine), str(options), [len(sentence) for sentence in sentences]))
        return best(engine, sentences, options, *more)

    monkeypatch.setattr(TorchEngine, "best", noted)
    monkeypatch.setattr(latency, "_TURN", 2)
    source = read_source(translator, model / "source.de", 4)
    all_options = benchmark_options(translator, Sweep(methods=["prior", "teacher"]), [])
    measure_speed(translator, source, all_options, [2])
    each = [[lengths for _, name, lengths in calls if name == str(options)] for options in all_options]
    assert each[0] == each[1] == each[2]
    assert (
        len({(engine, name) for engine, name, _ in calls})
        == len({engine for engine, _, _ in calls})
        == len(all_options)
    )
    order = [name for _, name, _ in calls]
    turns = [name for name, before in zip(order, [None, *order[:-1]], strict=True) if name != before]
    first, second, third = map(str, all_options)
    warming = batches = [first, second, third]
    # The first one ends the second turn and begins with the batches, for which all warm up once more.
    assert turns == [*warming, first, second, third, second, third, first, second, third, *batches]


def test_graphed_and_eager_forms_are_measured(model: Path) -> None:
    """On a CPU nothing is really recorded."""
    translator = Translator.load(model)
    translator.backend = TorchEngine(translator.backend.networks, graphs=True)
    source = read_source(translator, model / "source.de", 2)
    all_options = benchmark_options(translator, Sweep(methods=["score", "teacher"], steps=[1]), [])
    benchmark = measure_speed(translator, source, all_options, [1])
    names = ["score-1", "teacher beam 1", "teacher beam 4"]
    assert [one.name for one in benchmark.results] == [*names, *(f"{name}, graphed" for name in names)]
    assert [one.form for one in benchmark.results] == ["eager"] * 3 + ["graphed"] * 3
    assert [one.text.speedup for one in benchmark.results if one.options == all_options[2]] == [1.0, 1.0]
    assert [(one.teacher, one.against) for one in benchmark.crossovers][2] == (
        "teacher beam 1, graphed",
        "score-1, graphed",
    )


def test_no_text_of_a_single_sentence(model: Path, tmp_path: Path) -> None:
    (tmp_path / "several.de").write_text("Ein Satz. Noch ein Satz.\n")
    translator = Translator.load(model)
    source = read_source(translator, tmp_path / "several.de", 9)
    benchmark = measure_speed(translator, source, [DecodingOptions("prior", 0)], [1])
    assert benchmark.results[0].model is None
    assert (benchmark.baseline, benchmark.results[0].text.speedup, benchmark.crossovers) == ("L=0", 1.0, [])
    shown = io.StringIO()
    show_speed(benchmark, Console(file=shown, width=110))
    assert "Ids to ids" not in shown.getvalue()


def bench(model: Path, *arguments: object) -> Any:
    common = ["bench", "--model", str(model), "--src", str(model / "source.de"), "--device", "cpu", "--threads", "1"]
    return CliRunner().invoke(app, [*common, *map(str, arguments)])


def test_bench_on_the_command_line(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "speed.json"
    result = bench(model, "--sentences", 2, "--method", "score", "--steps", 1, "--batches", "1,2", "--json", out)
    assert result.exit_code == 0, result.output
    written = json.loads(result.stdout.splitlines()[-1])
    assert written == json.loads(out.read_text())
    assert [(speed["name"], speed["text"]["count"]) for speed in written["results"]] == [("score-1", 2)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--batches", "1,x"), "--batches 1,x: expected numbers"),
        (("--method", "energy"), "method energy: this model has only prior, delta, score, teacher"),
        (("--lengths", "5"), "5 candidates need a rerank"),
        (("--lengths", "0", "--rerank", "decoder"), "lengths 0: expected 1 to"),
        (("--rerank", "decoder"), "only one candidate"),
        (("--method", "teacher", "--samples", "5", "--rerank", "decoder"), "for the methods that refine"),
        (("--src", "/nowhere/source.de"), "/nowhere/source.de: no such file"),
        (("--src", "/dev/null"), "/dev/null: there is nothing to translate"),
        (("--json", "/"), "/: a folder, not a file"),
    ],
)
def test_what_cannot_be_measured_is_refused(model: Path, arguments: tuple[str, ...], message: str) -> None:
    result = bench(model, *arguments)
    assert isinstance(result.exception, UserError), result.output
    assert message in str(result.exception)
    assert len(str(result.exception).splitlines()) == 1


def test_reranking_needs_the_teacher_it_names(model: Path, tmp_path: Path) -> None:
    (tmp_path / "latent").symlink_to(model / "latent")
    (tmp_path / "source.de").write_text(SOURCE)
    result = bench(tmp_path, "--lengths", 2, "--rerank", "teacher")
    assert "rerank teacher: this model has no teacher" in str(result.exception)
