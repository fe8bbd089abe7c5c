"""DeepL's API, by its own client and by hand."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from typing import Any

import deepl
import pytest
from process import Running
from serving import Client, Serving

from latentmt.translator import Translator

TEXT = "Ein kleiner Satz steht hier."
OTHER = "Wir haben 1100 Bücher gelesen!"


@pytest.fixture(scope="module")
def client(serving: Serving, translator: Translator) -> Iterator[Client]:
    with serving(lambda: translator) as client:
        yield client


def test_deepls_client_works(running: Running, translator: Translator) -> None:
    client = deepl.Translator("any", server_url=running.address)
    one = client.translate_text(TEXT, target_lang="EN-US", source_lang="DE")
    assert isinstance(one, deepl.TextResult)
    assert (one.text, one.detected_source_lang) == (translator.translate(TEXT), "DE")
    several: Any = client.translate_text([TEXT, OTHER], target_lang="EN-GB")
    assert [result.text for result in several] == translator.translate([TEXT, OTHER])
    html: Any = client.translate_text(f"<p>{TEXT}</p>", target_lang="EN-US", tag_handling="html")
    assert html.text == f"<p>{translator.translate(TEXT)}</p>"
    assert [language.code for language in client.get_source_languages()] == ["DE"]
    assert [language.code for language in client.get_target_languages()] == ["EN-GB", "EN-US"]
    assert not client.get_usage().any_limit_reached
    with pytest.raises(deepl.DeepLException, match="formality is not supported"):
        client.translate_text(TEXT, target_lang="EN-US", formality="more")
    handle = client.translate_document_upload(TEXT.encode(), source_lang="DE", target_lang="EN-US", filename="a.txt")
    while not client.translate_document_get_status(handle).done:  # it would ask every 5 seconds
        time.sleep(0.05)
    result = io.BytesIO()
    client.translate_document_download(handle, result)
    assert result.getvalue().decode() == translator.translate(TEXT)


def test_forms_and_json_are_the_same(client: Client, translator: Translator) -> None:
    fields = {"text": [TEXT, OTHER], "target_lang": "en-us", "source_lang": "de", "unknown": "x"}
    expected = [
        {"detected_source_language": "DE", "text": text, "billed_characters": len(source)}
        for source, text in zip([TEXT, OTHER], translator.translate([TEXT, OTHER]), strict=True)
    ]
    for body in ({"data": fields}, {"json": fields}):
        assert client.request("POST", "/v2/translate", **body).json() == {"translations": expected}
    single = client.request("POST", "/v2/translate", data={"text": TEXT, "target_lang": "EN"}).json()
    assert single == {"translations": expected[:1]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": []}, "text: list should have at least 1 item"),
        ({"text": [TEXT] * 51}, "text: list should have at most 50 items"),
        ({"target_lang": None}, "target_lang: field required"),
        ({"target_lang": "FR"}, "German to French: this server translates German to English"),
        ({"tag_handling": "xml"}, "tag_handling xml: expected html"),
        ({"glossary_id": "g"}, "glossary_id: not supported by this server"),
        ({"formality": "less"}, "formality is not supported for this target_lang"),
    ],
)
def test_errors_are_messages(client: Client, fields: dict[str, Any], message: str) -> None:
    body = {"text": [TEXT], "target_lang": "EN-US", "source_lang": "DE"} | fields
    response = client.request("POST", "/v2/translate", json=body)
    assert (response.status_code, list(response.json())) == (400, ["message"])
    assert message in response.json()["message"]
    assert list(client.request("GET", "/v2/nothing").json()) == ["message"]


def test_line_feeds_end_sentences_unless_told_otherwise(client: Client, translator: Translator) -> None:
    fields = {"text": ["Ein Satz\nsteht hier."], "target_lang": "EN-US", "source_lang": "DE"}
    joined = client.request("POST", "/v2/translate", json=fields | {"split_sentences": "nonewlines"}).json()
    assert joined["translations"][0]["text"] == translator.translate("Ein Satz steht hier.")
    split = client.request("POST", "/v2/translate", json=fields).json()
    assert split["translations"][0]["text"] == translator.translate(fields["text"][0])


def test_settings_of_the_page(client: Client) -> None:
    settings = client.get("/frontend/settings")
    assert (settings["charLimit"], settings["fileSizeLimit"]) == (10_000, 10_000_000)
    assert ".txt" in settings["supportedFilesFormat"]
    assert settings["language"]["source"] == {"code": "de", "name": "German"}
