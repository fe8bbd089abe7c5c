"""The lattice of CTC: the ways in which the places of a sentence write its tokens (Graves et al., 2006).

Each place has a label: a token or a blank. Of equal labels at adjacent places only the first counts, and then no blank
does. So between two equal tokens there must be a blank. A sentence's last token is the label of its last place, so
there is no blank behind it.

Every token has two states: the blank before it, and itself. A row may hold several sentences, whose places visit only
their own states. All are walked through at once, place by place, forwards and backwards in the same loop. Its length is
that of the rows, nothing synchronises with the device, and nothing is differentiated through.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentmt.data.tokens import changes
from latentmt.nn.fused import HAS_TRITON

MAX_STATES = 2048
"""The kernel holds the states of a row in registers, up to this number."""
NEVER = -1e30
"""The log-probability of what cannot happen. Finite, so that sums of it are no NaN."""


@dataclass(frozen=True)
class Lattice:
    """The log-probabilities of states at places. States 2u and 2u + 1 are the blank before token u and the token."""

    emission: Float[Tensor, "r p s"]
    """Of a place's label, given the state; `NEVER` if the state is of another sentence."""
    before: Float[Tensor, "r p s"]
    """Of all labels of the sentence up to the place before, and of being in the state now."""
    after: Float[Tensor, "r p s"]
    """Of all labels of the sentence from the place behind on, given the state."""
    starts: Bool[Tensor, "r p"]
    """The first places of sentences."""
    skip: Float[Tensor, "r s"]
    """0 if the blank before a token may be left out, else `NEVER`."""

    @staticmethod
    def walk(
        scores: Float[Tensor, "r p labels"],
        places: Int[Tensor, "r p"],
        ids: Int[Tensor, "r t"],
        tokens: Int[Tensor, "r t"],
        best: bool = False,
    ) -> Lattice:
        """The lattice of rows of sentences. `places` and `tokens` are segments, as in a layout.

        `scores`: the log-probability of each token of the row at each place, and behind them that of a blank. `best`:
        take the likeliest way to a state instead of the sum over all ways.
        """
        own = (places[:, :, None] == tokens[:, None, :]) & (places > 0)[:, :, None]
        blank = scores[..., -1:].expand_as(own)
        emission = torch.stack((blank, scores[..., :-1]), 3).masked_fill(~own[..., None], NEVER).flatten(2)
        different = ids[:, 1:] != ids[:, :-1]
        skip = _token_states(F.pad(different, (1, 0)))
        enter = _allowed(changes(tokens).repeat_interleave(2, 1))
        starts, ends = changes(places), changes(places.flip(1))
        # Walking backwards is walking forwards through the flipped lattice, from the last token on.
        leave = _token_states(changes(tokens.flip(1)).flip(1)).flip(1)
        skip_back = _token_states(F.pad(different, (0, 1))).flip(1)
        both = _arrivals(
            torch.cat((emission, emission.flip(1, 2))),
            torch.cat((starts, ends)),
            torch.cat((enter, leave)).to(emission.dtype),
            torch.cat((skip, skip_back)).to(emission.dtype),
            best,
        )
        before, after = both.chunk(2)
        return Lattice(emission, before, after.flip(1, 2), starts, skip)

    @property
    def _joint(self) -> Float[Tensor, "r p s"]:
        """Of the whole sentence and of being in a state at a place."""
        return self.before + self.emission + self.after

    def log_prob(self) -> Float[Tensor, "r p"]:
        """log p of each place's sentence; −∞ if it cannot be written, or if there is none."""
        total = self._joint.logsumexp(2)
        return total.masked_fill(total < NEVER / 2, -torch.inf)

    def posterior(self) -> Float[Tensor, "r p labels"]:
        """The probability of each label at each place, given the sentence, in the order of the scores."""
        state = self._joint.softmax(2)
        return torch.cat((state[..., 1::2], state[..., 0::2].sum(2, keepdim=True)), 2)

    def best_label(self) -> Int[Tensor, "r p"]:
        """Which label each place has on the likeliest way, in the order of the scores. For a `best` lattice."""
        state = self._joint.argmax(2)
        return torch.where(state % 2 == 1, state // 2, self.emission.shape[2] // 2)

    def prefix_log_prob(self) -> Float[Tensor, "r t"]:
        """log p that a sentence begins with its tokens up to each one, whatever follows."""
        reached = F.pad((self.before + self.emission)[:, :-1], (0, 0, 1, 0), value=NEVER)
        previous = F.pad(reached[..., 1::2], (1, -1), value=NEVER) + self.skip[:, None, 1::2]
        entered = torch.logaddexp(reached[..., 0::2], previous)
        entered = torch.where(self.starts[..., None], self.before[..., 1::2], entered)
        return (entered + self.emission[..., 1::2]).logsumexp(1)


def _arrivals(
    emission: Float[Tensor, "r p s"],
    starts: Bool[Tensor, "r p"],
    enter: Float[Tensor, "r s"],
    skip: Float[Tensor, "r s"],
    best: bool,
) -> Float[Tensor, "r p s"]:
    """The log-probability of being in a state at a place and of all labels before it, by the forward recursion."""
    if HAS_TRITON and emission.is_cuda and emission.dtype == torch.float32 and emission.shape[2] <= MAX_STATES:
        from latentmt.nn import lattice_kernel

        run = lattice_kernel.arrivals_op if torch.compiler.is_compiling() else lattice_kernel.arrivals
        return run(emission, starts, enter, skip, best, NEVER)
    plus = torch.maximum if best else torch.logaddexp
    reached, arrivals = torch.full_like(enter, NEVER), []
    for start, label in zip(starts.unbind(1), emission.unbind(1), strict=True):
        stepped, skipped = (F.pad(reached, (far, -far), value=NEVER) for far in (1, 2))
        arrival = torch.where(start[:, None], enter, plus(plus(reached, stepped), skipped + skip))
        arrivals.append(arrival)
        reached = arrival + label
    return torch.stack(arrivals, 1)


def _allowed(mask: Bool[Tensor, "r s"]) -> Float[Tensor, "r s"]:
    """0 where it is true, `NEVER` elsewhere."""
    return torch.zeros_like(mask, dtype=torch.float32).masked_fill(~mask, NEVER)


def _token_states(mask: Bool[Tensor, "r t"]) -> Float[Tensor, "r s"]:
    """0 at the states of these tokens, `NEVER` at blanks and other tokens."""
    return _allowed(torch.stack((torch.zeros_like(mask), mask), 2).flatten(1))
