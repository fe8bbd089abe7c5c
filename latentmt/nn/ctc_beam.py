"""Prefix beam search for CTC with a language model (Hannun et al., 2014), for rows of one sentence each.

Prefixes of targets are extended place by place. The score of one is the log-probability of all ways to write it with
the places so far (`lattice.py`), and what the language model adds (`ngrams/fusion.py`). Shapes do not depend on values
and nothing synchronises with the device. On a GPU all places are one kernel (`ctc_beam_kernel.py`). For one sentence on
the host: `engines/onnx/ctc_beam.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentmt.data.tokenizer import BLANK, EOS, PAD
from latentmt.data.tokens import Layout, Tokens
from latentmt.ngrams.fusion import MARGIN, Fusion
from latentmt.ngrams.model import STEP
from latentmt.nn.fused import HAS_TRITON
from latentmt.nn.ngrams import NgramTables

MAX_BEAM = 16
"""The kernel holds the prefixes of a row in registers, up to this number."""
NEVER = -1e30
"""The log-probability of what cannot happen. Finite, so that sums of it are no NaN."""
_MULTIPLIER = 6364136223846793005
"""Of the hash of a prefix, a product modulo 2⁶⁴ (Knuth's)."""


@dataclass(frozen=True)
class _Beam:
    """The prefixes of each row, and how probably the places so far write them."""

    tokens: Int[Tensor, "r w p"]
    length: Int[Tensor, "r w"]
    hash: Int[Tensor, "r w"]
    """Of the tokens, to find equal prefixes."""
    state: Int[Tensor, "r w contexts"]
    """The language model's."""
    bonus: Float[Tensor, "r w"]
    """What the language model adds to the score."""
    blank: Float[Tensor, "r w"]
    """log p of the ways that end in a blank."""
    token: Float[Tensor, "r w"]
    """log p of those that end in the last token."""

    @property
    def last(self) -> Int[Tensor, "r w"]:
        """The last token; a blank if there is none."""
        last = self.tokens.gather(2, (self.length - 1).clamp(min=0)[..., None])[..., 0]
        return last.masked_fill(self.length == 0, BLANK)

    @property
    def total(self) -> Float[Tensor, "r w"]:
        return torch.logaddexp(self.blank, self.token)

    @property
    def possible(self) -> Bool[Tensor, "r w"]:
        return self.total > NEVER / 2

    def select(self, chosen: Int[Tensor, "r k"]) -> _Beam:
        """These prefixes of each row."""
        return _Beam(**{each.name: _gathered(getattr(self, each.name), chosen) for each in fields(self)})

    def where(self, condition: Bool[Tensor, " r"], other: _Beam) -> _Beam:
        """This in the rows where it is true, elsewhere the other."""
        pairs = {each.name: (getattr(self, each.name), getattr(other, each.name)) for each in fields(self)}
        return _Beam(
            **{
                name: torch.where(condition.view(-1, *[1] * (mine.dim() - 1)), mine, others)
                for name, (mine, others) in pairs.items()
            }
        )


def beam_search(
    labels: Int[Tensor, "r p k"], logits: Float[Tensor, "r p k"], places: Layout, fusion: Fusion[NgramTables]
) -> Tokens:
    """The best target of each row, given the likeliest labels of each place and their logits, the best first."""
    tokens, length = _best(*_likely(labels, logits, places), places.real, fusion)
    return Tokens(tokens, Layout.from_lengths(length, tokens.shape[1]))


def _best(
    labels: Int[Tensor, "r p k"], scores: Float[Tensor, "r p k"], real: Bool[Tensor, "r p"], fusion: Fusion[NgramTables]
) -> tuple[Int[Tensor, "r p"], Int[Tensor, " r"]]:
    """The tokens of the best prefix of each row after all places, `PAD` behind them, and their number."""
    if HAS_TRITON and labels.is_cuda and fusion.beam <= MAX_BEAM:
        from latentmt.nn import ctc_beam_kernel

        run = ctc_beam_kernel.search_op if torch.compiler.is_compiling() else ctc_beam_kernel.search
        return run(labels, scores, real, *_kernel_arguments(fusion))
    beam = _start(labels, fusion)
    for place in range(labels.shape[1]):
        after = _extended(beam, labels[:, place], scores[:, place], fusion)
        beam = after.where(real[:, place], beam)
    tokens, length = beam.tokens[:, 0], beam.length[:, 0]
    written = torch.arange(tokens.shape[1], device=tokens.device) < length[:, None]
    return tokens.masked_fill(~written, PAD), length


def _kernel_arguments(fusion: Fusion[NgramTables]) -> tuple[Any, ...]:
    """What the kernel is told of the language model and of this file."""
    model = fusion.model
    tables = (model.levels(name) for name in ("keys", "costs", "backoffs"))
    # A token adds weight · (surprisal − cost), as `Fusion.bonus` says.
    return model.start, *tables, model.surprisal, fusion.weight * STEP, fusion.beam, NEVER, _MULTIPLIER


def _likely(
    labels: Int[Tensor, "r p k"], logits: Float[Tensor, "r p k"], places: Layout
) -> tuple[Int[Tensor, "r p k"], Float[Tensor, "r p k"]]:
    """The labels that are tried and their scores: the logit less the best one's, `NEVER` for what is not tried.

    Every way through the lattice has a label at each place, so what all labels of a place share makes no difference.
    """
    scores = (logits - logits[..., :1]).float()
    scores = scores.masked_fill(scores <= -MARGIN, NEVER)
    behind = F.pad(places.real[:, 1:], (0, 1))  # the last place is EOS's
    first = torch.arange(labels.shape[2], device=labels.device) == 0
    labels = torch.where((~behind)[..., None] & first, EOS, labels)
    scores = torch.where(behind[..., None], scores, torch.where(first, 0.0, NEVER))
    # EOS is the label of the last places, or of none.
    ends = ((labels == EOS) & (scores > NEVER)).any(2).flip(1).cummin(1).values.flip(1)
    scores = scores.masked_fill((labels == EOS) & ~ends[..., None], NEVER)
    none = (scores == NEVER).all(2, keepdim=True) & first
    return labels.masked_fill(none, BLANK), scores.masked_fill(none, 0.0)


def _start(labels: Int[Tensor, "r p k"], fusion: Fusion[NgramTables]) -> _Beam:
    """The empty prefix, and prefixes that are impossible."""
    (rows, width, _), beam = labels.shape, fusion.beam
    number = torch.arange(beam, device=labels.device).expand(rows, beam)
    zero = torch.zeros_like(number)
    never = torch.full((rows, beam), NEVER, device=labels.device)
    state = fusion.model.start.expand(rows, beam, -1)
    tokens = labels.new_full((rows, beam, width), PAD)
    return _Beam(tokens, zero, number, state, torch.zeros_like(never), never.masked_fill(number == 0, 0.0), never)


def _extended(
    old: _Beam, labels: Int[Tensor, "r k"], scores: Float[Tensor, "r k"], fusion: Fusion[NgramTables]
) -> _Beam:
    """The best prefixes one place further: the old ones, and those with another token."""
    (rows, beam), count = old.length.shape, labels.shape[1]
    last, total, blank_score = old.last, old.total, scores.masked_fill(labels != BLANK, NEVER).amax(1)
    at_last = labels[:, None, :] == last[..., None]
    repeat_score = scores[:, None].expand_as(at_last).masked_fill(~at_last, NEVER).amax(2)
    blank = (total + blank_score[:, None]).masked_fill(last == EOS, NEVER)
    token = old.token + repeat_score

    label = labels[:, None].expand(rows, beam, count)
    longer = torch.where(at_last, old.blank[..., None], total[..., None]) + scores[:, None]
    # Behind EOS there is nothing but the same EOS.
    longer = longer.masked_fill((label == BLANK) | (last == EOS)[..., None], NEVER)
    hashed = (old.hash[..., None] + label + 1) * _MULTIPLIER
    same = (hashed[..., None] == old.hash[:, None, None]) & old.possible[:, None, None]
    merged = torch.where(same, longer[..., None], NEVER).flatten(1, 2).logsumexp(1)
    token = torch.logaddexp(token, merged)
    longer = longer.masked_fill(same.any(3), NEVER).flatten(1)

    cost, state = fusion.model.step(old.state[:, :, None].expand(-1, -1, count, -1), label)
    bonus = (old.bonus[..., None] + fusion.bonus(cost)).flatten(1)
    stayed = torch.logaddexp(blank, token).clamp(min=NEVER) + old.bonus
    chosen = torch.cat((stayed, (longer.clamp(min=NEVER) + bonus)), 1).topk(beam, 1).indices

    parents = torch.arange(beam, device=labels.device).repeat_interleave(count).expand(rows, -1)
    length, never = _gathered(old.length, parents), torch.full_like(longer, NEVER)
    written = _gathered(old.tokens, parents).scatter(2, length[..., None], label.flatten(1)[..., None])
    both = _Beam(
        torch.cat((old.tokens, written), 1),
        torch.cat((old.length, length + 1), 1),
        torch.cat((old.hash, hashed.flatten(1)), 1),
        torch.cat((old.state, state.flatten(1, 2)), 1),
        torch.cat((old.bonus, bonus), 1),
        torch.cat((blank, never), 1),
        torch.cat((token, longer), 1),
    )
    return both.select(chosen)


def _gathered(values: Tensor, chosen: Int[Tensor, "r k"]) -> Tensor:
    """The chosen values of each row."""
    index = chosen.view(*chosen.shape, *[1] * (values.dim() - 2)).expand(*chosen.shape, *values.shape[2:])
    return values.gather(1, index)
