"""Attacks on a model on disk. Each changes a good model, and then writes the hashes anew, as an attacker would.

    python tests/hostile_bundles.py MODEL FOLDER      a line of JSON for each attack: how loading ended

Every attack is loaded in a process of its own with bounds on memory and time. `test_hostile_bundles` expects one
`UserError` of one line each.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load, save

MEMORY = 1 << 30
"""The most that loading may take beside what is loaded already: bytes of address space."""
SECONDS = 30
"""After these it counts as endless. All take less than one."""

Attack = Callable[[Path], object]
SHARD = "model-00001-of-00001.safetensors"
INDEX = "model.safetensors.index.json"
EMBEDDING = "embedding.weight"
NAMES_ARRAYS = ("weights", "translated", "known")


def seal(bundle: Path) -> None:
    """Write the sizes and hashes of the files that are listed, and the checksum, anew."""
    about = json.loads((bundle / "format.json").read_text())
    for name in about["files"]:
        content = (bundle / name).read_bytes()
        about["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    write_format(bundle, with_fingerprint(bundle, about))


def with_fingerprint(bundle: Path, about: dict[str, Any]) -> dict[str, Any]:
    """The same with the fingerprint of its files, which the score network of a latent model then has, too."""
    identity = {
        name: facts["sha256"]
        for name, facts in about["files"].items()
        if name in ("config.yaml", "tokenizer.model", INDEX, "ngrams.npz") or name.endswith(".safetensors")
    }
    fingerprint = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    if bundle.name == "latent":
        field = json.loads((bundle.parent / "score" / "format.json").read_text())
        write_format(bundle.parent / "score", field | {"latent": fingerprint})
    return about | {"fingerprint": fingerprint}


def write_format(bundle: Path, about: Any) -> None:
    """Write format.json with a right checksum, if it has one."""
    has_checksum = isinstance(about, dict) and "checksum" in about
    text = json.dumps(about | {"checksum": ""} if has_checksum else about, indent=2) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    (bundle / "format.json").write_text(text.replace('"checksum": ""', f'"checksum": "{digest}"'))


def raw(name: str, content: bytes | str) -> Attack:
    """Replace a file of the latent model, and its hash."""

    def attack(model: Path) -> None:
        path = model / "latent" / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        if name != "format.json":
            seal(path.parent)

    return attack


def format_(change: Callable[[dict[str, Any]], Any]) -> Attack:
    """Change format.json."""

    def attack(model: Path) -> None:
        about = json.loads((model / "latent" / "format.json").read_text())
        changed = change(about)
        about = about if changed is None else changed
        with contextlib.suppress(LookupError, TypeError, AttributeError):  # its list of files is none
            about = with_fingerprint(model / "latent", about)
        write_format(model / "latent", about)

    return attack


def set_format(**values: Any) -> Attack:
    return format_(lambda about: about | values)


def fingerprint(value: Any) -> Attack:
    """Change the fingerprint alone."""
    return lambda model: write_format(
        model / "latent", json.loads((model / "latent" / "format.json").read_text()) | {"fingerprint": value}
    )


def listed(name: str, **facts: Any) -> Attack:
    """List one more file."""
    right = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    return format_(lambda about: about["files"].update({name: right | facts}))


def facts(name: str, **values: Any) -> Attack:
    """Change what format.json says of a file."""
    return format_(lambda about: about["files"][name].update(values))


def config(change: Callable[[dict[str, Any]], Any]) -> Attack:
    """Change config.yaml."""

    def attack(model: Path) -> None:
        path = model / "latent" / "config.yaml"
        values = yaml.safe_load(path.read_text())
        changed = change(values)
        path.write_text(yaml.safe_dump(values if changed is None else changed, sort_keys=False))
        seal(path.parent)

    return attack


def size(**values: Any) -> Attack:
    return config(lambda tree: tree["latent"].update(values))


def appended(text: str) -> Attack:
    """Add lines to config.yaml."""
    return lambda model: raw("config.yaml", (model / "latent" / "config.yaml").read_text() + text)(model)


def replaced(old: str, new: str) -> Attack:
    """Replace text in config.yaml."""

    def attack(model: Path) -> None:
        text = (model / "latent" / "config.yaml").read_text()
        assert old in text
        raw("config.yaml", text.replace(old, new, 1))(model)

    return attack


def index(change: Callable[[dict[str, Any]], Any]) -> Attack:
    """Change the index of the weights."""

    def attack(model: Path) -> None:
        tree = json.loads((model / "latent" / INDEX).read_text())
        changed = change(tree)
        raw(INDEX, json.dumps(tree if changed is None else changed))(model)

    return attack


def weights(change: Callable[[dict[str, Any]], Any], with_index: bool = True) -> Attack:
    """Change the tensors, and the index with them."""

    def attack(model: Path) -> None:
        tensors = {name: tensor.copy() for name, tensor in load((model / "latent" / SHARD).read_bytes()).items()}
        change(tensors)
        if with_index:
            index(lambda tree: tree.update(weight_map=dict.fromkeys(tensors, SHARD)))(model)
        raw(SHARD, save(tensors))(model)

    return attack


def header(change: Callable[[dict[str, Any]], Any]) -> Attack:
    """Change the header of the safetensors file, and not its data."""

    def attack(model: Path) -> None:
        content = (model / "latent" / SHARD).read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        tree = json.loads(content[8 : 8 + length])
        changed = change(tree)
        text = json.dumps(tree if changed is None else changed).encode()
        raw(SHARD, struct.pack("<Q", len(text)) + text + content[8 + length :])(model)

    return attack


def shard_bytes(change: Callable[[bytes], bytes]) -> Attack:
    return lambda model: raw(SHARD, change((model / "latent" / SHARD).read_bytes()))(model)


def tokenizer(change: Callable[[bytes], bytes]) -> Attack:
    """Change the tokenizer of all bundles."""

    def attack(model: Path) -> None:
        for bundle in (path.parent for path in model.glob("*/format.json")):
            path = bundle / "tokenizer.model"
            path.write_bytes(change(path.read_bytes()))
            seal(bundle)

    return attack


def pieces(change: Callable[[Any], Any]) -> Attack:
    """Change the tokenizer's protocol buffer."""

    def changed(content: bytes) -> bytes:
        from sentencepiece import sentencepiece_model_pb2

        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString(content)
        change(proto)
        serialized: bytes = proto.SerializeToString()
        return serialized

    return tokenizer(changed)


def options(content: str | bytes) -> Attack:
    return lambda model: (model / "options.yaml").write_bytes(content.encode() if isinstance(content, str) else content)


def names(content: bytes) -> Attack:
    return lambda model: (model / "names.npz").write_bytes(content)


def arrays(**content: Any) -> bytes:
    """A file of arrays, as numpy writes it."""
    file = io.BytesIO()
    np.savez_compressed(file, **content)
    return file.getvalue()


def instead(name: str, make: Callable[[Path], object]) -> Attack:
    """Put something else where a file was; format.json still describes the file."""

    def attack(model: Path) -> None:
        path = model / name
        path.unlink(missing_ok=True)
        make(path)

    return attack


def link_outside(name: str) -> Attack:
    """A link to a file outside, which has the right content."""

    def attack(model: Path) -> None:
        path = model / "latent" / name
        outside = model.parent / f"{model.name}.{name}"
        path.rename(outside)
        path.symlink_to(outside)

    return attack


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
    except PermissionError:  # not root
        path.symlink_to("/dev/zero")


def unix_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)
    os.chdir(here)


def sparse(name: str, length: int) -> Attack:
    """A file without content of a size that format.json confirms."""

    def attack(model: Path) -> None:
        os.truncate(model / "latent" / name, length)
        facts(name, bytes=length)(model)

    return attack


def delete(*names: str) -> Attack:
    """Remove files, and what format.json says of them."""

    def attack(model: Path) -> None:
        for name in names:
            (model / "latent" / name).unlink()
        format_(lambda about: [about["files"].pop(name) for name in names] and None)(model)

    return attack


def bundle_of(kind: str, change: Callable[[Path], object]) -> Attack:
    def attack(model: Path) -> None:
        change(model / kind)

    return attack


def other_languages(bundle: Path) -> None:
    text = (bundle / "config.yaml").read_text()
    (bundle / "config.yaml").write_text(text.replace("- de\n", "- fr\n", 1))
    seal(bundle)


def wide_source(bundle: Path) -> None:
    """A field whose latent model is very wide, while the field is not."""
    values = yaml.safe_load((bundle / "config.yaml").read_text())
    values["latent"]["d_model"] = 1 << 20
    (bundle / "config.yaml").write_text(yaml.safe_dump(values))
    seal(bundle)


def billion_laughs() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(lines) + "\n"


def parts(*names: str) -> Attack:
    """The embedding in two blocks of rows with these names."""

    def change(tensors: dict[str, Any]) -> None:
        rows = tensors.pop(EMBEDDING)
        for name, part in zip(names, (rows[:200], rows[200:]), strict=True):
            tensors[name] = part.copy()

    return weights(change)


def at(tensors: dict[str, Any], value: float) -> None:
    tensors[EMBEDDING][3, 3] = value


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


DEEP = 100_000
ATTACKS: dict[str, Attack] = {
    # format.json
    "format: missing": instead("latent/format.json", lambda path: path.with_name("format.jsn").write_text("{}")),
    "format: empty": raw("format.json", ""),
    "format: not JSON": raw("format.json", "kind: latent"),
    "format: truncated": lambda model: os.truncate(model / "latent" / "format.json", 300),
    "format: a list": raw("format.json", "[1]"),
    "format: null": raw("format.json", "null"),
    "format: a string": raw("format.json", '"latent"'),
    "format: deep": raw("format.json", "[" * DEEP + "]" * DEEP),
    "format: deep facts": lambda model: raw(
        "format.json",
        (model / "latent" / "format.json")
        .read_text()
        .replace('"settings": {}', f'"settings": {{"a": {"[" * DEEP}{"]" * DEEP}}}'),
    )(model),
    "format: 64 MB of spaces": lambda model: raw(
        "format.json", (model / "latent" / "format.json").read_text() + " " * 64_000_000
    )(model),
    "format: UTF-16": lambda model: raw(
        "format.json", (model / "latent" / "format.json").read_text().encode("utf-16") + b"\0"
    )(model),
    "format: invalid UTF-8": raw("format.json", b'{"kind": "\xff"}'),
    "format: NUL": raw("format.json", b"\0" * 100),
    "format: a key twice": lambda model: raw(
        "format.json", (model / "latent" / "format.json").read_text().replace("{", '{"kind": "teacher", ', 1)
    )(model),
    "format: number as text": set_format(format="1"),
    "format: number as float": set_format(format=1.0),
    "format: number as bool": set_format(format=True),
    "format: number negative": set_format(format=-1),
    "format: number NaN": set_format(format=float("nan")),
    "format: number of 5,000 digits": raw("format.json", '{"format": ' + "9" * 5000 + "}"),
    "format: unknown key": set_format(pickle="model.pkl"),
    "format: no kind": format_(lambda about: about.pop("kind") and None),
    "format: kind a list": set_format(kind=["latent"]),
    "format: another kind": set_format(kind="teacher"),
    "format: kind a path": set_format(kind="../latent"),
    "format: fingerprint not a hash": fingerprint("x"),
    "format: fingerprint of other files": fingerprint("0" * 64),
    "format: fingerprint null": fingerprint(None),
    "format: parameters negative": set_format(parameters={"embedding": -1}),
    "format: parameters as text": set_format(parameters={"embedding": "many"}),
    "format: parameters a list": set_format(parameters=[1]),
    "format: control characters": set_format(package="\x1b[2J\x1b]0;owned\x07\n"),
    "format: a link": link_outside("format.json"),
    "format: a pipe": instead("latent/format.json", os.mkfifo),
    "format: a folder": instead("latent/format.json", Path.mkdir),
    "format: a device": instead("latent/format.json", device),
    "format: a socket": instead("latent/format.json", unix_socket),
    # The list of files
    "files: none": set_format(files={}),
    "files: no key": format_(lambda about: about.pop("files") and None),
    "files: a list": set_format(files=["config.yaml"]),
    "files: null facts": format_(lambda about: about["files"].update({"config.yaml": None})),
    "files: no hash": format_(lambda about: about["files"]["config.yaml"].pop("sha256") and None),
    "files: negative size": facts("config.yaml", bytes=-1),
    "files: size a float": format_(lambda about: about["files"]["config.yaml"].update(bytes=280.0)),
    "files: size a bool": facts("config.yaml", bytes=True),
    "files: size 10¹⁸": facts("config.yaml", bytes=10**18),
    "files: size of 400 digits": facts("config.yaml", bytes=10**400),
    "files: wrong hash": facts("config.yaml", sha256="0" * 64),
    "files: upper-case hash": format_(
        lambda about: about["files"]["config.yaml"].update(sha256=about["files"]["config.yaml"]["sha256"].upper())
    ),
    "files: hash a number": facts("config.yaml", sha256=0),
    "files: name empty": listed(""),
    "files: name .": listed("."),
    "files: name ..": listed(".."),
    "files: parent": listed("../score/config.yaml"),
    "files: absolute": listed("/etc/hostname"),
    "files: in a folder": listed("sub/weights.safetensors"),
    "files: backslash": listed("..\\config.yaml"),
    "files: NUL": listed("a\0b"),
    "files: line feed": listed("a\nb"),
    "files: 5,000 letters": listed("a" * 5000),
    "files: itself": listed("format.json"),
    "files: /dev/zero": listed("/dev/zero"),
    "files: not there": listed("weights.bin"),
    "files: config.yaml not listed": format_(lambda about: about["files"].pop("config.yaml") and None),
    "files: tokenizer.model not listed": format_(lambda about: about["files"].pop("tokenizer.model") and None),
    "files: index not listed": format_(lambda about: about["files"].pop(INDEX) and None),
    "files: weights not listed": format_(lambda about: about["files"].pop(SHARD) and None),
    "files: config.yaml deleted": delete("config.yaml"),
    "files: index deleted": delete(INDEX),
    "files: 50,000 more": format_(
        lambda about: about["files"].update(
            {f"f{n}": {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()} for n in range(50_000)}
        )
    ),
    **{
        f"{name}: {what}": attack
        for name in ("config.yaml", "tokenizer.model", INDEX, SHARD)
        for what, attack in {
            "a link": link_outside(name),
            "a pipe": instead(f"latent/{name}", os.mkfifo),
            "a folder": instead(f"latent/{name}", Path.mkdir),
            "a device": instead(f"latent/{name}", device),
            "empty": raw(name, ""),
            "a terabyte of nothing": sparse(name, 1 << 40),
        }.items()
    },
    # config.yaml
    "config: a list": raw("config.yaml", "- 1"),
    "config: a scalar": raw("config.yaml", "latent"),
    "config: two documents": appended("---\nlatent: null\n"),
    "config: invalid UTF-8": raw("config.yaml", b"languages: \xff"),
    "config: NUL": raw("config.yaml", b"languages: \0"),
    "config: tabs": raw("config.yaml", "latent:\n\t- 1"),
    "config: deep flow": raw("config.yaml", "latent: " + "[" * 20_000 + "]" * 20_000),
    "config: deep flow unclosed": raw("config.yaml", "latent: " + "{a: " * 20_000),
    "config: deep blocks": raw("config.yaml", "".join(" " * n + f"a{n}:\n" for n in range(400))),
    "config: an alias": replaced("- de\n", "- &x de\n- *x\n"),
    "config: contains itself": appended("field: &f {kind: *f}\n"),
    "config: billion laughs": appended(billion_laughs()),
    "config: merged keys": appended("x: &x {preset: tiny}\ny: {<<: *x}\n"),
    "config: a key twice": appended("languages: [de, en]\n"),
    "config: a Python object": appended("x: !!python/object/apply:os.system [id]\n"),
    "config: an unknown tag": appended("x: !binary abc\n"),
    "config: a date": replaced("- de\n", "- 2020-01-01\n"),
    "config: a mapping as key": appended("? {a: b}\n: c\n"),
    "config: unknown key": appended("trust_remote_code: true\n"),
    "config: 30 MB": appended("# " + "x" * 30_000_000 + "\n"),
    "config: 100,000 keys": appended("".join(f"k{n}: 1\n" for n in range(100_000))),
    "config: a number of 100,000 digits": appended("x: " + "9" * 100_000 + "\n"),
    "config: sexagesimal": appended("x: " + "1:" * 20_000 + "1\n"),
    "config: no network": config(lambda tree: tree.update(latent=None)),
    "config: two networks": config(lambda tree: tree.update(teacher={"preset": "tiny"})),
    "config: a field in the latent model": config(lambda tree: tree.update(field={"kind": "score"})),
    "config: a field of no kind": config(lambda tree: tree.update(field={})),
    "config: an unknown field": config(lambda tree: tree.update(field={"kind": "nothing"})),
    "config: three languages": config(lambda tree: tree["languages"].append("fr")),
    "config: a language of a megabyte": config(lambda tree: tree.update(languages=["x" * 1_000_000, "en"])),
    "config: a language of control characters": lambda model: [
        (
            (path := model / kind / "config.yaml").write_text(path.read_text().replace("- de\n", '- "\\e[2J\\n"\n', 1)),
            seal(model / kind),
        )
        for kind in ("latent", "score", "teacher")
    ],
    "config: no rules": config(lambda tree: tree.pop("rules") and None),
    "config: longest 0": config(lambda tree: tree.update(longest=0)),
    "config: longest negative": config(lambda tree: tree.update(longest=-64)),
    "config: longest 10¹²": config(lambda tree: tree.update(longest=10**12)),
    "config: longest a float": config(lambda tree: tree.update(longest=64.5)),
    "config: longest a bool": config(lambda tree: tree.update(longest=True)),
    "config: unknown preset": size(preset="giant"),
    "config: unknown prior": size(prior="posterior"),
    "config: unknown output": size(output="../../output"),
    "config: width 0": size(d_model=0),
    "config: width negative": size(d_model=-32),
    "config: width odd": size(d_model=33, heads=1),
    "config: width a float": size(d_model=32.0),
    "config: width a bool": size(heads=True),
    "config: width as text": size(d_model="32"),
    "config: width infinite": size(d_model=float("inf")),
    "config: width 10⁶": size(d_model=1_000_000),
    "config: width 2⁴⁰": size(d_model=1 << 40),
    "config: width 10⁴⁰": size(d_model=10**40),
    "config: other width": size(d_model=64),
    "config: filter 2⁴⁰": size(d_filter=1 << 40),
    "config: filter 10⁸": size(d_filter=10**8),
    "config: layers 0": size(layers=0),
    "config: layers 10⁶": size(layers=10**6),
    "config: layers 10¹⁸": size(layers=10**18),
    "config: encoder of 10⁷ layers": size(encoder_layers=10**7),
    "config: heads 0": size(heads=0),
    "config: heads 3": size(heads=3),
    "config: latent of 10⁹": size(latent_dim=10**9),
    "config: latent 0": size(latent_dim=0),
    "config: dropout NaN": size(dropout=float("nan")),
    "config: dropout infinite": size(dropout=float("inf")),
    "config: dropout −1": size(dropout=-1.0),
    "config: dropout 1": size(dropout=1.0),
    "config: width 2²⁰ of the source of a field": bundle_of("score", wide_source),
    "config: a gigabyte": size(d_model=2048, d_filter=8192, layers=2, encoder_layers=2, heads=16),
    "config: wide and deep": size(d_model=16384, d_filter=65536, layers=96, encoder_layers=96, heads=16),
    # The index
    "index: a list": index(lambda tree: [tree]),
    "index: no map": index(lambda tree: tree.pop("weight_map") and None),
    "index: map a list": index(lambda tree: tree.update(weight_map=[SHARD])),
    "index: empty map": index(lambda tree: tree.update(weight_map={})),
    "index: a number as file": index(lambda tree: tree["weight_map"].update({EMBEDDING: 1})),
    "index: a list as file": index(lambda tree: tree["weight_map"].update({EMBEDDING: [SHARD]})),
    "index: a file outside": index(lambda tree: tree["weight_map"].update({EMBEDDING: f"../score/{SHARD}"})),
    "index: /dev/zero": index(lambda tree: tree["weight_map"].update({EMBEDDING: "/dev/zero"})),
    "index: the tokenizer": index(lambda tree: tree["weight_map"].update({EMBEDDING: "tokenizer.model"})),
    "index: a tensor less": index(lambda tree: tree["weight_map"].pop(EMBEDDING) and None),
    "index: a tensor more": index(lambda tree: tree["weight_map"].update({"more": SHARD})),
    "index: deep": raw(INDEX, '{"weight_map": ' + "[" * DEEP + "]" * DEEP + "}"),
    "index: not JSON": raw(INDEX, "weight_map"),
    # The weights
    "weights: not safetensors": raw(SHARD, b"\x80\x04\x95pickle"),
    "weights: a pickle": raw(SHARD, b"cos\nsystem\n(S'id'\ntR."),
    "weights: header of 2⁶³ bytes": shard_bytes(lambda content: struct.pack("<Q", 1 << 63) + content[8:]),
    "weights: header of 0 bytes": shard_bytes(lambda content: struct.pack("<Q", 0) + content[8:]),
    "weights: header longer than the file": shard_bytes(lambda c: struct.pack("<Q", len(c)) + c[8:]),
    "weights: header deep": raw(SHARD, struct.pack("<Q", 2 * DEEP) + b"[" * DEEP + b"]" * DEEP),
    "weights: header not JSON": raw(SHARD, struct.pack("<Q", 8) + b"{{{{{{{{"),
    "weights: a megabyte after the data": shard_bytes(lambda content: content + b"\0" * 1_000_000),
    "weights: cut": shard_bytes(lambda content: content[:-100]),
    "weights: type unknown": header(lambda tree: tree[EMBEDDING].update(dtype="F128")),
    "weights: type of integers": header(lambda tree: tree[EMBEDDING].update(dtype="I32")),
    "weights: type of bytes": header(lambda tree: tree[EMBEDDING].update(dtype="U8")),
    "weights: type a number": header(lambda tree: tree[EMBEDDING].update(dtype=32)),
    "weights: offsets beyond the file": header(lambda tree: tree[EMBEDDING].update(data_offsets=[0, 1 << 40])),
    "weights: offsets negative": header(lambda tree: tree[EMBEDDING].update(data_offsets=[-4, 0])),
    "weights: offsets reversed": header(
        lambda tree: tree[EMBEDDING].update(data_offsets=tree[EMBEDDING]["data_offsets"][::-1])
    ),
    "weights: offsets overlap": header(
        lambda tree: [one.update(data_offsets=[0, 128]) for one in tree.values() if one.get("shape") == [32]] and None
    ),
    "weights: offsets of three": header(lambda tree: tree[EMBEDDING].update(data_offsets=[0, 4, 8])),
    "weights: shape transposed": header(lambda tree: tree[EMBEDDING].update(shape=tree[EMBEDDING]["shape"][::-1])),
    "weights: shape flat": header(lambda tree: tree[EMBEDDING].update(shape=[int(np.prod(tree[EMBEDDING]["shape"]))])),
    "weights: shape negative": header(lambda tree: tree[EMBEDDING].update(shape=[-1, 32])),
    "weights: shape 2⁶² × 4": header(lambda tree: tree[EMBEDDING].update(shape=[1 << 62, 4])),
    "weights: shape 0": header(lambda tree: tree[EMBEDDING].update(shape=[0, 32], data_offsets=[0, 0])),
    "weights: metadata a number": header(lambda tree: tree.update(__metadata__={"format": 1})),
    "weights: NaN": weights(lambda tensors: at(tensors, float("nan"))),
    "weights: infinite": weights(lambda tensors: at(tensors, float("inf"))),
    "weights: −infinite": weights(lambda tensors: at(tensors, -float("inf"))),
    "weights: complex": weights(lambda tensors: tensors.update({EMBEDDING: tensors[EMBEDDING].astype(np.complex64)})),
    "weights: integers": weights(lambda tensors: tensors.update({EMBEDDING: tensors[EMBEDDING].astype(np.int32)})),
    "weights: none": weights(lambda tensors: tensors.clear()),
    "weights: one missing": weights(lambda tensors: tensors.pop(EMBEDDING)),
    "weights: one missing, index kept": weights(lambda tensors: tensors.pop(EMBEDDING), with_index=False),
    "weights: one more": weights(lambda tensors: tensors.update(more=np.zeros(4, np.float32))),
    "weights: one more, index kept": weights(lambda tensors: tensors.update(more=np.zeros(4, np.float32)), False),
    "weights: one row less": weights(lambda tensors: tensors.update({EMBEDDING: tensors[EMBEDDING][1:].copy()})),
    "weights: one row more": weights(
        lambda tensors: tensors.update({EMBEDDING: np.concatenate([tensors[EMBEDDING], tensors[EMBEDDING][:1]])})
    ),
    "weights: a scalar": weights(lambda tensors: tensors.update({EMBEDDING: np.array(1, np.float32)})),
    "weights: part 0 and part 2": parts(f"{EMBEDDING}[0]", f"{EMBEDDING}[2]"),
    "weights: part 1 and part 2": parts(f"{EMBEDDING}[1]", f"{EMBEDDING}[2]"),
    "weights: part −1": parts(f"{EMBEDDING}[0]", f"{EMBEDDING}[-1]"),
    "weights: part x": parts(f"{EMBEDDING}[0]", f"{EMBEDDING}[x]"),
    "weights: part 10³⁰": parts(f"{EMBEDDING}[0]", f"{EMBEDDING}[{10**30}]"),
    "weights: whole and part": parts(EMBEDDING, f"{EMBEDDING}[0]"),
    "weights: a name of a megabyte": weights(lambda tensors: tensors.update({"a" * 1_000_000: np.zeros(1)})),
    "weights: a name of control characters": weights(
        lambda tensors: tensors.update({"\x1b[2J\nowned": np.zeros(1, np.float32)})
    ),
    # The tokenizer
    "tokenizer: random": tokenizer(lambda content: np.random.default_rng(0).bytes(len(content))),
    "tokenizer: text": tokenizer(lambda content: b"not a model"),
    "tokenizer: cut": tokenizer(lambda content: content[: len(content) // 2 + 1]),
    "tokenizer: cut by a byte": tokenizer(lambda content: content[:-1]),
    "tokenizer: a length of 2⁶⁰": tokenizer(lambda content: b"\x0a" + varint(1 << 60) + content),
    "tokenizer: no pieces": pieces(lambda proto: proto.ClearField("pieces")),
    "tokenizer: one piece": pieces(lambda proto: proto.__getattribute__("pieces").__delitem__(slice(1, None))),
    "tokenizer: fewer pieces": pieces(lambda proto: proto.__getattribute__("pieces").__delitem__(slice(-9, None))),
    "tokenizer: more pieces": pieces(lambda proto: [proto.pieces.add(piece=f"{n}ß", score=-9) for n in range(9)]),
    "tokenizer: other special ids": pieces(
        lambda proto: [setattr(proto.pieces[0], "piece", "</s>"), setattr(proto.pieces[3], "piece", "<pad>")]
    ),
    "tokenizer: no unknown piece": pieces(lambda proto: setattr(proto.pieces[1], "type", 1)),
    "tokenizer: a piece twice": pieces(lambda proto: setattr(proto.pieces[300], "piece", proto.pieces[301].piece)),
    "tokenizer: an empty piece": pieces(lambda proto: setattr(proto.pieces[300], "piece", "")),
    "tokenizer: no bytes": pieces(
        lambda proto: [setattr(piece, "type", 1) for piece in proto.pieces if piece.type == 6]
    ),
    "tokenizer: a normaliser of rubbish": pieces(
        lambda proto: setattr(proto.normalizer_spec, "precompiled_charsmap", b"\xff\xff\xff\x7f" + b"x" * 50)
    ),
    "tokenizer: another one": bundle_of(
        "score",
        lambda bundle: [
            (bundle / "tokenizer.model").write_bytes((bundle / "tokenizer.model").read_bytes() + b"\x12\x00"),
            seal(bundle),
        ],
    ),
    # The options
    "options: not YAML": options("steps: ["),
    "options: a list": options("- 1"),
    "options: unknown key": options("temperature: 1.0"),
    "options: 10⁹ steps": options("{method: score, steps: 1000000000}"),
    "options: steps a float": options("{method: score, steps: 1.5}"),
    "options: bias NaN": options("{method: score, length_bias: .nan}"),
    "options: unknown method": options("method: magic"),
    "options: an alias": options("method: &m score\nrerank: *m\n"),
    "options: deep": options("method: " + "[" * 20_000),
    "options: 30 MB": options("# " + "x" * 30_000_000),
    "options: invalid UTF-8": options(b"method: \xff"),
    "options: a pipe": instead("options.yaml", os.mkfifo),
    "options: a device": instead("options.yaml", device),
    "options: a folder": instead("options.yaml", Path.mkdir),
    # What names look like
    "names: rubbish": names(b"PK\x03\x04" + b"x" * 100),
    "names: pickled": names(arrays(weights=np.array([{}], dtype=object))),
    "names: none": names(arrays()),
    "names: fewer weights": names(arrays(**dict.fromkeys(NAMES_ARRAYS, np.zeros(9, dtype=np.uint8)))),
    "names: signed": names(arrays(**dict.fromkeys(NAMES_ARRAYS, np.zeros(1 << 15, dtype=np.int8)))),
    "names: 200 MB of nothing": names(arrays(**dict.fromkeys(NAMES_ARRAYS, np.zeros(200_000_000, dtype=np.uint8)))),
    "names: 30 MB": names(b"x" * 30_000_000),
    "names: a pipe": instead("names.npz", os.mkfifo),
    "names: a folder": instead("names.npz", Path.mkdir),
    # The model
    "model: no latent model": lambda model: shutil.rmtree(model / "latent"),
    "model: nothing": lambda model: [shutil.rmtree(model / kind) for kind in ("latent", "score", "teacher")],
    "model: other languages": bundle_of("score", other_languages),
    "model: score of another latent model": bundle_of(
        "score",
        lambda bundle: write_format(bundle, json.loads((bundle / "format.json").read_text()) | {"latent": "0" * 64}),
    ),
    "model: teacher in the place of score": lambda model: [
        shutil.rmtree(model / "score"),
        shutil.copytree(model / "teacher", model / "score"),
        write_format(model / "score", json.loads((model / "score" / "format.json").read_text()) | {"kind": "score"}),
    ],
    "model: latent a file": lambda model: [
        shutil.rmtree(model / "latent"),
        (model / "latent").write_text("latent"),
    ],
}


def outcome(model: Path) -> dict[str, Any]:
    """How loading a model and translating a word ends, in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY,) * 2)
            signal.alarm(SECONDS)  # ends the process
            os.write(write, json.dumps(_loaded(model)).encode()[:4000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    if content:
        found: dict[str, Any] = json.loads(content)
        return found
    return {"ended": "endless" if os.WTERMSIG(status) == signal.SIGALRM else f"died ({status})"}


def _loaded(model: Path) -> dict[str, Any]:
    from latentmt.errors import UserError
    from latentmt.translator import Translator

    try:
        translator = Translator.load(model)
        translator.translate("ein kleiner Satz")
        for method in ("delta", "teacher"):
            translator.translate("ein kleiner Satz", method=method)
        translator.translate("ein kleiner Satz", method="score", lengths=2, rerank="teacher")
    except UserError as error:
        one_line = re.fullmatch(r"[^\x00-\x1f\x7f]{5,400}", str(error))
        return {"ended": "refused" if one_line else "refused, not in one line", "message": str(error)[:500]}
    except BaseException as error:
        return {"ended": "traceback", "message": "".join(traceback.format_exception_only(error))[:500]}
    return {"ended": "loaded"}


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def outcomes(script: str, model: Path, folder: Path) -> dict[str, dict[str, str]]:
    """How each attack of a script of this folder on a model ended."""
    command = [sys.executable, str(Path(__file__).parent / script), str(model), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {found["attack"]: found for found in map(json.loads, done.stdout.splitlines())}


def main(good: Path, folder: Path, attacks: Mapping[str, Attack]) -> None:
    import torch

    torch.set_num_threads(1)
    assert _loaded(good) == {"ended": "loaded"}  # all imports are done before the processes part
    for number, (name, attack) in enumerate(attacks.items()):
        model = folder / str(number)
        shutil.copytree(good, model)
        attack(model)
        print(json.dumps({"attack": name, **outcome(model)}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), ATTACKS)
