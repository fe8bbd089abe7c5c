"""The plane in which a sentence's latents move, so that they can be drawn; of two dimensions it is the whole space.

And a grid in it, to look around on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from latentmt.results import SentenceTrace


@dataclass(frozen=True)
class Plane:
    """Two orthonormal directions of the latent space."""

    axes: Float[Tensor, "2 D"]
    seen: float
    """The share of all squared movement that lies in this plane."""

    @staticmethod
    def of(trace: SentenceTrace) -> Plane:
        """The plane that holds most of what refinement moved; where nothing moved, most of where tokens began."""
        path: Float[Tensor, "steps t D"] = torch.tensor([step.z for step in trace.steps], dtype=torch.float64)
        dim = path.shape[2]
        if dim <= 2:
            return Plane(torch.eye(2, dim, dtype=torch.float64), 1.0)
        moves = (path[1:] - path[:1]).flatten(0, 1)
        if not moves.any():
            moves = path[0] - path[0].mean(0)
        _, size, axes = torch.linalg.svd(torch.cat((moves, moves.new_zeros(2, dim))), full_matrices=False)
        axes = axes[:2] * axes[:2].gather(1, axes[:2].abs().argmax(1, keepdim=True)).sign()  # an axis has no sign
        total = size.square().sum()
        return Plane(axes, float(size[:2].square().sum() / total) if total else 1.0)

    def flat(self, z: Float[Tensor, "*n D"]) -> Float[Tensor, "*n 2"]:
        """Where latents lie in the plane."""
        return z.to(self.axes) @ self.axes.T

    def lifted(self, points: Float[Tensor, "n 2"], through: Float[Tensor, " D"]) -> Float[Tensor, "n D"]:
        """The latents at points of the plane that is shifted so as to go through one of them."""
        through = through.to(self.axes)
        return through + (points - self.flat(through)) @ self.axes


def square(points: Float[Tensor, "n 2"], side: int, margin: float) -> Float[Tensor, "y x 2"]:
    """A grid around points, with equal scales, and room on each side: a share of their extent."""
    points = points.double().cpu()
    low, high = points.min(0).values, points.max(0).values
    half = (0.5 + margin) * (high - low).max().clamp(min=0.2)
    x, y = (torch.linspace(float(middle - half), float(middle + half), side) for middle in (low + high) / 2)
    return torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)
