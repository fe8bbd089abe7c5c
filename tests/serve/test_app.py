"""Requests and responses over HTTP, without a socket."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from serving import Client, Serving

from latentmt.options import DecodingOptions
from latentmt.serve.admission import ApiKeys, Limits
from latentmt.serve.costs import Costs
from latentmt.serve.facts import ModelFacts
from latentmt.serve.front import COUNT_SECONDS
from latentmt.serve.languages import detect
from latentmt.serve.origins import Origins
from latentmt.serve.schemas import DetectedLanguage
from latentmt.translator import Translator

TEXT = "Ein kleiner Satz steht hier."
OTHER = "Wir haben 1100 Bücher gelesen!"
ENGLISH = "The small sentence is here, and another one is over there with many books."


@pytest.fixture(scope="module")
def client(serving: Serving, translator: Translator) -> Iterator[Client]:
    with serving(lambda: translator) as client:
        yield client


# /translate: LibreTranslate's format.


def test_translate_accepts_json_and_forms(client: Client, translator: Translator) -> None:
    expected = {"translatedText": translator.translate(TEXT)}
    fields = {"q": TEXT, "source": "de", "target": "en", "format": "text", "api_key": ""}
    assert client.post("/translate", **fields) == expected
    for form in ({"data": fields}, {"files": {name: (None, value) for name, value in fields.items()}}):
        assert client.request("POST", "/translate", **form).json() == expected
    assert client.post("/translate", q=TEXT) == expected
    assert client.post("/translate", q=TEXT, unknown=3) == expected  # as LibreTranslate has it


def test_translate_returns_a_list_for_a_list(client: Client, translator: Translator) -> None:
    texts = [TEXT, OTHER, "", "  \n", TEXT]
    assert client.post("/translate", q=texts) == {"translatedText": translator.translate(texts)}
    form = client.request("POST", "/translate", data={"q": texts[:2]})
    assert form.json() == {"translatedText": translator.translate(texts[:2])}
    assert client.post("/translate", q=[]) == {"translatedText": []}


@pytest.mark.parametrize(
    "choices",
    [
        {"method": "prior"},
        {"method": "delta", "steps": 3},
        {"method": "teacher"},
        {"lengths": 2, "samples": 3, "rerank": "teacher"},
    ],
)
def test_decoding_options_reach_the_translator(client: Client, translator: Translator, choices: dict[str, Any]) -> None:
    assert client.post("/translate", q=OTHER, **choices) == {"translatedText": translator.translate(OTHER, **choices)}


def test_source_auto_detects_the_language(client: Client, translator: Translator) -> None:
    response = client.post("/translate", q=TEXT, source="auto", target="en")
    assert response["translatedText"] == translator.translate(TEXT)
    assert response["detectedLanguage"]["language"] == "de"
    assert 90 <= response["detectedLanguage"]["confidence"] <= 100
    both = client.post("/translate", q=[ENGLISH, TEXT], source="auto", target="en")
    assert both["translatedText"] == [ENGLISH, translator.translate(TEXT)]  # a text is its own translation
    assert [guess["language"] for guess in both["detectedLanguage"]] == ["en", "de"]
    assert client.post("/translate", q="Haus", source="auto")["detectedLanguage"]["language"] == "de"
    french = "Bonjour mes amis, nous avons lu beaucoup de livres cette année."
    assert "French to English: this server translates German to English" in client.refused(
        "/translate", 400, q=french, source="auto"
    )


def test_detection_runs_in_a_thread_and_only_for_accepted_sizes(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def recording(text: str, *among: Any) -> list[DetectedLanguage]:
        threads.append(threading.current_thread())
        return detect(text, *among)

    monkeypatch.setattr("latentmt.serve.detection.detect", recording)
    client.post("/translate", q=[TEXT, OTHER], source="auto")
    assert threads
    assert threading.main_thread() not in threads
    threads.clear()
    refused = client.refused("/translate", 413, q=[""] * 40_000, source="auto")
    assert refused == "40,000 sentences: this server allows 256"
    assert not threads


def test_blank_fields_count_as_absent(client: Client, translator: Translator) -> None:
    names = ["source", "target", "format", "alternatives", "api_key", "steps", "method"]
    expected = {"translatedText": translator.translate(TEXT)}
    assert client.post("/translate", q=TEXT, **dict.fromkeys(names)) == expected
    assert client.post("/translate", q=TEXT, **dict.fromkeys(names, "")) == expected
    form = client.request("POST", "/translate", data={"q": TEXT, **dict.fromkeys(names, "")})
    assert form.json() == expected
    assert client.post("/translate", q="") == {"translatedText": ""}
    assert "valid string" in client.refused("/translate", 400, q=None)


def test_alternatives_are_different_translations(client: Client, translator: Translator) -> None:
    response = client.post("/translate", q=f"{TEXT} {OTHER}", alternatives=3)
    result = [response["translatedText"], *response["alternatives"]]
    assert len(set(result)) == len(result) == 4
    assert result[0] == translator.translate(f"{TEXT} {OTHER}", lengths=4, rerank="teacher")
    several = client.post("/translate", q=[TEXT, OTHER], alternatives=1, lengths=3, samples=2, rerank="decoder")
    assert [len(some) for some in several["alternatives"]] == [1, 1]
    assert client.post("/translate", q=TEXT, alternatives=2, method="teacher")["alternatives"] == []


def test_alternatives_are_looked_for_beyond_the_default_candidates(translator: Translator) -> None:
    facts = ModelFacts.of(translator, Costs())
    default = DecodingOptions(method="score", lengths=2, rerank="decoder")
    facts = replace(facts, abilities=replace(facts.abilities, default_options=default))
    limits = Limits(max_candidates=6)
    assert facts.options({}, limits, alternatives=1) == default
    assert facts.options({}, limits, alternatives=4) == replace(default, lengths=5)
    assert facts.options({}, limits, alternatives=8).lengths == 6
    chosen = {"lengths": 3, "samples": 1, "rerank": "elbo"}
    assert facts.options(chosen, limits, alternatives=8).lengths == 3


def test_confidence_and_alignment_on_request(client: Client, translator: Translator) -> None:
    text = f"  {TEXT}\n{OTHER} "
    response = client.post("/translate", q=text, confidence=True, alignment=True)
    (expected,) = translator.translations([text], details=True)
    assert response["translatedText"] == expected.text
    assert response["confidence"] == pytest.approx(expected.confidence)
    assert [token["text"] for token in response["tokens"]] == [token.text for token in expected.tokens]
    assert response["alignment"]
    sources = [text[slice(*pair["source"])] for pair in response["sentences"]]
    targets = [expected.text[slice(*pair["target"])] for pair in response["sentences"]]
    assert (sources, targets) == ([TEXT, OTHER], translator.translate([TEXT, OTHER]))
    several = client.post("/translate", q=[TEXT, ""], confidence=True, alignment=True)
    assert [len(one) for one in several["sentences"]] == [1, 0]
    assert several["confidence"][1] == 1
    html = client.post("/translate", q=f"<p>{TEXT}</p>", format="html", confidence=True)
    assert 0 <= html["confidence"] <= 1
    assert "none with the format html" in client.refused("/translate", 400, q=TEXT, format="html", alignment=True)


def test_another_language_than_stated_is_warned_of(client: Client) -> None:
    french = "Bonjour mes amis, nous avons lu beaucoup de livres cette année."
    one = client.post("/translate", q=ENGLISH, source="de", target="en", confidence=True)
    assert one["warning"] == "This text seems to be English, not German."
    assert one["detectedLanguage"]["language"] == "en"
    several = client.post("/translate", q=[TEXT, french, "Hello there"], source="de", confidence=True)
    assert several["warning"] == [None, "This text seems to be French, not German.", None]
    assert [guess["language"] for guess in several["detectedLanguage"]] == ["de", "fr", "de"]
    assert "warning" not in client.post("/translate", q=[TEXT, OTHER], source="de", confidence=True)


def test_html_keeps_tags_and_scripts(client: Client, translator: Translator) -> None:
    page = f'<h1>{TEXT}</h1>\n<p class="a">Ein <b>kleiner</b> Satz.</p><script>if (a < b) "Satz"</script>'
    text = client.post("/translate", q=[page], format="html")["translatedText"][0]
    assert text.startswith(f'<h1>{translator.translate(TEXT)}</h1>\n<p class="a">')
    assert text.endswith('</p><script>if (a < b) "Satz"</script>')
    inside = text[text.index('"a">') + 4 : text.index("</p>")]
    assert inside.count("<b>") == inside.count("</b>") == 1
    assert inside.replace("<b>", "").replace("</b>", "") == translator.translate("Ein kleiner Satz.")


def test_html_language_is_detected_from_its_text(client: Client) -> None:
    page = f'<div class="the quick brown fox" title="{ENGLISH * 3}"><p>{TEXT}</p><p>{OTHER}</p></div>'
    assert client.post("/translate", q=page, source="auto", format="html")["detectedLanguage"]["language"] == "de"
    english = f'<div title="{TEXT * 9}">{ENGLISH}</div>'
    assert client.post("/translate", q=english, source="auto", format="html")["translatedText"] == english


# Errors.


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "q: field required"),
        ({"q": 3}, "valid string"),
        ({"q": [TEXT, None]}, "valid string"),
        ({"q": TEXT, "format": "pdf"}, "format: string should match"),
        ({"q": TEXT, "steps": "many"}, "steps: input should be a valid integer"),
        ({"q": TEXT, "steps": -1}, "steps: input should be greater than or equal to 0"),
        ({"q": TEXT, "steps": 33}, "33 steps: this server allows 32"),
        ({"q": TEXT, "method": "energy"}, "method energy: this model has only"),
        ({"q": TEXT, "lengths": 3}, "3 candidates need a rerank"),
        ({"q": TEXT, "lengths": 9, "samples": 9, "rerank": "elbo"}, "81 candidates (lengths × samples): this server"),
        ({"q": TEXT, "alternatives": 1, "format": "html"}, "alternatives: there are none with the format html"),
        ({"q": TEXT, "alternatives": 11}, "alternatives: input should be less than or equal to 10"),
        ({"q": TEXT, "source": "en", "target": "de"}, "English to German: this server translates German to English"),
        ({"q": TEXT, "source": "x\ny", "target": "en"}, "x\\ny to English: this server translates German to English"),
        ({"q": TEXT, "target": "xx"}, "German to xx"),
    ],
)
def test_invalid_requests_are_400(client: Client, body: dict[str, Any], message: str) -> None:
    assert message in client.refused("/translate", 400, **body)


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ("application/json", {"content": b"{"}),
        ("application/json", {"content": b'"q"'}),
        ("application/json", {"content": b'{"q": "\xff"}'}),
        ("application/json", {"content": b'{"q": "\\ud800"}'}),
        ("application/json", {"content": b'{"q":' + b"[" * 10_000 + b"]" * 10_000 + b"}"}),
        ("application/json", {"content": b""}),
        ("text/plain", {"content": b"q=x"}),
        ("multipart/form-data", {"content": b"q=x"}),
        ("multipart/form-data; boundary=b", {"content": b"--b\r\nnothing\r\n"}),
        *(
            (
                f"multipart/form-data; boundary=b; charset={name}",
                {"content": b'--b\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xff-9\r\n--b--\r\n'},
            )
            for name in ("undefined", "punycode")
        ),
        ("application/x-www-form-urlencoded", {"content": b"%%%"}),
    ],
)
def test_unreadable_bodies_are_400(client: Client, content: str, options: dict[str, Any]) -> None:
    response = client.request("POST", "/translate", headers={"Content-Type": content}, **options)
    assert response.status_code == 400, response.text
    assert list(response.json()) == ["error"]


def test_too_large_requests_are_413(serving: Serving, translator: Translator) -> None:
    with serving(lambda: translator, limits=Limits(max_characters=300, max_sentences=4)) as client:
        assert client.refused("/translate", 413, q="a" * 301) == "301 characters: this server allows 300"
        assert client.refused("/translate", 413, q=["x"] * 5) == "5 sentences: this server allows 4"
        assert "5 sentences" in client.refused("/translate", 413, q="Ein Satz. " * 5)
        assert "5 sentences" in client.refused("/translate", 413, q="<p>Satz</p>" * 5, format="html")
        assert "301 characters" in client.refused("/trace", 413, q="a" * 301)
        assert "301 characters" in client.refused("/detect", 413, q="a" * 301)
        assert "larger than 7,696 bytes" in client.refused("/translate", 413, q="a" * 8000)
        assert client.post("/translate", q="ab " * 30)["translatedText"] is not None


def test_unknown_paths_and_methods_are_errors_in_json(client: Client) -> None:
    for method, path, status in (("GET", "/nowhere", 404), ("GET", "/translate", 405), ("GET", "/page/../app.py", 404)):
        response = client.request(method, path)
        assert response.status_code == status
        assert list(response.json()) == ["error"]


def test_unexpected_errors_are_500_without_a_stack_trace(
    serving: Serving, translator: Translator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError(TEXT)

    with serving(lambda: translator) as client:
        monkeypatch.setattr(translator, "translate_segmented", fails)
        assert client.refused("/translate", 500, q=TEXT) == "something went wrong in the server"
    assert caplog.messages == ["RuntimeError while answering"]
    assert TEXT not in caplog.text


# The other paths.


def test_languages_and_detect(client: Client) -> None:
    assert client.get("/languages") == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": []},
    ]
    result = client.post("/detect", q="Das ist ein schöner Tag, und wir lesen Bücher.")
    assert result[0]["language"] == "de"
    assert result[0]["confidence"] > 90
    assert sum(guess["confidence"] for guess in client.post("/detect", q="Haus")) <= 100.5
    assert client.post("/detect", q="")


def test_model_lists_methods_rerankers_and_defaults(client: Client) -> None:
    about = client.get("/model")
    assert (about["source"], about["target"], about["dimensions"]) == ("de", "en", 3)
    assert about["methods"] == ["prior", "delta", "score", "teacher"]
    assert about["reranks"] == ["none", "teacher", "decoder", "elbo", "marginal"]
    assert (about["default"], about["keys"]) == ("score-1", False)
    assert client.post("/trace", q=TEXT, **about["default_options"])["options"] == about["default"]


def test_trace_returns_every_step(client: Client, translator: Translator) -> None:
    traced = client.post("/trace", q=f"{TEXT} {OTHER}", steps=3)
    assert traced["options"] == "score-3"
    expected = [translator.translate(text, steps=3, verbatim=False) for text in (TEXT, OTHER)]
    assert [sentence["translation"] for sentence in traced["sentences"]] == expected
    for sentence in traced["sentences"]:
        assert [step["number"] for step in sentence["steps"]] == [0, 1, 2, 3]
        assert 0 < sentence["seen"] <= 1
        for step in sentence["steps"]:
            read = "".join(token["text"] for token in step["tokens"])
            assert read.split() == step["text"].split()
            assert all(0 <= token["probability"] <= 1 for token in step["tokens"])
            assert step["milliseconds"] > 0
        assert not any(token["changed"] for token in sentence["steps"][0]["tokens"])
        assert sentence["field"] is None
    assert any(token["changed"] for s in traced["sentences"] for step in s["steps"] for token in step["tokens"])


def test_trace_returns_candidates_and_the_field_of_a_token(client: Client) -> None:
    request = {"q": f"{TEXT} {OTHER}", "lengths": 3, "samples": 2, "rerank": "teacher", "sentence": 1, "token": 2}
    first, second = client.post("/trace", **request)["sentences"]
    assert first["field"] is None
    assert second["field"]["token"] == 2
    assert len(second["field"]["points"]) == len(second["field"]["moves"]) == 81
    assert any(map(any, second["field"]["moves"]))
    scores = [candidate["score"] for candidate in second["candidates"]]
    assert scores == sorted(scores, reverse=True)
    assert [candidate["kept"] for candidate in second["candidates"]] == [True] + [False] * (len(scores) - 1)
    assert second["candidates"][0]["text"] == second["translation"]
    assert len({candidate["text"] for candidate in second["candidates"]}) == len(scores) > 1
    assert client.post("/trace", q=TEXT, sentence=0, token=999)["sentences"][0]["field"] is None
    assert "no refinement steps" in client.refused("/trace", 400, q=TEXT, method="teacher")


def test_health_and_metrics(serving: Serving, translator: Translator) -> None:
    with serving(lambda: translator) as client:
        assert client.get("/healthz") == client.get("/readyz") == {"status": "ok"}
        client.post("/translate", q=[TEXT, OTHER])
        client.refused("/translate", 400)
        client.runner.run(asyncio.sleep(2 * COUNT_SECONDS))
        text = client.request("GET", "/metrics").text
        assert 'latentmt_requests_total{endpoint="/translate",status="200"} 1.0' in text
        assert 'latentmt_requests_total{endpoint="/translate",status="400"} 1.0' in text
        assert f"latentmt_characters_total {float(len(TEXT + OTHER + 'Test.'))}" in text
        assert 'latentmt_batch_requests_bucket{le="1.0"} 2.0' in text  # /readyz translates, too
        assert "latentmt_workers 1.0" in text


def test_api_keys_are_required_and_rate_limited(serving: Serving, translator: Translator) -> None:
    with serving(lambda: translator, keys=ApiKeys({"good": math.inf, "few": 2.0})) as client:
        assert client.get("/model")["keys"] is True
        for path in ("/translate", "/trace", "/detect"):
            assert client.refused(path, 403, q=TEXT) == "this server wants an API key: api_key"
            assert client.refused(path, 403, q=TEXT, api_key="bad") == "this API key is not known here"
            client.post(path, q=TEXT, api_key="good")
        for _ in range(2):
            client.post("/detect", q=TEXT, api_key="few")
        response = client.request("POST", "/detect", json={"q": TEXT, "api_key": "few"})
        assert (response.status_code, response.headers["retry-after"]) == (429, "30")
        client.get("/languages")


def test_cors_allows_only_the_given_origins(serving: Serving, translator: Translator, client: Client) -> None:
    headers = {"Origin": "https://there.example"}
    assert "access-control-allow-origin" not in client.request("GET", "/model", headers=headers).headers
    with serving(lambda: translator, origins=Origins(cors=["https://there.example"])) as open_:
        response = open_.request("GET", "/model", headers=headers)
        assert response.headers["access-control-allow-origin"] == "https://there.example"
        assert response.headers["access-control-expose-headers"] == "Retry-After"
        other = open_.request("GET", "/model", headers={"Origin": "https://elsewhere.example"})
        assert "access-control-allow-origin" not in other.headers


def test_page_loads_nothing_from_other_hosts(client: Client) -> None:
    for path in ("/", "/docs"):
        response = client.request("GET", path)
        assert response.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in response.headers["content-security-policy"]
        assert "//" not in response.text.replace("<!doctype", "")
        assert client.request("GET", path, headers={"Range": "bytes=9999999-"}).text == response.text
    assert client.request("GET", "/page/app.js").headers["content-type"].startswith("text/javascript")


# Other sites.


def test_unknown_hosts_are_403(serving: Serving, translator: Translator) -> None:
    with serving(lambda: translator, origins=Origins.of("127.0.0.1", ["mt.example"])) as client:
        assert client.request("GET", "/model", headers={"Host": "mt.example:8000"}).status_code == 200
        for path in ("/", "/model", "/metrics", "/page/app.js", "/nowhere"):
            refused = client.request("GET", path, headers={"Host": "evil.example"})
            assert refused.status_code == 403
            assert refused.json()["error"].startswith("host evil.example: this server does not answer to that name")


def test_forms_from_other_sites_are_403(serving: Serving, client: Client, translator: Translator) -> None:
    evil = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    refused = client.request("POST", "/translate", data={"q": TEXT}, headers=evil)
    assert (refused.status_code, list(refused.json())) == (403, ["error"])
    same = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert client.request("POST", "/translate", data={"q": TEXT}, headers=same).status_code == 200
    with serving(lambda: translator, origins=Origins(cors=["https://evil.example"])) as open_:
        assert open_.request("POST", "/translate", data={"q": TEXT}, headers=evil).status_code == 200


def test_metrics_need_their_own_key_where_keys_are_required(serving: Serving, translator: Translator) -> None:
    keys = ApiKeys({"user": math.inf}, frozenset({"prometheus"}))
    with serving(lambda: translator, keys=keys) as client:
        for headers in ({}, {"Authorization": "Bearer user"}, {"Authorization": "Bearer"}):
            assert client.request("GET", "/metrics", headers=headers).status_code == 403
        shown = client.request("GET", "/metrics", headers={"Authorization": "Bearer prometheus"})
        assert "latentmt_workers 1.0" in shown.text
        assert client.refused("/translate", 403, q=TEXT, api_key="prometheus") == "this API key is not known here"
        assert client.get("/readyz") == {"status": "ok"}


def test_redirects_are_relative(client: Client) -> None:
    response = client.request("POST", "/translate/", json={"q": TEXT}, headers={"Host": "evil.example"})
    assert (response.status_code, response.headers["location"]) == (307, "/translate")
    assert client.request("GET", "//evil.example/model/").headers.get("location", "/")[:2] != "//"
