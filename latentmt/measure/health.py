"""Is a latent model worth refining? What to look at after a short run, before spending hours on a long one.

The posterior must say something that the prior does not (KL), and the decoder must be able to read it (reconstruction);
then delta inference has somewhere to go, a field has something to learn, and more training pays. Lengths must be
predicted without a bias. All this is asked about held-out targets of the kind the model was trained on: a teacher's
translations, if it was distilled. The bounds are a judgement: where they come from is in docs/LOG.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

from latentmt.data.batches import padded_batches
from latentmt.data.corpus import Corpus
from latentmt.data.tokenizer import EOS
from latentmt.data.tokens import Pairs, Tokens
from latentmt.display import table
from latentmt.errors import UserError
from latentmt.fields.energy import EnergyNetwork
from latentmt.fields.refine import refine
from latentmt.fields.score import ScoreNetwork
from latentmt.measure.quality import Quality, measure, require_sacrebleu
from latentmt.measure.results import write_result
from latentmt.models.latent import LatentModel
from latentmt.options import DecodingOptions
from latentmt.translator import Translator

SENTENCES = 1000
"""Of the development set, from its beginning."""
DELTA_STEPS = 4
"""What a field is compared with: delta inference of this many steps from the prior's mean."""
_BATCH_TOKENS = 8192


@dataclass(frozen=True)
class Check:
    """A number and where it should lie."""

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
    if translator.latent is None:
        raise UserError("there is no latent model to look at")
    if distilled and translator.teacher is None:
        raise UserError("the latent model was distilled, and its teacher is not there")
    sums: dict[str, float] = {}
    for batch in _batches(translator, corpus, distilled):
        for name, value in _sums(translator, batch.to(translator.device)).items():
            sums[name] = sums.get(name, 0.0) + float(value)
    plain, *refined = [(options, _quality(translator, corpus, options)) for options in _ways(translator)]
    tokens, bleu = sums["tokens"], plain[1].bleu.value
    return [
        Check("raw KL, nats a token", sums["kl"] / tokens, low=0.25),
        Check("reconstructed from the posterior's mean", sums["reconstructed"] / tokens, low=0.9),
        *(Check(f"cosine of {name} and displacement", sums[name] / tokens, low=0.6) for name in translator.fields),
        Check("predicted length over the right one", sums["predicted"] / tokens, low=0.97, high=1.03),
        Check("BLEU, L=0", bleu),
        *(Check(f"BLEU, {options}, above L=0", quality.bleu.value - bleu, low=0.3) for options, quality in refined),
    ]


def show_health(checks: list[Check], console: Console, path: Path | None = None) -> bool:
    """Print the checks as a table, and give the JSON out; whether all hold."""
    rows = [(check.name, f"{check.value:.3f}", _bounds(check), _verdict(check)) for check in checks]
    console.print(table("Health of the latent model", ["", "measured", "wanted", ""], rows))
    well = all(check.ok for check in checks)
    tree = [{"name": c.name, "value": c.value, "ok": c.ok} for c in checks]
    write_result({"healthy": well, "checks": tree}, console, path)
    return well


def _ways(translator: Translator) -> list[DecodingOptions]:
    learned = (method for method in translator.methods if method in translator.fields)
    return [
        DecodingOptions(method="prior", steps=0),
        DecodingOptions(method="delta", steps=1),
        *(DecodingOptions(method=method, steps=1) for method in learned),
    ]


def _quality(translator: Translator, corpus: Corpus, options: DecodingOptions) -> Quality:
    pairs = corpus.text("dev")[:SENTENCES]
    done = translator.translations([pair.source for pair in pairs], options)
    return measure([one.text for one in done], [one.ids for one in done], [[pair.target for pair in pairs]])


@torch.no_grad()
def _sums(translator: Translator, batch: Pairs) -> dict[str, Tensor]:
    """Over the tokens of a batch."""
    latent = cast(LatentModel, translator.latent)
    target, source = batch.target, latent.encode(batch.source)
    layout = target.layout
    prior = latent.prior(layout, latent.prior.project_kv(source))
    posterior = latent.posterior(target, latent.posterior_stack.project_kv(source))
    read = latent.read(posterior.mean, layout, latent.decoder_stack.project_kv(source))
    moved = refine(prior.mean, delta_field(latent, source, layout), DELTA_STEPS) - prior.mean

    def cosine(net: ScoreNetwork | EnergyNetwork) -> Tensor:
        return F.cosine_similarity(net_field(net, source, layout)(prior.mean), moved, dim=-1)

    return {
        "tokens": layout.real.sum(),
        "kl": (posterior.kl(prior).sum(-1) * layout.real).sum(),
        "reconstructed": ((read.ids == target.ids) & layout.real).sum(),
        "predicted": latent.output.predict_lengths(source).sum(),
        **{name: (cosine(net) * layout.real).sum() for name, net in translator.fields.items()},
    }


def _batches(translator: Translator, corpus: Corpus, distilled: bool) -> Iterator[Pairs]:
    """The first sentences of the development set with the targets that the model is to be judged by."""
    dev, texts = corpus.split("dev"), [pair.source for pair in corpus.text("dev")[:SENTENCES]]
    targets = [dev.target[i].tolist() for i in range(len(texts))]
    if distilled:
        sources = [dev.source[i].tolist() for i in range(len(texts))]
        targets = [[*one.decoded, EOS] for one in translator.engine.best(sources, DecodingOptions("teacher", beam=4))]
    for group in padded_batches(dev.source.lengths[: len(texts)], _BATCH_TOKENS):
        source = Tokens.padded([dev.source[int(i)].tolist() for i in group])
        yield Pairs(source, Tokens.padded([targets[i] for i in group]))


def _bounds(check: Check) -> str:
    if math.isinf(check.low) and math.isinf(check.high):
        return ""
    return f"≥ {check.low:g}" if math.isinf(check.high) else f"{check.low:g} to {check.high:g}"


def _verdict(check: Check) -> str:
    return "" if not _bounds(check) else "ok" if check.ok else "NO"
