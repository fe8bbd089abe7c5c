"""Checks of a latent model after a short run, before a long one: is it worth refining?

The posterior must carry information that the prior does not (KL), and the decoder must be able to use it
(reconstruction). Then refinement can improve the output, and a field can learn from it. Lengths must have no bias. The
checks use held-out targets of the kind the model was trained on: a teacher's translations, if it was distilled. The
bounds are a judgement, explained in docs/LOG.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

from latentmt.data.batches import padded_batches
from latentmt.data.corpus import Corpus
from latentmt.data.tokenizer import EOS
from latentmt.data.tokens import Pairs, Tokens
from latentmt.display import table
from latentmt.engines.torch_engine import torch_engine
from latentmt.errors import UserError
from latentmt.fields.refine import refine
from latentmt.infer.search import search
from latentmt.measure.methods import refining_methods, require_latent
from latentmt.measure.quality import Quality, measure, require_sacrebleu
from latentmt.measure.results import write_result
from latentmt.options import DecodingOptions
from latentmt.translator import Translator

SENTENCES = 1000
"""The first sentences of the development set that are used."""
DELTA_STEPS = 4
"""The displacement that a field is compared with: delta inference of this many steps from the prior's mean."""
_BATCH_TOKENS = 8192


@dataclass(frozen=True)
class Check:
    """A number and its bounds."""

    name: str
    value: float
    low: float = -math.inf
    high: float = math.inf

    @property
    def ok(self) -> bool:
        return self.low <= self.value <= self.high


def health(translator: Translator, corpus: Corpus, distilled: bool) -> list[Check]:
    """The checks of a translator's latent model and of the fields it has, on the corpus's development set."""
    require_sacrebleu()
    require_latent(translator)
    if distilled and "teacher" not in translator.methods:
        raise UserError("the latent model was distilled, and its teacher is not there")
    sums: dict[str, float] = {}
    for batch in _batches(translator, corpus, distilled):
        for name, value in _sums(translator, batch.to(torch_engine(translator.backend).device)).items():
            sums[name] = sums.get(name, 0.0) + float(value)
    bleu = _quality(translator, corpus, DecodingOptions(method="prior", steps=0)).bleu.value
    refined = [DecodingOptions(method=method, steps=1) for method in refining_methods(translator)]
    gains = {str(options): _quality(translator, corpus, options).bleu.value - bleu for options in refined}
    tokens = sums["tokens"]
    return [
        Check("raw KL, nats a token", sums["kl"] / tokens, low=0.25),
        Check("reconstructed from the posterior's mean", sums["reconstructed"] / tokens, low=0.9),
        *(
            Check(f"cosine of {name} and displacement", sums[f"cosine of {name}"] / sums["places"], low=0.6)
            for name in _learned(translator)
        ),
        Check("predicted length over the right one", sums["written"] / tokens, low=0.97, high=1.03),
        Check("BLEU, L=0", bleu),
        *(Check(f"BLEU, {name}, above L=0", gain, low=0.3) for name, gain in gains.items()),
    ]


def show_health(checks: list[Check], console: Console, path: Path | None = None) -> bool:
    """Print the checks as a table, and write the JSON; whether all hold."""
    rows = [(check.name, f"{check.value:.3f}", _bounds(check), _verdict(check)) for check in checks]
    console.print(table("Health of the latent model", ["", "measured", "expected", ""], rows))
    healthy = all(check.ok for check in checks)
    results = [{"name": check.name, "value": check.value, "ok": check.ok} for check in checks]
    write_result({"healthy": healthy, "checks": results}, console, path)
    return healthy


def _learned(translator: Translator) -> list[str]:
    """The methods with a field of their own."""
    return [
        method for method in refining_methods(translator) if method in torch_engine(translator.backend).networks.fields
    ]


def _quality(translator: Translator, corpus: Corpus, options: DecodingOptions) -> Quality:
    pairs = corpus.text("dev")[:SENTENCES]
    outputs = translator.translations([pair.source for pair in pairs], options)
    references = [[pair.target for pair in pairs]]
    return measure([output.text for output in outputs], [output.ids for output in outputs], references)


@torch.no_grad()
def _sums(translator: Translator, batch: Pairs) -> dict[str, Tensor]:
    """Sums over the tokens of a batch."""
    latent, engine, plain = require_latent(translator), torch_engine(translator.backend), DecodingOptions("prior", 0)
    networks = engine.networks
    target, source = batch.target, latent.encode(batch.source)
    places = latent.output.places(source, target)
    prior = latent.prior(places, latent.prior.project_kv(source))
    posterior = latent.posterior(target, places, latent.posterior_stack.project_kv(source))
    states = latent.decode(posterior.mean, places, latent.decoder_stack.project_kv(source))
    tokens = latent.output.token_loss(states, places, latent.embedding, target, 0.0)
    moved = refine(prior.mode, networks.bind_field("delta", source, places), DELTA_STEPS) - prior.mode
    first_guess = search(networks, batch.source, plain, engine.noise(plain))

    def cosine(method: str) -> Tensor:
        field = networks.bind_field(method, source, places)
        return F.cosine_similarity(field(prior.mode), moved, dim=-1)

    return {
        "tokens": tokens.count,
        "places": places.real.sum(),
        "kl": (prior.kl(posterior) * places.real).sum(),
        "reconstructed": tokens.correct,
        "written": first_guess.decoded.layout.real.sum(),
        **{f"cosine of {method}": (cosine(method) * places.real).sum() for method in _learned(translator)},
    }


def _batches(translator: Translator, corpus: Corpus, distilled: bool) -> Iterator[Pairs]:
    """The first sentences of the development set with targets of the kind that the model was trained on."""
    dev, texts = corpus.split("dev"), [pair.source for pair in corpus.text("dev")[:SENTENCES]]
    targets = [dev.target[i].tolist() for i in range(len(texts))]
    if distilled:
        sources = [dev.source[i].tolist() for i in range(len(texts))]
        best = torch_engine(translator.backend).best(sources, DecodingOptions("teacher", beam=4))
        targets = [[*candidate.decoded, EOS] for candidate in best]
    for group in padded_batches(dev.source.lengths[: len(texts)], _BATCH_TOKENS):
        source = Tokens.padded([dev.source[int(i)].tolist() for i in group])
        yield Pairs(source, Tokens.padded([targets[i] for i in group]))


def _bounds(check: Check) -> str:
    if math.isinf(check.low) and math.isinf(check.high):
        return ""
    return f"≥ {check.low:g}" if math.isinf(check.high) else f"{check.low:g} to {check.high:g}"


def _verdict(check: Check) -> str:
    return "" if not _bounds(check) else "ok" if check.ok else "NO"
