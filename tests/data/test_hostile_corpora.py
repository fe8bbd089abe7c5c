"""A hostile or damaged corpus is refused in one line, also if its hashes were written anew."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import write_corpus

from latentmt.data.corpus import Corpus
from latentmt.errors import UserError

Attack = Callable[[Path], object]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), held_out=5).folder


def data(corpus: Path) -> Path:
    return next(corpus.glob("data-*"))


def seal(corpus: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with the right checksum."""
    text = json.dumps(manifest | {"checksum": ""}, indent=2) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    (corpus / "manifest.json").write_text(text.replace('"checksum": ""', f'"checksum": "{digest}"'))


def manifest(change: Callable[[dict[str, Any]], Any]) -> Attack:
    """Change the manifest."""

    def attack(corpus: Path) -> None:
        values = json.loads((corpus / "manifest.json").read_text())
        change(values)
        seal(corpus, values)

    return attack


def setting(**values: Any) -> Attack:
    return manifest(lambda found: found.update(values))


def content(name: str, change: Callable[[bytes], bytes]) -> Attack:
    """Change a file, and write its size and hash anew."""

    def attack(corpus: Path) -> None:
        path = data(corpus) / name
        path.write_bytes(change(path.read_bytes()))
        facts = {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        manifest(lambda found: found["files"].update({name: facts}))(corpus)

    return attack


def numbers(name: str, dtype: type, change: Callable[[Any], Any]) -> Attack:
    def changed(old: bytes) -> bytes:
        array = np.frombuffer(old, dtype=dtype).copy()
        change(array)
        return array.tobytes()

    return content(name, changed)


def instead(make: Callable[[Path], object], name: str = "train.source.ids") -> Attack:
    def attack(corpus: Path) -> None:
        path = data(corpus) / name
        path.unlink()
        make(path)

    return attack


IDS, OFFSETS = "train.source.ids", "train.target.offsets"
ATTACKS: dict[str, Attack] = {
    "no manifest": lambda corpus: (corpus / "manifest.json").unlink(),
    "manifest empty": lambda corpus: (corpus / "manifest.json").write_text(""),
    "manifest a list": lambda corpus: (corpus / "manifest.json").write_text("[1]"),
    "manifest deep": lambda corpus: (corpus / "manifest.json").write_text("[" * 100_000),
    "manifest of 64 MB": lambda corpus: (corpus / "manifest.json").write_text(" " * 64_000_000),
    "manifest a pipe": lambda corpus: [(corpus / "manifest.json").unlink(), os.mkfifo(corpus / "manifest.json")],
    "manifest a folder": lambda corpus: [(corpus / "manifest.json").unlink(), (corpus / "manifest.json").mkdir()],
    "format a text": setting(format="1"),
    "kind of a model": setting(kind="teacher"),
    "unknown key": setting(pickle="x"),
    "data outside": setting(data="../data-00000000"),
    "data absolute": setting(data="/etc"),
    "data .": setting(data="."),
    "no files": setting(files={}),
    "file outside": manifest(lambda found: found["files"].update({"../x": {"bytes": 0, "sha256": "0" * 64}})),
    "file missing": lambda corpus: (data(corpus) / IDS).unlink(),
    "file not listed": manifest(lambda found: found["files"].pop(IDS)),
    "file a link": instead(lambda path: path.symlink_to("/etc/hostname")),
    "file a pipe": instead(os.mkfifo),
    "file a folder": instead(Path.mkdir),
    "size negative": manifest(lambda found: found["files"][IDS].update(bytes=-1)),
    "hash of another file": manifest(lambda found: found["files"][IDS].update(sha256="0" * 64)),
    "row width 10⁹": setting(row_width=10**9),
    "row width 0": setting(row_width=0),
    "vocabulary of another size": setting(vocab_size=65_000),
    "vocabulary 0": setting(vocab_size=0),
    "another tokenizer's hash": setting(tokenizer="0" * 64),
    "pairs negative": manifest(lambda found: found["splits"]["train"].update(pairs=-1)),
    "pairs 10¹⁸": manifest(lambda found: found["splits"]["train"].update(pairs=10**18)),
    "pairs a float": manifest(lambda found: found["splits"]["train"].update(pairs=1.5)),
    "tokens one more": manifest(
        lambda found: found["splits"]["train"].update(source_tokens=found["splits"]["train"]["source_tokens"] + 1)
    ),
    "ids cut": content(IDS, lambda old: old[:-1]),
    "ids that the tokenizer lacks": numbers(IDS, np.uint16, lambda ids: ids.__setitem__(5, 65_535)),
    "offsets decrease": numbers(OFFSETS, np.int64, lambda offsets: offsets.__setitem__(3, 10**6)),
    "offsets negative": numbers(OFFSETS, np.int64, lambda offsets: offsets.__setitem__(1, -5)),
    "offsets begin later": numbers(OFFSETS, np.int64, lambda offsets: offsets.__setitem__(0, 1)),
    "offsets end later": numbers(OFFSETS, np.int64, lambda offsets: offsets.__setitem__(-1, 1 << 40)),
    "offsets empty": content(OFFSETS, lambda old: b""),
    "text not UTF-8": content("dev.source.txt", lambda old: b"\xff" + old),
    "text of another length": content("dev.target.txt", lambda old: old + b"one more\n"),
    "tokenizer cut": content("tokenizer.model", lambda old: old[:100]),
}


def load(folder: Path) -> None:
    corpus = Corpus.load(folder)
    for name in corpus.manifest.splits:
        corpus.split(name)
    corpus.text("dev")


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_in_one_line(good: Path, tmp_path: Path, attack: str) -> None:
    folder = Path(shutil.copytree(good, tmp_path / "corpus"))
    load(folder)
    ATTACKS[attack](folder)
    with pytest.raises(UserError, match=rf"^{folder}") as refused:
        load(folder)
    assert len(str(refused.value)) < 500
