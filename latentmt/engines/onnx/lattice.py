"""The lattice of CTC in numpy, for rows of one sentence each: see `nn/lattice.py`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from latentmt.engines.onnx.tokens import Layout, Tokens

NEVER = -1e30
"""The log-probability of what cannot happen. Finite, so that sums of it are no NaN."""

States = Float[np.ndarray, "n p s"]
"""Of each place: values of the blank before each token and of the token, in turn."""


@dataclass(frozen=True)
class Lattice:
    """The log-probabilities of states at places. States 2u and 2u + 1 are the blank before token u and the token."""

    places: Layout
    target: Tokens
    emission: States
    """Of a place's label, given the state; `NEVER` at padding."""
    before: States
    """Of all labels up to the place before, and of being in the state now."""
    plus: np.ufunc
    """What joins the ways to a state."""

    @staticmethod
    def walk(scores: Float[np.ndarray, "n p labels"], places: Layout, target: Tokens, best: bool = False) -> Lattice:
        """`scores`: the log-probability of each token at each place, and behind them that of a blank.

        `best`: take the likeliest way to a state instead of the sum over all ways.
        """
        plus = np.maximum if best else np.logaddexp
        blank = np.broadcast_to(scores[..., -1:], scores[..., :-1].shape)
        own = places.real[:, :, None] & target.layout.real[:, None, :]
        pairs = np.where(own[..., None], np.stack((blank, scores[..., :-1]), 3, dtype=np.float64), NEVER)
        emission = pairs.reshape(*pairs.shape[:2], -1)
        before, skip = np.empty_like(emission), _skip(target)
        before[:, 0] = np.where(np.arange(emission.shape[2]) < 2, 0.0, NEVER)
        for place in range(1, emission.shape[1]):
            reached = before[:, place - 1] + emission[:, place - 1]
            stepped, skipped = _shifted(reached, 1), _shifted(reached, 2)
            before[:, place] = plus(plus(reached, stepped), skipped + skip)
        return Lattice(places, target, emission, before, plus)

    def log_prob(self) -> Float[np.ndarray, " n"]:
        """log p of each target; −∞ if it cannot be written."""
        rows, last = np.arange(len(self.emission)), self.places.lengths - 1
        total = (self.before + self.emission)[rows, last, 2 * self.target.layout.lengths - 1]
        return np.where(total < NEVER / 2, -np.inf, total)

    def prefix_log_prob(self) -> Float[np.ndarray, "n t"]:
        """log p that a target begins with its tokens up to each one, whatever follows."""
        reached = (self.before + self.emission)[:, :-1]
        previous = _shifted(reached[..., 1::2], 1) + _skip(self.target)[:, None, 1::2]
        entered = np.concatenate((self.before[:, :1, 1::2], np.logaddexp(reached[..., 0::2], previous)), 1)
        return np.logaddexp.reduce(entered + self.emission[..., 1::2], 1)

    def posterior(self) -> Float[np.ndarray, "n p t"]:
        """The probability that a place writes a token, given the target; zero if it cannot be written."""
        joint = self.before + self.emission + self._after()
        share = np.exp(joint - joint.max(2, keepdims=True))
        share /= share.sum(2, keepdims=True)
        possible = self.places.real & np.isfinite(self.log_prob())[:, None]
        return np.where(possible[..., None], share[..., 1::2], 0.0)

    def best_label(self) -> Int[np.ndarray, "n p"]:
        """Which label each place has on the likeliest way, in the order of the scores. For a `best` lattice."""
        state = (self.before + self.emission + self._after()).argmax(2)
        return np.where(state % 2 == 1, state // 2, self.emission.shape[2] // 2)

    def _after(self) -> States:
        """The log-probability of all labels from the place behind on, given the state."""
        width, rows = self.emission.shape[1], np.arange(len(self.emission))
        end = np.full_like(self.emission[:, 0], NEVER)
        end[rows, 2 * self.target.layout.lengths - 1] = 0.0
        after, skip = np.empty_like(self.emission), _skip(self.target)
        for place in reversed(range(width)):
            follows = after[:, place + 1] + self.emission[:, place + 1] if place + 1 < width else end
            moved = self.plus(follows, _shifted(follows, -1))
            moved = self.plus(moved, _shifted(follows + skip, -2))
            after[:, place] = np.where(self.places.lengths[:, None] == place + 1, end, moved)
        return after


def _skip(target: Tokens) -> Float[np.ndarray, "n s"]:
    """0 if the blank before a token may be left out on the way from another token, else `NEVER`."""
    allowed: Bool[np.ndarray, "n t"] = np.zeros(target.ids.shape, dtype=bool)
    allowed[:, 1:] = target.ids[:, 1:] != target.ids[:, :-1]
    return np.where(np.stack((np.zeros_like(allowed), allowed), 2), 0.0, NEVER).reshape(len(allowed), -1)


def _shifted(values: Float[np.ndarray, "*b s"], by: int) -> Float[np.ndarray, "*b s"]:
    """Moved to the right, or with a negative number to the left; `NEVER` where nothing comes from."""
    moved = np.full_like(values, NEVER)
    if by > 0:
        moved[..., by:] = values[..., :-by]
    else:
        moved[..., :by] = values[..., -by:]
    return moved
