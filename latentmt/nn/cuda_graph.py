"""torch.compile and CUDA graphs, for functions that are called many times with the same shapes.

A function captured as a CUDA graph is launched as a whole. This file does not know what the function computes.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, ParamSpec, TypeVar

import torch

WARM_UP = 2
"""Calls before the capture, in which kernels are compiled and selected and memory is allocated."""
MAX_RECOMPILES = 64
"""The maximum number of compilations of the same source code."""
BACKEND = "inductor"
"""The backend of torch.compile."""

_RECORDING = threading.Lock()
"""One capture at a time."""

P = ParamSpec("P")
T = TypeVar("T")


def compiled(function: Callable[P, T], dynamic: bool = False) -> Callable[P, T]:
    """The function compiled as one graph, for the shapes of its first call or for varying shapes."""
    import torch._dynamo.config

    # Closures of the same source code count as one function in torch's limit.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MAX_RECOMPILES)
    compiled: Callable[P, T] = torch.compile(function, fullgraph=True, dynamic=dynamic, backend=BACKEND)
    return compiled


@dataclass(frozen=True)
class CapturedGraph(Generic[T]):
    """A captured CUDA graph."""

    replay: Callable[[], None]
    """Run it again, on the same tensors."""
    result: T
    """The return value of the captured function: tensors that every replay overwrites."""


def capture(
    work: Callable[[], T], device: torch.device, undo: Callable[[], object] = lambda: None, pool: Any = None
) -> CapturedGraph[T]:
    """Capture a function as a CUDA graph. Its input tensors must stay allocated.

    The function is called a few times to warm up, then `undo` is called, then the graph is captured, which computes
    nothing. Graphs with the same memory `pool` share intermediate memory and must not be replayed at the same time.
    """
    with _RECORDING, torch.cuda.device(device):
        stream = _side_stream(device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), warnings.catch_warnings():
            # The mean and scale of a latent are computed in fp32 on purpose. It is a small part of the work.
            warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
            for _ in range(WARM_UP):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        undo()
        graph = torch.cuda.CUDAGraph()
        # Another thread may pin memory meanwhile, which must not abort the capture.
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            result = work()
    return CapturedGraph(graph.replay, result)


@lru_cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all captures: libraries keep a workspace for every stream."""
    return torch.cuda.Stream(device)
