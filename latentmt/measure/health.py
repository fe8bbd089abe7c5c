"""Is a latent model worth refining? What to look at after a short run, before spending hours on a long one.

The posterior must say something that the prior does not (KL), and the decoder must be able to read it (reconstruction);
then delta inference has somewhere to go, a field has something to learn, and more training pays. The bounds are a
judgement: where they come from is in docs/LOG.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

from latentmt.data.batches import padded_batches
from latentmt.data.corpus import Corpus, Split
from latentmt.data.tokens import Pairs, Tokens
from latentmt.display import table
from latentmt.errors import UserError
from latentmt.infer.refine import decode_tokens, delta_field, net_field, refine
from latentmt.infer.translator import How, Translator
from latentmt.measure.quality import Quality, measure
from latentmt.models.latent import LatentModel

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


@dataclass(frozen=True)
class _Sums:
    """Over the tokens of the development set."""

    tokens: float
    kl: float
    reconstructed: float
    cosine: dict[str, float]


def health(translator: Translator, corpus: Corpus) -> list[Check]:
    """The checks of a translator's latent model and of the fields it has, on the corpus's development set."""
    if translator.latent is None:
        raise UserError("there is no latent model to look at")
    sums = _token_sums(translator, corpus.split("dev"))
    bleu = {how: _quality(translator, corpus, how) for how in _ways(translator)}
    first, *others = bleu.items()
    checks = [
        Check("raw KL, nats a token", sums.kl / sums.tokens, low=0.5),
        Check("reconstructed from the posterior's mean", sums.reconstructed / sums.tokens, low=0.95),
        *(Check(f"cosine of {name} and displacement", c / sums.tokens, low=0.6) for name, c in sums.cosine.items()),
        Check("length ratio, L=0", first[1].length, low=0.97, high=1.03),
        Check("BLEU, L=0", first[1].bleu.value),
    ]
    for how, quality in others:
        gain = quality.bleu.value - first[1].bleu.value
        checks.append(Check(f"BLEU, {how}, above L=0", gain, low=1.0))
    return checks


def show_health(checks: list[Check], console: Console) -> bool:
    """Print the checks as a table and as a line of JSON; whether all hold."""
    rows = [(check.name, f"{check.value:.3f}", _bounds(check), _verdict(check)) for check in checks]
    console.print(table("Health of the latent model", ["", "measured", "wanted", ""], rows))
    well = all(check.ok for check in checks)
    tree = [{"name": c.name, "value": c.value, "ok": c.ok} for c in checks]
    console.out(json.dumps({"healthy": well, "checks": tree}), highlight=False)
    return well


def _ways(translator: Translator) -> list[How]:
    learned = (method for method in translator.methods if method in translator.fields)
    return [How("prior", 0), How("delta", 1), *(How(method, 1) for method in learned)]


def _quality(translator: Translator, corpus: Corpus, how: How) -> Quality:
    pairs = corpus.text("dev")[:SENTENCES]
    done = translator.translate([pair.source for pair in pairs], how)
    return measure([one.text for one in done], [one.ids for one in done], [[pair.target for pair in pairs]])


@torch.no_grad()
def _token_sums(translator: Translator, dev: Split) -> _Sums:
    latent = translator.latent
    assert latent is not None
    total: dict[str, float] = {}
    for pairs in _batches(dev):
        batch = pairs.to(translator.device)
        found = _batch_sums(latent, batch, translator)
        for name, value in found.items():
            total[name] = total.get(name, 0.0) + float(value)
    fields = {name: total[name] for name in translator.fields}
    return _Sums(total["tokens"], total["kl"], total["reconstructed"], fields)


def _batch_sums(latent: LatentModel, batch: Pairs, translator: Translator) -> dict[str, Tensor]:
    target, source = batch.target, latent.encode(batch.source)
    layout = target.layout
    prior = latent.prior(layout, latent.prior_stack.remember(source))
    posterior = latent.posterior(target, latent.posterior_stack.remember(source))
    read = decode_tokens(latent, posterior.mean, layout, latent.decoder_stack.remember(source))
    sums = {
        "tokens": layout.real.sum(),
        "kl": (posterior.kl(prior).sum(-1) * layout.real).sum(),
        "reconstructed": ((read.ids == target.ids) & layout.real).sum(),
    }
    moved = refine(prior.mean, delta_field(latent, source, layout), DELTA_STEPS) - prior.mean
    for name, net in translator.fields.items():
        direction = net_field(net, source, layout)(prior.mean)
        sums[name] = (F.cosine_similarity(direction, moved, dim=-1) * layout.real).sum()
    return sums


def _batches(dev: Split) -> Iterator[Pairs]:
    lengths = dev.source.lengths[:SENTENCES]
    for group in padded_batches(lengths, _BATCH_TOKENS):
        sides = (Tokens.padded([side[int(i)].tolist() for i in group]) for side in (dev.source, dev.target))
        yield Pairs(*sides)


def _bounds(check: Check) -> str:
    if math.isinf(check.low):
        return ""
    return f"≥ {check.low:g}" if math.isinf(check.high) else f"{check.low:g} to {check.high:g}"


def _verdict(check: Check) -> str:
    return "" if math.isinf(check.low) else "ok" if check.ok else "NO"
