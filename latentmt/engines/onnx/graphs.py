"""The graphs of a bundle, run by onnxruntime on a CPU. A graph is checked and loaded when it is first run.

Graphs hold no weights. They get those of the bundle. What they return is checked, since they may come from anybody.
May be used from several threads at once.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import onnxruntime
from onnxruntime import OrtValue
from pydantic import Field

from latentmt.bundle import Bundle
from latentmt.config import Section, from_dict
from latentmt.engines.backend import CheckCancelled, never_cancelled
from latentmt.engines.load import GRAPHS_FILE
from latentmt.engines.onnx.check import check_graph
from latentmt.engines.onnx.cpu import saturates
from latentmt.engines.onnx.weights import Array, Weights
from latentmt.errors import UserError
from latentmt.options import MAX_UPSAMPLING

Input = Any
"""An array or an `OrtValue`, which is not copied."""
Shape = tuple[int | None, ...]
"""The shape of an output. None: any size."""
_TYPES = ("tensor(float)", "tensor(int64)")


@dataclass(frozen=True, kw_only=True)
class GraphIndex(Section):
    """graphs.json: what the graphs of a bundle need."""

    weights: dict[str, list[str]]
    """The weights of each graph (`weights.py`)."""
    hint: Annotated[str, Field(pattern="^[^\x00-\x1f\x7f]{0,200}$")] = ""
    """What a field does, in a few words."""
    upsampling: Annotated[int, Field(ge=1, le=MAX_UPSAMPLING)] | None = None
    """Of a latent model with CTC: places for each source token. Without it there is a place for each target token."""


class Graphs:
    """The graphs of one network. `threads`: those of one call."""

    def __init__(self, bundle: Bundle, threads: int = 1, seven_bits: bool | None = None) -> None:
        self._bundle, self._threads = bundle, threads
        self.index = _index(bundle)
        self._weights = Weights(bundle, saturates() if seven_bits is None else seven_bits)
        self._sessions: dict[str, onnxruntime.InferenceSession] = {}
        self._lock = threading.Lock()
        self._check: CheckCancelled = never_cancelled

    def checked(self, check: CheckCancelled) -> Graphs:
        """The same graphs, with a check before each run."""
        graphs = copy.copy(self)
        graphs._check = check
        return graphs

    def require(self, *names: str) -> None:
        """Check that there are graphs of these names."""
        for name in names:
            if name not in self.index.weights or self.path(name).name not in self._bundle.about.files:
                raise UserError(f"{self._bundle.folder}: has no graph {name}")

    def run(self, name: str, inputs: Mapping[str, Input], *shapes: Shape) -> list[OrtValue]:
        """The outputs of a graph, in its order, which must have these shapes."""
        self._check()
        session = self._sessions.get(name) or self._load(name)
        values = {
            key: value if isinstance(value, OrtValue) else OrtValue.ortvalue_from_numpy(value)
            for key, value in inputs.items()
        }
        try:
            outputs: list[OrtValue] = session.run_with_ort_values(None, values)
        except Exception as error:  # onnxruntime has no common class of its errors
            raise self._not_run(name, error) from None
        if len(outputs) != len(shapes) or not all(map(_fits, outputs, shapes)):
            found = ", ".join(str(value.shape()) if value.is_tensor() else "no tensor" for value in outputs)
            expected = ", ".join(str(list(shape)) for shape in shapes)
            raise UserError(f"{self.path(name)}: returns {found[:200]}, where {expected} is expected")
        return outputs

    def arrays(self, name: str, inputs: Mapping[str, Input], *shapes: Shape) -> list[Array]:
        """The outputs of a graph as arrays."""
        return [value.numpy() for value in self.run(name, inputs, *shapes)]

    def _load(self, name: str) -> onnxruntime.InferenceSession:
        with self._lock:
            if name not in self._sessions:
                self._sessions[name] = self._session(name)
            return self._sessions[name]

    def _session(self, name: str) -> onnxruntime.InferenceSession:
        needed, content = self.index.weights[name], self._bundle.read(self.path(name).name)
        check_graph(content, frozenset(needed), str(self.path(name)))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what is wrong is in the error
        options.intra_op_num_threads, options.inter_op_num_threads = self._threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # spinning slows a busy machine down
        values = [OrtValue.ortvalue_from_numpy(self._weights[weight]) for weight in needed]
        try:
            options.add_external_initializers(needed, values)  # which it copies
            return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise self._not_run(name, error) from None

    def _not_run(self, name: str, error: Exception) -> UserError:
        reason = " ".join(str(error).split())
        return UserError(f"{self.path(name)}: cannot be run ({reason[:200]})")

    def path(self, name: str) -> Path:
        """The file of a graph."""
        return self._bundle.folder / f"{name}.onnx"


def _index(bundle: Bundle) -> GraphIndex:
    where = str(bundle.folder / GRAPHS_FILE)
    try:
        values = json.loads(bundle.read(GRAPHS_FILE))
    except (ValueError, RecursionError):
        raise UserError(f"{where}: not JSON") from None
    return from_dict(values, GraphIndex, where)


def _fits(value: OrtValue, shape: Shape) -> bool:
    """Whether an output is a tensor of numbers with this shape."""
    if not value.is_tensor() or value.data_type() not in _TYPES:
        return False
    found = value.shape()
    return len(found) == len(shape) and all(size in (None, actual) for size, actual in zip(shape, found, strict=True))
