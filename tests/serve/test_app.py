"""What is asked and what is answered, over HTTP but without a socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from latentmt.serve.app import make_app
from latentmt.serve.batcher import BusyError
from latentmt.serve.keys import Keys
from latentmt.serve.languages import Guess, detect
from latentmt.serve.limits import Limits
from latentmt.serve.questions import TranslateQuestion
from latentmt.serve.service import Service
from latentmt.translator import Translator

TEXT = "Ein kleiner Satz steht hier."
OTHER = "Wir haben 1100 Bücher gelesen!"
ENGLISH = "The small sentence is here, and another one is over there with many books."


class Client:
    """Asks an application, one question after another."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await client.request(method, path, **options)

        return asyncio.run(ask())

    def get(self, path: str) -> Any:
        answer = self.request("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: Any) -> Any:
        answer = self.request("POST", path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, path: str, status: int, **body: Any) -> str:
        answer = self.request("POST", path, json=body)
        assert answer.status_code == status, answer.text
        assert list(answer.json()) == ["error"]
        return str(answer.json()["error"])


@contextmanager
def serving(translator: Translator, **options: Any) -> Iterator[Client]:
    service = Service([translator], options.pop("limits", Limits()), options.pop("keys", None))
    yield Client(make_app(service, **options))
    service.batcher.close()


@pytest.fixture(scope="module")
def client(translator: Translator) -> Iterator[Client]:
    with serving(translator) as one:
        yield one


# /translate: LibreTranslate's format.


def test_a_text_as_json_and_as_a_form(client: Client, translator: Translator) -> None:
    expected = {"translatedText": translator.translate(TEXT)}
    fields = {"q": TEXT, "source": "de", "target": "en", "format": "text", "api_key": ""}
    assert client.post("/translate", **fields) == expected
    for form in ({"data": fields}, {"files": {name: (None, value) for name, value in fields.items()}}):
        assert client.request("POST", "/translate", **form).json() == expected
    assert client.post("/translate", q=TEXT) == expected
    assert client.post("/translate", q=TEXT, unknown=3) == expected  # as LibreTranslate has it


def test_a_list_gives_a_list(client: Client, translator: Translator) -> None:
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
def test_choices_are_the_translators(client: Client, translator: Translator, choices: dict[str, Any]) -> None:
    assert client.post("/translate", q=OTHER, **choices) == {"translatedText": translator.translate(OTHER, **choices)}


def test_the_source_may_be_found_out(client: Client, translator: Translator) -> None:
    answer = client.post("/translate", q=TEXT, source="auto", target="en")
    assert answer["translatedText"] == translator.translate(TEXT)
    assert answer["detectedLanguage"]["language"] == "de"
    assert 90 <= answer["detectedLanguage"]["confidence"] <= 100
    both = client.post("/translate", q=[ENGLISH, TEXT], source="auto", target="en")
    assert both["translatedText"] == [ENGLISH, translator.translate(TEXT)]  # a text is its own translation
    assert [one["language"] for one in both["detectedLanguage"]] == ["en", "de"]
    assert client.post("/translate", q="Haus", source="auto")["detectedLanguage"]["language"] == "de"
    french = "Bonjour mes amis, nous avons lu beaucoup de livres cette année."
    assert "French to English: this server translates German to English" in client.refused(
        "/translate", 400, q=french, source="auto"
    )


def test_the_source_is_found_out_beside_the_loop_and_only_of_what_is_allowed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def noted(text: str, *among: Any) -> list[Guess]:
        threads.append(threading.current_thread())
        return detect(text, *among)

    monkeypatch.setattr("latentmt.serve.service.detect", noted)
    client.post("/translate", q=[TEXT, OTHER], source="auto")
    assert threads
    assert threading.main_thread() not in threads
    threads.clear()
    refused = client.refused("/translate", 413, q=[""] * 40_000, source="auto")
    assert refused == "40,000 sentences: this server allows 256"
    assert not threads


def test_what_is_left_blank_is_left_out(client: Client, translator: Translator) -> None:
    names = ["source", "target", "format", "alternatives", "api_key", "steps", "method"]
    expected = {"translatedText": translator.translate(TEXT)}
    assert client.post("/translate", q=TEXT, **dict.fromkeys(names)) == expected
    assert client.post("/translate", q=TEXT, **dict.fromkeys(names, "")) == expected
    form = client.request("POST", "/translate", data={"q": TEXT, **dict.fromkeys(names, "")})
    assert form.json() == expected
    assert client.post("/translate", q="") == {"translatedText": ""}
    assert "valid string" in client.refused("/translate", 400, q=None)


def test_other_translations(client: Client, translator: Translator) -> None:
    answer = client.post("/translate", q=f"{TEXT} {OTHER}", alternatives=3)
    found = [answer["translatedText"], *answer["alternatives"]]
    assert len(set(found)) == len(found) == 4
    assert found[0] == translator.translate(f"{TEXT} {OTHER}", lengths=4, rerank="teacher")
    several = client.post("/translate", q=[TEXT, OTHER], alternatives=1, lengths=3, samples=2, rerank="decoder")
    assert [len(some) for some in several["alternatives"]] == [1, 1]
    assert client.post("/translate", q=TEXT, alternatives=2, method="teacher")["alternatives"] == []


def test_html(client: Client, translator: Translator) -> None:
    page = f'<h1>{TEXT}</h1>\n<p class="a">Ein <b>kleiner</b> Satz.</p><script>if (a < b) "Satz"</script>'
    text = client.post("/translate", q=[page], format="html")["translatedText"][0]
    assert text.startswith(f'<h1>{translator.translate(TEXT)}</h1>\n<p class="a">')
    assert text.endswith('</p><script>if (a < b) "Satz"</script>')
    inside = text[text.index('"a">') + 4 : text.index("</p>")]
    assert inside.count("<b>") == inside.count("</b>") == 1
    assert inside.replace("<b>", "").replace("</b>", "") == translator.translate("Ein kleiner Satz.")


def test_the_language_of_html_is_that_of_its_texts(client: Client) -> None:
    page = f'<div class="the quick brown fox" title="{ENGLISH * 3}"><p>{TEXT}</p><p>{OTHER}</p></div>'
    assert client.post("/translate", q=page, source="auto", format="html")["detectedLanguage"]["language"] == "de"
    english = f'<div title="{TEXT * 9}">{ENGLISH}</div>'
    assert client.post("/translate", q=english, source="auto", format="html")["translatedText"] == english


def test_html_is_accepted_or_refused_as_a_whole(translator: Translator) -> None:
    async def ask() -> None:
        service = Service([translator], Limits(waiting=1))
        asked = TranslateQuestion(q=f"<p>{TEXT}</p><p>Ein <b>kleiner</b> Satz.</p>", format="html")
        answers = await asyncio.gather(*[service.translated(asked) for _ in range(3)], return_exceptions=True)
        refused = [one for one in answers if isinstance(one, BusyError)]
        assert 0 < len(refused) < 3
        accepted = (len(answers) - len(refused)) * len(f"{TEXT}Ein kleiner Satz.")
        assert f"latentmt_characters_total {float(accepted)}" in service.metrics.text().decode()
        service.batcher.close()

    asyncio.run(ask())


# What is refused, and how.


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
        ({"q": TEXT, "method": "magic"}, "method: input should be 'prior'"),
        ({"q": TEXT, "method": "energy"}, "method energy: this model has only"),
        ({"q": TEXT, "lengths": 3}, "3 candidates need a rerank"),
        ({"q": TEXT, "lengths": 9, "samples": 9, "rerank": "elbo"}, "81 candidates (lengths × samples): this server"),
        ({"q": TEXT, "alternatives": 1, "format": "html"}, "alternatives: there are none with the format html"),
        ({"q": TEXT, "alternatives": 11}, "alternatives: input should be less than or equal to 10"),
        ({"q": TEXT, "source": "en", "target": "de"}, "English to German: this server translates German to English"),
        ({"q": TEXT, "source": "x\ny", "target": "en"}, "x y to English: this server translates German to English"),
        ({"q": TEXT, "target": "xx"}, "German to xx"),
    ],
)
def test_what_cannot_be_followed(client: Client, body: dict[str, Any], message: str) -> None:
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
def test_what_cannot_be_read(client: Client, content: str, options: dict[str, Any]) -> None:
    answer = client.request("POST", "/translate", headers={"Content-Type": content}, **options)
    assert answer.status_code == 400, answer.text
    assert list(answer.json()) == ["error"]


def test_what_is_too_much(translator: Translator) -> None:
    with serving(translator, limits=Limits(characters=300, sentences=4, request=2000)) as client:
        assert client.refused("/translate", 413, q="a" * 301) == "301 characters: this server allows 300"
        assert client.refused("/translate", 413, q=["x"] * 5) == "5 sentences: this server allows 4"
        assert "5 sentences" in client.refused("/translate", 413, q="Ein Satz. " * 5)
        assert "5 sentences" in client.refused("/translate", 413, q="<p>Satz</p>" * 5, format="html")
        assert "301 characters" in client.refused("/trace", 413, q="a" * 301)
        assert "301 characters" in client.refused("/detect", 413, q="a" * 301)
        assert "too much for one request" in client.refused(
            "/translate", 413, q="ab " * 100, lengths=8, samples=8, rerank="decoder"
        )
        assert "larger than 7,696 bytes" in client.refused("/translate", 413, q="a" * 8000)
        assert client.post("/translate", q="a" * 300)["translatedText"] is not None


def test_paths_that_are_not_there(client: Client) -> None:
    for method, path, status in (("GET", "/nowhere", 404), ("GET", "/translate", 405), ("GET", "/page/../app.py", 404)):
        answer = client.request(method, path)
        assert answer.status_code == status
        assert list(answer.json()) == ["error"]


def test_what_nobody_foresaw_is_no_stack_trace(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError(TEXT)

    monkeypatch.setattr(translator, "translations", fails)
    with serving(translator) as client:
        assert client.refused("/translate", 500, q=TEXT) == "something went wrong in the server"
    assert caplog.messages == ["RuntimeError while answering"]
    assert TEXT not in caplog.text


# The other questions.


def test_languages_and_detect(client: Client) -> None:
    assert client.get("/languages") == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": []},
    ]
    found = client.post("/detect", q="Das ist ein schöner Tag, und wir lesen Bücher.")
    assert found[0]["language"] == "de"
    assert found[0]["confidence"] > 90
    assert sum(one["confidence"] for one in client.post("/detect", q="Haus")) <= 100.5
    assert client.post("/detect", q="")


def test_the_model_says_what_it_can(client: Client) -> None:
    about = client.get("/model")
    assert (about["source"], about["target"], about["dimensions"]) == ("de", "en", 3)
    assert about["methods"] == ["prior", "delta", "score", "teacher"]
    assert about["reranks"] == ["none", "teacher", "decoder", "elbo", "marginal"]
    assert (about["default"], about["keys"]) == ("score-1", False)


def test_a_trace_shows_every_step(client: Client, translator: Translator) -> None:
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


def test_a_trace_has_the_field_of_a_token_and_the_candidates(client: Client) -> None:
    asked = {"q": f"{TEXT} {OTHER}", "lengths": 3, "samples": 2, "rerank": "teacher", "sentence": 1, "token": 2}
    first, second = client.post("/trace", **asked)["sentences"]
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


def test_health_and_metrics(translator: Translator) -> None:
    with serving(translator) as client:
        assert client.get("/healthz") == client.get("/readyz") == {"status": "ok"}
        client.post("/translate", q=[TEXT, OTHER])
        client.refused("/translate", 400)
        text = client.request("GET", "/metrics").text
        assert 'latentmt_requests_total{endpoint="/translate",status="200"} 1.0' in text
        assert 'latentmt_requests_total{endpoint="/translate",status="400"} 1.0' in text
        assert f"latentmt_characters_total {float(len(TEXT + OTHER))}" in text
        assert 'latentmt_batch_texts_bucket{le="1.0"} 0.0' in text
        assert 'latentmt_batch_texts_bucket{le="2.0"} 1.0' in text


def test_keys(translator: Translator) -> None:
    with serving(translator, keys=Keys({"good": float("inf"), "few": 2.0})) as client:
        assert client.get("/model")["keys"] is True
        for path in ("/translate", "/trace", "/detect"):
            assert client.refused(path, 403, q=TEXT) == "this server wants an API key: api_key"
            assert client.refused(path, 403, q=TEXT, api_key="bad") == "this API key is not known here"
            client.post(path, q=TEXT, api_key="good")
        for _ in range(2):
            client.post("/detect", q=TEXT, api_key="few")
        answer = client.request("POST", "/detect", json={"q": TEXT, "api_key": "few"})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "30")
        client.get("/languages")


def test_pages_from_elsewhere_may_ask_only_if_they_are_let(translator: Translator, client: Client) -> None:
    headers = {"Origin": "https://there.example"}
    assert "access-control-allow-origin" not in client.request("GET", "/model", headers=headers).headers
    with serving(translator, cors=["https://there.example"]) as open_:
        answer = open_.request("GET", "/model", headers=headers)
        assert answer.headers["access-control-allow-origin"] == "https://there.example"
        assert answer.headers["access-control-expose-headers"] == "Retry-After"
        other = open_.request("GET", "/model", headers={"Origin": "https://elsewhere.example"})
        assert "access-control-allow-origin" not in other.headers


def test_the_page_asks_nobody_else(client: Client) -> None:
    for path in ("/", "/docs"):
        answer = client.request("GET", path)
        assert answer.headers["content-type"].startswith("text/html")
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "//" not in answer.text.replace("<!doctype", "")
        assert client.request("GET", path, headers={"Range": "bytes=9999999-"}).text == answer.text
    assert client.request("GET", "/page/app.js").headers["content-type"].startswith("text/javascript")
