"""A hostile or damaged exported model is refused in one line by the ONNX engine, and the file is named."""

import contextlib
import json
import re
import shutil
from pathlib import Path

import hostile_bundles
import numpy as np
import pytest
import torch
from grams import save_language_model
from hostile_bundles import ATTACKS as BUNDLE_ATTACKS
from hostile_exports import ATTACKS, SCALE_ATTACKS, VOCABULARY
from test_bundle import CONFIGS

from latentmt.data.tokenizer import TokenizerConfig, train_tokenizer
from latentmt.engines.onnx.check import check_graph
from latentmt.engines.onnx.engine import OnnxEngine
from latentmt.errors import UserError
from latentmt.export.graph import quantisable
from latentmt.export.model import graph_files
from latentmt.networks import load_bundle, quantised, save_bundle
from latentmt.translator import Translator

NOT_READ = ["weights: one more", "weights: a name of a megabyte", "weights: a name of control characters"]
Outcomes = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with graphs: in single precision, but for the teacher, which has 8 bits and a shortlist."""
    folder, fingerprint = tmp_path_factory.mktemp("model"), None
    pieces = train_tokenizer(["ein kleiner Satz", "a small sentence"] * 20, TokenizerConfig(vocab_size=400))
    likely, common = np.zeros((VOCABULARY, 3), np.uint16), np.arange(9, dtype=np.uint16)
    np.savez_compressed(folder / "shortlist.npz", likely=likely, common=common)
    for kind in ("latent", "score", "teacher"):
        torch.manual_seed(1)
        network = CONFIGS[kind].network(pieces.size)
        matrices = quantisable(network) if kind == "teacher" else set()
        weights = quantised(network.state_dict(), matrices) if matrices else network.state_dict()
        files = graph_files(network, kind, matrices)
        if kind == "teacher":
            files["shortlist.npz"] = (folder / "shortlist.npz").read_bytes()
        latent = fingerprint if kind == "score" else None
        about = save_bundle(folder / kind, CONFIGS[kind], pieces, weights, latent=latent, files=files)
        fingerprint = about.fingerprint if kind == "latent" else fingerprint
    (folder / "shortlist.npz").unlink()
    text = {"languages": CONFIGS["latent"].languages, "rules": CONFIGS["latent"].rules}
    save_language_model(folder, pieces, pieces.encode(["a small sentence", "ein kleiner Satz"] * 5), text)
    return folder


@pytest.fixture(scope="module")
def outcomes(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """How each attack ended."""
    return hostile_bundles.outcomes("hostile_exports.py", model, tmp_path_factory.mktemp("attacks"))


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_in_one_line(outcomes: Outcomes, attack: str) -> None:
    assert outcomes[attack]["ended"] == "refused", outcomes[attack]
    assert re.search(r"/attacks\d/", outcomes[attack]["message"])  # the folder of the attacks: a path is named


@pytest.mark.parametrize("attack", BUNDLE_ATTACKS)
def test_an_attack_on_any_bundle_is_refused_by_this_engine(outcomes: Outcomes, attack: str) -> None:
    """What the engine does not read may be anything: most sizes of networks, and tensors that no graph needs."""
    not_read = attack.startswith("config: ") or attack in NOT_READ
    assert outcomes[f"bundle, {attack}"]["ended"] in ("refused", "loaded" if not_read else "")


@pytest.mark.parametrize("attack", SCALE_ATTACKS)
def test_torch_refuses_bad_scales(model: Path, tmp_path: Path, attack: str) -> None:
    for kind in ("score", "teacher"):
        shutil.copytree(model / kind, tmp_path / kind)
    SCALE_ATTACKS[attack](tmp_path)
    with pytest.raises(UserError, match="teacher"):
        load_bundle(tmp_path / "teacher")


def test_the_model_that_the_attacks_change_is_good(model: Path) -> None:
    translator = Translator.load(model)
    assert isinstance(translator.backend, OnnxEngine)
    assert translator.methods == ["prior", "delta", "score", "teacher"]
    assert translator.tokenizer.size == VOCABULARY
    load_bundle(model / "teacher")


def test_every_prefix_and_every_flipped_bit_of_a_graph_is_checked_without_a_traceback(model: Path) -> None:
    content = (model / "latent" / "posterior_memory.onnx").read_bytes()
    weights = json.loads((model / "latent" / "graphs.json").read_text())["weights"]["posterior_memory"]
    check_graph(content, weights, "x")
    for end in range(1, len(content)):
        with contextlib.suppress(UserError):  # a part may be a graph, too
            check_graph(content[:end], weights, "x")
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(UserError):
            check_graph(bytes(flipped), weights, "x")
