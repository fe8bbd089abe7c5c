"""The graphs of each network: what the ONNX engine calls, by name.

Every graph works on one sentence. `n` rows are its candidates, `t` places or target tokens, `s` source tokens. `bias`
is added to the scores of self-attention, so that no candidate attends to its padding. A `memory` holds the source's
keys and values. Graphs that predict tokens exist twice: for all pieces, and for the few of a shortlist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import cast

import numpy as np
from torch import nn

from latentmt.errors import UserError
from latentmt.export.graph import FLOAT, INT64, Graph, GraphBuilder, Value
from latentmt.export.outputs import output_graphs
from latentmt.fields.learned import FieldNetwork
from latentmt.fields.registry import learned_field
from latentmt.models.latent import LatentModel
from latentmt.models.priors import GaussianPriorNetwork
from latentmt.models.teacher import Teacher

BIAS = ("n", 1, "t", "t")
IDS = ("n", "t")


def graphs(network: nn.Module, kind: str, quantised: Collection[str]) -> dict[str, Graph]:
    """All graphs of a network; none of a field that has none.

    `quantised`: the names of the weights that are stored as int8.
    """
    builders: dict[str, Callable[[GraphBuilder], None]]
    if isinstance(network, LatentModel):
        builders = _latent(network)
    elif isinstance(network, Teacher):
        builders = _teacher(network)
    else:
        builders = _field(cast(FieldNetwork, network), kind)
    built = {}
    for name, build in builders.items():
        builder = GraphBuilder(network, quantised)
        build(builder)
        built[name] = builder.graph()
    return built


def _latent(model: LatentModel) -> dict[str, Callable[[GraphBuilder], None]]:
    prior, output = model.prior, output_graphs(model)
    if not isinstance(prior, GaussianPriorNetwork):
        raise UserError("only a latent model with a Gaussian prior can be exported")
    source_width, dim = model.source_embedding.weight.shape[1], model.latent_dim

    def encode(graph: GraphBuilder) -> None:
        states = _encoded(graph, model)
        graph.output("states", states)
        output.lengths(graph, states)
        graph.output("prior_memory", graph.project_kv(prior.stack, states))
        graph.output("decoder_memory", graph.project_kv(model.decoder_stack, states))

    def prior_graph(graph: GraphBuilder) -> None:
        bias, memory = graph.input("bias", BIAS), _memory(graph)
        x, memory = graph.read_source(prior.stack, graph.rows_of_positions(prior.positions, bias), memory)
        states = graph.decoder(prior.stack, x, memory, bias)
        _gaussian_outputs(graph, *graph.gaussian(prior.head, states))

    def decoded(graph: GraphBuilder) -> Value:
        x = graph.latent_input(model.latent_input, graph.input("z", ("n", "t", dim)))
        x, memory = graph.read_source(model.decoder_stack, x, _memory(graph))
        return graph.decoder(model.decoder_stack, x, memory, graph.input("bias", BIAS))

    def decode(graph: GraphBuilder) -> None:
        graph.output("logits", graph.logits(model.embedding, decoded(graph)))

    def decode_shortlist(graph: GraphBuilder) -> None:
        pieces = graph.input("pieces", ("k",), INT64)
        graph.output("logits", graph.logits_of(model.embedding, decoded(graph), pieces))

    def posterior_memory(graph: GraphBuilder) -> None:
        states = graph.input("states", (1, "s", source_width))
        graph.output("memory", graph.project_kv(model.posterior_stack, states))

    def posterior(graph: GraphBuilder) -> None:
        states = output.posterior(graph, _memory(graph), graph.input("bias", BIAS))
        _gaussian_outputs(graph, *graph.gaussian(model.posterior_head, states))

    def attention(graph: GraphBuilder) -> None:
        x, weights = graph.latent_input(model.latent_input, graph.input("z", (1, "t", dim))), list[Value]()
        x, memory = graph.read_source(model.decoder_stack, x, _memory(graph))
        graph.decoder(model.decoder_stack, x, memory, attention=weights)
        graph.output("attention", graph.op("Mean", *weights))

    return {
        "encode": encode,
        "prior": prior_graph,
        "decode": decode,
        "decode_shortlist": decode_shortlist,
        "posterior_memory": posterior_memory,
        "posterior": posterior,
        "attention": attention,
    }


def _field(network: FieldNetwork, kind: str) -> dict[str, Callable[[GraphBuilder], None]]:
    stack, field = network.stack, learned_field(kind)
    if not field.exports:
        return {}
    source_width, dim = stack.source_keys_values.in_features, network.latent_input.linear.in_features

    def memory(graph: GraphBuilder) -> None:
        graph.output("memory", graph.project_kv(stack, graph.input("states", (1, "s", source_width))))

    def direction(graph: GraphBuilder) -> None:
        z = graph.input("z", ("n", "t", dim))
        x, memory = graph.read_source(stack, graph.latent_input(network.latent_input, z), _memory(graph))
        states = graph.decoder(stack, x, memory, graph.input("bias", BIAS))
        graph.output("direction", field.export(network, graph, z, states))

    return {"memory": memory, "field": direction}


def _teacher(teacher: Teacher) -> dict[str, Callable[[GraphBuilder], None]]:
    stack, embedding = teacher.decoder_stack, teacher.embedding
    width, heads = embedding.weight.shape[1], stack.size.heads

    def encode(graph: GraphBuilder) -> None:
        graph.output("memory", graph.project_kv(stack, _encoded(graph, teacher)))

    def rows(graph: GraphBuilder) -> None:
        graph.output("rows", graph.rows(embedding, graph.input("pieces", ("k",), INT64)))

    def states(graph: GraphBuilder, attention: list[Value] | None = None) -> Value:
        previous = graph.input("previous", IDS, INT64)
        x = graph.embedding(embedding, previous, graph.constant([0], np.int64), graph.size(previous, 1))
        return graph.decoder(stack, x, _memory(graph), attention=attention)

    def score(graph: GraphBuilder, shortlist: bool) -> None:
        given = states(graph)
        logits = graph.logits(embedding, given, graph.input("rows", ("k", width)) if shortlist else None)
        labels = graph.input("labels", (*IDS, 1), INT64)  # places in the shortlist, or ids
        log_probs = graph.op("LogSoftmax", logits, axis=-1)
        graph.output("log_probs", graph.op("GatherElements", log_probs, labels, axis=2))

    def step(graph: GraphBuilder, shortlist: bool) -> None:
        """The hypotheses are rows. `parents` says which hypothesis each of them continues."""
        parents, position = graph.input("parents", ("k",), INT64), graph.input("position", (1,), INT64)
        names = [f"{side}_{layer}" for layer in range(stack.size.layers) for side in ("key", "value")]
        shape = ("b", heads, "c", width // heads)
        caches = [graph.op("Gather", graph.input(f"past_{name}", shape), parents) for name in names]
        after = graph.op("Add", position, graph.constant([1], np.int64))
        x = graph.embedding(embedding, graph.input("previous", ("k", 1), INT64), position, after)
        given, grown = graph.decoder_step(stack, x, _memory(graph), caches)
        logits = graph.logits(embedding, given, graph.input("rows", ("k", width)) if shortlist else None)
        log_probs = graph.op("LogSoftmax", logits, axis=-1)
        best, which = graph.ops("TopK", log_probs, graph.input("count", (1,), INT64), outputs=2, axis=-1)
        graph.output("log_probs", best)
        graph.output("places", which, INT64)
        for name, cache in zip(names, grown, strict=True):
            graph.output(name, cache)

    def attention(graph: GraphBuilder) -> None:
        weights = list[Value]()
        states(graph, weights)
        graph.output("attention", graph.op("Mean", *weights))

    return {
        "encode": encode,
        "rows": rows,
        "score": lambda graph: score(graph, shortlist=False),
        "score_shortlist": lambda graph: score(graph, shortlist=True),
        "step": lambda graph: step(graph, shortlist=False),
        "step_shortlist": lambda graph: step(graph, shortlist=True),
        "attention": attention,
    }


def _encoded(graph: GraphBuilder, model: LatentModel | Teacher) -> Value:
    """The encoder's states of a sentence."""
    ids = graph.input("ids", (1, "s"), INT64)
    embedding = model.source_embedding if isinstance(model, LatentModel) else model.embedding
    x = graph.embedding(embedding, ids, graph.constant([0], np.int64), graph.size(ids, 1))
    return graph.encoder(model.encoder, x)


def _memory(graph: GraphBuilder) -> Value:
    return graph.input("memory", (1, "s", "m"))


def _gaussian_outputs(graph: GraphBuilder, mean: Value, std: Value) -> None:
    graph.output("mean", mean, FLOAT)
    graph.output("std", std, FLOAT)
