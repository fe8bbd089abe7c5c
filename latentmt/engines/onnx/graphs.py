"""The graphs of a bundle, run by onnxruntime on a CPU. A graph is loaded when it is first run.

Graphs hold no weights. They get those of the bundle. May be used from several threads at once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnxruntime
from onnxruntime import OrtValue

from latentmt.bundle import Bundle
from latentmt.config import Section, from_dict
from latentmt.engines.load import GRAPHS_FILE
from latentmt.engines.onnx.cpu import saturates
from latentmt.engines.onnx.weights import Array, Weights
from latentmt.errors import UserError

Input = Any
"""An array or an `OrtValue`, which is not copied."""


@dataclass(frozen=True, kw_only=True)
class GraphIndex(Section):
    """graphs.json: what the graphs of a bundle need."""

    weights: dict[str, list[str]]
    """The weights of each graph (`weights.py`)."""
    hint: str = ""
    """What a field does, in a few words."""


class Graphs:
    """The graphs of one network. `threads`: those of one call."""

    def __init__(self, bundle: Bundle, threads: int = 1, seven_bits: bool | None = None) -> None:
        self._bundle, self._threads = bundle, threads
        self.index = from_dict(json.loads(bundle.read(GRAPHS_FILE)), GraphIndex, str(bundle.folder / GRAPHS_FILE))
        self._weights = Weights(bundle, saturates() if seven_bits is None else seven_bits)
        self._sessions: dict[str, onnxruntime.InferenceSession] = {}
        self._lock = threading.Lock()

    def run(self, name: str, inputs: Mapping[str, Input]) -> list[OrtValue]:
        """The outputs of a graph, in its order."""
        session = self._sessions.get(name) or self._load(name)
        values = {
            key: value if isinstance(value, OrtValue) else OrtValue.ortvalue_from_numpy(value)
            for key, value in inputs.items()
        }
        outputs: list[OrtValue] = session.run_with_ort_values(None, values)
        return outputs

    def arrays(self, name: str, inputs: Mapping[str, Input]) -> list[Array]:
        """The outputs of a graph as arrays."""
        return [value.numpy() for value in self.run(name, inputs)]

    def _load(self, name: str) -> onnxruntime.InferenceSession:
        with self._lock:
            if name not in self._sessions:
                self._sessions[name] = self._session(name)
            return self._sessions[name]

    def _session(self, name: str) -> onnxruntime.InferenceSession:
        needed = self.index.weights[name]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self._threads, 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # spinning slows a busy machine down
        values = [OrtValue.ortvalue_from_numpy(self._weights[weight]) for weight in needed]
        options.add_external_initializers(needed, values)  # which it copies
        content = self._bundle.read(f"{name}.onnx")
        try:
            return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has no common class of its errors
            reason = " ".join(str(error).split())
            raise UserError(f"{self._bundle.folder / name}.onnx: cannot be run ({reason[:200]})") from None
