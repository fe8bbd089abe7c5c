"""What makes a step fast on a GPU: compiled functions, and the whole step recorded once as a CUDA graph and replayed.

Both need every batch in the same shape, which packed rows have. It knows nothing of what a step does.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

WARM_UP = 2
"""Steps before the recording: kernels are compiled and chosen, and memory is laid out, in the first ones."""
BACKEND = "inductor"
"""What torch compiles with."""

P = ParamSpec("P")
T = TypeVar("T")


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """The function compiled as one piece, for arguments of the shapes it is first called with."""
    compiled: Callable[P, T] = torch.compile(function, fullgraph=True, dynamic=False, backend=BACKEND)
    return compiled


def record(step: Callable[[], None], undo: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A step as a graph, whose `replay` does to the same tensors what the step would do.

    A few steps are made for real before the recording, in which nothing is computed; `undo` is called after them.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), warnings.catch_warnings():
        # A latent's mean and scale are read off in true fp32 on purpose; it is a small part of the work.
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    undo()
    graph = torch.cuda.CUDAGraph()
    # Another thread pins the next batches meanwhile, which must not end the recording.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        step()
    return graph
