"""CTC by other means: torch's own loss, and collapsing in plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from latentmt.data.tokenizer import BLANK, EOS


def collapsed(labels: Sequence[int]) -> list[int]:
    """Repetitions removed, then blanks."""
    return [label for label, _ in itertools.groupby(labels) if label != BLANK]


def read_alone(logits: Tensor) -> list[int]:
    """What one sentence's places write. The last place is EOS's."""
    return collapsed([*logits.argmax(-1).tolist()[:-1], EOS])


def nll_alone(log_prob: Tensor, tokens: Sequence[int]) -> Tensor:
    """−log p of one sentence by torch's loss, less the ways that end in a blank: those of one place less, and a blank.

    (torch's gradient is right only for what sums to one, so the last place's blank cannot just be forbidden.)
    """

    def loss(size: int) -> Tensor:
        sizes = torch.tensor([size]), torch.tensor([len(tokens)])
        return F.ctc_loss(log_prob[:size, None], torch.tensor([list(tokens)]), *sizes, blank=BLANK, reduction="sum")

    size = len(log_prob)
    if size == 1 or loss(size - 1) == torch.inf:
        return loss(size)
    return -((-loss(size)).exp() - (log_prob[-1, BLANK] - loss(size - 1)).exp()).log()
