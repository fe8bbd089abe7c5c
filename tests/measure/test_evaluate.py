"""Evaluation of untrained models: what is measured, what is written, and what is refused."""

from __future__ import annotations

import copy
import io
import json
import random
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from sacrebleu import BLEU
from tiny import LATENT, SIZE, write_corpus
from typer.testing import CliRunner, Result

import latentmt
from latentmt.cli import app
from latentmt.data.normalise import TextRules
from latentmt.engines.torch_engine import device_name
from latentmt.errors import UserError
from latentmt.fields.learned import FieldConfig
from latentmt.fields.registry import field_network
from latentmt.files import sha256
from latentmt.measure import evaluate as module
from latentmt.measure.evaluate import EvalSet, Sweep, evaluate, show_evaluation, sweep_options
from latentmt.measure.oracle import best_candidates
from latentmt.measure.quality import measure
from latentmt.models.latent import LatentModel
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.networks import BundleConfig, save_bundle
from latentmt.options import LENGTH_LIMIT, DecodingOptions
from latentmt.results import Translation
from latentmt.translator import Translator

TEACHER = TeacherConfig(**SIZE, encoder_layers=1)
SEARCH: dict[str, Any] = {"lengths": 2, "samples": 2, "rerank": "decoder"}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, a test set with an empty line and a line of two sentences, and random models for it."""
    folder = tmp_path_factory.mktemp("numbers")
    corpus = write_corpus(folder, held_out=10)
    for name in ("test.de", "test.british.en", "test.american.en"):
        lines = (folder / name).read_text().splitlines()
        lines[3], lines[5] = "", f"{lines[5]} {lines[6]}"
        (folder / name).write_text("\n".join(lines) + "\n")
    torch.manual_seed(1)
    latent, teacher = LatentModel(LATENT, corpus.tokenizer.size), Teacher(TEACHER, corpus.tokenizer.size)
    with torch.no_grad():
        latent.output.length_head.weight.mul_(0.1)
        latent.output.length_head.bias[LENGTH_LIMIT] = 0.1  # else lengths would be all over the place, and slow
    facts: dict[str, Any] = {"languages": corpus.manifest.languages, "rules": corpus.manifest.rules}
    save_bundle(folder / "latent", BundleConfig(**facts, latent=LATENT), corpus.tokenizer, latent.state_dict())
    save_bundle(folder / "teacher", BundleConfig(**facts, teacher=TEACHER), corpus.tokenizer, teacher.state_dict())
    return folder


@pytest.fixture(scope="module")
def translator(work: Path) -> Translator:
    """With a score, too, that moves latents about."""
    loaded = Translator.load(work)
    torch.manual_seed(2)
    score = field_network(FieldConfig(kind="score", **SIZE), LATENT).eval().requires_grad_(False)
    torch.nn.init.normal_(score.head.weight)
    assert loaded.backend.networks.latent is not None
    return Translator.from_networks(
        loaded.tokenizer,
        loaded.rules,
        latent=loaded.backend.networks.latent,
        fields={"score": score},
        teacher=loaded.backend.networks.teacher,
        fingerprints={"latent": "abc", "score": "def"},
    )


@pytest.fixture(scope="module")
def texts(work: Path) -> EvalSet:
    return EvalSet.read(work / "test.de", [work / "test.british.en", work / "test.american.en"])


def make_sweep(**given: Any) -> Sweep:
    """A sweep in which everything that is no field of `Sweep` is a decoding option."""
    own = {field.name: given.pop(field.name) for field in fields(Sweep) if field.name in given}
    return Sweep(options=given, **own)


def names(translator: Translator, **given: Any) -> list[str]:
    return [str(options) for options in sweep_options(translator, make_sweep(**given))]


def test_the_options_of_a_sweep(translator: Translator) -> None:
    both = ["delta-1", "delta-4", "score-1", "score-4"]
    assert names(translator) == ["L=0", *both, "teacher beam 1", "teacher beam 4"]
    assert names(translator, methods=["score"]) == ["score-1", "score-4"]
    assert names(translator, methods=["score", "prior"], steps=[2]) == ["score-2", "L=0"]
    assert names(translator, methods=["delta", "prior"], steps=[0, 3, 3]) == ["L=0", "delta-3"]
    assert sweep_options(translator, make_sweep(steps=[0]))[0] == DecodingOptions(method="prior", steps=0)
    assert names(translator, methods=["delta", "prior"], length_bias=0.1) == [
        "delta-1 length +10%",
        "delta-4 length +10%",
        "L=0 length +10%",
    ]


def test_several_candidates_add_a_search_for_each_method(translator: Translator) -> None:
    assert names(translator, steps=[4, 1], **SEARCH) == [
        *("L=0", "delta-4", "delta-1", "delta-4 2×2 by decoder"),
        *("score-4", "score-1", "score-4 2×2 by decoder"),
        *("teacher beam 1", "teacher beam 4"),
    ]
    search = sweep_options(translator, make_sweep(methods=["score"], seed=3, length_bias=0.1, **SEARCH))[-1]
    assert search == DecodingOptions(method="score", steps=1, seed=3, length_bias=0.1, **SEARCH)


def test_the_models_default_options_are_measured_with_the_shared_ones(translator: Translator) -> None:
    default = DecodingOptions(method="delta", steps=3, length_bias=0.1)
    model = Translator.from_networks(
        translator.tokenizer, translator.rules, latent=translator.backend.networks.latent, default_options=default
    )
    assert names(model) == ["L=0", "delta-1", "delta-4", "delta-3 length +10%"]
    assert names(model, verbatim=False)[-1] == "delta-3 length +10% raw"
    assert names(model, methods=["delta"]) == ["delta-1", "delta-4"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"methods": ["energy"]}, "method energy: this model has only prior, delta, score, teacher"),
        ({"steps": [-1]}, "steps -1: expected 0 to 1000"),
        ({"lengths": 0}, "lengths 0: expected 1 to 101"),
        ({"lengths": 2}, "2 candidates need a rerank to choose between them: teacher, decoder, elbo, marginal"),
        ({"rerank": "elbo"}, "rerank elbo: there is only one candidate to choose from"),
        ({"oracle": True}, "oracle: there is only one candidate to choose from; ask for several lengths or samples"),
        ({"methods": ["prior", "teacher"], **SEARCH}, "several lengths or samples are for the methods that refine"),
    ],
)
def test_incompatible_options_are_refused(translator: Translator, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        names(translator, **given)


def test_reranking_needs_the_teacher_it_names(translator: Translator) -> None:
    alone = Translator.from_networks(translator.tokenizer, translator.rules, latent=translator.backend.networks.latent)
    with pytest.raises(UserError, match="rerank teacher: this model has no teacher"):
        names(alone, lengths=2, rerank="teacher")
    assert names(alone, lengths=2, rerank="elbo") == ["L=0", "delta-1", "delta-4", "delta-1 2×1 by elbo"]


def test_results_carry_their_signature(translator: Translator, texts: EvalSet, work: Path) -> None:
    sweep = make_sweep(seed=2, oracle=True, **SEARCH)
    written = evaluate(translator, texts, sweep).to_dict()
    results = written["results"]
    by_name = {str(options): options for options in sweep_options(translator, sweep)}
    assert set(results) == {*by_name, "delta-1 2×2 by oracle", "score-1 2×2 by oracle"}
    files = [work / name for name in ("test.de", "test.british.en", "test.american.en")]
    for name, options in by_name.items():
        done = translator.translations(texts.sources, options)
        outputs = [one.text for one in done], [one.ids for one in done]
        quality = measure(*outputs, texts.references, sources=texts.sources)
        assert results[name] == asdict(quality) | {
            "options": asdict(options),
            "oracle": None,
            "sentences": 10,
            "files": {str(path): sha256(path) for path in files},
            "models": {"latent": "abc", "score": "def"},
            "device": device_name(torch.device("cpu")),
            "dtype": "float32",
            "graphed": False,
            "batch": translator.backend.batch_tokens,
            "versions": {"latentmt": latentmt.__version__, "torch": torch.__version__},
            "lines_at_once": module.CHUNK // options.candidates,
        }
        assert DecodingOptions(**results[name]["options"]) == options
    oracle = results["score-1 2×2 by oracle"]
    assert oracle["options"] == results["score-1 2×2 by decoder"]["options"]
    assert oracle["oracle"].startswith("nrefs:2|case:mixed|eff:yes|tok:13a|")
    assert written["comparisons"] == []
    assert json.loads(json.dumps(written)) == written


def test_the_table_and_the_json(translator: Translator, texts: EvalSet, tmp_path: Path) -> None:
    found = evaluate(translator, texts, make_sweep(methods=["prior", "delta"], steps=[1], compare=[("delta-1", "L=0")]))
    shown = io.StringIO()
    show_evaluation(found, Console(file=shown, width=90), tmp_path / "results.json")
    *lines, last = shown.getvalue().splitlines()
    assert json.loads(last) == found.to_dict()
    quality = found.rows["L=0"].quality
    (row,) = ([cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│ L=0" in line)
    scores = [f"{score.value:.2f}" for score in (quality.bleu, quality.bleu_lc_intl, quality.chrf)]
    assert row == [
        "L=0",
        *scores,
        "10.0%",
        f"{quality.repeats:.2%}",
        f"{quality.length:.3f}",
        *("–", "–"),
    ]  # the empty line is right
    for signature in (quality.bleu.signature, quality.bleu_lc_intl.signature, quality.chrf.signature):
        assert sum(signature in line for line in lines) == 1
    (comparison,) = found.to_dict()["comparisons"]
    assert (comparison["of"], comparison["against"]) == ("delta-1", "L=0")
    assert lines[-1].startswith(f"delta-1 against L=0: {comparison['difference']:+.2f} BLEU, 95% between ")
    assert f"p = {comparison['p']:.3f} ({comparison['signature']})" in lines[-1]
    assert json.loads((tmp_path / "results.json").read_text()) == found.to_dict()
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_chunks_show_progress_and_change_nothing(
    translator: Translator, texts: EvalSet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = make_sweep(methods=["delta"], steps=[1], oracle=True, **SEARCH)
    whole = evaluate(translator, texts, sweep)
    told = capsys.readouterr().err
    for name in ("delta-1", "delta-1 2×2 by decoder", "delta-1 2×2 by oracle"):
        assert f"{name}: 10 of 10 sentences (" in told
    monkeypatch.setattr(module, "CHUNK", 12)
    parts: list[int] = []
    translations = translator.translations

    def counted(part: Sequence[str], options: DecodingOptions) -> list[Translation]:
        parts.append(len(part))
        return translations(part, options)

    monkeypatch.setattr(translator, "translations", counted)
    by_parts = evaluate(translator, texts, sweep)
    assert parts == [10, 3, 3, 3, 1]
    assert {name: row.texts for name, row in by_parts.rows.items()} == {n: row.texts for n, row in whole.rows.items()}


def test_unknown_rows_to_compare_are_refused(
    translator: Translator, texts: EvalSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translator, "translations", None)  # it is refused before anything is translated
    given = {"methods": ["delta", "prior"], "steps": [1]}
    with pytest.raises(UserError, match="compare score-1: not measured here; what is: delta-1, L=0"):
        evaluate(translator, texts, make_sweep(**given, compare=[("L=0", "score-1")]))
    with pytest.raises(UserError, match="what is: delta-1, delta-1 2×2 by decoder, L=0, delta-1 2×2 by oracle"):
        evaluate(translator, texts, make_sweep(**given, **SEARCH, oracle=True, compare=[("L=1", "L=0")]))


def test_the_oracle_chooses_by_sentence_bleu() -> None:
    candidates = [
        ["a b c", "the cat sat on a mat", "the cat sat on the mat", "the cat sat on the mat"],
        ["no", "nein", "yes"],
        ["x", "y"],
        ["colour it", "color it"],
    ]
    references = [["the cat sat on the mat", "yes", "z", "color it"], ["a cat sat", "yeah", "z", "colour it"]]
    assert best_candidates(candidates, references).best == [2, 2, 0, 0]
    assert best_candidates(candidates, references[:1]).best == [2, 2, 0, 1]
    assert best_candidates(candidates, references[:1]).signature.startswith("nrefs:1|")


def average(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    metric = BLEU(effective_order=True)
    return sum(metric.sentence_score(t, list(r)).score for t, *r in zip(texts, *references, strict=True)) / len(texts)


def test_no_fixed_choice_beats_the_oracle() -> None:
    rng = random.Random(1)
    words = ["one", "two", "three", "four"]
    references = [[" ".join(rng.choices(words, k=5)) for _ in range(30)] for _ in range(2)]
    candidates = [[" ".join(rng.choices(words, k=rng.randint(0, 7))) for _ in range(6)] for _ in range(30)]
    choice = best_candidates(candidates, references)
    best = average([each[i] for each, i in zip(candidates, choice.best, strict=True)], references)
    for fixed in range(6):
        assert best > average([each[fixed] for each in candidates], references)


def test_the_oracle_row_mixes_candidates_and_what_was_kept(
    translator: Translator, texts: EvalSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made of candidates where they are better, and of what was kept elsewhere."""
    right, other = texts.references

    def translations(part: Sequence[str], options: DecodingOptions) -> list[Translation]:
        return [Translation("" if not text else "something else", [7, 7]) for text in part]

    def candidates(part: Sequence[str], options: DecodingOptions) -> list[list[Translation]]:
        places = [texts.sources.index(text) for text in part]
        tries = [["quite wrong", right[i] if i % 2 else "wrong", other[i]] for i in places]
        return [[Translation(text, [5, 6]) for text in each] for each in tries]

    monkeypatch.setattr(translator, "translations", translations)
    monkeypatch.setattr(translator, "candidates", candidates)
    rows = evaluate(translator, texts, make_sweep(methods=["delta"], steps=[1], oracle=True, **SEARCH)).rows
    kept, oracle = rows["delta-1 2×2 by decoder"], rows["delta-1 2×2 by oracle"]
    assert texts.sources[3] == ""
    assert oracle.texts == [right[i] if i % 2 else other[i] for i in range(10)]
    assert oracle.quality.exact == 1.0
    assert oracle.quality.repeats == pytest.approx(1 / 20)  # of the empty line, which was kept
    assert kept.quality.exact == 0.1
    assert kept.quality.repeats == 0.5


def test_a_searched_row_is_never_above_its_oracle(translator: Translator, texts: EvalSet) -> None:
    rows = evaluate(translator, texts, make_sweep(methods=["score"], steps=[1], oracle=True, **SEARCH)).rows
    kept, oracle = (average(rows[f"score-1 2×2 by {who}"].texts, texts.references) for who in ("decoder", "oracle"))
    assert oracle >= kept
    sizes = [len(ids) for ids in translator.tokenizer.encode(texts.sources)]
    single = [i for i in range(10) if i not in (3, 5) and sizes[i] <= 64]  # what is translated as one sentence
    assert len(single) > 5
    found = translator.candidates([texts.sources[i] for i in single], rows["score-1 2×2 by oracle"].options)
    for i, each in zip(single, found, strict=True):
        assert rows["score-1 2×2 by oracle"].texts[i] in {one.text for one in each}


def test_case_is_ignored_for_a_lower_case_model(translator: Translator, texts: EvalSet) -> None:
    lower = copy.copy(translator)
    lower.rules = (TextRules(), TextRules(lowercase=True))
    sweep = make_sweep(methods=["prior", "delta"], steps=[1], compare=[("delta-1", "L=0")])
    found = evaluate(lower, texts, sweep)
    quality = found.rows["delta-1"].quality
    assert all("case:lc" in score.signature for score in (quality.bleu, quality.bleu_lc_intl, quality.chrf))
    assert "case:lc" in found.comparisons["delta-1", "L=0"].signature
    references = [[text.lower() for text in side] for side in texts.references]
    assert (
        quality.bleu.value
        == evaluate(lower, replace(texts, references=references), sweep).rows["delta-1"].quality.bleu.value
    )
    assert found.rows["delta-1"].texts == [text.lower() for text in found.rows["delta-1"].texts]


def test_files_of_unequal_length_are_refused(tmp_path: Path) -> None:
    for name, count in (("de", 1200), ("en", 1199), ("fr", 1200), ("none", 0)):
        (tmp_path / name).write_text("\n" * count)
    with pytest.raises(UserError) as refused:
        EvalSet.read(tmp_path / "de", [tmp_path / "fr", tmp_path / "en"])
    counts = f"{tmp_path}/de: 1,200 lines, {tmp_path}/fr: 1,200 lines, {tmp_path}/en: 1,199 lines"
    assert str(refused.value) == f"{counts}; they must be equally many"
    with pytest.raises(UserError, match="none: no lines"):
        EvalSet.read(tmp_path / "none", [tmp_path / "none"])
    assert len(EvalSet.read(tmp_path / "de", [tmp_path / "fr"]).sources) == 1200


def test_empty_lines(translator: Translator, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n  \n\n")
    texts = EvalSet.read(tmp_path / "empty", [tmp_path / "empty"])
    rows = evaluate(translator, texts, make_sweep(steps=[1], oracle=True, compare=[("L=0", "delta-1")], **SEARCH)).rows
    for row in rows.values():
        assert row.texts == ["", "  ", ""]
        assert row.quality.exact == 1.0
        assert row.quality.length == 1.0


def command(work: Path, *options: object, ref: str = "test.british.en") -> Result:
    files = ("--model", work, "--src", work / "test.de", "--ref", work / ref, "--device", "cpu")
    return CliRunner().invoke(app, ["evaluate", *map(str, files + options)])


def test_evaluate_on_the_command_line(work: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    search = ("--lengths", 2, "--samples", 2, "--rerank", "teacher", "--seed", 5, "--length-bias", 0.1, "--oracle")
    methods = ("--method", "delta", "--method", "prior", "--steps", 2, "--steps", 1)
    result = command(
        work,
        *methods,
        *search,
        "--compare",
        "delta-2 length +10%",
        "L=0 length +10%",
        "--json",
        path,
        "--ref",
        work / "test.american.en",
        "--words",
        work / "train.en",
    )
    assert result.exit_code == 0, result.output
    written = json.loads(result.stdout.splitlines()[-1])
    assert json.loads(path.read_text()) == written
    names = ("delta-2", "delta-1", "delta-2 2×2 by teacher", "delta-2 2×2 by oracle", "L=0")
    assert list(written["results"]) == [f"{name} length +10%" for name in names]
    searched = written["results"]["delta-2 2×2 by teacher length +10%"]
    assert searched["options"] | {"seed": 5, "length_bias": 0.1, "lengths": 2, "samples": 2} == searched["options"]
    assert searched["bleu"]["signature"].startswith("nrefs:2|")
    assert set(searched["models"]) == {"latent", "teacher"}
    assert len(searched["files"]) == 4
    assert 0 <= searched["non_words"] <= 1
    assert written["comparisons"][0]["of"] == "delta-2 length +10%"


def test_numbers_and_non_words(translator: Translator, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "numbers.de").write_text("3 Hunde\n\n17 und 4\n")
    (work / "words.en").write_text("Dogs and\n")
    texts = EvalSet.read(work / "numbers.de", [work / "numbers.de"], [work / "words.en"])
    outputs = [Translation(text) for text in ("3 dogs xhunde", "", "17 and und")]
    monkeypatch.setattr(translator, "translations", lambda texts, options: outputs)
    found = evaluate(translator, texts, make_sweep(methods=["prior"]))
    quality = found.rows["L=0"].quality
    assert (quality.numbers, quality.non_words) == (2 / 3, 1 / 4)
    assert set(found.to_dict()["results"]["L=0"]["files"]) == {str(work / "numbers.de"), str(work / "words.en")}
    shown = io.StringIO()
    show_evaluation(found, Console(file=shown, width=110))
    (row,) = (line for line in shown.getvalue().splitlines() if "│ L=0" in line)
    assert [cell.strip() for cell in row.split("│")[-3:-1]] == ["66.67%", "25.00%"]


def test_evaluate_with_default_options(work: Path) -> None:
    result = command(work)
    assert result.exit_code == 0, result.output
    results = json.loads(result.stdout.splitlines()[-1])["results"]
    assert list(results) == ["L=0", "delta-1", "delta-4", "teacher beam 1", "teacher beam 4"]


def test_errors_come_before_the_work(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Translator, "translations", None)
    for options, message in (
        (("--compare", "L=0", "score-1"), "compare score-1: not measured here; what is: L=0, delta-1, delta-4, "),
        (("--json", work), "a folder, not a file"),
        (("--json", work / "test.de" / "x.json"), "is needed as a folder, but there is a file"),
        (("--method", "score"), "method score: this model has only prior, delta, teacher"),
        (("--oracle",), "oracle: there is only one candidate"),
        (("--words", work / "none"), "none: no such file"),
    ):
        result = command(work, *options)
        assert isinstance(result.exception, UserError)
        assert message in str(result.exception)
    result = command(work, ref="train.en")
    assert str(result.exception).endswith(
        "test.de: 10 lines, " + f"{work}/train.en: 300 lines; they must be equally many"
    )
