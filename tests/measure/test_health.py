"""The health of models whose numbers are known beforehand, because their weights were set by hand."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from ctc import read_alone
from rich.console import Console
from tiny import LATENT, SIZE, write_corpus
from typer.testing import CliRunner

from latentmt.cli import app
from latentmt.data.corpus import Corpus
from latentmt.data.tokenizer import BLANK, EOS
from latentmt.data.tokens import Tokens
from latentmt.errors import UserError
from latentmt.fields.base import Context
from latentmt.fields.delta import DELTA
from latentmt.fields.energy import EnergyNetwork
from latentmt.fields.learned import FieldConfig
from latentmt.fields.refine import refine
from latentmt.fields.registry import field_network, field_types
from latentmt.fields.score import ScoreNetwork
from latentmt.measure import health as module
from latentmt.measure.health import Check, health, show_health
from latentmt.models.latent import LatentModel
from latentmt.models.outputs import TokenOutput
from latentmt.models.teacher import Teacher, TeacherConfig
from latentmt.networks import BundleConfig, save_bundle
from latentmt.nn.gaussian import STD_FLOOR
from latentmt.nn.lattice import Lattice
from latentmt.options import LENGTH_LIMIT, DecodingOptions
from latentmt.translator import Translator

STD = F.softplus(torch.zeros(())).item() + STD_FLOOR
"""Of every Gaussian that a head with no weights reads off."""

KL = "raw KL, nats a token"
RECONSTRUCTED = "reconstructed from the posterior's mean"
COSINE = "cosine of {} and displacement"
LENGTH = "predicted length over the right one"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recipe.yaml and the corpus; to be copied, not written to."""
    folder = tmp_path_factory.mktemp("numbers")
    write_corpus(folder, held_out=20)
    return folder


@pytest.fixture(scope="module")
def corpus(work: Path) -> Corpus:
    return Corpus.load(work / "corpus")


def make(corpus: Corpus, output: str) -> LatentModel:
    """Random weights, but for what the tests set."""
    torch.manual_seed(1)
    return LatentModel(replace(LATENT, output=output), corpus.tokenizer.size).eval().requires_grad_(False)


@pytest.fixture
def latent(corpus: Corpus) -> LatentModel:
    return make(corpus, "tokens")


def field(kind: str) -> ScoreNetwork | EnergyNetwork:
    torch.manual_seed(2)
    config = FieldConfig(kind="score" if kind == "score" else "energy", **SIZE)
    return field_network(config, LATENT).eval().requires_grad_(False)


def constant(latent: LatentModel, shift: float) -> None:
    """Make the prior's mean 0 everywhere and the posterior's `shift`, all standard deviations being STD."""
    for head in (latent.prior.head, latent.posterior_head):
        head.weight.zero_()
    latent.posterior_head.bias[: LATENT.latent_dim] = shift


def adding(latent: LatentModel, tokens: int) -> None:
    """Make every target this much longer than its source."""
    latent.output.length_head.weight.zero_()
    latent.output.length_head.bias.zero_()[LENGTH_LIMIT + tokens] = 1.0


def always(latent: LatentModel, id_: int) -> None:
    """Make the decoder say nothing but this."""
    latent.decoder_stack.norm.weight.zero_()
    latent.decoder_stack.norm.bias.copy_(latent.embedding.weight[id_])
    assert latent.embedding.logits(latent.decoder_stack.norm.bias).argmax() == id_


def checked(latent: LatentModel, corpus: Corpus, distilled: bool = False, **networks: Any) -> dict[str, Check]:
    translator = Translator.from_networks(corpus.tokenizer, corpus.manifest.rules, latent=latent, **networks)
    return {check.name: check for check in health(translator, corpus, distilled)}


def pairs(corpus: Corpus, count: int | None = None) -> list[tuple[list[int], list[int]]]:
    dev = corpus.split("dev")
    return [(dev.source[i].tolist(), dev.target[i].tolist()) for i in range(count or len(dev))]


def test_a_posterior_that_is_the_prior_has_no_kl(latent: LatentModel, corpus: Corpus) -> None:
    constant(latent, 0.0)
    check = checked(latent, corpus)[KL]
    assert check.value == 0.0
    assert not check.ok


def test_kl_of_a_posterior_beside_the_prior(latent: LatentModel, corpus: Corpus) -> None:
    """Equal standard deviations, means a distance apart: ½ (distance / std)² for every entry."""
    constant(latent, 0.9)
    check = checked(latent, corpus)[KL]
    assert check.value == pytest.approx(LATENT.latent_dim * 0.5 * (0.9 / STD) ** 2, rel=1e-5)
    assert check.ok


def test_padding_is_not_reconstructed(latent: LatentModel, corpus: Corpus) -> None:
    """A decoder that only knows the end of a sentence is right once a sentence; and padding decodes as padding."""
    always(latent, EOS)
    check = checked(latent, corpus)[RECONSTRUCTED]
    targets = [target for _, target in pairs(corpus)]
    assert len({len(target) for target in targets}) > 1  # there is padding
    assert check.value == pytest.approx(len(targets) / sum(map(len, targets)))
    assert not check.ok


def test_predicted_lengths_are_summed_over_all_targets(latent: LatentModel, corpus: Corpus) -> None:
    adding(latent, 2)
    check = checked(latent, corpus)[LENGTH]
    predicted, right = (sum(map(len, side)) for side in zip(*pairs(corpus), strict=True))
    assert check.value == pytest.approx((predicted + 2 * len(pairs(corpus))) / right)
    assert check.ok == (0.97 <= check.value <= 1.03)


def test_a_score_that_moves_nothing_has_no_cosine(latent: LatentModel, corpus: Corpus) -> None:
    check = checked(latent, corpus, fields={"score": field("score")})[COSINE.format("score")]
    assert check.value == 0.0
    assert not check.ok


@pytest.mark.parametrize(("scale", "cosine"), [(0.1, 1.0), (-3.0, -1.0)])
def test_cosine_of_a_score_along_the_displacement(
    latent: LatentModel, corpus: Corpus, scale: float, cosine: float
) -> None:
    """Delta inference goes from 0 to the posterior's mean at once, and stays there."""
    constant(latent, 0.7)
    net = field("score")
    net.head.bias.fill_(scale * 0.7)
    check = checked(latent, corpus, fields={"score": net})[COSINE.format("score")]
    assert check.value == pytest.approx(cosine, abs=1e-5)
    assert check.ok == (cosine > 0)


def slowly(latent: LatentModel, corpus: Corpus, nets: dict[str, ScoreNetwork | EnergyNetwork]) -> dict[str, float]:
    """Means over tokens or places of the sentences, one after another, so that nothing is ever padded."""
    sums: dict[str, float] = dict.fromkeys([KL, RECONSTRUCTED, LENGTH, *map(COSINE.format, nets)], 0.0)
    tokens = places = 0
    for source_ids, target_ids in pairs(corpus):
        target, source = Tokens.padded([target_ids]), latent.encode(Tokens.padded([source_ids]))
        layout = latent.output.places(source, target)
        prior = latent.prior(layout, latent.prior.project_kv(source))
        posterior = latent.posterior(target, layout, latent.posterior_stack.project_kv(source))
        states = latent.decode(posterior.mean, layout, latent.decoder_stack.project_kv(source))
        moved = refine(prior.mode, DELTA.bind(Context(latent, source, layout)), module.DELTA_STEPS) - prior.mode
        entries = torch.distributions.kl_divergence(
            torch.distributions.Normal(posterior.mean, posterior.std),
            torch.distributions.Normal(prior.gaussian.mean, prior.gaussian.std),
        )
        sums[KL] += entries.sum().item()
        logits = latent.embedding.logits(states)
        if isinstance(latent.output, TokenOutput):
            sums[RECONSTRUCTED] += (logits.argmax(-1) == target.ids).sum().item()
            longer = latent.output.length_logits(source, 1).argmax().item() - LENGTH_LIMIT
            sums[LENGTH] += max(1, len(source_ids) + longer)
        else:
            states = latent.decode(prior.mode, layout, latent.decoder_stack.project_kv(source))
            sums[LENGTH] += len(read_alone(latent.embedding.logits(states)[0]))
            scores = logits.log_softmax(-1)[..., [*target_ids, BLANK]]
            lattice = Lattice.walk(scores, layout.segment, target.ids, target.layout.segment)
            peak = lattice.posterior()[0, :, :-1].argmax(0)
            sums[RECONSTRUCTED] += (logits[0, peak].argmax(-1) == target.ids[0]).sum().item()
        for name, net in nets.items():
            direction = field_types()[name].bind(Context(latent, source, layout), net)(prior.mode)
            sums[COSINE.format(name)] += F.cosine_similarity(direction, moved, dim=-1).sum().item()
        tokens, places = tokens + len(target_ids), places + int(layout.real.sum())
    return {name: value / (places if name.startswith("cosine") else tokens) for name, value in sums.items()}


@pytest.mark.parametrize("output", ["tokens", "ctc"])
@pytest.mark.parametrize("batch_tokens", [8192, 40])
def test_batches_equal_single_sentences(
    corpus: Corpus, output: str, batch_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    latent = make(corpus, output)
    monkeypatch.setattr(module, "_BATCH_TOKENS", batch_tokens)
    for head in (latent.prior.head, latent.posterior_head):
        torch.nn.init.normal_(head.weight, std=0.1)  # standard deviations that differ
    if isinstance(latent.output, TokenOutput):
        latent.output.length_head.weight.mul_(0.1)
        latent.output.length_head.bias[LENGTH_LIMIT] = 0.1  # else lengths would be all over the place, and slow
    nets = {"score": field("score"), "energy": field("energy")}
    torch.nn.init.normal_(nets["score"].head.weight)
    found, expected = checked(latent, corpus, fields=nets), slowly(latent, corpus, nets)
    for name, value in expected.items():
        assert found[name].value == pytest.approx(value, rel=1e-4, abs=1e-5), name


def test_only_the_first_sentences_count(latent: LatentModel, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SENTENCES", 3)
    always(latent, EOS)
    check = checked(latent, corpus)[RECONSTRUCTED]
    assert check.value == pytest.approx(3 / sum(len(target) for _, target in pairs(corpus, 3)))


def test_every_refining_method_is_compared_with_none(latent: LatentModel, corpus: Corpus) -> None:
    adding(latent, 0)
    checks = checked(latent, corpus, fields={"energy": field("energy")})
    gains = [check for name, check in checks.items() if name.startswith("BLEU, ")]
    assert [check.name for check in gains] == [
        "BLEU, L=0",
        "BLEU, delta-1, above L=0",
        "BLEU, energy-1, above L=0",
    ]
    assert gains[0].ok  # it has no bound
    assert all(check.low == 0.3 for check in gains[1:])


def test_a_distilled_model_is_measured_on_its_teachers_targets(latent: LatentModel, corpus: Corpus) -> None:
    adding(latent, 1)
    torch.manual_seed(3)
    teacher = Teacher(TeacherConfig(**SIZE, encoder_layers=1), corpus.tokenizer.size).eval()
    translator = Translator.from_networks(corpus.tokenizer, corpus.manifest.rules, teacher=teacher)
    sources = [source for source, _ in pairs(corpus)]
    done = translator.backend.best(sources, DecodingOptions("teacher", beam=4))
    predicted = sum(len(source) + 1 for source, _ in pairs(corpus))
    check = checked(latent, corpus, distilled=True, teacher=teacher)[LENGTH]
    assert check.value == pytest.approx(predicted / sum(len(one.decoded) + 1 for one in done))
    assert check.value != checked(latent, corpus, teacher=teacher)[LENGTH].value


def test_a_missing_model_is_refused(latent: LatentModel, corpus: Corpus) -> None:
    with pytest.raises(UserError, match="the latent model was distilled, and its teacher is not there"):
        checked(latent, corpus, distilled=True)
    teacher = Teacher(TeacherConfig(**SIZE, encoder_layers=1), corpus.tokenizer.size)
    with pytest.raises(UserError, match="there is no latent model to measure"):
        health(Translator.from_networks(corpus.tokenizer, corpus.manifest.rules, teacher=teacher), corpus, False)


GOOD = [
    Check("as much as it should be", 0.5, low=0.5),
    Check("neither more nor less", 1.03, low=0.97, high=1.03),
    Check("whatever it is", -7.25),
]


@pytest.mark.parametrize(
    ("checks", "healthy"),
    [(GOOD, True), ([], True), ([*GOOD, Check("too little", 0.499, low=0.5)], False)],
)
def test_a_table_then_a_line_of_json(checks: list[Check], healthy: bool) -> None:
    shown = io.StringIO()
    assert show_health(checks, Console(file=shown, width=60)) is healthy
    *table, last = shown.getvalue().splitlines()
    written = json.loads(last)
    assert written["healthy"] is healthy
    assert written["checks"] == [{"name": c.name, "value": c.value, "ok": c.ok} for c in checks]
    cells = {row[0]: row[1:] for row in ([cell.strip() for cell in line.split("│")[1:-1]] for line in table) if row}
    verdicts = {
        "as much as it should be": ["0.500", "≥ 0.5", "ok"],
        "neither more nor less": ["1.030", "0.97 to 1.03", "ok"],
        "whatever it is": ["-7.250", "", ""],
        "too little": ["0.499", "≥ 0.5", "NO"],
    }
    assert {name: cells[name] for name in cells if name} == {c.name: verdicts[c.name] for c in checks}


@pytest.mark.parametrize(
    ("value", "low", "high", "ok"),
    [(1.0, 1.0, 2.0, True), (2.0, 1.0, 2.0, True), (0.99, 1.0, 2.0, False), (2.01, 1.0, 2.0, False)],
)
def test_bounds_are_inclusive(value: float, low: float, high: float, ok: bool) -> None:
    assert Check("", value, low, high).ok is ok
    assert not Check("", float("nan"), low, high).ok


@pytest.fixture
def untrained(work: Path, latent: LatentModel, corpus: Corpus, tmp_path: Path) -> Path:
    """A work folder with a latent model that has learnt nothing but how long a target is."""
    folder = Path(shutil.copytree(work, tmp_path / "work"))
    adding(latent, 0)
    config = BundleConfig(languages=corpus.manifest.languages, rules=corpus.manifest.rules, latent=LATENT)
    save_bundle(folder / "latent", config, corpus.tokenizer, latent.state_dict())
    return folder


def command(work: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "latentmt", "health", str(work), "--work", str(work), "--device", "cpu", *options],
        capture_output=True,
        text=True,
        check=False,
    )


def test_health_of_an_unhealthy_model_exits_1(untrained: Path) -> None:
    done = command(untrained, "--json", str(untrained / "health.json"))
    assert done.returncode == 1
    assert done.stderr == ""
    assert json.loads((untrained / "health.json").read_text()) == json.loads(done.stdout.splitlines()[-1])
    for shown in ("Health of the latent model", KL, RECONSTRUCTED, LENGTH, "BLEU, delta-1, above L=0", "≥ 0.9", "NO"):
        assert shown in done.stdout
    written = json.loads(done.stdout.splitlines()[-1])
    assert written["healthy"] is False
    assert len(written["checks"]) == 5


def test_health_of_a_distilled_model_needs_its_teacher(untrained: Path) -> None:
    with (untrained / "recipe.yaml").open("a") as recipe:
        recipe.write("teacher: {model: {preset: tiny}, train: {steps: 1, batch_rows: 4}}\ndistill: {}\n")
    done = command(untrained)
    assert done.returncode == 1
    assert done.stderr == "error: the latent model was distilled, and its teacher is not there\n"
    assert done.stdout == ""


@pytest.mark.parametrize("value", [0.5, 0.4])
def test_the_exit_code_of_health(untrained: Path, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "health", lambda *_: [Check("something", value, low=0.5)])
    result = CliRunner().invoke(app, ["health", str(untrained), "--work", str(untrained), "--device", "cpu"])
    assert result.exit_code == (value < 0.5), result.output
