"""What output models add to the graphs: how lengths are predicted, and what the posterior reads.

`engines/onnx/outputs.py` does the rest on the host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from latentmt.errors import UserError
from latentmt.export.graph import INT64, GraphBuilder, Value
from latentmt.models.ctc import CTCOutput
from latentmt.models.latent import LatentModel
from latentmt.models.outputs import TokenOutput


class OutputGraphs(ABC):
    """The parts of an output model in a latent model's graphs."""

    upsampling: int | None = None
    """As in the index of the graphs."""

    @abstractmethod
    def lengths(self, graph: GraphBuilder, states: Value) -> None:
        """Add the logits of lengths to the outputs, if lengths are predicted. `states`: the encoder's."""

    @abstractmethod
    def posterior(self, graph: GraphBuilder, memory: Value, bias: Value) -> Value:
        """The states of the posterior's stack. `memory`: the source's keys and values; `bias`: that of the places."""


class TokenGraphs(OutputGraphs):
    """One token per place."""

    def __init__(self, model: LatentModel, output: TokenOutput) -> None:
        self._model, self._output = model, output

    def lengths(self, graph: GraphBuilder, states: Value) -> None:
        axes = graph.constant([0, 1], np.int64)
        if query := self._output.length_query:
            weights = graph.op("Softmax", graph.linear(query, states), axis=1)
            pooled = graph.op("ReduceSum", graph.op("Mul", weights, states), axes, keepdims=0)
        else:
            pooled = graph.op("ReduceMean", states, axes, keepdims=0)
        hidden = graph.op("Relu", graph.linear(self._output.length_hidden, pooled))
        graph.output("lengths", graph.linear(self._output.length_head, hidden))

    def posterior(self, graph: GraphBuilder, memory: Value, bias: Value) -> Value:
        return graph.decoder(self._model.posterior_stack, _target(graph, self._model), memory, bias)


class CTCGraphs(OutputGraphs):
    """Places that attend to the source and to the target, whose padding `target_bias` masks."""

    def __init__(self, model: LatentModel, output: CTCOutput) -> None:
        self._model, self._output, self.upsampling = model, output, output.upsampling

    def lengths(self, graph: GraphBuilder, states: Value) -> None:
        return None

    def posterior(self, graph: GraphBuilder, memory: Value, bias: Value) -> Value:
        target = graph.norm(self._output.target_norm, _target(graph, self._model))
        of_target = graph.linear(self._output.target_keys_values, target)
        stack, one = self._model.posterior_stack, graph.constant([1], np.int64)
        x, memory = graph.read_source(stack, graph.rows_of_positions(self._output.positions, bias), memory)
        rows = graph.op("Expand", memory, graph.op("Concat", graph.size(bias, 0), one, one, axis=0))
        joined = graph.op("Concat", rows, of_target, axis=1)
        # No token of the source is masked.
        zero, source = graph.constant([0], np.int64), graph.size(memory, 1)
        pads = graph.op("Concat", zero, zero, zero, source, zero, zero, zero, zero, axis=0)
        masked = graph.op("Pad", graph.input("target_bias", ("n", 1, "p", "t")), pads)
        return graph.decoder(stack, x, joined, bias, memory_bias=masked)


def output_graphs(model: LatentModel) -> OutputGraphs:
    """The parts of a model's output model."""
    if isinstance(model.output, TokenOutput):
        return TokenGraphs(model, model.output)
    if isinstance(model.output, CTCOutput):
        return CTCGraphs(model, model.output)
    raise UserError(f"a latent model with {type(model.output).__name__} cannot be exported")


def _target(graph: GraphBuilder, model: LatentModel) -> Value:
    """The targets, embedded."""
    ids = graph.input("ids", ("n", "t"), INT64)
    return graph.embedding(model.embedding, ids, graph.constant([0], np.int64), graph.size(ids, 1))
