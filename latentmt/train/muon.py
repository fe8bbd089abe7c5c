"""Muon: momentum whose matrices are made orthogonal before they are applied (Jordan et al., 2024).

A step has the same size in all directions of a matrix, also in those in which gradients are small. It is for the
matrices of layers; embeddings, norms, biases and heads are left to Adam. A step is scaled to the root mean square that
Adam's steps have (Liu et al., 2025), so a learning rate means the same for both. Nothing here synchronises with the
device.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentmt.nn.attention import PackedLinear

MOMENTUM = 0.95
ADAM_RMS = 0.2
"""The root mean square of an entry of Adam's steps, in units of the learning rate."""
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration. It takes singular values to between 0.7 and 1.2, soon rather than exactly."""
ITERATIONS = 5


def orthogonalised(matrices: Float[Tensor, "b n m"], dtype: torch.dtype) -> Float[Tensor, "b n m"]:
    """U Vᵀ of each matrix U S Vᵀ, about, by the Newton–Schulz iteration x ← a x + (b A + c A²) x, where A = x xᵀ."""
    a, b, c = COEFFICIENTS
    wide = matrices.shape[1] <= matrices.shape[2]
    x = (matrices if wide else matrices.mT).to(dtype)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = a * x + (b * square + c * (square @ square)) @ x
    result: Tensor = (x if wide else x.mT).to(matrices.dtype)
    return result


class Muon:
    """The matrices of a network's layers and their momenta. Blocks of one size are one batch."""

    def __init__(self, network: nn.Module, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._groups: dict[tuple[int, int], list[tuple[Tensor, int]]] = defaultdict(list)
        for module in network.modules():
            if isinstance(module, PackedLinear) and module.weight.requires_grad:
                shape = module.out_features // module.blocks, module.in_features
                self._groups[shape].append((module.weight, module.blocks))
        self.parameters = [weight for group in self._groups.values() for weight, _ in group]
        self.momenta: dict[Tensor, Tensor] = {weight: torch.zeros_like(weight) for weight in self.parameters}

    @torch.no_grad()
    def step(self, learning_rate: Float[Tensor, ""], divisor: Float[Tensor, ""], not_finite: Float[Tensor, ""]) -> None:
        """Update the weights by their gradients, divided; or nothing, where these are not finite."""
        skip = not_finite > 0
        for shape, group in self._groups.items():
            blocks = [count for _, count in group]
            gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight, _ in group]
            old = [self.momenta[weight] for weight, _ in group]
            gradient, before = (torch.cat([each.view(-1, *shape) for each in some]) for some in (gradients, old))
            gradient = torch.where(skip, 0.0, gradient / divisor)
            momentum = torch.where(skip, before, before.lerp(gradient, 1 - MOMENTUM))
            direction = orthogonalised(gradient.lerp(momentum, MOMENTUM), self._dtype)  # Nesterov's
            change = torch.where(skip, 0.0, direction * (-ADAM_RMS * max(shape) ** 0.5 * learning_rate))
            for (weight, _), new, difference in zip(group, momentum.split(blocks), change.split(blocks), strict=True):
                self.momenta[weight].copy_(new.view_as(weight))
                weight.add_(difference.view_as(weight))
