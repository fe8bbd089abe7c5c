"""Prefix beam search for CTC with a language model (Hannun et al., 2014), one sentence on the host.

Prefixes of targets are extended place by place. The score of one is the log-probability of all ways to write it with
the places so far (`nn/lattice.py`), and what the language model adds (`ngrams/fusion.py`). In torch: `nn/ctc_beam.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from latentmt.data.tokenizer import BLANK, EOS, SPECIAL
from latentmt.ngrams.fusion import MARGIN, MAX_LABELS, Fusion
from latentmt.ngrams.model import NgramModel, State

NEVER = -1e30
"""The log-probability of what cannot happen."""
_FORBIDDEN = SPECIAL - {BLANK, EOS}


@dataclass(slots=True)
class _Hypothesis:
    """A prefix of targets, and how probably the places so far write it."""

    tokens: tuple[int, ...]
    state: State
    """The language model's."""
    bonus: float
    """What the language model adds to the score."""
    blank: float
    """log p of the ways that end in a blank."""
    token: float
    """log p of those that end in the last token."""
    total: float = 0.0
    """log p of all of them."""

    @property
    def last(self) -> int:
        return self.tokens[-1] if self.tokens else BLANK


def beam_search(
    logits: Float[np.ndarray, "p v"], fusion: Fusion[NgramModel], pieces: Int[np.ndarray, " v"] | None = None
) -> list[int]:
    """The target, EOS included, of the logits at the places of a sentence.

    `pieces`: the piece of each column, in ascending order. Default: all pieces.
    """
    beam = [_Hypothesis((), fusion.model.start, 0.0, 0.0, NEVER)]
    for labels in [*_likely(logits[:-1], pieces), {EOS: 0.0}]:  # the last place is EOS's
        if len(labels) == 1 and BLANK in labels:  # nothing to choose, as at most places
            for each in beam:
                each.blank, each.token = each.total, NEVER
            continue
        stayed = {old.tokens: _stayed(old, labels) for old in beam}
        longer: list[_Hypothesis] = []
        for old in beam:
            if old.last == EOS:  # behind it, there is nothing but the same EOS
                continue
            for label, score in labels.items():
                log_prob = score + (old.blank if label == old.last else old.total)
                if label == BLANK or log_prob < NEVER / 2:
                    continue
                if same := stayed.get((*old.tokens, label)):
                    same.token = _plus(same.token, log_prob)
                else:
                    longer.append(_extended(old, label, log_prob, fusion))
        longer += stayed.values()
        for each in longer:
            each.total = _plus(each.blank, each.token)
        possible = [each for each in longer if each.total > NEVER / 2]
        beam = sorted(possible, key=lambda each: -each.total - each.bonus)[: fusion.beam]
    return list(beam[0].tokens)


def _stayed(old: _Hypothesis, labels: dict[int, float]) -> _Hypothesis:
    """The same prefix, after a place that writes nothing new."""
    blank = NEVER if old.last == EOS else old.total + labels.get(BLANK, NEVER)
    token = old.token + labels.get(old.last, NEVER)
    return _Hypothesis(old.tokens, old.state, old.bonus, blank, token)


def _extended(old: _Hypothesis, token: int, log_prob: float, fusion: Fusion[NgramModel]) -> _Hypothesis:
    cost, state = fusion.model.step(old.state, token)
    return _Hypothesis((*old.tokens, token), state, old.bonus + fusion.bonus(cost), NEVER, log_prob)


def _likely(logits: Float[np.ndarray, "p v"], pieces: Int[np.ndarray, " v"] | None) -> list[dict[int, float]]:
    """The labels of each place whose logits are within `MARGIN` of the best one, less that one; the best first.

    Every way through the lattice has a label at each place, so what all labels of a place share makes no difference.
    """
    pieces = np.arange(logits.shape[1]) if pieces is None else pieces
    top = logits.argmax(1)
    if not _FORBIDDEN.isdisjoint(pieces[top].tolist()):  # hardly ever
        logits = np.where(np.isin(pieces, list(_FORBIDDEN)), -np.inf, logits)
        top = logits.argmax(1)
    best = np.take_along_axis(logits, top[:, None], 1)
    places, columns = np.divmod(np.flatnonzero(logits > best - MARGIN), logits.shape[1])
    scores, labels = (logits[places, columns] - best[places, 0]).tolist(), pieces[columns]
    found: list[list[tuple[float, int]]] = [[] for _ in logits]
    for place, label, score in zip(places.tolist(), labels.tolist(), scores, strict=True):
        if label not in _FORBIDDEN:
            found[place].append((score, label))
    likely = [{label: score for score, label in sorted(each, key=_by_score)[:MAX_LABELS]} for each in found]
    ends = True
    for labels_here in reversed(likely):
        ends = ends and EOS in labels_here
        if not ends:  # EOS is the label of the last places, or of none
            labels_here.pop(EOS, None)
    return [labels_here or {BLANK: 0.0} for labels_here in likely]


def _by_score(pair: tuple[float, int]) -> tuple[float, int]:
    return -pair[0], pair[1]


def _plus(a: float, b: float) -> float:
    """log(eᵃ + eᵇ)."""
    if a < b:
        a, b = b, a
    return a + math.log1p(math.exp(b - a)) if b > a - 40 else a
