"""Chooses the engine that runs a model. An engine is imported only if it is used.

On a GPU it is torch. On a CPU it is ONNX if the model was exported, and torch otherwise.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from latentmt.bundle import LANGUAGE_MODEL, Bundle
from latentmt.data.tokenizer import Tokenizer
from latentmt.display import info
from latentmt.engines.backend import Backend
from latentmt.errors import UserError
from latentmt.ngrams.model import FILE, MAX_ORDER, NgramModel

Engine = Literal["auto", "onnx", "torch"]
GRAPHS_FILE = "graphs.json"
"""The file that every exported bundle has."""
INSTALL_TORCH = "pip install 'latentmt[torch]'"


def load_backend(
    bundles: Mapping[str, Bundle],
    device: str,
    threads: int | None,
    dtype: Any,
    graphs: bool | None,
    engine: str = "auto",
) -> Backend:
    """Load an engine from bundles (see `Translator.load`)."""
    if engine not in get_args(Engine):
        raise UserError(f"engine {engine}: expected one of {', '.join(get_args(Engine))}")
    folder = next(iter(bundles.values())).folder.parent
    networks = {kind: bundle for kind, bundle in bundles.items() if kind != LANGUAGE_MODEL}
    without = [kind for kind, bundle in networks.items() if GRAPHS_FILE not in bundle.about.files]
    exported = not {"latent", "teacher"} & set(without)
    if engine == "onnx" and not exported:
        raise UserError(f"{folder}: has no graphs for the ONNX engine; latentmt export writes them")
    if engine == "onnx" and device not in ("cpu", "auto"):
        raise UserError(f"device {device}: the ONNX engine runs on a CPU")
    complete = exported and not (without and _has_torch())  # a field that only torch can run is not given up for speed
    if engine == "onnx" or (engine == "auto" and complete and _prefers_onnx(device, dtype, graphs)):
        from latentmt.engines.onnx.engine import OnnxEngine

        return OnnxEngine(bundles, threads)
    if not _has_torch():
        why = "has no graphs for the ONNX engine" if engine == "auto" and not exported else f"device {device}"
        raise UserError(f"{folder}: {why}, so torch is needed: {INSTALL_TORCH}")
    from latentmt.engines.torch_engine import load_torch_engine

    return load_torch_engine(bundles, device, threads, dtype, graphs)


def load_language_model(bundles: Mapping[str, Bundle]) -> NgramModel | None:
    """The language model of a model, if it has one."""
    if not (bundle := bundles.get(LANGUAGE_MODEL)):
        return None
    where, order = bundle.folder / FILE, (bundle.header.language_model or {}).get("order")
    if FILE not in bundle.about.files or type(order) is not int or not 2 <= order <= MAX_ORDER:
        raise UserError(f"{bundle.folder}: not a language model")
    try:
        return NgramModel.from_bytes(bundle.read(FILE), order, bundle.tokenizer.size)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def torch_backend(
    tokenizer: Tokenizer, latent: Any, fields: Mapping[str, Any], teacher: Any, graphs: bool | None
) -> Backend:
    """A torch engine with networks in memory."""
    from latentmt.engines.torch_engine import make_torch_engine

    return make_torch_engine(tokenizer, latent, fields, teacher, graphs)


def _prefers_onnx(device: str, dtype: Any, graphs: bool | None) -> bool:
    """Whether an exported model runs on a CPU, without anything that only torch has."""
    if dtype is not None or graphs is not None or device not in ("cpu", "auto"):
        return False
    if device == "cpu" or not _may_have_gpu():
        return True
    if not _has_torch():
        info(f"a GPU is not used, since torch is not installed: {INSTALL_TORCH}")
        return True
    from latentmt.device import AUTO, find_device

    return find_device(AUTO).type == "cpu"


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _may_have_gpu() -> bool:
    """Whether there are signs of an NVIDIA driver. Importing torch to ask it would take seconds."""
    return any(Path(path).exists() for path in ("/dev/nvidiactl", "/dev/dxg")) or shutil.which("nvidia-smi") is not None
