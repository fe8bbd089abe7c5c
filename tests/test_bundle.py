"""Bundles: saving and loading, and errors about damaged ones."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.numpy
import torch
from torch import nn

from latentmt import networks
from latentmt.bundle import Bundle, kinds_in, open_bundle
from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.errors import UserError
from latentmt.fields.learned import FieldConfig
from latentmt.models.latent import LatentConfig
from latentmt.models.teacher import TeacherConfig
from latentmt.networks import BundleConfig, load_bundle, load_network, quantised, save_bundle
from latentmt.options import DecodingOptions
from latentmt.translator import Translator

SIZE = {"preset": "tiny", "d_model": 32, "d_filter": 32, "layers": 1, "heads": 2}
RULES = (TextRules(lowercase=True), TextRules())
LATENT = LatentConfig(**SIZE, encoder_layers=1, latent_dim=3)  # type: ignore[arg-type]
CONFIGS = {
    "teacher": BundleConfig(languages=("de", "en"), rules=RULES, teacher=TeacherConfig(**SIZE, encoder_layers=1)),  # type: ignore[arg-type]
    "latent": BundleConfig(languages=("de", "en"), rules=RULES, latent=LATENT),
    "score": BundleConfig(
        languages=("de", "en"),
        rules=RULES,
        latent=LATENT,
        field=FieldConfig(kind="score", **SIZE),  # type: ignore[arg-type]
    ),
    "energy": BundleConfig(
        languages=("de", "en"),
        rules=RULES,
        latent=LATENT,
        field=FieldConfig(kind="energy", **SIZE),  # type: ignore[arg-type]
    ),
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(["ein kleiner Satz", "a small sentence"] * 20, TokenizerConfig(vocab_size=400))


def saved(folder: Path, kind: str, tokenizer: Tokenizer, latent: str | None = None) -> tuple[nn.Module, str]:
    torch.manual_seed(sum(map(ord, kind)))
    network = CONFIGS[kind].network(tokenizer.size)
    about = save_bundle(folder, CONFIGS[kind], tokenizer, network.state_dict(), latent=latent, facts={"steps": 3})
    return network, about.fingerprint


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_saved_bundle_loads_equal(tmp_path: Path, tokenizer: Tokenizer, kind: str) -> None:
    network, fingerprint = saved(tmp_path / kind, kind, tokenizer)
    before = torch.get_rng_state()
    loaded = load_bundle(tmp_path / kind)
    assert torch.equal(before, torch.get_rng_state())
    assert loaded.about.kind == kind
    assert loaded.about.fingerprint == fingerprint
    assert loaded.about.facts == {"steps": 3}
    assert loaded.config.rules == RULES
    assert loaded.tokenizer.model == tokenizer.model
    assert not loaded.network.training
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, loaded.network.state_dict()[name]), name
    assert not any(path.name.startswith(".") for path in tmp_path.iterdir())


def test_large_tensors_are_split_and_shards_stay_small(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "SHARD_BYTES", 20_000)
    network, _ = saved(tmp_path / "latent", "latent", tokenizer)
    shards = sorted((tmp_path / "latent").glob("*.safetensors"))
    assert len(shards) > 5
    assert all(shard.stat().st_size < 20_000 + 4_000 for shard in shards)  # the header comes on top
    index = json.loads((tmp_path / "latent" / "model.safetensors.index.json").read_text())
    assert "embedding.weight[1]" in index["weight_map"]
    assert set(index["weight_map"].values()) == {shard.name for shard in shards}
    for name, tensor in load_bundle(tmp_path / "latent").network.state_dict().items():
        assert torch.equal(tensor, network.state_dict()[name])


def test_half_precision_halves_the_bytes(tmp_path: Path, tokenizer: Tokenizer) -> None:
    network, _ = saved(tmp_path / "full", "latent", tokenizer)
    save_bundle(tmp_path / "half", CONFIGS["latent"], tokenizer, quantised(network.state_dict(), ()))
    full, half = (sum(p.stat().st_size for p in (tmp_path / n).glob("*.safetensors")) for n in ("full", "half"))
    assert half < 0.55 * full
    weight = load_bundle(tmp_path / "half").network.get_parameter("embedding.weight")
    assert weight.dtype == torch.float32
    torch.testing.assert_close(weight, network.get_parameter("embedding.weight"), rtol=1e-3, atol=1e-4)


def test_the_same_weights_have_the_same_fingerprint_and_others_another(tmp_path: Path, tokenizer: Tokenizer) -> None:
    network, first = saved(tmp_path / "a", "latent", tokenizer)
    _, again = saved(tmp_path / "b", "latent", tokenizer)
    changed = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    changed["embedding.weight"][0, 0] += 1e-6
    other = save_bundle(tmp_path / "c", CONFIGS["latent"], tokenizer, changed).fingerprint
    assert first == again != other


def test_damaged_files_are_named(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = tmp_path / "latent"
    for damage, message in (
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "safetensors: truncated"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\0\0"[:1]), "safetensors: altered"),
        (lambda path: path.unlink(), "safetensors: missing"),
    ):
        network, _ = saved(folder, "latent", tokenizer)
        assert network
        damage(next(folder.glob("*.safetensors")))
        with pytest.raises(UserError, match=message):
            load_bundle(folder)
    saved(folder, "latent", tokenizer)
    about = json.loads((folder / "format.json").read_text())
    (folder / "format.json").write_text(json.dumps(about | {"format": 99}))
    with pytest.raises(UserError, match="model format 99, this version reads 1"):
        load_bundle(folder)
    with pytest.raises(UserError, match="not a model"):
        load_bundle(tmp_path)
    saved(folder, "latent", tokenizer)
    with pytest.raises(UserError, match="latent: a latent model, where a teacher model is needed"):
        load_bundle(folder, kind="teacher")


def test_what_was_hashed_is_what_is_read(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """A file that is exchanged after the bundle was opened is not loaded, even if its size is the same."""
    for name in ("model-00001-of-00001.safetensors", "config.yaml"):
        saved(tmp_path / "latent", "latent", tokenizer)
        bundle = open_bundle(tmp_path / "latent")
        path = tmp_path / "latent" / name
        path.write_bytes(
            path.read_bytes().replace(b"\n", b" ") if name == "config.yaml" else flipped(path.read_bytes())
        )
        with pytest.raises(UserError, match=f"{name}: altered"):
            load_network(bundle)


def flipped(content: bytes) -> bytes:
    """One bit of the last number is another, which stays a finite number."""
    return content[:-4] + bytes([content[-4] ^ 1]) + content[-3:]


def test_every_flipped_bit_is_noticed_when_a_bundle_is_loaded(tmp_path: Path, tokenizer: Tokenizer) -> None:
    saved(tmp_path / "latent", "latent", tokenizer)
    for path in sorted((tmp_path / "latent").iterdir()):
        if path.name == "format.json":
            continue
        content = path.read_bytes()
        for position in (0, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
            with pytest.raises(UserError, match=f"{path.name}: altered"):
                load_bundle(tmp_path / "latent")
        path.write_bytes(content)
    load_bundle(tmp_path / "latent")


def test_shards_are_read_once_and_one_at_a_time(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "SHARD_BYTES", 20_000)
    saved(tmp_path / "latent", "latent", tokenizer)
    events: list[str] = []

    def read(bundle: Bundle, name: str, original: Callable[[Bundle, str], bytes] = Bundle.read) -> bytes:
        events.append(name)
        return original(bundle, name)

    monkeypatch.setattr(Bundle, "read", read)
    shards = [path.name for path in sorted((tmp_path / "latent").glob("*.safetensors"))]
    parts = open_bundle(tmp_path / "latent").tensors(safetensors.numpy.load)
    assert next(parts).file.name == shards[0]
    assert [name for name in events if name in shards] == shards[:1]
    list(parts)
    assert [name for name in events if name in shards] == shards


def test_a_field_of_another_latent_model_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    _, fingerprint = saved(tmp_path / "latent", "latent", tokenizer)
    saved(tmp_path / "score", "score", tokenizer, latent=fingerprint)
    saved(tmp_path / "teacher", "teacher", tokenizer)
    translator = Translator.load(tmp_path)
    assert translator.methods == ["prior", "delta", "score", "teacher"]
    saved(tmp_path / "energy", "energy", tokenizer, latent="0" * 64)
    with pytest.raises(UserError, match="energy: was trained on another latent model"):
        Translator.load(tmp_path)


def test_translations_keep_order_and_count_and_do_not_depend_on_the_batch(tmp_path: Path, tokenizer: Tokenizer) -> None:
    _, fingerprint = saved(tmp_path / "latent", "latent", tokenizer)
    saved(tmp_path / "score", "score", tokenizer, latent=fingerprint)
    saved(tmp_path / "teacher", "teacher", tokenizer)
    translator = Translator.load(tmp_path)
    texts = ["ein Satz", "", "ein sehr kleiner Satz " * 6, "EIN SATZ", "Satz"]
    for options in (
        DecodingOptions("prior"),
        DecodingOptions("delta", 2),
        DecodingOptions("score", 2),
        DecodingOptions("teacher", beam=2),
    ):
        together = translator.translations(texts, options)
        assert [one.ids for one in together] == [translator.translations([text], options)[0].ids for text in texts]
        assert together[0] == together[3]  # the source is lower-cased
    with pytest.raises(UserError, match="method energy: this model has only prior, delta, score, teacher"):
        translator.translate(texts, method="energy")
    with pytest.raises(UserError, match="no model"):
        Translator.load(tmp_path / "latent")


def test_other_folders_of_a_model_are_left_alone(tmp_path: Path, tokenizer: Tokenizer) -> None:
    saved(tmp_path / "latent", "latent", tokenizer)
    for other in ("latent_old", ".latent.writing"):
        shutil.copytree(tmp_path / "latent", tmp_path / other)
    assert kinds_in(tmp_path) == ["latent"]
    (tmp_path / "teacher").mkdir()
    (tmp_path / "teacher" / "format.json").write_text("{")
    assert kinds_in(tmp_path) == ["latent", "teacher"]  # damaged, which loading says
    with pytest.raises(UserError, match=r"teacher/format\.json: cannot be read"):
        Translator.load(tmp_path)
