"""Exported models: stored in 8 or 16 bits with their graphs, found by name, the default when no name is given."""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from grams import save_language_model
from lively import save_lively_model
from safetensors.torch import load_file
from tiny import write_corpus, write_models

from latentmt import cli, installed
from latentmt.bundle import LANGUAGE_MODEL, read_format
from latentmt.data.corpus import Corpus, Sentences, Split
from latentmt.data.text import Pair
from latentmt.data.tokenizer import EOS
from latentmt.engines.onnx.engine import OnnxEngine
from latentmt.engines.onnx.shortlist import Shortlist
from latentmt.engines.torch_engine import TorchEngine
from latentmt.errors import UserError
from latentmt.export import model as export_module
from latentmt.export import shortlist as shortlist_module
from latentmt.export.model import Agreement, export
from latentmt.export.names import learn_names
from latentmt.export.shortlist import learn_shortlist
from latentmt.measure.evaluate import Sweep, sweep_options
from latentmt.networks import load_bundle
from latentmt.options import DecodingOptions
from latentmt.translator import Translator


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work folder: a corpus, and untrained networks of all kinds."""
    folder = tmp_path_factory.mktemp("model")
    write_models(folder, write_corpus(folder, held_out=12))
    return folder


@pytest.fixture(scope="module")
def exported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In 16 bits, without the energy, which has no graph."""
    folder = tmp_path_factory.mktemp("exported") / "xy"
    export(model, folder, kinds=["latent", "score", "teacher"], precision="float16")
    return folder


@pytest.fixture
def shipped(exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Latent model and score, installed under a name."""
    monkeypatch.setattr(installed, "PRETRAINED", tmp_path / "pretrained")
    for kind in ("latent", "score"):
        shutil.copytree(exported / kind, tmp_path / "pretrained" / "xy" / kind)
    return tmp_path / "pretrained" / "xy"


@pytest.fixture
def agreeing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Untrained networks are so undecided that 8 bits change much of what they write."""
    monkeypatch.setattr(export_module, "MIN_AGREEMENT", 0.0)


@pytest.mark.usefixtures("agreeing")
@pytest.mark.parametrize("precision", ["int8", "float16"])
def test_an_exported_model_is_the_same_rounded(model: Path, tmp_path: Path, precision: str) -> None:
    result = export(model, tmp_path / "out", precision=precision)
    assert list(result.sizes) == ["latent", "energy", "score", "teacher"]
    for kind in result.sizes:
        before, after = load_bundle(model / kind), load_bundle(tmp_path / "out" / kind)
        assert after.config == before.config
        assert after.about.facts == before.about.facts
        assert after.about.fingerprint != before.about.fingerprint
        stored = load_file(tmp_path / "out" / kind / "model-00001-of-00001.safetensors")
        for name, weight in before.network.state_dict().items():
            rounded = after.network.state_dict()[name]
            if stored[name].dtype == torch.int8:
                step = weight.abs().amax(1, keepdim=True) / 127
                assert ((rounded - weight).abs() <= 0.5001 * step).all()
            else:
                torch.testing.assert_close(rounded, weight.half().float(), rtol=0, atol=0)
        kinds = {tensor.dtype for tensor in stored.values()}
        assert kinds == ({torch.int8, torch.float32, torch.float16} if precision == "int8" else {torch.float16})
    weights = sum(len(path.read_bytes()) for path in (tmp_path / "out").glob("*/*.safetensors"))
    assert weights < {"int8": 0.45, "float16": 0.6}[precision] * sum(
        len(path.read_bytes()) for path in model.glob("*/*.safetensors")
    )


def test_both_engines_read_one_bundle(exported: Path, model: Path) -> None:
    text, options = "Anna hat zwei Lampen.", DecodingOptions("score", 1, lengths=3, samples=2, rerank="teacher")
    torch_, onnx = (Translator.load(exported, "cpu", engine=engine) for engine in ("torch", "onnx"))
    assert isinstance(torch_.backend, TorchEngine)
    assert isinstance(onnx.backend, OnnxEngine)
    assert torch_.fingerprints == onnx.fingerprints
    ids = torch_.sentences(text)
    for one, other in zip(
        torch_.backend.candidates(ids, options)[0].all, onnx.backend.candidates(ids, options)[0].all, strict=True
    ):
        assert one.decoded == other.decoded
    assert Translator.load(exported, "cpu", dtype=torch.float64).backend.info["dtype"] == "float64"


def test_the_engine_follows_from_model_and_device(exported: Path, model: Path, tmp_path: Path) -> None:
    assert isinstance(Translator.load(exported, "cpu").backend, OnnxEngine)
    assert isinstance(Translator.load(model, "cpu").backend, TorchEngine)
    with pytest.raises(UserError, match="has no graphs for the ONNX engine; latentmt export writes them"):
        Translator.load(model, engine="onnx")
    with pytest.raises(UserError, match="device cuda: the ONNX engine runs on a CPU"):
        Translator.load(exported, "cuda", engine="onnx")
    with pytest.raises(UserError, match="engine tpu: expected one of auto, onnx, torch"):
        Translator.load(exported, engine="tpu")
    with_energy = tmp_path / "mixed"  # a method that only torch has is not given up
    shutil.copytree(exported, with_energy)
    export(model, tmp_path / "all", precision="float16")
    shutil.copytree(tmp_path / "all" / "energy", with_energy / "energy")
    for kind in ("latent", "score"):
        shutil.rmtree(with_energy / kind)
        shutil.copytree(tmp_path / "all" / kind, with_energy / kind)
    assert "energy" in Translator.load(with_energy, "cpu").methods
    assert Translator.load(with_energy, "cpu", engine="onnx").methods == ["prior", "delta", "score", "teacher"]


def test_agreement_is_measured_and_a_bad_export_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = export(model, tmp_path / "good", precision="float16")
    assert [each.options for each in result.agreements] == [
        *("L=0", "delta-1", "score-1", "teacher beam 1"),
        "score-1 2×1 by teacher",
    ]
    assert min(each.tokens for each in result.agreements) > 0.95
    untouched = (tmp_path / "good" / "latent" / "format.json").read_text()

    class Deaf(OnnxEngine):
        def candidates(self, sentences: Sequence[Sequence[int]], *rest: object) -> list:  # type: ignore[type-arg, override]
            return super().candidates([[EOS] for _ in sentences], *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(export_module, "OnnxEngine", Deaf)
    with pytest.raises(
        UserError, match=r"only .*% of the tokens of L=0 are the same \(90% needed\); nothing was written"
    ):
        export(model, tmp_path / "good", precision="float16")
    assert (tmp_path / "good" / "latent" / "format.json").read_text() == untouched
    assert {path.name for path in tmp_path.iterdir()} == {"good"}
    assert Agreement("L=0", 0.5, 0.1).tokens == 0.5


def test_a_model_with_ctc_is_exported(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_models(tmp_path / "ctc", Corpus.load(model / "corpus"), output="ctc")
    result = export(tmp_path / "ctc", tmp_path / "float16", model / "corpus", ["latent", "score"], "float16")
    assert [each.options for each in result.agreements] == ["L=0", "delta-1", "score-1"]
    assert min(each.tokens for each in result.agreements) > 0.95
    monkeypatch.setattr(export_module, "MIN_AGREEMENT", 0.0)  # as in `agreeing`
    result = export(tmp_path / "ctc", tmp_path / "int8", model / "corpus", ["latent", "score"])
    assert {"shortlist.npz", "decode_shortlist.onnx"} <= read_format(tmp_path / "int8" / "latent").files.keys()
    assert "shortlist.npz" not in read_format(tmp_path / "int8" / "score").files
    assert min(each.tokens for each in result.agreements) > 0.5
    for precision in ("float16", "int8"):
        onnx = Translator.load(tmp_path / precision)
        assert isinstance(onnx.backend, OnnxEngine)
        assert onnx.translate("Anna hat zwei Lampen.", steps=2, lengths=2, samples=2, rerank="marginal")


def test_a_language_model_is_copied(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "COMPARED", 3)
    corpus = Corpus.load(model / "corpus")
    write_models(tmp_path / "ctc", corpus, output="ctc")
    text = {"languages": corpus.manifest.languages, "rules": corpus.manifest.rules}
    targets = corpus.split("train").target
    rows = [targets[number].tolist() for number in range(30)]
    save_language_model(tmp_path / "ctc", corpus.tokenizer, rows, text)
    kinds = ["latent", LANGUAGE_MODEL]
    result = export(tmp_path / "ctc", tmp_path / "out", model / "corpus", kinds, "float16")
    assert [each.options for each in result.agreements] == ["L=0", "delta-1", "L=0 lm 0.25"]
    assert min(each.tokens for each in result.agreements) > 0.95
    before, after = tmp_path / "ctc" / LANGUAGE_MODEL, tmp_path / "out" / LANGUAGE_MODEL
    assert {path.name: path.read_bytes() for path in after.iterdir()} == {
        path.name: path.read_bytes() for path in before.iterdir()
    }
    assert result.sizes[LANGUAGE_MODEL] == sum(
        path.stat().st_size for path in after.iterdir() if path.name != "format.json"
    )
    translators = [Translator.load(tmp_path / "out", engine=engine) for engine in ("onnx", "torch")]
    read = [[one.translate("Anna hat zwei Lampen.", lm_weight=weight) for weight in (0.0, 0.5)] for one in translators]
    assert read[0] == read[1]
    assert read[0][0] != read[0][1]
    export(tmp_path / "out", tmp_path / "again", model / "corpus", precision="float16")
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == sorted(kinds)
    with pytest.raises(UserError, match=r"^a language model is of no use alone: export the latent model, too$"):
        export(tmp_path / "ctc", tmp_path / "alone", model / "corpus", [LANGUAGE_MODEL], "float16")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kinds": ["posterior"]}, "holds no posterior model"),
        ({"kinds": ["score"]}, "no use without its latent"),
        ({"precision": "int4"}, "precision int4: expected one of int8, float16"),
        ({"corpus": Path("nowhere")}, "nowhere"),
    ],
)
def test_invalid_exports_are_refused(model: Path, tmp_path: Path, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        export(model, tmp_path / "out", **arguments)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="no model"):
        export(tmp_path, tmp_path / "out")


def test_a_model_is_not_exported_onto_itself(model: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(model)
    files = {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}
    for target in (model, model / "latent" / "..", model / "exported", model.parent, tmp_path / "link"):
        with pytest.raises(UserError, match=r"is not apart from .*; export to another folder"):
            export(model, target, precision="float16")
    assert {path: path.read_bytes() for path in model.rglob("*") if path.is_file()} == files


def test_what_is_not_an_exported_model_is_not_overwritten(model: Path, tmp_path: Path) -> None:
    """An exported model is replaced, also one with another set of files."""
    out = tmp_path / "out"
    (out / "latent").mkdir(parents=True)
    (out / "latent" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds notes\.txt, which is not part of a model"):
        export(model, out, kinds=["latent"], precision="float16")
    assert [path.name for path in out.rglob("*")] == ["latent", "notes.txt"]
    (out / "latent" / "notes.txt").unlink()
    for _ in range(2):
        export(model, out, kinds=["latent"], precision="float16")
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
    assert {path.name for path in out.iterdir()} == {"latent"}
    (out / "teacher").write_text("mine")
    with pytest.raises(UserError, match="teacher: is not the folder of a model"):
        export(model, out, kinds=["teacher"], precision="float16")
    assert (out / "teacher").read_text() == "mine"


def test_other_default_options_are_not_overwritten(exported: Path, model: Path, tmp_path: Path) -> None:
    shutil.copytree(exported / "latent", tmp_path / "in" / "latent")
    (tmp_path / "in" / "options.yaml").write_text("steps: 3")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "options.yaml").write_text("steps: 4")
    with pytest.raises(UserError, match=r"options\.yaml: has other options than"):
        export(tmp_path / "in", tmp_path / "out", model / "corpus", precision="float16")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["options.yaml"]


def test_a_model_without_a_corpus_needs_one_with_its_pieces(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model / "teacher", tmp_path / "model" / "teacher")
    with pytest.raises(UserError, match="has no corpus; name one with --corpus"):
        export(tmp_path / "model", tmp_path / "out")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "recipe").mkdir()
    write_corpus(tmp_path / "other", held_out=3)
    manifest = tmp_path / "other" / "corpus" / "manifest.json"
    values = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(values | {"tokenizer": "0" * 64}))
    with pytest.raises(UserError, match="corpus"):
        export(tmp_path / "model", tmp_path / "out", tmp_path / "other" / "corpus")
    assert not (tmp_path / "out").exists()


# The shortlist.


def _split(pairs: Sequence[tuple[list[int], list[int]]]) -> Split:
    def side(sentences: list[list[int]]) -> Sentences:
        offsets = np.cumsum([0, *map(len, sentences)])
        return Sentences(np.array([id_ for ids in sentences for id_ in ids], dtype=np.uint16), offsets)

    return Split(side([source for source, _ in pairs]), side([target for _, target in pairs]))


def test_a_shortlist_knows_which_piece_translates_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortlist_module, "COMMON", 3)
    rng = np.random.default_rng(0)
    words = [sorted(rng.choice(20, 5, replace=False).tolist()) for _ in range(400)]
    # Piece 10 + w is translated by 500 + w, and every target has the pieces 600 and 601.
    pairs = [([*(10 + w for w in some), EOS], [*(500 + w for w in some[::-1]), 600, 601, EOS]) for some in words]
    pieces = [f"▁piece{id_}" for id_ in range(700)]
    shortlist = Shortlist.from_bytes(learn_shortlist(_split(pairs), pieces, 50), 700)
    short = Shortlist.from_bytes(learn_shortlist(_split(pairs), pieces, 2), 700)
    alone = Shortlist(short._likely, np.array([], dtype=np.int64))
    for word in range(20):
        assert 500 + word in alone.pieces([10 + word])
    assert {600, 601, EOS} <= set(shortlist.pieces([10]).tolist())
    assert shortlist._likely.shape == (700, 50)
    assert shortlist.pieces([300]).tolist() == sorted({*shortlist._common.tolist(), 300})  # unseen


def test_a_shortlist_that_takes_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATENTMT_MAX_MODEL_GB", "0.000001")
    with pytest.raises(UserError, match="a shortlist of 700 pieces: needs"):
        learn_shortlist(_split([([10, EOS], [500, EOS])]), ["▁piece"] * 700, 50)


def test_what_names_are_spelt_with_is_in_every_shortlist() -> None:
    pairs = [([600, EOS], [10, EOS])] * 3
    pieces = ["word"] * 600 + ["<0xE4>", "▁", "▁A", "z", "7", "%", "ä", "\ue010", "ab", "▁ab"]
    shortlist = Shortlist.from_bytes(learn_shortlist(_split(pairs), pieces, 50), len(pieces))
    assert {*range(600, 608), *range(4)} <= set(shortlist.pieces([20]).tolist())
    assert not {608, 609} & set(shortlist.pieces([20]).tolist())


def test_pairs_are_counted_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    pairs = [(rng.integers(4, 900, 9).tolist(), rng.integers(4, 900, 7).tolist()) for _ in range(50)]
    pieces = ["word"] * 900
    whole = learn_shortlist(_split(pairs), pieces, 50)
    monkeypatch.setattr(shortlist_module, "_BLOCK", 7)
    one, other = (Shortlist.from_bytes(each, 900) for each in (whole, learn_shortlist(_split(pairs), pieces, 50)))
    for source, _ in pairs:
        assert one.pieces(source).tolist() == other.pieces(source).tolist()


def test_the_same_corpus_gives_the_same_shortlist(model: Path) -> None:
    corpus = Corpus.load(model / "corpus")
    pieces = corpus.tokenizer.pieces(range(corpus.tokenizer.size))
    first, second = (learn_shortlist(corpus.split("train"), pieces, 50) for _ in range(2))
    one, other = (Shortlist.from_bytes(content, corpus.tokenizer.size) for content in (first, second))
    assert (one.pieces([20, 300]) == other.pieces([20, 300])).all()


# Installed models.


def test_a_model_is_found_by_its_name(shipped: Path, model: Path) -> None:
    assert installed.installed() == {"xy": shipped}
    assert installed.find_model() == installed.find_model("xy") == shipped
    assert installed.find_model(model) == installed.find_model(str(model)) == model
    with pytest.raises(UserError, match=r"zz: neither a folder nor the name of a model \(installed: xy\)"):
        installed.find_model("zz")


def test_a_model_is_found_by_its_languages(shipped: Path, tmp_path: Path) -> None:
    other = shipped.parent / "zz"
    save_lively_model(other, ("en", "de"))
    assert installed.find_model() == installed.find_model(source="de") == installed.find_model(target="en") == shipped
    assert installed.find_model(source="en") == installed.find_model(None, "en", "de") == other
    assert installed.find_model("zz", "en", "de") == installed.find_model(other, target="de") == other
    for arguments, message in (
        ((None, "fr", "en"), "no installed model translates from fr to en; there are xy (de → en), zz (en → de)"),
        ((None, None, "fr"), "no installed model translates to fr; there are xy (de → en), zz (en → de)"),
        (("zz", "de"), "zz: translates en → de, not from de"),
        ((tmp_path, "de"), f"{tmp_path}: no model"),
        (("ende",), "ende: neither a folder nor the name of a model (installed: xy, zz)"),
    ):
        with pytest.raises(UserError) as caught:
            installed.find_model(*arguments)
        assert str(caught.value) == message


def test_a_folder_comes_before_a_name(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "xy").mkdir()
    assert installed.find_model("xy") == Path("xy")


def test_without_installed_models_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "PRETRAINED", tmp_path / "nowhere")
    assert installed.installed() == {}
    with pytest.raises(UserError, match="no model is installed; name a folder"):
        installed.find_model()
    with pytest.raises(UserError, match="none is installed"):
        installed.find_model("xy")


def test_export_and_models_commands(
    shipped: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["latentmt", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        return int(left.value.code or 0)

    assert run("models") == 0
    listed = capsys.readouterr().out
    assert all(word in listed for word in ("xy", "de → en", "latent, score"))
    assert run("translate", "--device", "cpu", "ein Satz") == 0
    unnamed = capsys.readouterr().out
    assert run("translate", "--device", "cpu", "--model", "xy", "ein Satz") == 0
    assert capsys.readouterr().out == unnamed
    assert run("export", model, tmp_path / "one", "--kind", "teacher", "--precision", "float16") == 0
    printed = capsys.readouterr()
    assert "one/teacher: 0." in printed.err
    assert "teacher beam 1" in printed.out
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["teacher"]
    assert "shortlist.npz" in read_format(tmp_path / "one" / "teacher").files


# What lies beside the bundles.


def test_names_are_exported_with_all_bundles(shipped: Path, model: Path, tmp_path: Path) -> None:
    names = learn_names([Pair("Frau Brückner schläft.", "Mrs Brückner sleeps.")] * 3)
    (shipped / "names.npz").write_bytes(names.to_bytes())
    export(shipped, tmp_path / "all", model / "corpus", precision="float16")
    loaded = Translator.load(tmp_path / "all").names
    assert loaded is not None
    assert loaded.to_bytes() == names.to_bytes()
    export(shipped, tmp_path / "some", model / "corpus", ["latent"], "float16")
    assert Translator.load(tmp_path / "some").names is None


def test_default_options_are_exported_with_all_bundles(shipped: Path, model: Path, tmp_path: Path) -> None:
    (shipped / "options.yaml").write_text("steps: 3")
    export(shipped, tmp_path / "all", model / "corpus", precision="float16")
    assert Translator.load(tmp_path / "all").options() == DecodingOptions("score", 3)
    export(shipped, tmp_path / "some", model / "corpus", ["latent"], "float16")
    assert not (tmp_path / "some" / "options.yaml").exists()


def test_default_options_of_version_0_1_are_read_and_exported_under_their_new_name(
    shipped: Path, model: Path, tmp_path: Path
) -> None:
    (shipped / "how.yaml").write_text("{steps: 3, remove_repeats: false}")
    assert Translator.load("xy").options() == DecodingOptions("score", 3, remove_repeats="none")
    export(shipped, tmp_path / "all", model / "corpus", precision="float16")
    assert (tmp_path / "all" / "options.yaml").exists()
    (shipped / "options.yaml").write_text("steps: 2")  # where there are both, the new one counts
    assert Translator.load("xy").options() == DecodingOptions("score", 2)


def test_default_options_are_used_until_others_are_given(shipped: Path) -> None:
    assert Translator.load("xy").options() == DecodingOptions("score", 1)
    (shipped / "options.yaml").write_text("{method: delta, steps: 2, lengths: 3, rerank: decoder}")
    translator, own = Translator.load("xy"), DecodingOptions("delta", 2, lengths=3, rerank="decoder")
    assert translator.options() == own
    assert translator.options(seed=4, length_bias=0.1) == DecodingOptions(
        "delta", 2, lengths=3, rerank="decoder", seed=4, length_bias=0.1
    )
    assert translator.options(beam=2) == DecodingOptions("delta", 2, lengths=3, rerank="decoder", beam=2)
    assert translator.options(steps=5) == DecodingOptions(
        "score", 5
    )  # not mixed: nobody measured delta-5 with three lengths
    text = "ein kleiner Satz"
    assert translator.translate(text) == translator.translate(
        text, method="delta", steps=2, lengths=3, rerank="decoder"
    )
    assert str(own) in [str(options) for options in sweep_options(translator, Sweep())]
    assert str(own) not in [str(options) for options in sweep_options(translator, Sweep(methods=["delta"]))]


@pytest.mark.parametrize(
    ("own", "wrong"),
    [
        ("stepz: 3", "stepz"),
        ("steps: many", "steps"),
        ("steps: -1", "steps: input should be greater than or equal to 0, got -1"),
        ("lengths: 3", "3 candidates need a rerank"),
        ("{lengths: 3, rerank: teacher}", "rerank teacher: this model has no teacher"),
        ("method: energy", "method energy: this model has only prior, delta, score"),
    ],
)
def test_invalid_default_options_are_named_with_their_file(shipped: Path, own: str, wrong: str) -> None:
    (shipped / "options.yaml").write_text(own)
    with pytest.raises(UserError, match=f"options.yaml: .*{wrong}"):
        Translator.load("xy")
