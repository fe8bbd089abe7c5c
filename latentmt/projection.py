"""The two directions in which a sentence's latents move most, for drawing them; and a grid to look around on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from latentmt.results import SentenceTrace

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Projection:
    """Two orthonormal directions of the latent space."""

    axes: Array
    """Two rows."""
    explained: float
    """The share of all squared movement that lies in this plane."""

    @staticmethod
    def from_trace(trace: SentenceTrace) -> Projection:
        """The plane that holds most of what refinement moved; where nothing moved, most of where tokens began."""
        path = np.array([step.z for step in trace.steps], dtype=np.float64)
        dim = path.shape[2]
        if dim <= 2:
            return Projection(np.eye(2, dim), 1.0)
        moves = (path[1:] - path[:1]).reshape(-1, dim)
        if not moves.any():
            moves = path[0] - path[0].mean(0)
        _, size, axes = np.linalg.svd(np.concatenate((moves, np.zeros((2, dim)))), full_matrices=False)
        largest = np.abs(axes[:2]).argmax(1)
        axes = axes[:2] * np.sign(axes[(0, 1), largest])[:, None]  # an axis has no sign of its own
        total = np.square(size).sum()
        return Projection(axes, float(np.square(size[:2]).sum() / total) if total else 1.0)

    def project(self, z: Any) -> Array:
        """Where latents lie in the plane."""
        return np.asarray(z, dtype=np.float64) @ self.axes.T

    def lift(self, points: Array, through: Any) -> Array:
        """The latents at points of the plane that is shifted so as to go through one of them."""
        through = np.asarray(through, dtype=np.float64)
        lifted: Array = through + (points - self.project(through)) @ self.axes
        return lifted


def grid_around(points: Any, side: int, margin: float) -> Array:
    """A square grid around points: rows y, columns x, then both coordinates. The margin is a share of its extent."""
    points = np.asarray(points, dtype=np.float64)
    low, high = points.min(0), points.max(0)
    half = (0.5 + margin) * max(float((high - low).max()), 0.2)
    x, y = (np.linspace(middle - half, middle + half, side) for middle in (low + high) / 2)
    return np.stack(np.meshgrid(x, y, indexing="xy"), axis=-1)
