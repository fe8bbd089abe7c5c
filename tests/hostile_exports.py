"""Attacks on an exported model: its graphs, their index, the shortlist, the n-grams, the scales of 8-bit weights.

    python tests/hostile_exports.py MODEL FOLDER      a line of JSON for each attack: how loading ended

As `hostile_bundles`, whose attacks are made on the exported model, too. In the model that is attacked, latent model and
score have weights in single precision, and the teacher has 8-bit weights.
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile_bundles
import numpy as np
import onnx
import yaml
from hostile_bundles import SHARD, Attack, delete, instead, listed, seal
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load, save

VOCABULARY = 358
"""The pieces of the model that is attacked."""
NGRAMS = "language_model/ngrams.npz"


def file(name: str, content: bytes | str | Callable[[bytes], bytes]) -> Attack:
    """Replace a file, and its hash. Its name has the bundle in it."""

    def attack(model: Path) -> None:
        path = model / name
        new = content(path.read_bytes()) if callable(content) else content
        path.write_bytes(new.encode() if isinstance(new, str) else new)
        seal(path.parent)

    return attack


def graph(name: str, change: Callable[[Any], object]) -> Attack:
    """Change a graph."""

    def changed(content: bytes) -> bytes:
        model = onnx.load_model_from_string(content)
        change(model)
        serialized: bytes = model.SerializeToString()
        return serialized

    return file(f"{name}.onnx", changed)


def decode(change: Callable[[Any], object]) -> Attack:
    """Change the graph that every method of the latent model runs."""
    return graph("latent/decode", change)


def with_nodes(name: str, *nodes: Any, constants: dict[str, Any] | None = None) -> Attack:
    """Put nodes before the first output, which becomes their input `given`."""

    def change(model: Any) -> None:
        output = model.graph.output[0].name
        for node in model.graph.node:
            node.output[:] = ["given" if one == output else one for one in node.output]
        for node in nodes:
            node.output[:] = [output if one == "taken" else one for one in node.output]
        model.graph.node.extend(nodes)
        for key, value in (constants or {}).items():
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), key))

    return graph(name, change)


def op(kind: str, *inputs: str, **attributes: Any) -> Any:
    """A node from `given` to `taken`."""
    return helper.make_node(kind, ["given", *inputs], ["taken"], **attributes)


def initializer(change: Callable[[Any], object], external: bool) -> Attack:
    """Change a weight of a graph, or a constant of it."""

    def changed(model: Any) -> None:
        tensors = [one for one in model.graph.initializer if bool(one.external_data) == external]
        change(tensors[0])

    return decode(changed)


def stored_in(*entries: tuple[str, str], external: bool = False) -> Attack:
    """Say that a tensor is stored in another file."""

    def change(tensor: Any) -> None:
        del tensor.external_data[:]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in entries:
            entry = tensor.external_data.add()
            entry.key, entry.value = key, value

    return initializer(change, external)


def body() -> Any:
    """The body of a loop that never ends."""
    bool_, int_ = TensorProto.BOOL, TensorProto.INT64
    inputs = [helper.make_tensor_value_info(name, kind, []) for name, kind in (("i", int_), ("go", bool_), ("n", int_))]
    outputs = [helper.make_tensor_value_info(name, kind, []) for name, kind in (("on", bool_), ("m", int_))]
    nodes = [helper.make_node("Identity", [a], [b]) for a, b in (("go", "on"), ("n", "m"))]
    return helper.make_graph(nodes, "body", inputs, outputs)


def endless_loop(model: Any) -> None:
    """The first output is that of the graph plus the count of a loop."""
    output = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = ["given" if one == output else one for one in node.output]
    for name, value in (("true", np.array(True)), ("zero", np.array(0, dtype=np.int64))):
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    model.graph.node.append(helper.make_node("Loop", ["", "true", "zero"], ["count"], body=body()))
    model.graph.node.append(helper.make_node("Cast", ["count"], ["number"], to=TensorProto.FLOAT))
    model.graph.node.append(helper.make_node("Add", ["given", "number"], [output]))


def index(change: Callable[[dict[str, Any]], Any]) -> Attack:
    """Change graphs.json of the latent model."""

    def changed(content: bytes) -> bytes:
        tree = json.loads(content)
        found = change(tree)
        return json.dumps(tree if found is None else found).encode()

    return file("latent/graphs.json", changed)


def needs(*names: str) -> Attack:
    """The weights that a graph is said to need."""
    return index(lambda tree: tree["weights"]["decode"].extend(names))


def npz(kind: str = "teacher", **arrays: Any) -> Attack:
    """Another shortlist, with good arrays if none are given."""

    def attack(model: Path) -> None:
        good = {"likely": np.zeros((VOCABULARY, 3), np.uint16), "common": np.arange(9, dtype=np.uint16)}
        kept = {name: array for name, array in (good | arrays).items() if array is not None}
        content = io.BytesIO()
        np.savez_compressed(content, **kept)
        file(f"{kind}/shortlist.npz", content.getvalue())(model)

    return attack


def shortlisted(then: Attack) -> Attack:
    """An attack on the latent model when it has a shortlist, too."""

    def attack(model: Path) -> None:
        listed("shortlist.npz")(model)
        npz("latent")(model)
        then(model)

    return attack


def ngrams(**arrays: Any) -> Attack:
    """Another language model: a good one but for these arrays."""

    def attack(model: Path) -> None:
        with np.load(model / NGRAMS) as archive:
            kept = {name: array for name, array in (dict(archive) | arrays).items() if array is not None}
        content = io.BytesIO()
        np.savez_compressed(content, **kept)
        file(NGRAMS, content.getvalue())(model)

    return attack


def npy(content: bytes, flags: int = 0) -> Attack:
    """A shortlist with this as its first array."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        writer.writestr("likely.npy", content)
        writer.writestr("common.npy", _npy("(9,)", "<u2", bytes(18)))
    changed = bytearray(archive.getvalue())
    changed[6] |= flags
    changed[changed.index(b"PK\x01\x02") + 8] |= flags
    return file("teacher/shortlist.npz", bytes(changed))


def _zipped(name: str, content: bytes) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        writer.writestr(name, content)
    return archive.getvalue()


def _npy(shape: str, dtype: str, data: bytes, version: bytes = b"\x01\x00", more: str = "") -> bytes:
    header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, {more}}}\n".encode()
    length = struct.pack("<H" if version == b"\x01\x00" else "<I", len(header))
    return b"\x93NUMPY" + version + length + header + data


def config(kind: str, **values: Any) -> Attack:
    """Change the network's section of config.yaml. None removes a key."""

    def attack(model: Path) -> None:
        path = model / kind / "config.yaml"
        tree = yaml.safe_load(path.read_text())
        tree[kind] = {key: value for key, value in (tree[kind] | values).items() if value is not None}
        path.write_text(yaml.safe_dump(tree, sort_keys=False))
        seal(path.parent)

    return attack


def scales(change: Callable[[dict[str, Any], str], object]) -> Attack:
    """Change the teacher's tensors, given the name of one with 8 bits."""

    def attack(model: Path) -> None:
        path = model / "teacher" / SHARD
        tensors = {name: tensor.copy() for name, tensor in load(path.read_bytes()).items()}
        change(tensors, "embedding.weight")
        names = json.dumps({"weight_map": dict.fromkeys(tensors, SHARD)})
        (path.parent / hostile_bundles.INDEX).write_text(names)
        path.write_bytes(save(tensors))
        seal(path.parent)

    return attack


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


SCALE_ATTACKS: dict[str, Attack] = {
    "scales: missing": scales(lambda tensors, name: tensors.pop(f"{name}.scale")),
    "scales: one row less": scales(
        lambda tensors, name: tensors.update({f"{name}.scale": tensors[f"{name}.scale"][1:].copy()})
    ),
    "scales: one for all": scales(lambda tensors, name: tensors.update({f"{name}.scale": np.ones(1, np.float32)})),
    "scales: a scalar": scales(lambda tensors, name: tensors.update({f"{name}.scale": np.array(1, np.float32)})),
    "scales: NaN": scales(lambda tensors, name: tensors[f"{name}.scale"].__setitem__(3, np.nan)),
    "scales: infinite": scales(lambda tensors, name: tensors[f"{name}.scale"].__setitem__(3, np.inf)),
    "scales: 8 bits": scales(lambda tensors, name: tensors.update({f"{name}.scale": np.ones(VOCABULARY, np.int8)})),
    "scales: weight of 16-bit integers": scales(
        lambda tensors, name: tensors.update({name: tensors[name].astype(np.int16)})
    ),
    "scales: weight transposed": scales(lambda tensors, name: tensors.update({name: tensors[name].T.copy()})),
    "scales: weight one row less": scales(lambda tensors, name: tensors.update({name: tensors[name][1:].copy()})),
}

ATTACKS: dict[str, Attack] = (
    SCALE_ATTACKS
    | {
        # Files of graphs
        "graph: empty": file("latent/decode.onnx", b""),
        "graph: text": file("latent/decode.onnx", "not a graph"),
        "graph: random": file("latent/decode.onnx", lambda content: np.random.default_rng(0).bytes(len(content))),
        "graph: cut": file("latent/decode.onnx", cut),
        "graph: cut by a byte": file("latent/decode.onnx", lambda content: content[:-1]),
        "graph: a byte more": file("latent/decode.onnx", lambda content: content + b"\x0a"),
        "graph: a number of 20 bytes": file("latent/decode.onnx", b"\x08" + b"\xff" * 20),
        "graph: a length of 2⁶²": file("latent/decode.onnx", b"\x3a" + hostile_bundles.varint(1 << 62)),
        "graph: a group": file("latent/decode.onnx", lambda content: content + b"\x3b\x3c"),
        "graph: 2 MB": file("latent/decode.onnx", lambda content: content + b"\x12\x80\x80\x80\x01" + bytes(2 << 20)),
        "graph: an unknown field": file("latent/decode.onnx", lambda content: content + b"\xf8\x07\x01"),
        "graph: another one": lambda model: file("latent/decode.onnx", (model / "latent" / "prior.onnx").read_bytes())(
            model
        ),
        "graph: of another model": lambda model: file(
            "latent/encode.onnx", (model / "teacher" / "encode.onnx").read_bytes()
        )(model),
        "graph: missing": delete("decode.onnx"),
        "graph: a link": hostile_bundles.link_outside("decode.onnx"),
        "graph: a pipe": instead("latent/decode.onnx", os.mkfifo),
        "graph: a device": instead("latent/decode.onnx", hostile_bundles.device),
        "graph: altered": lambda model: (model / "latent" / "decode.onnx").write_bytes(
            (model / "latent" / "prior.onnx").read_bytes()
        ),
        "graph: listed and missing": listed("more.onnx"),
        # Weights in other files
        "outside: a constant in /etc": stored_in(("location", "/etc/hostname")),
        "outside: a constant in the parent": stored_in(("location", "../score/" + SHARD)),
        "outside: a constant beside": stored_in(("location", SHARD)),
        "outside: a constant, no location": stored_in(),
        "outside: a constant where weights are": stored_in(("location", "bundle")),
        "outside: a weight in /etc": stored_in(("location", "/etc/hostname"), external=True),
        "outside: a weight in memory": stored_in(("location", "*/_ORT_MEM_ADDR_/*"), external=True),
        "outside: a weight at an offset": stored_in(("location", "bundle"), ("offset", "4096"), external=True),
        "outside: a weight, two locations": stored_in(
            ("location", "bundle"), ("location", "/etc/passwd"), external=True
        ),
        "outside: a weight of another name": initializer(lambda tensor: setattr(tensor, "name", "more"), external=True),
        "outside: a weight of two names": file(
            "latent/decode.onnx",
            lambda content: content + b"\x3a\x0a\x2a\x08\x42\x01a\x42\x01b\x70\x01",
        ),
        # What a graph may not hold
        "graph: an endless loop": decode(endless_loop),
        "graph: a condition": decode(
            lambda model: model.graph.node.insert(0, helper.make_node("If", ["z"], ["y"], then_branch=body()))
        ),
        "graph: a function": decode(
            lambda model: model.functions.append(
                helper.make_function("", "Add", ["a", "b"], ["c"], [helper.make_node("Mul", ["a", "b"], ["c"])], [])
            )
        ),
        "graph: a node that reads files": decode(
            lambda model: model.graph.node.insert(
                0, helper.make_node("EPContext", ["z"], ["y"], domain="com.microsoft", ep_cache_context="/etc/passwd")
            )
        ),
        "graph: a node of another domain": decode(
            lambda model: model.graph.node.insert(0, helper.make_node("Magic", ["z"], ["y"], domain="evil"))
        ),
        "graph: an unknown operator": with_nodes("latent/decode", op("Magic")),
        "graph: an attribute with a tensor": decode(
            lambda model: model.graph.node.insert(
                0, helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(np.zeros(9)))
            )
        ),
        "graph: a sparse tensor": decode(
            lambda model: model.graph.sparse_initializer.add().dims.extend([1 << 40]),
        ),
        "graph: training": decode(lambda model: model.training_info.add()),
        "graph: metadata": decode(lambda model: helper.set_model_props(model, {"a": "b"})),
        "graph: a constant of 5,000 bytes": with_nodes(
            "latent/decode", op("Add", "more"), constants={"more": np.zeros(1250, np.float32)}
        ),
        "graph: opset 9999": decode(lambda model: setattr(model.opset_import[0], "version", 9999)),
        "graph: version 9999": decode(lambda model: setattr(model, "ir_version", 9999)),
        "graph: no nodes": decode(lambda model: model.graph.ClearField("node")),
        "graph: a circle": with_nodes("latent/decode", op("Add", "taken")),
        "graph: a value that is not there": with_nodes("latent/decode", op("Add", "nowhere")),
        "graph: an input more": decode(
            lambda model: model.graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, [1]))
        ),
        "graph: a name of control characters": with_nodes("latent/decode", op("Add", "\x1b[2J\nowned")),
        # What a graph returns
        "returns: nothing": decode(lambda model: model.graph.ClearField("output")),
        "returns: one more": decode(
            lambda model: model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
        ),
        "returns: a dimension less": with_nodes("latent/decode", op("Squeeze", "axes"), constants={"axes": [0]}),
        "returns: a dimension more": with_nodes("latent/decode", op("Unsqueeze", "axes"), constants={"axes": [0]}),
        "returns: transposed": with_nodes("latent/decode", op("Transpose", perm=[0, 2, 1])),
        "returns: more pieces": with_nodes("latent/decode", op("Concat", "given", axis=2)),
        "returns: a number": with_nodes("latent/decode", op("ReduceSum", keepdims=0)),
        "returns: its shape": with_nodes("latent/decode", op("Shape")),
        "returns: 2⁴⁴ numbers": with_nodes(
            "latent/decode", op("Expand", "shape"), constants={"shape": np.array([1 << 22, 1, 1, 1])}
        ),
        "returns: more pieces than the shortlist": shortlisted(
            with_nodes("latent/decode_shortlist", op("Concat", "given", axis=2))
        ),
        "returns: other lengths": with_nodes("latent/encode", op("Concat", "given", axis=1)),
        "returns: the prior transposed": with_nodes("latent/prior", op("Transpose", perm=[0, 2, 1])),
        "returns: a field of other latents": with_nodes("score/field", op("Concat", "given", axis=2)),
        "returns: tokens beyond the last": graph(
            "teacher/step_shortlist",
            lambda model: [
                next(node for node in model.graph.node if node.op_type == "TopK").output.__setitem__(1, "given"),
                model.graph.initializer.append(numpy_helper.from_array(np.array([10**6]), "many")),
                model.graph.node.append(helper.make_node("Add", ["given", "many"], ["places"])),
            ],
        ),
        "returns: rows of another width": with_nodes("teacher/rows", op("Concat", "given", axis=1)),
        "returns: scores of other targets": with_nodes("teacher/score_shortlist", op("Concat", "given", axis=1)),
        # Weights of graphs
        "weight: other dimensions": initializer(lambda tensor: tensor.dims.__setitem__(0, 7), external=True),
        "weight: negative dimensions": initializer(lambda tensor: tensor.dims.__setitem__(0, -1), external=True),
        "weight: 2⁶⁰ numbers": initializer(lambda tensor: tensor.dims.__setitem__(0, 1 << 60), external=True),
        "weight: another type": initializer(lambda tensor: setattr(tensor, "data_type", 7), external=True),
        "weight: an unknown type": initializer(lambda tensor: setattr(tensor, "data_type", 99), external=True),
        # The index of graphs
        "index: empty": file("latent/graphs.json", b""),
        "index: not JSON": file("latent/graphs.json", "weights:"),
        "index: invalid UTF-8": file("latent/graphs.json", b'{"weights": {"\xff": []}}'),
        "index: deep": file("latent/graphs.json", "[" * 100_000),
        "index: a list": index(lambda tree: [tree]),
        "index: null": index(lambda tree: [None]),
        "index: no weights": index(lambda tree: tree.pop("weights") and None),
        "index: weights a list": index(lambda tree: tree.update(weights=["decode"])),
        "index: weights of a graph null": index(lambda tree: tree["weights"].update(decode=None)),
        "index: weights numbers": needs(7),  # type: ignore[arg-type]
        "index: an unknown key": index(lambda tree: tree.update(library="evil.so")),
        "index: a graph less": index(lambda tree: tree["weights"].pop("decode") and None),
        "index: a weight less": index(lambda tree: tree["weights"]["decode"].pop() and None),
        "index: a weight that is not there": needs("more"),
        "index: a weight of a megabyte": needs("a" * 1_000_000),
        "index: positions of width 0": needs("positions.0"),
        "index: positions of width 10¹²": needs("positions.1000000000000"),
        "index: positions of width −1": needs("positions.-1"),
        "index: a hint of control characters": index(lambda tree: tree.update(hint="\x1b[2J\nowned")),
        "index: a hint of a megabyte": index(lambda tree: tree.update(hint="a" * 1_000_000)),
        # The shortlist
        "shortlist: empty": file("teacher/shortlist.npz", b""),
        "shortlist: text": file("teacher/shortlist.npz", "not a shortlist"),
        "shortlist: cut": file("teacher/shortlist.npz", cut),
        "shortlist: random": file(
            "teacher/shortlist.npz", lambda content: np.random.default_rng(0).bytes(len(content))
        ),
        "shortlist: a flipped bit": file(
            "teacher/shortlist.npz", lambda content: content[:80] + bytes([content[80] ^ 4]) + content[81:]
        ),
        "shortlist: a pickle": npz(likely=np.array([{"a": 1}] * 9, dtype=object)),
        "shortlist: a pickle alone": file("teacher/shortlist.npz", b"\x80\x04cos\nsystem\n(S'true'\ntR."),
        "shortlist: a piece less": npz(likely=np.zeros((VOCABULARY - 1, 3), np.uint16)),
        "shortlist: a piece more": npz(likely=np.zeros((VOCABULARY + 1, 3), np.uint16)),
        "shortlist: one dimension": npz(likely=np.zeros(VOCABULARY, np.uint16)),
        "shortlist: three dimensions": npz(likely=np.zeros((VOCABULARY, 3, 2), np.uint16)),
        "shortlist: a common piece of two dimensions": npz(common=np.zeros((3, 2), np.uint16)),
        "shortlist: ids beyond the last": npz(likely=np.full((VOCABULARY, 3), VOCABULARY, np.uint16)),
        "shortlist: common ids beyond the last": npz(common=np.array([VOCABULARY], np.uint16)),
        "shortlist: ids beyond 2⁶³": npz(common=np.array([(1 << 64) - 1], np.uint64)),
        "shortlist: negative ids": npz(likely=np.full((VOCABULARY, 3), -1, np.int16)),
        "shortlist: floats": npz(likely=np.zeros((VOCABULARY, 3), np.float32)),
        "shortlist: text in it": npz(likely=np.full((VOCABULARY, 3), "a")),
        "shortlist: one array": npz(common=None),
        "shortlist: 2⁴⁰ numbers in 100 bytes": npy(_npy(f"({VOCABULARY}, {1 << 32})", "<u2", b"")),
        "shortlist: a gigabyte of zeros": npy(_npy(f"({VOCABULARY}, 3)", "<u2", b"") + bytes(1 << 28)),
        "shortlist: fewer numbers than it says": npy(_npy(f"({VOCABULARY}, 3)", "<u2", bytes(10))),
        "shortlist: negative shape": npy(_npy(f"(-{VOCABULARY}, -3)", "<u2", bytes(10))),
        "shortlist: a shape of text": npy(_npy("'a'", "<u2", bytes(10))),
        "shortlist: a header of code": npy(_npy("__import__('os').abort()", "<u2", bytes(10))),
        "shortlist: a deep header": npy(_npy("(" * 5000 + ")" * 5000, "<u2", bytes(10))),
        "shortlist: version 9": npy(_npy(f"({VOCABULARY}, 3)", "<u2", bytes(2400), b"\x09\x00")),
        "shortlist: encrypted": npy(_npy(f"({VOCABULARY}, 3)", "<u2", bytes(2400)), flags=1),
        "shortlist: a bad checksum": file(
            "teacher/shortlist.npz",
            lambda content: content.replace(
                struct.pack("<I", zlib.crc32(zipfile.ZipFile(io.BytesIO(content)).read("common.npy"))), b"abcd"
            ),
        ),
        "shortlist of the latent model: text": shortlisted(file("latent/shortlist.npz", "not a shortlist")),
        "shortlist of the latent model: cut": shortlisted(file("latent/shortlist.npz", cut)),
        "shortlist of the latent model: a piece less": shortlisted(
            npz("latent", likely=np.zeros((VOCABULARY - 1, 3), np.uint16))
        ),
        "shortlist of the latent model: ids beyond the last": shortlisted(
            npz("latent", common=np.array([VOCABULARY], np.uint16))
        ),
        "shortlist of the latent model: no graph": shortlisted(delete("decode_shortlist.onnx")),
        # The sizes of networks
        "config: latent_dim 0": config("latent", latent_dim=0),
        "config: latent_dim 10⁹": config("latent", latent_dim=10**9),
        # The language model
        "ngrams: empty": file(NGRAMS, b""),
        "ngrams: cut": file(NGRAMS, cut),
        "ngrams: a flipped bit": file(NGRAMS, lambda content: content[:80] + bytes([content[80] ^ 4]) + content[81:]),
        "ngrams: a header that is no Python": file(
            NGRAMS, _zipped("tokens_1.npy", b"\x93NUMPY\x01\x00\x08\x00((((((((")
        ),
        "ngrams: a pickle": ngrams(tokens_2=np.array([{"a": 1}] * 9, dtype=object)),
        "ngrams: no average": ngrams(surprisal=None),
        "ngrams: two averages": ngrams(surprisal=np.zeros(2, np.uint8)),
        "ngrams: a piece less": ngrams(tokens_1=np.arange(VOCABULARY - 1, dtype=np.uint16)),
        "ngrams: one child too many": ngrams(children_1=np.ones(VOCABULARY, np.uint16)),
        "ngrams: 2³¹ children each": ngrams(children_1=np.full(VOCABULARY, 1 << 31, np.uint32)),
        "ngrams: ids beyond the last": ngrams(tokens_3=np.full(1, VOCABULARY, np.uint16)),
        "ngrams: order 0": config("language_model", order=0),
        "ngrams: order another": config("language_model", order=4),
        "ngrams: order 10⁹": config("language_model", order=10**9),
        "ngrams: order as text": config("language_model", order="3"),
        "ngrams: order a bool": config("language_model", order=True),
        "ngrams: no order": config("language_model", order=None),
        "config: latent_dim another": config("latent", latent_dim=4),
        "config: latent_dim as text": config("latent", latent_dim="3"),
        "config: latent_dim a bool": config("latent", latent_dim=True),
        "config: latent_dim a megabyte": config("latent", latent_dim="3" * 100_000),
        "config: no latent_dim": config("latent", latent_dim=None),
        "config: heads 0": config("teacher", heads=0),
        "config: heads another": config("teacher", heads=4),
        "config: layers 10⁹": config("teacher", layers=10**9),
        "config: layers another": config("teacher", layers=2),
    }
)


if __name__ == "__main__":
    attacks = {f"bundle, {name}": attack for name, attack in hostile_bundles.ATTACKS.items()} | ATTACKS
    hostile_bundles.main(Path(sys.argv[1]), Path(sys.argv[2]), attacks)
