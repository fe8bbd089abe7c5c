"""Beam search for the teacher: batched, with cached keys and values. It knows nothing of text.

Every sentence keeps `beam` live hypotheses, which share its source and its cache, and the best finished one. Of the
2 · beam best continuations those that end within the first `beam` are finished, the best others live on. A sentence
is done when `beam` of its hypotheses have finished, when no live one can beat its best, or when it has reached its
longest length. One hypothesis is greedy decoding.

The device is asked only now and then who is done; done sentences are then taken out of the batch, so that long
ones do not hold it back. Hypotheses are counted as sentences are everywhere: EOS is part of the length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int, Shaped
from pydantic import Field
from torch import Tensor

from latentmt.config import Section
from latentmt.data.tokenizer import BOS, EOS, PAD
from latentmt.data.tokens import Tokens
from latentmt.models.presets import Count
from latentmt.models.teacher import Teacher
from latentmt.nn.attention import Cache, Memory
from latentmt.nn.positions import MAX_POSITIONS

_ASK_EVERY = 4
"""Steps between two looks at who is done."""
_COMPACT_BELOW = 0.8
"""Done sentences are taken out once fewer than this share are still searched."""
_CACHE_GROWTH = 16
"""Attention reads the cache up to the next multiple of this, not the room for the longest hypothesis."""


@dataclass(frozen=True, kw_only=True)
class BeamConfig(Section):
    """How the teacher is searched."""

    beam: Count = 4
    """Live hypotheses a sentence; 1 is greedy decoding."""
    length_penalty: Annotated[float, Field(ge=0)] = 1.0
    """A hypothesis scores its log-probability over its length to this power."""
    max_ratio: Annotated[float, Field(ge=0)] = 2.0
    """The longest hypothesis is this many times as long as the source, …"""
    max_extra: Count = 10
    """… and this many tokens longer, …"""
    max_length: Annotated[int, Field(ge=1, le=MAX_POSITIONS)] = 256
    """… but never longer than this."""

    def longest(self, source: int) -> int:
        """The length of the longest hypothesis for a source of a given length."""
        return min(int(self.max_ratio * source) + self.max_extra, self.max_length)


@dataclass(frozen=True)
class Hypothesis:
    """A target that the search found."""

    ids: tuple[int, ...]
    """Its tokens; the last one is EOS if it is finished."""
    score: float
    """The log-probability over the length to the power of the penalty."""
    log_prob: float
    finished: bool
    """False where no hypothesis ended within the longest length; this is then the most likely one so far."""


@dataclass(frozen=True)
class Best:
    """The best finished hypothesis of each sentence; a score of −∞ where there is none."""

    ids: Int[Tensor, "b w_and_bos"]
    length: Int[Tensor, " b"]
    score: Float[Tensor, " b"]
    log_prob: Float[Tensor, " b"]
    finished: Bool[Tensor, " b"]

    def where(self, change: Bool[Tensor, " b"], other: Best) -> Best:
        """The other ones where there is a change."""
        return Best(
            torch.where(change[:, None], other.ids, self.ids),
            torch.where(change, other.length, self.length),
            torch.where(change, other.score, self.score),
            torch.where(change, other.log_prob, self.log_prob),
            torch.where(change, other.finished, self.finished),
        )

    def select(self, rows: Int[Tensor, " n"]) -> Best:
        return Best(*(value.index_select(0, rows) for value in self._values()))

    def put(self, rows: Int[Tensor, " n"], other: Best) -> None:
        """Write the other ones into the named rows."""
        for mine, theirs in zip(self._values(), other._values(), strict=True):
            mine.index_copy_(0, rows, theirs)

    def packed(self) -> Int[Tensor, "b numbers"]:
        """All of it as integers, a row each, to be copied at once; what is not an integer as the bits of fp64."""
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
    """How long its hypotheses may become."""
    ids: Int[Tensor, "b k w_and_bos"]
    """The hypotheses so far, BOS first."""
    log_prob: Float[Tensor, "b k"]
    """−∞ for one that does not exist."""
    best: Best
    ended: Int[Tensor, " b"]
    """How many hypotheses have finished."""
    done: Bool[Tensor, " b"]
    seen: Bool[Tensor, "b k slots"]
    """Whose tokens in the cache each hypothesis continues."""
    memory: Memory
    cache: Cache
    """The only thing that is written in place, and never read before it is written."""

    def select(self, rows: Int[Tensor, " n"]) -> Beams:
        """The named sentences."""
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
def beam_search(teacher: Teacher, source: Tokens, config: BeamConfig) -> list[Hypothesis]:
    """The best hypothesis for each row of the source, which holds one sentence a row.

    The teacher is used as it is: whoever calls sees to `eval()`, precision and device.
    """
    if not len(source.ids):
        return []
    width = config.longest(source.ids.shape[1])
    beams = start(teacher, source, config, width)
    found = beams.best.select(beams.sentence)
    positions = torch.arange(width, device=source.ids.device)
    for position in range(width):
        beams = advance(teacher, beams, positions[position], reach_of(position), config.length_penalty)
        if (position + 1) % _ASK_EVERY == 0:
            searched = (~beams.done).nonzero()[:, 0]
            if not len(searched):
                break
            if len(searched) < _COMPACT_BELOW * len(beams.done):
                found.put(beams.sentence, beams.best)
                beams = beams.select(searched)
    found.put(beams.sentence, beams.best)
    return hypotheses(found.packed().cpu())


def hypotheses(numbers: Int[Tensor, "b numbers"]) -> list[Hypothesis]:
    """The best ones that were packed, read on the host."""
    scores = numbers[:, 2:4].contiguous().view(torch.float64).tolist()
    return [
        Hypothesis(tuple(ids[1 : 1 + length]), score, log_prob, bool(finished))
        for (length, finished, _, _, *ids), (score, log_prob) in zip(numbers.tolist(), scores, strict=True)
    ]


def start(teacher: Teacher, source: Tokens, config: BeamConfig, width: int) -> Beams:
    """Every sentence before its first token, with room for `width` of them."""
    rows, beam, device = len(source.ids), config.beam, source.ids.device
    encoded, lengths = teacher.encode(source), source.layout.real.sum(1)
    scores = torch.promote_types(encoded.states.dtype, torch.float32)
    ids = torch.full((rows, beam, width + 1), PAD, device=device)
    ids[:, :, 0] = BOS
    log_prob = torch.full((rows, beam), -torch.inf, dtype=scores, device=device)
    log_prob[:, 0] = 0.0  # all would be the same hypothesis
    none = torch.zeros(rows, dtype=torch.long, device=device)
    worst = log_prob.new_full((rows,), -torch.inf)
    return Beams(
        sentence=torch.arange(rows, device=device),
        limit=((config.max_ratio * lengths.double()).long() + config.max_extra).clamp(max=width),
        ids=ids,
        log_prob=log_prob,
        best=Best(ids[:, 0], none, worst, worst, none > 0),
        ended=none,
        done=none > 0,
        seen=torch.zeros((rows, beam, beam * width), dtype=torch.bool, device=device),
        memory=teacher.decoder_stack.project_kv(encoded),
        cache=teacher.cache(rows, beam, width),
    )


def advance(teacher: Teacher, beams: Beams, place: Int[Tensor, ""], reach: int, penalty: float) -> Beams:
    """Add the token at a place to every hypothesis; `reach` positions are enough to attend to.

    The place is known to the device alone, so that the same work does for all of them; and nothing waits for it.
    """
    beam, after = beams.ids.shape[1], place + 1
    length, divisor = after.expand(len(beams.ids)), after.to(beams.log_prob.dtype) ** penalty
    own = torch.eye(beam, dtype=torch.bool, device=place.device).expand(len(beams.ids), beam, beam)
    seen = beams.seen.index_copy(2, beams.cache.slots(place), own)
    previous = beams.ids.index_select(2, place[None])[:, :, 0]
    logits = teacher.step(previous, beams.cache.first(reach), seen[:, :, : reach * beam], beams.memory, place)
    scores, parent, token = _candidates(logits, beams.log_prob)
    ends = token == EOS

    # What ends here has the same length in every beam, so that the most likely one is the best one.
    ending = scores[:, :beam].masked_fill(~ends[:, :beam], -torch.inf)
    log_prob, which = ending.max(1)
    finished = _of(beams.ids, parent.gather(1, which[:, None]))[:, 0].index_fill(1, after[None], EOS)
    candidate = Best(finished, length, log_prob / divisor, log_prob, torch.ones_like(beams.done))
    best = beams.best.where((candidate.score > beams.best.score) & ~beams.done, candidate)
    ended = beams.ended + (ending > -torch.inf).sum(1)

    live, chosen = scores.masked_fill(ends, -torch.inf).topk(beam)
    origin = parent.gather(1, chosen)
    ids = _of(beams.ids, origin).index_copy(2, after[None], token.gather(1, chosen)[:, :, None])

    # Without any hypothesis that ended, the likeliest one so far has to do.
    at_limit = beams.limit <= after
    unfinished = Best(ids[:, 0], length, live[:, 0] / divisor, live[:, 0], torch.zeros_like(beams.done))
    best = best.where(at_limit & (best.score == -torch.inf), unfinished)
    # A log-probability only falls, so the most a live hypothesis can score is what it would at the longest length.
    hopeless = best.score >= live[:, 0] / beams.limit.to(live.dtype) ** penalty
    done = beams.done | (ended >= beam) | at_limit | hopeless
    return replace(beams, ids=ids, log_prob=live, best=best, ended=ended, done=done, seen=_of(seen, origin))


def reach_of(position: int) -> int:
    """How many positions to attend to for the token at one, rounded up so that shapes are few."""
    return -(-(position + 1) // _CACHE_GROWTH) * _CACHE_GROWTH


def _of(values: Shaped[Tensor, "b k w"], named: Int[Tensor, "b n"]) -> Shaped[Tensor, "b n w"]:
    """What belongs to the named hypotheses of each sentence."""
    return values.gather(1, named[:, :, None].expand(-1, -1, values.shape[2]))


def _candidates(
    logits: Float[Tensor, "b k v"], log_prob: Float[Tensor, "b k"]
) -> tuple[Float[Tensor, "b n"], Int[Tensor, "b n"], Int[Tensor, "b n"]]:
    """The 2 · k best continuations of each sentence, best first: log-probability, hypothesis continued, token.

    Of one hypothesis no more than its k best tokens and EOS can be needed, so the vocabulary is looked through
    once a hypothesis and not sorted.
    """
    beam = log_prob.shape[1]
    logits = logits.to(log_prob.dtype)
    normaliser = logits.logsumexp(2, keepdim=True)
    logits[:, :, PAD] = -torch.inf  # no sentence has these; their share of the probability is lost, as it should be
    logits[:, :, BOS] = -torch.inf
    few = min(beam + 1, logits.shape[2])
    values, tokens = logits.topk(few)
    total = log_prob[:, :, None] + (values - normaliser)
    scores, index = total.flatten(1).topk(2 * beam)
    return scores, index // few, tokens.flatten(1).gather(1, index)
