"""Builds ONNX graphs of this package's modules: linear layers, norms, attention, the stacks, embeddings.

torch's exporters fix the number of rows and write several times as many nodes. A graph holds no weights: it names them,
and the engine provides them from the bundle (`engines/onnx/weights.py` says how they are named). Matrices that the
bundle stores as int8 are multiplied in int8: activations are quantised for each call, with one scale for a tensor. So a
graph is called with one sentence and its candidates, never with several sentences, whose results would depend on each
other.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from latentmt.engines.onnx import weights as names
from latentmt.engines.onnx.check import LOCATION, MICROSOFT
from latentmt.models.latent import LatentInput
from latentmt.models.priors import GaussianHead
from latentmt.nn.attention import CrossAttention, SelfAttention
from latentmt.nn.gaussian import STD_FLOOR
from latentmt.nn.positions import Embedding, Positions
from latentmt.nn.transformer import DecoderLayer, DecoderStack, EncoderStack, FeedForward, Readout

OPSET = 21
"""onnxruntime reads it since version 1.20."""
_IR_VERSION = 10

Value = str
"""The name of a tensor in a graph."""
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@dataclass(frozen=True)
class Graph:
    """A finished graph."""

    content: bytes
    weights: list[str]
    """The names of the weights it needs."""


class GraphBuilder:
    """One ONNX graph. Operators are added in the order of the calls, which return the names of their results.

    `network`: the module whose weights are named. `quantised`: the names of those that are stored as int8.
    """

    def __init__(self, network: nn.Module, quantised: Collection[str]) -> None:
        self._names = {id(module): name for name, module in network.named_modules()}
        self._shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
        self._quantised = quantised
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[Value, onnx.TensorProto] = {}
        self._constants: dict[Value, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._renamed: dict[Value, str] = {}

    def graph(self) -> Graph:
        """The finished graph."""
        for node in self._nodes:
            for side in (node.input, node.output):
                side[:] = [self._renamed.get(name, name) for name in side]
        graph = helper.make_graph(
            self._nodes, "graph", self._inputs, self._outputs, [*self._weights.values(), *self._constants.values()]
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="latentmt")
        return Graph(model.SerializeToString(), sorted(self._weights))

    # Values

    def input(self, name: str, shape: Sequence[int | str], kind: int = FLOAT) -> Value:
        """An input. A dimension with a name may have any size."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, value: Value, kind: int = FLOAT) -> None:
        """An output."""
        self._renamed[value] = name  # an identity would be a copy
        self._outputs.append(helper.make_tensor_value_info(name, kind, None))

    def op(self, kind: str, *inputs: Value, domain: str = "", **attributes: Any) -> Value:
        """The first output of an operator. An empty name is a missing input."""
        return self.ops(kind, *inputs, outputs=1, domain=domain, **attributes)[0]

    def ops(self, kind: str, *inputs: Value, outputs: int, domain: str = "", **attributes: Any) -> list[Value]:
        """All outputs of an operator."""
        results = [f"{kind.lower()}_{len(self._nodes)}_{number}" for number in range(outputs)]
        self._nodes.append(helper.make_node(kind, inputs, results, domain=domain, **attributes))
        return results

    def constant(self, value: Any, dtype: type[np.generic]) -> Value:
        """A small tensor that is stored in the graph."""
        array = np.asarray(value, dtype=dtype)
        name = f"constant_{array.dtype.name}_{array.tolist()}".replace(" ", "")
        self._constants[name] = numpy_helper.from_array(array, name)
        return name

    def weight(self, name: str, *, transposed: bool = False) -> Value:
        """A tensor of the network: int8 if it is quantised, else fp32."""
        shape = self._shapes[name]
        kind = TensorProto.INT8 if name in self._quantised else FLOAT
        return self._declare(
            name + names.TRANSPOSED if transposed else name, shape[::-1] if transposed else shape, kind
        )

    def scale(self, name: str) -> Value:
        """The scales of a quantised tensor, one for each row."""
        return self._declare(name + names.SCALE, self._shapes[name][:1], FLOAT)

    def _declare(self, name: str, shape: Sequence[int], kind: int) -> Value:
        tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
        location = tensor.external_data.add()
        location.key, location.value = "location", LOCATION.decode()
        self._weights[name] = tensor
        return name

    def name_of(self, module: nn.Module) -> str:
        """The name of a module in the network."""
        name: str = self._names[id(module)]
        return name

    # Shapes

    def size(self, value: Value, axis: int) -> Value:
        """The size of an axis, as a tensor of one number."""
        return self.op("Shape", value, start=axis, end=axis + 1)

    def reshape(self, value: Value, *shape: int) -> Value:
        """A fixed shape, in which 0 keeps a size and −1 follows from the others."""
        return self.op("Reshape", value, self.constant(shape, np.int64))

    # Layers

    def linear(self, layer: nn.Linear, x: Value) -> Value:
        """layer(x), in int8 if the layer's weight is quantised."""
        name, bias = self.name_of(layer), layer.bias is not None
        weight = f"{name}.weight"
        if weight in self._quantised:
            inputs = [x, self.weight(weight, transposed=True), self.scale(weight)]
            inputs += ["", self.weight(f"{name}.bias")] if bias else []
            return self.op("DynamicQuantizeMatMul", *inputs, domain=MICROSOFT)
        product = self.op("MatMul", x, self.weight(weight, transposed=True))
        return self.op("Add", product, self.weight(f"{name}.bias")) if bias else product

    def norm(self, norm: nn.LayerNorm, x: Value) -> Value:
        name = self.name_of(norm)
        weights = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.op("LayerNormalization", x, *weights, epsilon=norm.eps)

    def positions(self, positions: Positions, start: Value, end: Value) -> Value:
        """The encodings of the positions from `start` to `end`, a matrix."""
        table = self._declare(f"{names.POSITIONS}{positions.table.shape[1]}", positions.table.shape, FLOAT)
        return self.op("Slice", table, start, end, self.constant([0], np.int64))

    def rows_of_positions(self, positions: Positions, bias: Value) -> Value:
        """The encodings of all positions, for each row of a bias of self-attention."""
        encodings = self.positions(positions, self.constant([0], np.int64), self.size(bias, 2))
        shape = self.op("Concat", self.size(bias, 0), self.op("Shape", encodings), axis=0)
        return self.op("Expand", encodings, shape)

    def embedding(self, embedding: Embedding, ids: Value, start: Value, end: Value) -> Value:
        """Embedded ids. Their last axis has the positions from `start` to `end`."""
        name = f"{self.name_of(embedding)}.weight"
        width = self._shapes[name][1]
        rows = self.rows(embedding, ids)
        scaled = self.op("Mul", rows, self.constant(math.sqrt(width), np.float32))
        return self.op("Add", scaled, self.positions(embedding.positions, start, end))

    def rows(self, embedding: Embedding, ids: Value) -> Value:
        """The rows of the embedding's matrix, in fp32."""
        name = f"{self.name_of(embedding)}.weight"
        rows = self.op("Gather", self.weight(name), ids)
        if name not in self._quantised:
            return rows
        scales = self.op("Unsqueeze", self.op("Gather", self.scale(name), ids), self.constant([-1], np.int64))
        return self.op("Mul", self.op("Cast", rows, to=FLOAT), scales)

    def logits(self, embedding: Embedding, states: Value, rows: Value | None = None) -> Value:
        """The logits of all ids, or of those with these rows of the matrix."""
        if rows is not None:
            return self.op("FusedMatMul", states, rows, domain=MICROSOFT, transB=1)
        name = f"{self.name_of(embedding)}.weight"
        if name in self._quantised:
            weight = self.weight(name, transposed=True)
            return self.op("DynamicQuantizeMatMul", states, weight, self.scale(name), domain=MICROSOFT)
        return self.op("MatMul", states, self.weight(name, transposed=True))

    def logits_of(self, embedding: Embedding, states: Value, ids: Value) -> Value:
        """The logits of these ids, in int8 if the matrix is quantised: they are those that `logits` has for them."""
        name = f"{self.name_of(embedding)}.weight"
        if name not in self._quantised:
            return self.logits(embedding, states, self.rows(embedding, ids))
        columns = self.op("Transpose", self.op("Gather", self.weight(name), ids), perm=[1, 0])
        scales = self.op("Gather", self.scale(name), ids)
        return self.op("DynamicQuantizeMatMul", states, columns, scales, domain=MICROSOFT)

    def latent_input(self, latent_input: LatentInput, z: Value) -> Value:
        """z as the input of a stack."""
        x = self.linear(latent_input.linear, z)
        if latent_input.positions is None:
            return x
        start = self.constant([0], np.int64)
        return self.op("Add", x, self.positions(latent_input.positions, start, self.size(z, 1)))

    def gaussian(self, head: GaussianHead, states: Value) -> tuple[Value, Value]:
        """Mean and standard deviation."""
        mean, raw = self.ops("Split", self.linear(head, states), outputs=2, axis=-1, num_outputs=2)
        return mean, self.op("Add", self.op("Softplus", raw), self.constant(STD_FLOOR, np.float32))

    # Stacks

    def encoder(self, stack: EncoderStack, x: Value) -> Value:
        """The states of one sentence."""
        for layer in cast("Any", stack.layers):
            x = self._self_attention(layer.self_attention, layer.self_norm, x)
            x = self._feed_forward(layer.feed_forward, layer.feed_norm, x)
        return self.norm(stack.norm, x)

    def project_kv(self, stack: DecoderStack, states: Value) -> Value:
        """The keys and values of a source for all layers, and what is added to the input, in one tensor."""
        return self.linear(stack.source_keys_values, states)

    def read_source(self, stack: DecoderStack, x: Value, memory: Value) -> tuple[Value, Value]:
        """The input of a stack with the source's states added, if it has them there, and keys and values alone."""
        if stack.upsampling is None:
            return x, memory
        width, one = stack.size.width, self.constant([1], np.int64)
        sizes = self.constant([2 * stack.size.layers * width, width], np.int64)
        keys_values, states = self.ops("Split", memory, sizes, outputs=2, axis=-1)
        last = self.op("Sub", self.size(states, 1), one)
        end = self.op("Squeeze", self.size(x, 1), self.constant([0], np.int64))
        places = self.op("Range", self.constant(0, np.int64), end, self.constant(1, np.int64))
        index = self.op("Min", self.op("Div", places, self.constant([stack.upsampling], np.int64)), last)
        return self.op("Add", x, self.op("Gather", states, index, axis=1)), keys_values

    def decoder(
        self,
        stack: DecoderStack,
        x: Value,
        memory: Value,
        bias: Value = "",
        memory_bias: Value = "",
        attention: list[Value] | None = None,
    ) -> Value:
        """All tokens at once. Rows are candidates for one source, whose `memory` is `project_kv(…)`.

        `bias` is added to the scores of self-attention; a causal stack needs none, since its padding comes last. With a
        `memory_bias`, which is added to those of cross-attention, every row has its own memory. The cross-attention
        weights of every layer, averaged over heads, are appended to `attention`.
        """
        inputs, count = x, len(stack.layers)
        keys_values = self.ops("Split", memory, outputs=2 * count, axis=-1, num_outputs=2 * count)
        for number, layer in enumerate(cast("list[DecoderLayer]", stack.layers)):
            key, value = keys_values[2 * number : 2 * number + 2]
            x = self._self_attention(layer.self_attention, layer.self_norm, x, bias, stack.causal)
            if attention is not None:
                attention.append(self._attention_weights(layer.cross_attention, layer.cross_norm, x, key))
            x = self._cross_attention(layer.cross_attention, layer.cross_norm, x, key, value, memory_bias)
            x = self._feed_forward(layer.feed_forward, layer.feed_norm, x)
            if stack.input_skip:
                x = self.op("Mul", self.op("Add", x, inputs), self.constant(math.sqrt(0.5), np.float32))
        return self.norm(stack.norm, x)

    def decoder_step(
        self, stack: DecoderStack, x: Value, memory: Value, caches: Sequence[Value]
    ) -> tuple[Value, list[Value]]:
        """The next token of every hypothesis, and the caches that include it: key and value of each layer."""
        count, grown = len(stack.layers), []
        keys_values = self.ops("Split", memory, outputs=2 * count, axis=-1, num_outputs=2 * count)
        for number, layer in enumerate(cast("list[DecoderLayer]", stack.layers)):
            pair = slice(2 * number, 2 * number + 2)
            query, key, value = self._query_key_value(layer.self_attention, self.norm(layer.self_norm, x))
            attended, *present = self._attend(layer.self_attention, query, key, value, past=caches[pair])
            grown += present
            x = self.op("Add", x, self.linear(layer.self_attention.out, attended))
            x = self._cross_attention(layer.cross_attention, layer.cross_norm, x, *keys_values[pair])
            x = self._feed_forward(layer.feed_forward, layer.feed_norm, x)
        return self.norm(stack.norm, x), grown

    def _self_attention(
        self, attention: SelfAttention, norm: nn.LayerNorm, x: Value, bias: Value = "", causal: bool = False
    ) -> Value:
        query, key, value = self._query_key_value(attention, self.norm(norm, x))
        attended = self._attend(attention, query, key, value, bias, causal)[0]
        return self.op("Add", x, self.linear(attention.out, attended))

    def _query_key_value(self, attention: SelfAttention, x: Value) -> list[Value]:
        return self.ops("Split", self.linear(attention.query_key_value, x), outputs=3, axis=-1, num_outputs=3)

    def _cross_attention(
        self, attention: CrossAttention, norm: nn.LayerNorm, x: Value, key: Value, value: Value, bias: Value = ""
    ) -> Value:
        """Without a bias the rows attend as queries of one row, so that keys and values are not repeated."""
        query = self.linear(attention.query, self.norm(norm, x))
        query = query if bias else self.reshape(query, 1, -1, attention.query.out_features)
        attended = self._attend(attention, query, key, value, bias)[0]
        attended = attended if bias else self.op("Reshape", attended, self.op("Shape", x))
        return self.op("Add", x, self.linear(attention.out, attended))

    def _feed_forward(self, feed_forward: FeedForward, norm: nn.LayerNorm, x: Value) -> Value:
        hidden = self.op("Relu", self.linear(feed_forward.inner, self.norm(norm, x)))
        return self.op("Add", x, self.linear(feed_forward.out, hidden))

    def _attend(
        self,
        attention: SelfAttention | CrossAttention,
        query: Value,
        key: Value,
        value: Value,
        bias: Value = "",
        causal: bool = False,
        past: Sequence[Value] = (),
    ) -> list[Value]:
        """What is attended to and, with a `past`, its key and value with the present ones appended."""
        inputs = [query, key, value, "", "", bias, *past]
        while not inputs[-1]:
            inputs.pop()
        attributes = {"num_heads": attention.heads, "unidirectional": int(causal)}
        return self.ops("MultiHeadAttention", *inputs, outputs=1 + len(past), domain=MICROSOFT, **attributes)

    def _attention_weights(self, attention: CrossAttention, norm: nn.LayerNorm, x: Value, key: Value) -> Value:
        """Cross-attention weights of one candidate, averaged over heads: target by source tokens."""
        heads, width = attention.heads, attention.query.out_features // attention.heads
        query = self.linear(attention.query, self.norm(norm, x))
        split = [
            self.op("Transpose", self.reshape(side, 0, 0, heads, width), perm=[0, 2, 1, 3]) for side in (query, key)
        ]
        scores = self.op("FusedMatMul", *split, domain=MICROSOFT, transB=1, alpha=width**-0.5)
        return self.op("ReduceMean", self.op("Softmax", scores, axis=-1), self.constant([0, 1], np.int64), keepdims=0)


def quantisable(network: nn.Module) -> set[str]:
    """The weights worth storing as int8: the matrices of stacks and embeddings.

    Heads (`Readout`), the input of latents and everything one-dimensional are small, and quantising them is felt.
    """
    chosen = set()
    for name, module in network.named_modules():
        is_matrix = isinstance(module, nn.Linear) and not isinstance(module, Readout)
        if (is_matrix and min(cast(torch.Tensor, module.weight).shape) >= _SMALL) or isinstance(module, Embedding):
            chosen.add(f"{name}.weight")
    return chosen


_SMALL = 16
"""Matrices with fewer rows or columns than this are not quantised."""
