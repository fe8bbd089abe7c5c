"""Glancing in the latent: places that the decoder is given posterior latents of, while it learns the others.

A first guess, decoded from the prior's mode, is compared with the target. The more of its places are wrong, the more
are given the posterior's latents; the others keep the prior's. So the decoder learns to write a place from the prior's
latent there and from good latents around it, and is given less the better it gets (Qian et al., 2021, who give
embedded tokens). Nothing here synchronises with the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from latentmt.config import Section
from latentmt.data.tokens import Layout

Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, kw_only=True)
class GlancingConfig(Section):
    """How much is given, and how much it counts."""

    weight: Annotated[float, Field(gt=0)] = 1.0
    """The weight of the loss of the other places, beside the ELBO."""
    ratio: Share = 0.5
    """The number of places that are given, as a share of the wrong ones, at the beginning of training, …"""
    ratio_end: Share = 0.3
    """… and at its end. In between it changes linearly."""

    def ratio_at(self, step: int, total: int) -> float:
        """The ratio at a step of a run."""
        return self.ratio + (self.ratio_end - self.ratio) * min(step / total, 1.0)


def given_places(wrong: Bool[Tensor, "r p"], places: Layout, ratio: Float[Tensor, ""]) -> Bool[Tensor, "r p"]:
    """Places drawn at random, each with the same probability in a sentence: `ratio` times the share of wrong ones."""
    same = places.segment[:, :, None] == places.segment[:, None, :]
    share = (same & wrong[:, None]).sum(2) / same.sum(2)
    return torch.rand_like(share) < ratio * share
