"""Beam search for the teacher: batched, with cached keys and values. It works on ids.

Every sentence keeps `beam` live hypotheses, which share its source and its cache, and the best finished one. Of the
2 · beam best continuations, those that end within the first `beam` are finished. The best others stay live. A sentence
is done when `beam` of its hypotheses have finished, when no live one can beat its best, or when it has reached its
maximum length. A beam of 1 is greedy decoding.

Whether sentences are done is read from the device every few steps. Done sentences are then removed from the batch, so
that it shrinks. EOS is part of the length of a hypothesis, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from latentmt.data.tokenizer import BOS, EOS, PAD
from latentmt.data.tokens import Tokens
from latentmt.models.teacher import Teacher
from latentmt.nn.attention import Cache, Memory
from latentmt.options import BeamConfig

_CHECK_EVERY = 4
"""Steps between two checks for done sentences."""
_COMPACT_BELOW = 0.8
"""Done sentences are removed once less than this share is still searched."""
_CACHE_GROWTH = 16
"""Attention reads the cache up to the next multiple of this, not up to the maximum length."""


@dataclass(frozen=True)
class Hypothesis:
    """A target found by the search."""

    ids: tuple[int, ...]
    """Its tokens; the last one is EOS if it is finished."""
    score: float
    """The log-probability divided by the length to the power of the penalty."""
    log_prob: float
    finished: bool
    """False if no hypothesis ended within the maximum length. This is then the most likely unfinished one."""


@dataclass(frozen=True)
class BestHypotheses:
    """The best finished hypothesis of each sentence; a score of −∞ where there is none."""

    ids: Int[Tensor, "b w_and_bos"]
    length: Int[Tensor, " b"]
    score: Float[Tensor, " b"]
    log_prob: Float[Tensor, " b"]
    finished: Bool[Tensor, " b"]

    def where(self, change: Bool[Tensor, " b"], other: BestHypotheses) -> BestHypotheses:
        """Those of `other` where `change` is true."""
        return BestHypotheses(
            torch.where(change[:, None], other.ids, self.ids),
            torch.where(change, other.length, self.length),
            torch.where(change, other.score, self.score),
            torch.where(change, other.log_prob, self.log_prob),
            torch.where(change, other.finished, self.finished),
        )

    def select(self, rows: Int[Tensor, " n"]) -> BestHypotheses:
        return BestHypotheses(*(value.index_select(0, rows) for value in self._values()))

    def write(self, rows: Int[Tensor, " n"], other: BestHypotheses) -> None:
        """Copy `other` into these rows, in place."""
        for target, source in zip(self._values(), other._values(), strict=True):
            target.index_copy_(0, rows, source)

    def packed(self) -> Int[Tensor, "b numbers"]:
        """All values as one tensor of integers, for a single copy. Floats are stored as fp64 bits."""
        bits = torch.stack((self.score, self.log_prob), 1).double().view(torch.int64)
        return torch.cat((torch.stack((self.length, self.finished.long()), 1), bits, self.ids), 1)

    def _values(self) -> tuple[Tensor, ...]:
        return self.ids, self.length, self.score, self.log_prob, self.finished


@dataclass(frozen=True)
class Beams:
    """The sentences in the batch, each with its live hypotheses, best first."""

    sentence: Int[Tensor, " b"]
    """Which sentence of the source this is."""
    limit: Int[Tensor, " b"]
    """The maximum length of its hypotheses."""
    ids: Int[Tensor, "b k w_and_bos"]
    """The hypotheses so far, BOS first."""
    log_prob: Float[Tensor, "b k"]
    """−∞ for a hypothesis that does not exist."""
    best: BestHypotheses
    ended: Int[Tensor, " b"]
    """How many hypotheses have finished."""
    done: Bool[Tensor, " b"]
    seen: Bool[Tensor, "b k slots"]
    """The cache slots that belong to each hypothesis."""
    memory: Memory
    cache: Cache
    """Written in place. No slot is read before it is written."""

    def select(self, rows: Int[Tensor, " n"]) -> Beams:
        """These sentences, in this order."""
        return Beams(
            sentence=self.sentence.index_select(0, rows),
            limit=self.limit.index_select(0, rows),
            ids=self.ids.index_select(0, rows),
            log_prob=self.log_prob.index_select(0, rows),
            best=self.best.select(rows),
            ended=self.ended.index_select(0, rows),
            done=self.done.index_select(0, rows),
            seen=self.seen.index_select(0, rows),
            memory=self.memory.select(rows),
            cache=self.cache.select(rows),
        )


@torch.no_grad()
def beam_search(
    teacher: Teacher, source: Tokens, config: BeamConfig, check: Callable[[], None] = lambda: None
) -> list[Hypothesis]:
    """The best hypothesis for each row of the source. A row holds one sentence. `check` is called before each token.

    The caller is responsible for `eval()`, precision and device of the teacher.
    """
    if not len(source.ids):
        return []
    width = config.max_target_length(source.ids.shape[1])
    beams = start(teacher, source, config, width)
    best = beams.best.select(beams.sentence)
    positions = torch.arange(width, device=source.ids.device)
    for position in range(width):
        check()
        beams = advance(teacher, beams, positions[position], attended_positions(position), config.length_penalty)
        if (position + 1) % _CHECK_EVERY == 0:
            searched = (~beams.done).nonzero()[:, 0]
            if not len(searched):
                break
            if len(searched) < _COMPACT_BELOW * len(beams.done):
                best.write(beams.sentence, beams.best)
                beams = beams.select(searched)
    best.write(beams.sentence, beams.best)
    return hypotheses(best.packed().cpu())


def hypotheses(numbers: Int[Tensor, "b numbers"]) -> list[Hypothesis]:
    """Unpack `BestHypotheses.packed()` on the host."""
    scores = numbers[:, 2:4].contiguous().view(torch.float64).tolist()
    return [
        Hypothesis(tuple(ids[1 : 1 + length]), score, log_prob, bool(finished))
        for (length, finished, _, _, *ids), (score, log_prob) in zip(numbers.tolist(), scores, strict=True)
    ]


def start(teacher: Teacher, source: Tokens, config: BeamConfig, width: int) -> Beams:
    """Every sentence before its first token, with room for `width` tokens."""
    rows, beam, device = len(source.ids), config.beam, source.ids.device
    encoded, lengths = teacher.encode(source), source.layout.real.sum(1)
    scores = torch.promote_types(encoded.states.dtype, torch.float32)
    ids = torch.full((rows, beam, width + 1), PAD, device=device)
    ids[:, :, 0] = BOS
    log_prob = torch.full((rows, beam), -torch.inf, dtype=scores, device=device)
    log_prob[:, 0] = 0.0  # the others would be copies of this one
    none = torch.zeros(rows, dtype=torch.long, device=device)
    worst = log_prob.new_full((rows,), -torch.inf)
    return Beams(
        sentence=torch.arange(rows, device=device),
        limit=((config.max_ratio * lengths.double()).long() + config.max_extra).clamp(max=width),
        ids=ids,
        log_prob=log_prob,
        best=BestHypotheses(ids[:, 0], none, worst, worst, none > 0),
        ended=none,
        done=none > 0,
        seen=torch.zeros((rows, beam, beam * width), dtype=torch.bool, device=device),
        memory=teacher.decoder_stack.project_kv(encoded),
        cache=teacher.cache(rows, beam, width),
    )


def advance(teacher: Teacher, beams: Beams, position: Int[Tensor, ""], attended: int, penalty: float) -> Beams:
    """Add the token at a position to every hypothesis, attending to the first `attended` positions.

    The position is a tensor on the device, so that compiled code serves all positions. Nothing synchronises.
    """
    beam, after = beams.ids.shape[1], position + 1
    length, divisor = after.expand(len(beams.ids)), after.to(beams.log_prob.dtype) ** penalty
    itself = torch.eye(beam, dtype=torch.bool, device=position.device).expand(len(beams.ids), beam, beam)
    seen = beams.seen.index_copy(2, beams.cache.slots(position), itself)
    previous = beams.ids.index_select(2, position[None])[:, :, 0]
    logits = teacher.step(previous, beams.cache.first(attended), seen[:, :, : attended * beam], beams.memory, position)
    scores, parent, token = _candidates(logits, beams.log_prob)
    ends = token == EOS

    # Hypotheses that end here have the same length, so the most likely one has the best score.
    ending = scores[:, :beam].masked_fill(~ends[:, :beam], -torch.inf)
    log_prob, which = ending.max(1)
    finished = _gather_hypotheses(beams.ids, parent.gather(1, which[:, None]))[:, 0].index_fill(1, after[None], EOS)
    candidate = BestHypotheses(finished, length, log_prob / divisor, log_prob, torch.ones_like(beams.done))
    best = beams.best.where((candidate.score > beams.best.score) & ~beams.done, candidate)
    ended = beams.ended + (ending > -torch.inf).sum(1)

    live, chosen = scores.masked_fill(ends, -torch.inf).topk(beam)
    origin = parent.gather(1, chosen)
    ids = _gather_hypotheses(beams.ids, origin).index_copy(2, after[None], token.gather(1, chosen)[:, :, None])

    # If no hypothesis has ended at the maximum length, the most likely unfinished one is kept.
    at_limit = beams.limit <= after
    unfinished = BestHypotheses(ids[:, 0], length, live[:, 0] / divisor, live[:, 0], torch.zeros_like(beams.done))
    best = best.where(at_limit & (best.score == -torch.inf), unfinished)
    # A log-probability only falls, so a live hypothesis can at most score its present one at the maximum length.
    unbeatable = best.score >= live[:, 0] / beams.limit.to(live.dtype) ** penalty
    done = beams.done | (ended >= beam) | at_limit | unbeatable
    return replace(
        beams, ids=ids, log_prob=live, best=best, ended=ended, done=done, seen=_gather_hypotheses(seen, origin)
    )


def attended_positions(position: int) -> int:
    """How many positions the token at this position attends to, rounded up so that shapes are few."""
    return -(-(position + 1) // _CACHE_GROWTH) * _CACHE_GROWTH


def _gather_hypotheses(values: Shaped[Tensor, "b k w"], index: Int[Tensor, "b n"]) -> Shaped[Tensor, "b n w"]:
    """The values of these hypotheses of each sentence."""
    return values.gather(1, index[:, :, None].expand(-1, -1, values.shape[2]))


def _candidates(
    logits: Float[Tensor, "b k v"], log_prob: Float[Tensor, "b k"]
) -> tuple[Float[Tensor, "b n"], Int[Tensor, "b n"], Int[Tensor, "b n"]]:
    """The 2 · k best continuations of each sentence, best first: log-probability, hypothesis continued, token.

    At most k tokens of one hypothesis and EOS are needed, so a top-k per hypothesis is enough.
    """
    beam = log_prob.shape[1]
    logits = logits.to(log_prob.dtype)
    normaliser = logits.logsumexp(2, keepdim=True)
    logits[:, :, PAD] = -torch.inf  # never written; their probability stays in the normaliser
    logits[:, :, BOS] = -torch.inf
    per_hypothesis = min(beam + 1, logits.shape[2])
    values, tokens = logits.topk(per_hypothesis)
    total = log_prob[:, :, None] + (values - normaliser)
    scores, index = total.flatten(1).topk(2 * beam)
    return scores, index // per_hypothesis, tokens.flatten(1).gather(1, index)
