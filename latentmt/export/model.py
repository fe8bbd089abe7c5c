"""Exports a model as it ships: weights in 8 bits, and graphs for the ONNX engine.

One set of weights serves both engines: torch multiplies the 8-bit weights by their scales when it loads them. What was
exported is compared with the model it was made from before it takes its place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from torch import nn

from latentmt.bundle import LANGUAGE_MODEL, Bundle, check_replaceable, is_field, kinds_in, open_model
from latentmt.config import YAML_LIMIT, to_dict, to_json
from latentmt.data.corpus import Corpus
from latentmt.engines.backend import Backend
from latentmt.engines.load import GRAPHS_FILE
from latentmt.engines.onnx.engine import OnnxEngine
from latentmt.engines.onnx.graphs import GraphIndex
from latentmt.engines.onnx.shortlist import FILE as SHORTLIST_FILE
from latentmt.engines.torch_engine import load_torch_engine
from latentmt.errors import UserError
from latentmt.export.graph import quantisable
from latentmt.export.networks import graphs
from latentmt.export.outputs import output_graphs
from latentmt.export.shortlist import LIKELY, learn_shortlist
from latentmt.fields.registry import field_types
from latentmt.files import make_folder, read_plain, remove, remove_stale, temporary_name, write_atomically
from latentmt.measure.tokens import edit_distance
from latentmt.models.latent import LatentModel
from latentmt.networks import load_network, quantised, replace_bundle, save_bundle
from latentmt.options import DecodingOptions
from latentmt.text.names import FILE as NAMES_FILE
from latentmt.text.names import MAX_BYTES as NAMES_LIMIT
from latentmt.translator import OPTIONS_FILES

Precision = Literal["int8", "float16"]
"""How matrices are stored. The ONNX engine multiplies int8 in int8, and float16 in single precision."""
COMPARED = 200
"""Sentences that both engines translate."""
COMPARED_LM_WEIGHT = 0.25
"""The weight of the language model there, if there is one."""
MIN_AGREEMENT = 0.9
"""The share of tokens that must be the same. int8 changes 3 to 4% of them, without a change of BLEU."""


@dataclass(frozen=True)
class Agreement:
    """How far the exported model and the one it was made from write the same."""

    options: str
    tokens: float
    """The share of tokens that are the same: 1 − edits / tokens."""
    sentences: float


@dataclass(frozen=True)
class Exported:
    """What was written."""

    sizes: dict[str, int]
    """Bytes of each bundle."""
    agreements: list[Agreement]


def export(
    model: Path,
    folder: Path,
    corpus: Path | None = None,
    kinds: Sequence[str] | None = None,
    precision: str = "int8",
) -> Exported:
    """Write a model's bundles, or those of these kinds, as they ship.

    The training set of the corpus gives the shortlist, and its development set is what the engines translate to be
    compared. The latent model has another fingerprint then, which its fields record. The model's default options and
    its file of names are copied if all bundles are.
    """
    if precision not in get_args(Precision):
        raise UserError(f"precision {precision}: expected one of {', '.join(get_args(Precision))}")
    chosen = _chosen(model, kinds)
    options = _options(model) if chosen == kinds_in(model) else None
    names = _names(model) if chosen == kinds_in(model) else None
    for place in (folder.parent, folder):
        remove_stale(place)
    _check_target(model, folder, chosen, options)
    text = _corpus(model, corpus)
    bundles = {kind: bundle for kind, bundle in open_model(model).items() if kind in chosen}
    first = next(iter(bundles.values()))
    if first.tokenizer.fingerprint != text.manifest.tokenizer:
        raise UserError(f"{text.folder}: has another tokenizer than {model}")
    temporary = make_folder(temporary_name(folder))
    try:
        sizes = _write(bundles, temporary, precision, text)
        agreements = _compare(bundles, temporary, text)
        for agreement in agreements:
            if agreement.tokens < MIN_AGREEMENT:
                raise UserError(
                    f"{model}: exported, only {agreement.tokens:.1%} of the tokens of {agreement.options} are the same "
                    f"({MIN_AGREEMENT:.0%} needed); nothing was written"
                )
        make_folder(folder)
        for kind in chosen:
            replace_bundle(folder / kind, temporary / kind)
    finally:
        remove(temporary)
    if options is not None:
        write_atomically(folder / OPTIONS_FILES[0], options)
    if names is not None:
        write_atomically(folder / NAMES_FILE, names)
    return Exported(sizes, agreements)


def _options(model: Path) -> bytes | None:
    """The content of the model's default options."""
    path = next((path for name in OPTIONS_FILES if os.path.lexists(path := model / name)), None)
    return read_plain(path, YAML_LIMIT) if path else None


def _names(model: Path) -> bytes | None:
    """The content of the model's file of names."""
    path = model / NAMES_FILE
    return read_plain(path, NAMES_LIMIT) if os.path.lexists(path) else None


def _check_target(model: Path, folder: Path, kinds: Sequence[str], options: bytes | None) -> None:
    """Refuse, before anything is written, to overwrite the model itself, or what is not an exported model."""
    source, target = model.resolve(), folder.resolve()
    if source == target or source in target.parents or target in source.parents:
        raise UserError(f"{folder}: is not apart from {model}; export to another folder")
    for kind in kinds:
        check_replaceable(folder / kind)
    present = folder / OPTIONS_FILES[0]
    if options is not None and os.path.lexists(present) and read_plain(present, YAML_LIMIT) != options:
        raise UserError(f"{present}: has other options than {model}; move it away")


def _corpus(model: Path, corpus: Path | None) -> Corpus:
    """The corpus of that folder, or by default that of the model's work folder."""
    folders = [corpus] if corpus else [model / "distilled", model / "corpus"]
    for folder in folders:
        if corpus or (folder / "manifest.json").exists():
            return Corpus.load(folder)
    raise UserError(f"{model}: has no corpus; name one with --corpus")


def _chosen(model: Path, kinds: Sequence[str] | None) -> list[str]:
    available = kinds_in(model)
    if not available:
        raise UserError(f"{model}: no model (no folder in it holds a bundle)")
    if missing := [kind for kind in kinds or () if kind not in available]:
        raise UserError(f"{model}: holds no {missing[0]} model")
    chosen = [kind for kind in available if not kinds or kind in kinds]
    if "latent" not in chosen and any(map(is_field, chosen)):
        raise UserError("a field is of no use without its latent model: export that, too")
    if chosen == [LANGUAGE_MODEL]:
        raise UserError("a language model is of no use alone: export the latent model, too")
    return chosen


def _write(bundles: dict[str, Bundle], folder: Path, precision: str, corpus: Corpus) -> dict[str, int]:
    sizes: dict[str, int] = {}
    latent: str | None = None
    pieces = corpus.tokenizer.pieces(range(corpus.tokenizer.size))
    for kind, bundle in bundles.items():
        if kind == LANGUAGE_MODEL:
            sizes[kind] = _copy(bundle, folder / kind)
            continue
        loaded = load_network(bundle)
        matrices = quantisable(loaded.network) if precision == "int8" else set()
        files = graph_files(loaded.network, kind, matrices)
        if kind in LIKELY:
            files[SHORTLIST_FILE] = learn_shortlist(corpus.split("train"), pieces, LIKELY[kind])
        about = save_bundle(
            folder / kind,
            loaded.config,
            loaded.tokenizer,
            quantised(loaded.network.state_dict(), matrices),
            latent=latent if is_field(kind) else None,
            facts=loaded.about.facts,
            files=files,
        )
        latent = about.fingerprint if kind == "latent" else latent
        sizes[kind] = sum(file.bytes for file in about.files.values())
    return sizes


def _copy(bundle: Bundle, folder: Path) -> int:
    """Write a bundle as it is; its bytes."""
    make_folder(folder)
    contents = {name: bundle.read(name) for name in bundle.about.files}
    for name, content in contents.items():
        write_atomically(folder / name, content)
    write_atomically(folder / "format.json", to_json(bundle.about))
    return sum(map(len, contents.values()))


def graph_files(network: nn.Module, kind: str, matrices: set[str]) -> dict[str, bytes]:
    """The graphs of a network and their index. Empty for a field that has none."""
    built = graphs(network, kind, matrices)
    if not built:
        return {}
    hint = field_types()[kind].hint if kind in field_types() else ""
    upsampling = output_graphs(network).upsampling if isinstance(network, LatentModel) else None
    weights = {name: graph.weights for name, graph in built.items()}
    index = GraphIndex(weights=weights, hint=hint, upsampling=upsampling)
    files = {f"{name}.onnx": graph.content for name, graph in built.items()}
    return files | {GRAPHS_FILE: json.dumps(to_dict(index)).encode()}


def _compare(bundles: dict[str, Bundle], folder: Path, corpus: Corpus) -> list[Agreement]:
    """Translate sentences with the model in torch and with what was exported, by every method that both have."""
    source = corpus.split("dev").source
    chosen = np.linspace(0, len(source) - 1, min(COMPARED, len(source))).astype(int).tolist()  # of every part
    sentences = [source[index].tolist() for index in chosen]
    before: Backend = load_torch_engine(bundles, "cpu", None, None, None)
    after: Backend = OnnxEngine(open_model(folder))
    tried = [DecodingOptions(method, beam=1) for method in after.methods]
    if after.has_language_model:
        tried.append(DecodingOptions("prior", lm_weight=COMPARED_LM_WEIGHT))
    if "teacher" in after.rerankers and after.latent_dim:
        tried.append(DecodingOptions(after.default_method, lengths=2, rerank="teacher"))
    return [_agreement(before, after, sentences, options) for options in tried]


def _agreement(before: Backend, after: Backend, sentences: list[list[int]], options: DecodingOptions) -> Agreement:
    pairs = [
        (expected.readable, found.readable)
        for expected, found in zip(before.best(sentences, options), after.best(sentences, options), strict=True)
    ]
    edits = sum(edit_distance(*pair) for pair in pairs)
    tokens = sum(max(len(expected), len(found)) for expected, found in pairs)
    same = sum(expected == found for expected, found in pairs)
    return Agreement(str(options), 1 - edits / max(tokens, 1), same / max(len(pairs), 1))
