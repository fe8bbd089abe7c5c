"""Delta inference as a field (Shu et al., 2020). The latent model itself gives the direction; nothing is learned."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentmt.fields.base import Context, Field, FieldType, Style
from latentmt.options import HINTS


class Delta(FieldType):
    """posterior_mean(argmax p(y|z,x)) − z. A step of size 1 lands on that mean."""

    name = "delta"
    style = Style("delta", "#0072B2", "X")
    hint = HINTS["delta"]

    def bind(self, context: Context, network: nn.Module | None = None) -> Field:
        model, layout = context.model, context.layout
        with torch.no_grad():
            decoder = context.decoder or model.decoder_stack.project_kv(context.source)
            posterior = model.posterior_stack.project_kv(context.source)

        @torch.no_grad()
        def field(z: Float[Tensor, "r t D"]) -> Float[Tensor, "r t D"]:
            target = model.read(z, layout, decoder, context.fusion)
            return (model.posterior(target, layout, posterior).mean - z).masked_fill(~layout.real[..., None], 0.0)

        return field


DELTA = Delta()
