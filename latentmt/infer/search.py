"""From an encoded source to a target: choose the length, start the latent, refine it, read off the tokens.

It takes the refining field as it is given and knows nothing of text.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from latentmt.data.tokens import Layout, Tokens
from latentmt.infer.refine import Field, decode_tokens, refine
from latentmt.models.latent import LENGTH_LIMIT, LatentModel
from latentmt.nn.attention import Source, segment_lengths

MakeField = Callable[[Source, Layout], Field]
"""Binds a field to a source and a layout of targets."""


def predict_lengths(model: LatentModel, source: Source, limit: int) -> Int[Tensor, " r"]:
    """The most likely target length of each row's one sentence, from 1 to `limit`."""
    difference = model.length(source, 1)[:, 0].argmax(-1) - LENGTH_LIMIT
    return (segment_lengths(source.segment, 1)[:, 0] + difference).clamp(1, limit)


@torch.no_grad()
def translate_tokens(
    model: LatentModel, source: Tokens, make_field: MakeField | None, steps: int, limit: int
) -> Tokens:
    """The most likely targets after refining the prior's mean (the paper's Algorithm 1); one sentence a row."""
    encoded = model.encode(source)
    lengths = predict_lengths(model, encoded, limit)
    layout = Layout.of_lengths(lengths, int(lengths.max()))
    z = model.prior(layout, model.prior_stack.remember(encoded)).mean
    if make_field and steps:
        z = refine(z, make_field(encoded, layout), steps)
    return decode_tokens(model, z, layout, model.decoder_stack.remember(encoded))
