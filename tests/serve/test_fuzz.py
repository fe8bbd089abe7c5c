"""Requests that OpenAPI allows, and many that it does not: the response is always one that it describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from process import Running
from pydantic import TypeAdapter

from latentmt.serve import schemas

FUZZ = settings(
    max_examples=settings().max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
RESPONSES: dict[str, Any] = {
    "/translate": schemas.TranslateResponse,
    "/trace": schemas.TraceResponse,
    "/detect": list[schemas.DetectedLanguage],
    "/languages": list[schemas.Language],
    "/model": schemas.ModelResponse,
    "/v2/translate": schemas.DeepLTranslations,
    "/translate_file": schemas.FileResponseBody,
    "/v2/document": schemas.DeepLDocument,
}


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=running.address, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def api(client: httpx.Client) -> dict[str, Any]:
    """OpenAPI, with the names of methods and rerankers that the model has."""
    openapi: dict[str, Any] = client.get("/openapi.json").json()
    model = client.get("/model").json()
    for schema in ("TranslateRequest", "TraceRequest"):
        options = openapi["components"]["schemas"][schema]["properties"]
        for name, values in (("method", model["methods"]), ("rerank", model["reranks"])):
            options[name] = {"anyOf": [{"enum": values}, *options[name]["anyOf"]]}
    return openapi


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def values_of(schema: dict[str, Any], api: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema allows."""
    if "$ref" in schema:
        return values_of(api["components"]["schemas"][schema["$ref"].rpartition("/")[2]], api)
    if "anyOf" in schema:
        return st.one_of([values_of(option, api) for option in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "string" if "pattern" in schema:
            return st.from_regex(schema["pattern"], fullmatch=True)
        case "string":
            return st.text(max_size=schema.get("maxLength", 40))
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum", -3), schema.get("maximum", 12))
        case "number":
            return st.floats(schema.get("minimum", -3), schema.get("maximum", 12))
        case "array":
            return st.lists(values_of(schema["items"], api), max_size=4)
        case "null":
            return st.none()
        case "object":
            fields = {name: values_of(field, api) for name, field in schema["properties"].items()}
            needed = {name: fields.pop(name) for name in schema.get("required", ())}
            return st.fixed_dictionaries(needed, optional=fields)
    raise AssertionError(f"no values for {schema}")


def check_described(api: dict[str, Any], path: str, response: httpx.Response, method: str = "post") -> None:
    assert str(response.status_code) in api["paths"][path][method]["responses"], response.text
    if response.status_code == 200:
        TypeAdapter(RESPONSES[path]).validate_json(response.content)
    else:
        ((name, message),) = response.json().items()
        is_http = message != "this is no HTTP request"  # a head that cannot be parsed has no path yet
        assert name == ("message" if path.startswith("/v2/") and is_http else "error")
        assert isinstance(message, str)
        assert "\n" not in message


def body_schema(api: dict[str, Any], path: str) -> dict[str, Any]:
    schema: dict[str, Any] = api["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return schema


@pytest.mark.parametrize("path", ["/translate", "/trace", "/detect", "/v2/translate"])
def test_requests_that_openapi_allows_get_described_responses(
    client: httpx.Client, api: dict[str, Any], path: str
) -> None:
    @FUZZ
    @given(st.data(), st.booleans())
    def fuzz(data: st.DataObject, form: bool) -> None:
        body = data.draw(values_of(body_schema(api, path), api))
        if form:
            fields = {name: value for name, value in body.items() if value is not None}
            response = client.post(path, data=fields)
        else:
            response = client.post(path, json=body)
        check_described(api, path, response)

    fuzz()


@pytest.mark.parametrize(
    "path", ["/translate", "/trace", "/detect", "/v2/translate", "/translate_file", "/v2/document"]
)
def test_other_requests_get_described_responses(client: httpx.Client, api: dict[str, Any], path: str) -> None:
    names = list(api["components"]["schemas"]["TranslateRequest"]["properties"])
    bodies = st.one_of(
        st.dictionaries(st.sampled_from(names), anything, max_size=5).map(json.dumps).map(str.encode),
        anything.map(json.dumps).map(str.encode),
        st.binary(max_size=60),
        st.dictionaries(st.sampled_from(names), st.text(max_size=9), max_size=4).map(urlencode).map(str.encode),
        st.integers(1, 3000).map(lambda depth: b'{"q":' * depth),
    )
    types = st.sampled_from(
        [
            *(
                "application/json",
                "application/json; charset=latin-1",
                "application/x-www-form-urlencoded",
                "text/plain",
            ),
            *("multipart/form-data", "multipart/form-data; boundary=x", "application/problem+json", "\x7f", ""),
            *(f"multipart/form-data; boundary=x; charset={name}" for name in ("undefined", "punycode", "utf-16", "?")),
        ]
    )

    @FUZZ
    @given(bodies, types)
    def fuzz(body: bytes, kind: str) -> None:
        check_described(api, path, client.post(path, content=body, headers={"Content-Type": kind}))

    fuzz()


def test_get_responses_are_described_and_no_path_is_left_out(client: httpx.Client, api: dict[str, Any]) -> None:
    for path in ("/languages", "/model"):
        check_described(api, path, client.get(path), "get")
    others = {"/healthz", "/readyz", "/metrics", "/frontend/settings", "/download_file/{name}"}
    others |= {"/v2/languages", "/v2/usage", "/v2/document/{id_}", "/v2/document/{id_}/result"}
    assert set(api["paths"]) == {*RESPONSES, *others}
