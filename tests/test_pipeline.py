"""End to end: from text to evaluated translations on the command line, with small models."""

import json
import subprocess
import sys
from pathlib import Path

import torch

from latentmt.bundle import read_format
from latentmt.data.corpus import Corpus
from latentmt.data.tokens import Pairs, Tokens
from latentmt.translator import Translator

RECIPE = """
data:
  languages: [de, en]
  train: [{source: [train.de], target: [train.en]}]
  dev: {source: [dev.de], target: [dev.en]}
  tokenizer: {vocab_size: 700}
teacher:
  model: &size {preset: tiny, d_model: 64, d_filter: 128, dropout: 0}
  train: &train
    {steps: 160, batch_rows: 16, learning_rate: 6e-3, warmup: 30, schedule: linear, ema_decay: 0.9, report_every: 40,
     validate_every: 160, save_every: 80, seed: 2}
distill: {beam: {beam: 2, max_ratio: 1, max_extra: 12}}
latent: {model: *size, train: *train, elbo: {budget: 0.5, budget_floor: 0.1}}
fields:
  score:
    model: {preset: tiny, d_model: 64, d_filter: 128, dropout: 0}
    train: &short
      {steps: 80, batch_rows: 8, learning_rate: 4e-3, warmup: 10, schedule: linear, ema_decay: 0.9, report_every: 40}
  energy:
    model: {preset: tiny, d_model: 32, d_filter: 32, layers: 1, heads: 2}
    train: {<<: *short, learning_rate: 1e-2}
"""


def latentmt(*arguments: object, text: str | None = None, expected: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "latentmt", *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == expected, done.stderr
    return done


@torch.no_grad()
def against_delta(work: Path, kind: str) -> tuple[float, float]:
    """How much of delta's displacement from a sample of the prior a field leaves unexplained, and their cosine.

    Of the development set, and without what training reports: a field that learnt the wrong thing well is found out.
    """
    translator, dev = Translator.load(work), Corpus.load(work / "distilled").split("dev")
    model = translator.backend.networks.latent
    assert model
    pairs = Pairs(*(Tokens.padded([side[i].tolist() for i in range(len(dev))]) for side in (dev.source, dev.target)))
    layout, source = pairs.target.layout, model.encode(pairs.source)
    prior = model.prior(layout, model.prior.project_kv(source))
    torch.manual_seed(1)
    z = end = prior.sample(torch.randn_like(prior.mode))
    for _ in range(4):
        states = model.decode(end, layout, model.decoder_stack.project_kv(source))
        best = Tokens(model.embedding.logits(states).argmax(-1), layout)
        end = model.posterior(best, layout, model.posterior_stack.project_kv(source)).mean
    wanted, found = (
        (end - z)[layout.real],
        translator.backend.networks.bind_field(kind, source, layout)(z)[layout.real],
    )
    left = (found - wanted).square().sum() / wanted.square().sum()
    return float(left), float(torch.cosine_similarity(found, wanted, dim=-1).mean())


def test_from_text_to_measured_translations(tmp_path: Path) -> None:
    text, work = tmp_path / "text", tmp_path / "work"
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE)
    latentmt("numbers", text, "--train", 2500, "--dev", 40, "--test", 40)
    first = latentmt("run", recipe, "--data", text, "--work", work)
    for stage in ("teacher", "latent", "score", "energy"):
        assert f"{stage}: written" in first.stderr
        assert read_format(work / stage).kind == stage
    for shown in ("parameters (", "tokens/s", "kl ", "cosine ", "BLEU L=0", "BLEU delta-1", "  source     "):
        assert shown in first.stderr

    again = latentmt("run", recipe, "--data", text, "--work", work)
    assert again.stderr.count("nothing changed") == 6

    corpus, distilled = Corpus.load(work / "corpus"), Corpus.load(work / "distilled")
    assert len(corpus.split("train")) == len(distilled.split("train")) == 2500
    assert (corpus.split("train").source.ids == distilled.split("train").source.ids).all()
    assert read_format(work / "score").latent == read_format(work / "latent").fingerprint

    references = [option for style in ("british", "american") for option in ("--ref", text / f"test.{style}.en")]
    measured = latentmt("evaluate", "--model", work, "--src", text / "test.de", *references, "--steps", 1)
    results = json.loads(measured.stdout.splitlines()[-1])["results"]
    assert set(results) == {"teacher beam 1", "teacher beam 4", "L=0", "delta-1", "score-1", "energy-1"}
    assert results["teacher beam 1"]["bleu"]["value"] > 30  # it has learnt something
    assert results["delta-1"]["bleu"]["value"] > 5
    chrf = {name: result["chrf"]["value"] for name, result in results.items()}
    assert chrf["delta-1"] > chrf["L=0"] + 2
    assert chrf["score-1"] > chrf["L=0"]  # its few steps are enough for that; how near it comes to delta is below
    assert "tok:13a" in results["L=0"]["bleu"]["signature"]
    assert "case:lc" in results["L=0"]["bleu_lc_intl"]["signature"]

    for kind, most, least in (("score", 0.3, 0.8), ("energy", 0.9, 0.6)):
        left, cosine = against_delta(work, kind)
        assert left < most
        assert cosine > least

    sources = (text / "test.de").read_text().splitlines()[:5]
    lines = latentmt("translate", "--model", work, "--method", "delta", text="".join(f"{s}\n" for s in sources))
    assert len(lines.stdout.splitlines()) == 5
    assert latentmt("translate", "--model", work, "--method", "delta", *sources).stdout == lines.stdout
    assert "latent_input" in latentmt("inspect", work / "latent").stdout

    for command, given, message in (
        (
            ("translate", "--model", work, "--bad-lines", "stop"),
            b"gut\n\xff\n",
            "standard input, line 2: invalid UTF-8 at byte 1",
        ),
        (("translate", "--model", tmp_path), b"", "no model (neither latent/ nor teacher/ holds a bundle)"),
        (("evaluate", "--model", work, "--src", recipe, "--ref", text / "dev.en"), b"", "they must be equally many"),
        (("train", recipe, "--work", tmp_path, "--stage", "teacher"), b"", "not a corpus"),
    ):
        arguments = [sys.executable, "-m", "latentmt", *map(str, command)]
        done = subprocess.run(arguments, input=given, capture_output=True, check=False)
        assert done.returncode == 1
        assert done.stderr.decode().count("\n") == 1
        assert message in done.stderr.decode()

    # A corpus with other pieces is not fed to models that learnt these.
    pieces = ("--set", "data.tokenizer.seed=2", "--set", "data.tokenizer.sample=1000")
    latentmt("prepare", recipe, "--data", text, "--work", work, *pieces, "--replace")
    for stage in ("teacher", "latent"):
        (work / "replaced" / "1" / stage).rename(work / stage)
    for command in (
        ("distill", recipe, "--work", work),
        ("train", recipe, "--work", work, "--stage", "score", "--set", "distill=null"),
    ):
        done = subprocess.run([sys.executable, "-m", "latentmt", *map(str, command)], capture_output=True, check=False)
        assert done.returncode == 1
        assert b"has another tokenizer than" in done.stderr


CTC = """
data:
  languages: [de, en]
  train: [{source: [train.de], target: [train.en]}]
  dev: {source: [dev.de], target: [dev.en]}
  tokenizer: {vocab_size: 400}
latent:
  model: &size {preset: tiny, d_model: 64, d_filter: 128, dropout: 0, output: ctc, decoder_layers: 3}
  train: &train
    {steps: 120, batch_rows: 8, learning_rate: 6e-3, warmup: 30, schedule: linear, ema_decay: 0.9, report_every: 40,
     validate_every: 120}
  elbo: {glancing: {}, deep_supervision: true}
fields:
  score:
    model: {preset: tiny, d_model: 32, d_filter: 32, layers: 1, heads: 2}
    train: {<<: *train, steps: 40}
  energy:
    model: {preset: tiny, d_model: 32, d_filter: 32, layers: 1, heads: 2}
    train: {<<: *train, steps: 20}
"""


def test_from_text_to_measured_translations_with_ctc(tmp_path: Path) -> None:
    text, work, recipe = tmp_path / "text", tmp_path / "work", tmp_path / "recipe.yaml"
    recipe.write_text(CTC)
    latentmt("numbers", text, "--train", 1500, "--dev", 30, "--test", 10)
    done = latentmt("run", recipe, "--data", text, "--work", work)
    for shown in ("latent: written", "score: written", "energy: written", "length 100.0%", "BLEU delta-1", "cosine "):
        assert shown in done.stderr
    logged = [json.loads(line) for line in (work / "training" / "latent" / "log.jsonl").read_text().splitlines()]
    losses = [entry["nll"] for entry in logged if entry["kind"] == "train"]
    assert losses[-1] < 0.75 * losses[0]
    latentmt("health", recipe, "--work", work, "--json", tmp_path / "health.json", expected=1)
    assert "cosine of energy" in (tmp_path / "health.json").read_text()
    references = [option for style in ("british", "american") for option in ("--ref", text / f"test.{style}.en")]
    for rerank in ("decoder", "elbo", "marginal"):
        search = ("--steps", 1, "--lengths", 2, "--samples", 2, "--rerank", rerank)
        measured = latentmt("evaluate", "--model", work, "--src", text / "test.de", *references, *search)
        results = json.loads(measured.stdout.splitlines()[-1])["results"]
        assert {"L=0", *(f"{name}-1 2×2 by {rerank}" for name in ("delta", "score", "energy"))} <= set(results)
    exported = tmp_path / "exported"
    latentmt("export", work, exported, "--kind", "latent", "--kind", "score", "--precision", "float16")
    sentence = (text / "test.de").read_text().splitlines()[0]
    translate = "translate", "--method", "score", sentence, "--model"
    translated = [latentmt(*translate, model).stdout for model in (work, exported)]
    assert len(translated[0].splitlines()) == 1
    assert translated[0] == translated[1]
    assert "score-1" in latentmt("trace", "--model", exported, "--engine", "onnx", sentence).stdout
    assert "output" in latentmt("inspect", exported / "latent").stdout
