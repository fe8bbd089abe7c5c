"""Released models: stored in half precision, found by name, and the default when no name is given."""

import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from latentmt import cli, installed
from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.errors import UserError
from latentmt.fields.learned import FieldConfig
from latentmt.measure.evaluate import Sweep, sweep_options
from latentmt.models.latent import LatentConfig
from latentmt.models.teacher import TeacherConfig
from latentmt.networks import BundleConfig, load_bundle, save_bundle
from latentmt.options import DecodingOptions
from latentmt.release import release
from latentmt.translator import Translator

SIZE = {"preset": "tiny", "d_model": 16, "d_filter": 16, "layers": 1, "heads": 2}
COMMON = {"languages": ("de", "en"), "rules": (TextRules(), TextRules())}
LATENT = LatentConfig(**SIZE, encoder_layers=1, latent_dim=3)  # type: ignore[arg-type]
TEXTS = ["ein kleiner Satz", "a small sentence", "noch einer"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS * 20, TokenizerConfig(vocab_size=400))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(3)

    def save(config: BundleConfig, latent: str | None = None) -> str:
        weights = config.network(tokenizer.size).state_dict()
        about = save_bundle(folder / config.kind, config, tokenizer, weights, latent=latent, facts={"steps": 7})
        return about.fingerprint

    latent = save(BundleConfig(**COMMON, latent=LATENT))  # type: ignore[arg-type]
    save(BundleConfig(**COMMON, latent=LATENT, field=FieldConfig(kind="score", **SIZE)), latent)  # type: ignore[arg-type]
    save(BundleConfig(**COMMON, teacher=TeacherConfig(**SIZE, encoder_layers=1)))  # type: ignore[arg-type]
    return folder


@pytest.fixture
def shipped(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model, installed under a name."""
    monkeypatch.setattr(installed, "PRETRAINED", tmp_path / "pretrained")
    release(model, tmp_path / "pretrained" / "xy", ["latent", "score"])
    return tmp_path / "pretrained" / "xy"


def test_a_released_model_is_the_same_rounded(model: Path, tmp_path: Path) -> None:
    sizes = release(model, tmp_path)
    assert list(sizes) == ["latent", "score", "teacher"]
    for kind, size in sizes.items():
        before, after = load_bundle(model / kind), load_bundle(tmp_path / kind)
        assert after.config == before.config
        assert after.about.facts == {"steps": 7}
        assert after.about.fingerprint != before.about.fingerprint
        assert size < sum(facts.bytes for facts in before.about.files.values())
        for name, weight in before.network.state_dict().items():
            torch.testing.assert_close(after.network.state_dict()[name], weight.half().float(), rtol=0, atol=0)
        with safe_open(tmp_path / kind / "model-00001-of-00001.safetensors", "pt") as file:
            assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118
    Translator.load(tmp_path)  # its score belongs to its latent model


@pytest.mark.parametrize(
    ("kinds", "message"), [(["energy"], "holds no energy model"), (["score"], "no use without its latent")]
)
def test_invalid_releases_are_refused(model: Path, tmp_path: Path, kinds: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        release(model, tmp_path / "out", kinds)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="no model"):
        release(tmp_path, tmp_path / "out")


def test_a_model_is_found_by_its_name(shipped: Path, model: Path) -> None:
    assert installed.installed() == {"xy": shipped}
    assert installed.find_model() == installed.find_model("xy") == shipped
    assert installed.find_model(model) == installed.find_model(str(model)) == model
    with pytest.raises(UserError, match=r"zz: neither a folder nor the name of a model \(installed: xy\)"):
        installed.find_model("zz")


def test_a_folder_comes_before_a_name(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "xy").mkdir()
    assert installed.find_model("xy") == Path("xy")


def test_a_model_is_not_released_over_itself_or_over_anything_else(model: Path, tmp_path: Path) -> None:
    work = Path(shutil.copytree(model, tmp_path / "model"))
    (work / "options.yaml").write_text("method: delta\n")
    before = contents(work)
    (tmp_path / "link").symlink_to(work)
    for folder in (work, work / ".." / "model", tmp_path / "link", work / "released", tmp_path):
        with pytest.raises(UserError, match="is not apart from"):
            release(work, folder)
    for path, message in (
        ("foreign/teacher/thesis.tex", "holds thesis.tex, which is not part of a model"),
        ("foreign/options.yaml", "has other options"),
        ("foreign/teacher", "is not the folder of a model"),
    ):
        shutil.rmtree(tmp_path / "foreign", ignore_errors=True)
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("mine")
        with pytest.raises(UserError, match=message):
            release(work, tmp_path / "foreign")
        assert contents(tmp_path / "foreign") == {str(Path(path).relative_to("foreign")): b"mine"}
    assert contents(work) == before
    assert release(work, tmp_path / "out") == release(work, tmp_path / "out")  # a release is replaced


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_without_installed_models_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "PRETRAINED", tmp_path / "nowhere")
    assert installed.installed() == {}
    with pytest.raises(UserError, match="no model is installed; name a folder"):
        installed.find_model()
    with pytest.raises(UserError, match="none is installed"):
        installed.find_model("xy")


def test_release_and_models_commands(
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
    assert run("release", model, tmp_path / "one", "--kind", "teacher") == 0
    assert "one/teacher: 0." in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["teacher"]


# A model's default options.


def test_default_options_are_released_with_all_bundles(shipped: Path, tmp_path: Path) -> None:
    (shipped / "options.yaml").write_text("steps: 3")
    release(shipped, tmp_path / "all")
    assert Translator.load(tmp_path / "all").options() == DecodingOptions("score", 3)
    release(shipped, tmp_path / "some", ["latent"])
    assert not (tmp_path / "some" / "options.yaml").exists()


def test_default_options_of_version_0_1_are_read_and_released_under_their_new_name(
    shipped: Path, tmp_path: Path
) -> None:
    (shipped / "how.yaml").write_text("{steps: 3, remove_repeats: false}")
    assert Translator.load("xy").options() == DecodingOptions("score", 3, remove_repeats="none")
    release(shipped, tmp_path / "all")
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
