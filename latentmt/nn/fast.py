"""What makes the same work fast when it is done again and again in the same shape: compiling it, and recording it.

On a GPU, work that is recorded once as a CUDA graph is launched as a whole. It knows nothing of what the work is.
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
"""Times the work is done before the recording: kernels are compiled and chosen, and memory is laid out, at first."""
MOST_COMPILED = 64
"""How often the same piece of source may be compiled."""
BACKEND = "inductor"
"""What torch compiles with."""

_RECORDING = threading.Lock()
"""One recording at a time."""

P = ParamSpec("P")
T = TypeVar("T")


def compiled(function: Callable[P, T], shapes_vary: bool = False) -> Callable[P, T]:
    """The function compiled as one piece, for arguments of the shapes it is first called with, or for any."""
    import torch._dynamo.config

    # Several functions may be made by one piece of source, as closures are; torch counts them as one.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MOST_COMPILED)
    compiled: Callable[P, T] = torch.compile(function, fullgraph=True, dynamic=shapes_vary, backend=BACKEND)
    return compiled


@dataclass(frozen=True)
class Recording(Generic[T]):
    """Work that has been recorded."""

    replay: Callable[[], None]
    """Do it again, on the same tensors."""
    result: T
    """What it returns: tensors that every replay writes anew."""


def record(
    work: Callable[[], T], device: torch.device, undo: Callable[[], object] = lambda: None, pool: Any = None
) -> Recording[T]:
    """Record work on a GPU as a CUDA graph. What it reads must stay where it is.

    It is done a few times before the recording, in which nothing is computed; `undo` is called after those. Recordings
    with the same memory `pool` share what they use in between, and must not be replayed at the same time.
    """
    with _RECORDING, torch.cuda.device(device):
        stream = _side_stream(device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), warnings.catch_warnings():
            # A latent's mean and scale are read off in true fp32 on purpose; it is a small part of the work.
            warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
            for _ in range(WARM_UP):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        undo()
        graph = torch.cuda.CUDAGraph()
        # Another thread may pin memory meanwhile, which must not end the recording.
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            result = work()
    return Recording(graph.replay, result)


@lru_cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all recordings: libraries keep a workspace for every stream they have seen."""
    return torch.cuda.Stream(device)
