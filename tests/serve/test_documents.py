"""Documents over HTTP: LibreTranslate's paths and DeepL's."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import Client, serving

from latentmt.serve.admission import ApiKeys, Limits
from latentmt.translator import Translator

TEXT = "Ein kleiner Satz steht hier."
OTHER = "Wir haben 1100 Bücher gelesen!"
CONTENT = f"  {TEXT}\r\n\r\n{OTHER}\n".encode()


@pytest.fixture(scope="module")
def client(translator: Translator) -> Iterator[Client]:
    with serving(lambda: translator) as client:
        yield client
        client.gateway.documents.close()


def upload(client: Client, path: str, name: str = "a.txt", content: bytes = CONTENT, **fields: Any) -> Any:
    headers = fields.pop("headers", {})
    return client.request("POST", path, files={"file": (name, content)}, data=fields, headers=headers)


def expected(translator: Translator) -> bytes:
    return f"  {translator.translate(TEXT)}\r\n\r\n{translator.translate(OTHER)}\n".encode()


def finished(client: Client, handle: dict[str, str]) -> dict[str, Any]:
    """The status of a document when it is no longer translated."""
    while True:
        response = client.request("POST", f"/v2/document/{handle['document_id']}", json=handle)
        status: dict[str, Any] = response.json()
        if status["status"] in ("done", "error"):
            return status
        client.runner.run(asyncio.sleep(0.02))


def test_a_catalogue_gets_the_language_of_its_translation(client: Client) -> None:
    header = 'msgid ""\nmsgstr ""\n"Language: %s\\n"\n\n'
    catalogue = f'{header % ""}msgid "{TEXT}"\nmsgstr ""\n'
    for source in ("de", "auto"):
        response = upload(client, "/translate_file", "a.po", catalogue.encode(), source=source, target="en")
        result = client.request("GET", response.json()["translatedFileUrl"]).text
        assert '"Language: en\\n"' in result
        assert 'msgstr ""\n"Language' in result
        assert not result.endswith('msgstr ""\n')
    french = f'{header % "fr"}msgid "{TEXT}"\nmsgstr "Oui"\n'
    response = upload(client, "/translate_file", "a.po", french.encode(), source="de", target="en")
    assert response.status_code == 400
    assert "a catalogue into 'fr'" in response.json()["error"]


def test_a_file_is_translated_and_downloaded(client: Client, translator: Translator) -> None:
    url = upload(client, "/translate_file", "Brief & Co.txt", source="de", target="en").json()["translatedFileUrl"]
    assert url.startswith("http://localhost/download_file/")
    assert url.endswith(".txt")
    result = client.request("GET", url)
    assert result.content == expected(translator)
    assert result.headers["content-type"].startswith("text/plain")
    assert result.headers["content-disposition"].startswith("attachment")
    assert "Brief%20%26%20Co.en.txt" in result.headers["content-disposition"]
    assert result.headers["x-content-type-options"] == "nosniff"
    assert client.request("GET", "/download_file/other.txt").json() == {
        "error": "there is no such document, or it is no longer kept"
    }


def test_many_parts_are_one_document(client: Client, translator: Translator) -> None:
    lines = [f"Satz {number} steht hier." for number in range(150)]
    handle = upload(client, "/v2/document", content="\n".join(lines).encode(), target_lang="EN-US").json()
    status = finished(client, handle)
    assert (status["status"], status["done"], status["total"]) == ("done", 150, 150)
    result = client.request("GET", f"/v2/document/{handle['document_id']}/result", params=handle)
    assert result.text.split("\n") == translator.translate(lines)


def test_a_document_is_only_for_those_with_its_key(client: Client) -> None:
    handle = upload(client, "/v2/document", target_lang="EN-US", source_lang="DE").json()
    for path in ("", "/result"):
        refused = client.request("POST", f"/v2/document/{handle['document_id']}{path}", json={"document_key": "x"})
        assert (refused.status_code, list(refused.json())) == (404, ["message"])
    assert finished(client, handle)["status"] == "done"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "a.exe"}, "documents of this type are not translated"),
        ({"name": "../../a.exe"}, "a.exe: documents of this type"),
        ({"source": "fr"}, "French to English: this server translates German to English"),
        ({"name": ""}, "file"),
    ],
)
def test_wrong_files_are_400(client: Client, fields: dict[str, str], message: str) -> None:
    response = upload(client, "/translate_file", **fields)
    assert response.status_code == 400, response.text
    assert message in response.json()["error"]


def test_limits_of_documents(translator: Translator) -> None:
    limits = Limits(max_file_bytes=200, max_document_characters=100, max_documents=1)
    with serving(lambda: translator, limits=limits) as client:
        large = upload(client, "/translate_file", content=b"a" * 201)
        assert (large.status_code, large.json()) == (413, {"error": "the file is larger than 200 bytes"})
        huge = upload(client, "/translate_file", content=b"a" * 5000)
        assert (huge.status_code, huge.json()) == (413, {"error": "the request is larger than 4,296 bytes"})
        long = upload(client, "/translate_file", content=b"a " * 80, source="de")
        assert (long.status_code, "159 characters: this server allows 100" in long.text) == (413, True)

        async def twice() -> list[int]:
            form: dict[str, Any] = {"files": {"file": ("a.txt", CONTENT)}, "data": {"source": "de"}}
            both = await asyncio.gather(*(client.send("POST", "/translate_file", **form) for _ in range(2)))
            return sorted(response.status_code for response in both)

        assert client.runner.run(twice()) == [200, 429]
        assert upload(client, "/translate_file", source="de").status_code == 200
        client.gateway.documents.close()


def test_cancelling_and_closing_remove_files(translator: Translator) -> None:
    with serving(lambda: translator) as client:
        documents = client.gateway.documents
        upload(client, "/translate_file", source="de")
        root = Path(documents._root.name)  # type: ignore[union-attr]
        assert [path.name for folder in root.iterdir() for path in folder.iterdir()].count("result") == 1
        assert root.stat().st_mode & 0o077 == 0

        async def cancelled() -> None:
            lines = "\n".join(f"Satz {number} steht hier." for number in range(500)).encode()
            form: dict[str, Any] = {"files": {"file": ("a.txt", lines)}, "data": {"source": "de"}}
            task = asyncio.ensure_future(client.send("POST", "/translate_file", **form))
            while not any(one.status == "translating" for one in documents._documents.values()):
                await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.wait([task])
            while len(list(root.iterdir())) > 1:
                await asyncio.sleep(0.01)

        client.runner.run(cancelled())
        assert len(documents._documents) == 1
        assert not documents._busy
        documents.close()
        assert not root.exists()


def test_keys_are_required_for_documents(translator: Translator) -> None:
    with serving(lambda: translator, keys=ApiKeys({"good": math.inf})) as client:
        assert upload(client, "/translate_file", source="de").status_code == 403
        assert upload(client, "/translate_file", source="de", api_key="good").status_code == 200
        assert upload(client, "/v2/document", target_lang="EN-US").status_code == 403
        key = {"Authorization": "DeepL-Auth-Key good"}
        handle = upload(client, "/v2/document", target_lang="EN-US", headers=key).json()
        path = f"/v2/document/{handle['document_id']}"
        assert client.request("POST", path, json=handle).status_code == 403
        assert client.request("POST", path, json=handle, headers=key).status_code == 200
        client.gateway.documents.close()
