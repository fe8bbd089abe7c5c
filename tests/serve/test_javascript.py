"""LibreTranslate's API from JavaScript: the calls of its README, its npm packages and its page, by Node's `fetch`."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from process import Running

from latentmt.translator import Translator

TEXT = "Ein kleiner Satz steht hier."
OTHER = "Wir haben 1100 Bücher gelesen!"
SCRIPT = Path(__file__).with_name("javascript.mjs")

pytestmark = pytest.mark.skipif(not shutil.which("node"), reason="Node is not installed")


@pytest.fixture(scope="module")
def received(running: Running) -> dict[str, Any]:
    """What each call got, by its name in the script."""
    command = ["node", str(SCRIPT), running.address, TEXT, OTHER]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    answers: dict[str, Any] = json.loads(result.stdout)
    return answers


def body(received: dict[str, Any], name: str) -> Any:
    assert received[name]["status"] == 200, received[name]
    return received[name]["body"]


def test_texts_are_translated(received: dict[str, Any], translator: Translator) -> None:
    expected = translator.translate(TEXT)
    for name in ("simple", "auto", "apiKey", "parameters"):
        assert body(received, name)["translatedText"] == expected, name
    assert body(received, "simple") == {"translatedText": expected}
    assert body(received, "auto")["detectedLanguage"]["language"] == "de"
    assert body(received, "list") == {"translatedText": translator.translate([TEXT, OTHER])}
    assert body(received, "html") == {"translatedText": f'<p class="green">{expected}</p>'}


def test_alternatives_come_by_json_and_by_form(received: dict[str, Any]) -> None:
    answer = body(received, "full")
    assert len({answer["translatedText"], *answer["alternatives"]}) == 3
    assert body(received, "form") == answer


def test_a_document_is_sent_and_fetched(received: dict[str, Any], translator: Translator) -> None:
    file = received["file"]
    assert file["status"] == 200
    assert "Brief%20%C3%BCber%20B%C3%BCcher.en.txt" in file["name"]
    assert file["text"] == f"{translator.translate(TEXT)}\n\n{translator.translate(OTHER)}\n"


def test_languages_detection_and_settings(received: dict[str, Any]) -> None:
    assert body(received, "languages")[0] == {"code": "de", "name": "German", "targets": ["en"]}
    for name in ("detect", "detectForm", "detectParameters"):
        assert body(received, name)[0]["language"] == "de", name
    assert ".txt" in body(received, "settings")["supportedFilesFormat"]


def test_errors_are_json(received: dict[str, Any]) -> None:
    answer = received["wrong"]
    assert (answer["status"], list(answer["body"])) == (400, ["error"])
