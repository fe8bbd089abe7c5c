"""The output model of one token per position."""

from __future__ import annotations

import torch
from batches import VOCABULARY, packed

from latentmt.data.tokenizer import PAD
from latentmt.data.tokens import Tokens
from latentmt.models.outputs import OutputConfig, TokenOutput
from latentmt.nn.positions import Embedding
from latentmt.nn.transformer import StackSize


def test_the_read_tokens_are_the_most_likely_ones_and_padding_does_not_count() -> None:
    torch.manual_seed(1)
    output, embedding = TokenOutput(OutputConfig(), StackSize(16, 16, 1, 1), 16), Embedding(VOCABULARY, 16, dropout=0.0)
    layout = packed().target.layout
    states = 3 * torch.randn(*layout.segment.shape, 16)
    read = output.read(states, layout, embedding)
    every_id = torch.arange(VOCABULARY)[:, None, None].expand(-1, *layout.segment.shape)
    log_probs = torch.stack([output.log_prob(states, layout, embedding, Tokens(ids, layout)) for ids in every_id])
    real = layout.real
    assert torch.equal(read.ids[real], log_probs.argmax(0)[real])
    torch.testing.assert_close(log_probs.exp().sum(0)[real], torch.ones(int(real.sum())))
    assert (read.ids[~real] == PAD).all()
    assert not log_probs[:, ~real].any()
