"""`latentmt translate` in terminals and pipes: one line out for each line in."""

import gzip
import io
import itertools
import json
import lzma
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from latentmt import cli
from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from latentmt.errors import UserError
from latentmt.fields.learned import FieldConfig
from latentmt.models.latent import LatentConfig
from latentmt.models.teacher import TeacherConfig
from latentmt.networks import BundleConfig, save_bundle
from latentmt.options import DecodingOptions
from latentmt.text.stream import MAX_LINES, ready_lines
from latentmt.translator import Translator

PATIENCE = 60
"""Seconds after which a process that says nothing is taken to hang."""

SIZE = {"preset": "tiny", "d_model": 16, "d_filter": 16, "layers": 1, "heads": 2}
COMMON = {"languages": ("de", "en"), "rules": (TextRules(), TextRules())}
LATENT = LatentConfig(**SIZE, encoder_layers=1, latent_dim=3)  # type: ignore[arg-type]
CONFIGS = {
    "latent": BundleConfig(**COMMON, latent=LATENT),  # type: ignore[arg-type]
    "score": BundleConfig(**COMMON, latent=LATENT, field=FieldConfig(kind="score", **SIZE)),  # type: ignore[arg-type]
    "teacher": BundleConfig(**COMMON, teacher=TeacherConfig(**SIZE, encoder_layers=1)),  # type: ignore[arg-type]
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(["ein kleiner Satz", "a small sentence"] * 20, TokenizerConfig(vocab_size=400))


def saved(folder: Path, kind: str, tokenizer: Tokenizer, latent: str | None = None) -> str:
    torch.manual_seed(sum(map(ord, kind)))
    network = CONFIGS[kind].network(tokenizer.size)
    return save_bundle(folder / kind, CONFIGS[kind], tokenizer, network.state_dict(), latent=latent).fingerprint


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """A model that has learnt nothing: what it says is noise, but each line's own."""
    folder = tmp_path_factory.mktemp("model")
    saved(folder, "score", tokenizer, latent=saved(folder, "latent", tokenizer))
    saved(folder, "teacher", tokenizer)
    return folder


def command(model: Path, *arguments: object) -> list[str]:
    return [sys.executable, "-m", "latentmt", "translate", "--model", str(model), *map(str, arguments)]


def piped(model: Path, text: bytes, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(model, *arguments), input=text, capture_output=True, check=False, timeout=5 * PATIENCE
    )


class Running:
    """The command with a pipe at each end."""

    def __init__(self, model: Path, *arguments: object) -> None:
        self.process = subprocess.Popen(
            command(model, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's `&` leaves it ignored
        )
        assert self.process.stdin
        assert self.process.stdout
        self.stdin, self.stdout = self.process.stdin, self.process.stdout

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def line(self) -> bytes:
        """The next line it writes."""
        line = b""
        while not line.endswith(b"\n"):
            assert select.select([self.stdout], [], [], PATIENCE)[0], "no answer"
            byte = self.stdout.read(1)
            assert byte, "it has ended"
            line += byte
        return line

    def ended(self) -> tuple[int, bytes]:
        """Its exit code and what it complained about."""
        code = self.process.wait(PATIENCE)
        assert self.process.stderr
        return code, self.process.stderr.read()


def test_a_line_is_answered_before_the_next_is_sent_and_ctrl_c_ends_it_quietly(model: Path) -> None:
    expected = Translator.load(model).translate(["ein Satz", "", "  ", "ein kleiner Satz, noch ein Satz"])
    assert expected[1:3] == ["", "  "]
    with Running(model) as running:
        for text, translation in zip(
            (b"ein Satz", b"", b"  ", b"ein kleiner Satz, noch ein Satz"), expected, strict=True
        ):
            running.stdin.write(text + b"\n")
            assert running.line().decode() == translation + "\n"
        running.process.send_signal(signal.SIGINT)
        assert running.ended() == (130, b"")


def test_a_reader_that_leaves_ends_it_quietly(model: Path) -> None:
    with Running(model) as running:
        running.stdin.write(b"ein Satz\n")
        running.line()
        running.stdout.close()
        running.stdin.write(b"ein Satz\n")
        assert running.ended() == (1, b"")


def test_thousands_of_lines_keep_their_order(model: Path) -> None:
    texts = [f"Satz {number}" for number in range(3000)]
    result = piped(model, "\n".join(texts).encode(), "--json", "--method", "prior")
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.count(b"\n") == 3000
    answers = [json.loads(line) for line in result.stdout.decode().split("\n")[:-1]]
    assert [answer["source"] for answer in answers] == texts
    assert {answer["options"] for answer in answers} == {"L=0"}
    assert len({answer["translation"] for answer in answers}) > 1


def hostile_lines(count: int) -> list[str]:
    """Lines nobody has trained on. The first few are long, since those are what takes time."""
    draw = random.Random(1)
    kinds = (
        "",
        " \t\u3000",
        "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029",
        "\x00",
        "".join(map(chr, range(1, 10))) + "\x0b\x0c" + "".join(map(chr, range(14, 32))) + "\x7f\x80\x9f",
        "👩‍👩‍👧‍👦🏳️‍🌈🇩🇪👍🏽",
        "שלום עולם. مرحبا بالعالم؟ \u202eabc\u202c",
        "Z̷̢̛a̸̧l̵̨g̶o̴ " + "e" + "\u0301" * 50,
        "?!…„“»«()[]{}–—;:,.",
        "。！？｡、",
        "ein Satz.\u2028noch einer.\x85Und\x0bnoch\x1ceiner.",
        "\u200b\ufeff\u00ad",
        "\ufffe\uffff\U0010ffff\ue000",
        "1234567890 ３．１４ ½ ²",
        "a\rb\r",
    )
    long = ["ein kleiner Satz. " * 1112, "x" * 20_000, "👍" * 2_000, " " * 20_000, "e" + "\u0301" * 1000, "." * 20_000]
    rest = [" ".join(draw.choices(kinds, k=draw.randint(1, 2))) for _ in range(count - len(long) - len(kinds))]
    return [*long, *kinds, *rest]


def test_hostile_lines_keep_the_number_of_lines(model: Path) -> None:
    lines = hostile_lines(1000)
    result = piped(model, "".join(f"{line}\n" for line in lines).encode())
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.count(b"\n") == 1000
    answers = result.stdout.decode().split("\n")[:-1]
    blank = [(line, answer) for line, answer in zip(lines, answers, strict=True) if not line.strip()]
    assert len(blank) > 50
    assert all(line == answer for line, answer in blank)


def test_output_before_a_line_that_is_no_text_is_complete(model: Path) -> None:
    result = piped(model, b"ein Satz\nein kleiner Satz\ngut \xff\nnoch einer\n", "--bad-lines", "stop")
    assert result.returncode == 1
    assert result.stdout.count(b"\n") == 2
    assert result.stderr == b"error: standard input, line 3: invalid UTF-8 at byte 5\n"


def test_2000_lines_in_are_2000_lines_out(model: Path) -> None:
    lines = [b"ein Satz %d" % number for number in range(2000)]
    lines[999], lines[1500] = b"ein \xff\xfe Satz", b"gr\xfc\xdf Gott"
    text = b"\n".join(lines) + b"\n"
    result = piped(model, text)
    assert result.returncode == 0
    assert result.stdout.count(b"\n") == 2000
    assert result.stderr == (
        b"WARNING: standard input, line 1000: invalid UTF-8 at byte 5; such lines are replaced (--bad-lines)\n"
    )
    skipped = piped(model, text, "--bad-lines", "skip")
    assert (skipped.returncode, skipped.stdout.count(b"\n")) == (0, 1998)
    answers = result.stdout.split(b"\n")
    del answers[1500], answers[999]
    assert skipped.stdout.split(b"\n") == answers


def test_arguments_need_not_be_text(model: Path) -> None:
    result = subprocess.run(
        [*map(os.fsencode, command(model, "--json")), "größer\nein Satz".encode(), b"halb \xff\xed\xa0\x80"],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert (result.returncode, result.stderr) == (0, b"")
    answers = [json.loads(line) for line in result.stdout.decode().split("\n")[:-1]]
    assert [answer["source"] for answer in answers] == ["größer", "ein Satz", "halb ????"]
    assert "größer".encode() in result.stdout


def test_only_what_is_needed_is_imported(model: Path) -> None:
    code = (
        f"import sys; sys.argv[1:] = ['translate', '--model', {str(model)!r}, 'ein Satz']\n"
        "from latentmt.cli import app; app(standalone_mode=False)\n"
        "heavy = {'matplotlib', 'sacrebleu', 'tensorboard', 'fastapi', 'uvicorn', 'py3langid', 'onnx', 'ray'}\n"
        "print(heavy & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "set()"


def called(monkeypatch: pytest.MonkeyPatch, model: Path, *arguments: object) -> int:
    """The command in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["latentmt", *command(model, *arguments)[3:]])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code if isinstance(ended.value.code, int) else 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--steps", -1), "steps -1: expected 0 to 1000"),
        (("--samples", 3), "3 candidates need a rerank to choose between them: teacher, decoder, elbo, marginal"),
        (("--method", "energy"), "method energy: this model has only prior, delta, score, teacher"),
        (
            ("--method", "teacher", "--lengths", 2),
            "the teacher translates by beam search: it has no lengths, samples or rerank",
        ),
        (("--length-bias", "nan"), "length_bias nan: expected -0.9 to 5"),
        (("--threads", 0), "threads 0: expected 1 to 1024"),
        (("--device", "tpu"), "device tpu: expected cpu, cuda or cuda:<number>"),
        (("--input", "lines.txt"), "--input: there are sentences on the command line already"),
    ],
)
def test_user_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    model: Path,
    arguments: tuple[object, ...],
    message: str,
) -> None:
    assert called(monkeypatch, model, *arguments, "ein Satz") == 1
    assert capfd.readouterr() == ("", f"error: {message}\n")


def test_languages_choose_the_model_or_are_refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], model: Path
) -> None:
    assert called(monkeypatch, model, "--from", "de", "--to", "en", "ein Satz") == 0
    assert capfd.readouterr().out == f"{Translator.load(model).translate('ein Satz')}\n"
    assert called(monkeypatch, model, "--from", "fr", "ein Satz") == 1
    assert capfd.readouterr() == ("", f"error: {model}: translates de → en, not from fr\n")


def test_a_full_gpu_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], model: Path
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. …")

    monkeypatch.setattr(Translator, "translations", full)
    assert called(monkeypatch, model, "ein Satz") == 1
    assert capfd.readouterr() == (
        "",
        "error: the GPU's memory is full: ask for fewer candidates, or use --device cpu\n",
    )


def test_a_folder_without_a_model_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, tokenizer: Tokenizer
) -> None:
    assert called(monkeypatch, tmp_path / "nowhere", "ein Satz") == 1
    out, message = capfd.readouterr()
    assert not out
    assert message.startswith(f"error: {tmp_path}/nowhere: neither a folder nor the name of a model (")
    assert called(monkeypatch, tmp_path, "ein Satz") == 1
    expected = f"error: {tmp_path}: no model (neither latent/ nor teacher/ holds a bundle)\n"
    assert capfd.readouterr() == ("", expected)
    saved(tmp_path, "latent", tokenizer)
    saved(tmp_path, "score", tokenizer, latent="0" * 64)
    assert called(monkeypatch, tmp_path, "ein Satz") == 1
    expected = f"error: {tmp_path}/score: was trained on another latent model than {tmp_path}/latent\n"
    assert capfd.readouterr() == ("", expected)


def test_files_may_be_compressed_but_not_missing_or_damaged(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], model: Path, tmp_path: Path
) -> None:
    text = b"ein Satz\r\n\nnoch ein kleiner Satz"
    whole = {"a.txt": text, "a.gz": gzip.compress(text), "a.xz": lzma.compress(text)}
    answers = set()
    for name, data in whole.items():
        (tmp_path / name).write_bytes(data)
        assert called(monkeypatch, model, "--input", tmp_path / name) == 0
        answers.add(capfd.readouterr().out)
    assert len(answers) == 1
    assert answers.pop().count("\n") == 3
    damaged = {
        "none.txt": (None, "no such file"),
        "cut.gz": (whole["a.gz"][:-12], "cannot be read (Compressed file ended before"),
        "cut.xz": (whole["a.xz"][:-12], "cannot be read (Compressed file ended before"),
        "text.gz": (text, "cannot be read (Not a gzipped file"),
        "text.xz": (text, "cannot be read (Input format not supported"),
    }
    for name, (bad, message) in damaged.items():
        if bad is not None:
            (tmp_path / name).write_bytes(bad)
        assert called(monkeypatch, model, "--input", tmp_path / name) == 1
        complaint = capfd.readouterr().err
        assert complaint.startswith(f"error: {tmp_path / name}: {message}")
        assert complaint.count("\n") == 1


def test_flags_become_decoding_options_and_others_keep_their_defaults(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], model: Path
) -> None:
    asked: list[DecodingOptions] = []
    translations = Translator.translations

    def recorded(self: Translator, texts: list[str], options: DecodingOptions, **others: Any) -> object:
        asked.append(options)
        return translations(self, texts, options, **others)

    monkeypatch.setattr(Translator, "translations", recorded)
    everything = (
        "--method=delta --steps=3 --adaptive --lengths=2 --samples=4 --rerank=decoder --seed=7 --length-bias=0.25 "
        "--remove-repeats=pieces --beam=2 --device=cpu --threads=1 --json"
    )
    assert called(monkeypatch, model, "ein Satz") == 0
    assert called(monkeypatch, model, *everything.split(), "ein Satz") == 0
    assert asked == [
        DecodingOptions(),
        DecodingOptions("delta", 3, True, 2, 4, "decoder", seed=7, length_bias=0.25, remove_repeats="pieces", beam=2),
    ]
    answer = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert answer.keys() == {"source", "translation", "options"}
    assert answer["options"] == str(asked[1])


class Told:
    """Lines that say when the one after the first `count` is asked for: then those are ready."""

    def __init__(self, raw: Iterable[bytes], count: int) -> None:
        self.raw, self.count, self.ready, self.read = raw, count, threading.Event(), 0

    def __iter__(self) -> Iterator[bytes]:
        for line in self.raw:
            self.read += 1
            yield line
            if self.read == self.count:
                self.ready.set()


def test_ready_lines_are_returned_without_waiting_for_more() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file, os.fdopen(writing, "wb", buffering=0) as pipe:
        told = Told(file, 3)
        batches = ready_lines(told, "pipe")
        pipe.write(b"a\nb\n\nhalf")
        assert told.ready.wait(PATIENCE)
        assert next(batches) == ["a", "b", ""]
        pipe.write(b" a line\n")
        assert next(batches) == ["half a line"]
        pipe.write(b"end")
        pipe.close()
        assert list(batches) == [["end"]]


def test_batches_and_read_ahead_are_bounded() -> None:
    told = Told((b"%d\n" % number for number in itertools.count()), MAX_LINES)
    batches = ready_lines(told, "endless")
    assert told.ready.wait(PATIENCE)
    assert next(batches) == [str(number) for number in range(MAX_LINES)]
    time.sleep(0.1)
    assert told.read <= 2 * MAX_LINES + 1
    seen = [line for batch in itertools.islice(batches, 10) for line in batch]
    assert seen == [str(MAX_LINES + number) for number in range(len(seen))]


def test_lines_end_at_line_feeds_only() -> None:
    text = "\ufeffa\r\nb\x0bc\x0c\x1c\x85\u2028d\re\n\x00f\0g\n\nh"
    lines = [line for batch in ready_lines(io.BytesIO(text.encode()), "text") for line in batch]
    assert lines == ["a", "b\x0bc\x0c\x1c\x85\u2028d\re", " f g", "", "h"]
    assert list(ready_lines([], "nothing")) == []


def test_lines_before_a_bad_one_are_returned_first() -> None:
    batches = ready_lines([b"gut\n", b"auch gut\n", b"nicht \xff\n", b"nie gelesen\n"], "text", "stop", max_lines=1)
    assert [next(batches), next(batches)] == [["gut"], ["auch gut"]]
    with pytest.raises(UserError, match="text, line 3: invalid UTF-8 at byte 7"):
        next(batches)


def test_a_file_that_cannot_be_read_further_is_named() -> None:
    def breaking() -> Iterator[bytes]:
        yield b"gut\n"
        raise OSError(5, "Input/output error")

    batches = ready_lines(breaking(), "disk", max_lines=1)
    assert next(batches) == ["gut"]
    with pytest.raises(UserError, match=r"disk: cannot be read \(Input/output error\)"):
        next(batches)
