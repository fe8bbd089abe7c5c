"""Several models in one server: which one translates a request, and that they do not disturb each other."""

from __future__ import annotations

import asyncio
import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gate import HELD, Gate, until
from process import Start
from serving import Client, serving
from tiny import SENTENCES

from latentmt.data.normalise import TextRules
from latentmt.data.tokenizer import TokenizerConfig, train_tokenizer
from latentmt.serve.admission import Limits
from latentmt.serve.costs import Costs
from latentmt.translator import Translator

TEXT = "Ein kleiner Satz steht hier, und wir haben viele Bücher gelesen."
ENGLISH = "The small sentence is here, and another one is over there with many books."
FRENCH = "Bonjour mes amis, nous avons lu beaucoup de livres cette année."
UNKNOWN = "French to English: this server translates German to English, English to German"


@pytest.fixture(scope="module")
def client(translator: Translator, english: Translator) -> Iterator[Client]:
    with serving(lambda: translator, lambda: english) as client:
        yield client
        client.gateway.documents.close()


@pytest.fixture(scope="module")
def french(english: Translator) -> Translator:
    """A model from French to English."""
    other = copy.copy(english)
    other.languages = ("fr", "en")
    return other


def without_times(response: Any) -> Any:
    if isinstance(response, dict):
        return {name: without_times(value) for name, value in response.items() if name != "milliseconds"}
    return list(map(without_times, response)) if isinstance(response, list) else response


@pytest.mark.parametrize("way", ["de", "en"])
def test_responses_are_those_of_each_model_alone(
    client: Client, translator: Translator, english: Translator, way: str
) -> None:
    one = {"de": translator, "en": english}[way]
    source, target = one.languages or ("", "")
    text, page = {"de": TEXT, "en": ENGLISH}[way], f"<p>{TEXT} <b>{ENGLISH}</b></p>"
    pair = {"source": source, "target": target}
    with serving(lambda: one) as alone:
        for path, body in (
            ("/translate", {"q": text}),
            ("/translate", {"q": [text, "", TEXT], "confidence": True, "alignment": True, "alternatives": 2}),
            ("/translate", {"q": text, "method": "delta", "steps": 3}),
            ("/translate", {"q": page, "format": "html"}),
            ("/translate", {"q": [TEXT, ENGLISH], "source": "auto"}),
            ("/trace", {"q": text, "steps": 2, "lengths": 2, "rerank": "teacher", "sentence": 0, "token": 1}),
            ("/detect", {"q": text}),
        ):
            expected = alone.post(path, **pair | body)
            assert without_times(client.post(path, **pair | body)) == without_times(expected)
        assert client.get(f"/model?source={source}&target={target}") == alone.get("/model")
    assert client.post("/translate", q=text, **pair)["translatedText"] == one.translate(text)
    assert translator.translate(text) != english.translate(text)  # or it would not matter which one it was


def test_the_first_model_is_the_default(client: Client, translator: Translator) -> None:
    assert client.post("/translate", q=TEXT)["translatedText"] == translator.translate(TEXT)
    assert client.get("/model")["source"] == "de"
    language = client.get("/frontend/settings")["language"]
    assert (language["source"]["code"], language["target"]["code"]) == ("de", "en")
    assert client.get("/readyz") == {"status": "ok"}


def test_every_language_has_its_targets(client: Client) -> None:
    assert client.get("/languages") == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": ["de"]},
    ]
    codes = [language["language"] for language in client.get("/v2/languages?type=source")]
    assert codes == ["DE", "EN"]
    codes = [language["language"] for language in client.get("/v2/languages?type=target")]
    assert codes == ["EN-GB", "EN-US", "DE"]


def test_one_language_is_enough(client: Client, english: Translator) -> None:
    expected = {"translatedText": english.translate(ENGLISH)}
    assert client.post("/translate", q=ENGLISH, source="en") == expected
    assert client.post("/translate", q=ENGLISH, target="de") == expected
    assert client.get("/model?source=en") == client.get("/model?target=de") == client.get("/model?source=en&target=de")
    assert client.post("/translate", q=ENGLISH, source="en", target="en") == {"translatedText": ENGLISH}


def test_auto_chooses_by_the_language_of_each_text(client: Client, translator: Translator, english: Translator) -> None:
    to_english, to_german = translator.translate(TEXT), english.translate(ENGLISH)
    for text, translation, code in ((TEXT, to_english, "de"), (ENGLISH, to_german, "en")):
        response = client.post("/translate", q=text, source="auto")
        assert response["translatedText"] == translation
        assert response["detectedLanguage"]["language"] == code
        page = client.post("/translate", q=f'<p title="{TEXT}">{text}</p>', source="auto", format="html")
        assert page["detectedLanguage"]["language"] == code
        assert translation in page["translatedText"]
    mixed = {"q": [ENGLISH, TEXT, ENGLISH], "source": "auto", "confidence": True, "alignment": True}
    response = client.post("/translate", **mixed)
    assert response["translatedText"] == [to_german, to_english, to_german]
    assert [guess["language"] for guess in response["detectedLanguage"]] == ["en", "de", "en"]
    alone = client.post("/translate", q=TEXT, source="de", target="en", confidence=True, alignment=True)
    assert {name: response[name][1] for name in alone} == alone
    # With a target, one model is left, and a text may be in it already.
    response = client.post("/translate", q=[ENGLISH, TEXT], source="auto", target="en")
    assert response["translatedText"] == [ENGLISH, to_english]
    assert client.post("/translate", q=[], source="auto") == {"translatedText": [], "detectedLanguage": []}
    traced = client.post("/trace", q=ENGLISH, source="auto")
    direct = client.post("/trace", q=ENGLISH, source="en", target="de")
    assert without_times(traced) == without_times(direct)


def test_auto_chooses_between_models_into_one_language(translator: Translator, french: Translator) -> None:
    with serving(lambda: translator, lambda: french) as client:
        assert client.get("/languages")[1:] == [
            {"code": "fr", "name": "French", "targets": ["en"]},
            {"code": "en", "name": "English", "targets": []},
        ]
        for target in ("en", ""):
            response = client.post("/translate", q=[FRENCH, ENGLISH, TEXT], source="auto", target=target)
            assert response["translatedText"] == [french.translate(FRENCH), ENGLISH, translator.translate(TEXT)]
            assert [guess["language"] for guess in response["detectedLanguage"]] == ["fr", "en", "de"]
        uncertain = client.post("/translate", q="chat", source="auto", target="en")
        assert uncertain["detectedLanguage"]["language"] == "fr"
        assert client.post("/translate", q="1100", source="auto", target="en")["detectedLanguage"]["language"] == "de"


def test_languages_that_no_model_has_are_refused_with_those_there_are(client: Client) -> None:
    request = {"q": TEXT, "source": "fr", "target": "en"}
    for path in ("/translate", "/trace"):
        assert client.refused(path, 400, **request) == UNKNOWN
    assert client.refused("/translate", 400, q=FRENCH, source="auto", target="en") == UNKNOWN
    assert client.refused("/translate", 400, q=[TEXT, FRENCH], source="auto") == UNKNOWN
    refused = client.refused("/translate", 400, q=FRENCH, source="auto", target="fr")
    assert refused == UNKNOWN.replace("French to English", "auto to French")
    assert client.request("GET", "/model?source=fr&target=en").json() == {"error": UNKNOWN}
    deepl = client.request("POST", "/v2/translate", json={"text": [TEXT], "source_lang": "FR", "target_lang": "EN-US"})
    assert (deepl.status_code, deepl.json()) == (400, {"message": UNKNOWN})
    file = {"file": ("a.txt", TEXT.encode())}
    response = client.request("POST", "/translate_file", files=file, data={"source": "fr", "target": "en"})
    assert (response.status_code, response.json()) == (400, {"error": UNKNOWN})
    fields = {"source_lang": "FR", "target_lang": "EN"}
    response = client.request("POST", "/v2/document", files=file, data=fields)
    assert (response.status_code, response.json()) == (400, {"message": UNKNOWN})


def test_deepls_paths_choose_the_model(client: Client, translator: Translator, english: Translator) -> None:
    for target, text, code, one in (("DE", ENGLISH, "EN", english), ("EN-GB", TEXT, "DE", translator)):
        for source in ({}, {"source_lang": code}):
            body = {"text": [text], "target_lang": target, **source}
            (response,) = client.request("POST", "/v2/translate", json=body).json()["translations"]
            assert (response["text"], response["detected_source_language"]) == (one.translate(text), code)


def test_documents_choose_the_model(client: Client, translator: Translator, english: Translator) -> None:
    for fields, content, expected, code in (
        ({"source": "en", "target": "de"}, ENGLISH, english.translate(ENGLISH), "de"),
        ({"source": "en"}, ENGLISH, english.translate(ENGLISH), "de"),
        ({}, ENGLISH, english.translate(ENGLISH), "de"),
        ({}, TEXT, translator.translate(TEXT), "en"),
        ({"target": "en"}, TEXT, translator.translate(TEXT), "en"),
        ({"target": "en"}, ENGLISH, ENGLISH, "en"),
    ):
        response = client.request("POST", "/translate_file", files={"file": ("a.txt", content.encode())}, data=fields)
        result = client.request("GET", response.json()["translatedFileUrl"])
        assert result.text == expected, fields
        assert f"a.{code}.txt" in result.headers["content-disposition"]
    catalogue = f'msgid ""\nmsgstr ""\n"Language: \\n"\n\nmsgid "{ENGLISH}"\nmsgstr ""\n'
    response = client.request("POST", "/translate_file", files={"file": ("a.po", catalogue.encode())})
    result = client.request("GET", response.json()["translatedFileUrl"])
    assert '"Language: de\\n"' in result.text


def test_costs_and_limits_are_those_of_the_model(translator: Translator, english: Translator) -> None:
    costs = [Costs(character=1.0), Costs()]
    with serving(lambda: translator, lambda: english, costs=costs, limits=Limits(timeout=20.0)) as client:
        assert "too much for one request" in client.refused("/translate", 413, q=TEXT)
        assert client.post("/translate", q=ENGLISH, source="en")["translatedText"] == english.translate(ENGLISH)
        assert client.post("/translate", q="Haus")["translatedText"] == translator.translate("Haus")


@pytest.fixture
def gates() -> Iterator[list[Gate]]:
    """Engines of two models that wait at a gate."""
    sentences = [*SENTENCES, *(text.upper() for text in SENTENCES)] * 20
    tokenizer = train_tokenizer(sentences, TokenizerConfig(vocab_size=440))
    gates = [Gate(tokenizer), Gate(tokenizer)]
    yield gates
    for gate in gates:
        gate.open.set()


def gated(gate: Gate, source: str, target: str) -> Translator:
    return Translator(gate._tokenizer, (TextRules(), TextRules()), gate, languages=(source, target))


def post(client: Client, text: str, source: str, target: str) -> asyncio.Task[httpx.Response]:
    return asyncio.ensure_future(
        client.send("POST", "/translate", json={"q": text, "source": source, "target": target})
    )


def test_a_batch_has_one_model(gates: list[Gate]) -> None:
    first, second = gates
    loads = [lambda: gated(first, "de", "en"), lambda: gated(second, "en", "de")]

    async def test(client: Client) -> None:
        held = post(client, HELD, "de", "en")
        await until(lambda: first.held == 1)
        first.calls.clear()
        second.calls.clear()
        ways = [("de", "en"), ("en", "de")]
        some = [post(client, f"satz {source} {n}", source, to) for n in range(5) for source, to in ways]
        responses = [await one for one in some]
        assert [one.json()["translatedText"] for one in responses] == [
            f"SATZ {source.upper()} {n}" for n in range(5) for source, _ in ways
        ]
        for gate, code in zip(gates, ("de", "en"), strict=True):
            texts = [text for call in gate.calls for text in call]
            assert len(texts) == 5
            assert all(f"satz {code}" in text for text in texts)
        first.open.set()
        await held

    with serving(*loads, costs=Costs(character=1e-3)) as client:
        client.runner.run(test(client))


def test_a_request_for_a_model_that_has_gone_is_503(gates: list[Gate]) -> None:
    first, second = gates
    pairs = iter([("en", "de"), ("fr", "de")])
    loads = [lambda: gated(first, "de", "en"), lambda: gated(second, *next(pairs))]

    async def test(client: Client) -> None:
        held = post(client, HELD, "de", "en")
        await until(lambda: first.held == 1)
        client.gateway.broker.pool.workers[0].retired = True  # it starts nothing more
        waiting = post(client, "satz", "en", "de")
        await client.gateway.broker.reload()
        gone = await waiting
        assert (gone.status_code, gone.json()) == (503, {"error": "the models of this server have changed"})
        assert (await post(client, "satz", "fr", "de")).json() == {"translatedText": "SATZ"}
        first.open.set()
        assert (await held).status_code == 200

    with serving(*loads, costs=Costs(character=1e-3)) as client:
        client.runner.run(test(client))


def test_two_models_between_the_same_languages_are_refused_at_start(model: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copy"
    copied.symlink_to(model)
    command = [sys.executable, "-m", "latentmt", "serve", "--model", str(model), "--model", str(copied), "--port", "0"]
    result = subprocess.run([*command, "--device", "cpu"], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 1
    what = "are both models from German to English: serve one of them"
    assert result.stderr == f"error: {model} and {copied} {what}\n"


def test_a_server_process_has_several_models(start: Start, model: Path, reverse: Path, translator: Translator) -> None:
    with start("--workers", 2, models=[model, reverse]) as server:
        assert server.log.read_text().startswith("German → English, English → German at http://")
        texts = [f"Satz {number} steht hier." for number in range(8)]
        english = Translator.load(reverse, threads=1)
        for source, target, one in (("de", "en", translator), ("en", "de", english)):
            body = {"q": texts, "source": source, "target": target}
            response = httpx.post(f"{server.address}/translate", json=body, timeout=30)
            assert response.json()["translatedText"] == one.translate(texts)
