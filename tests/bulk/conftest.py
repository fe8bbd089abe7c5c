"""Processes that some texts end."""

import os
from pathlib import Path

import pytest

KILLER = """
import os, time
import latentmt.translator as module
translations = module.Translator.translations
def deadly(self, texts, *arguments, **others):
    if any("TOD" in text for text in texts):
        os.kill(os.getpid(), 9)
    if any("SCHLAF" in text for text in texts):
        time.sleep(3600)
    if any("FEHLER" in text for text in texts):
        raise ValueError("ein Fehler")
    return translations(self, texts, *arguments, **others)
module.Translator.translations = deadly
"""


@pytest.fixture
def deadly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python processes that start now, translating TOD is deadly, SCHLAF takes an hour and FEHLER is an error."""
    (tmp_path / "deadly").mkdir()
    (tmp_path / "deadly" / "sitecustomize.py").write_text(KILLER)
    others = filter(None, [os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "deadly"), *others]))
