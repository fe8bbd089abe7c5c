"""DeepL's API, for its clients: texts, documents, languages and usage. Errors are {"message": …} here."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from pydantic import Field, field_validator

from latentmt.errors import UserError
from latentmt.serve.admission import client_at
from latentmt.serve.bodies import FORMS, openapi_body, parse_body, read_body, upload_form
from latentmt.serve.documents import status
from latentmt.serve.facts import AUTO
from latentmt.serve.files import file_response, openapi_upload
from latentmt.serve.gateway import Gateway, TextGateway
from latentmt.serve.languages import language_name
from latentmt.serve.schemas import BaseRequest, DeepLDocument, DeepLError, DeepLStatus, DeepLTranslations
from latentmt.serve.schemas import TranslateRequest as OwnRequest
from latentmt.serve.waiting import address, while_connected

_UNLIMITED = 1_000_000_000_000
"""The limit of characters that DeepL states where there is none."""
_ENGLISH = {"EN-GB": "English (British)", "EN-US": "English (American)"}
"""The names that clients have for English as a target. It is the same English for both."""


class DeepLRequest(BaseRequest):
    """Texts to translate, as DeepL has it."""

    text: Annotated[list[str], Field(min_length=1, max_length=50)]
    target_lang: Annotated[str, Field(max_length=35)]
    source_lang: Annotated[str, Field(max_length=35, description="Default: it is detected.")] = ""
    tag_handling: Annotated[str, Field(description="`html`, or nothing.", max_length=35)] = ""
    split_sentences: Annotated[
        str, Field(description="`0`, `1` or `nonewlines`. Long texts are split in any case.", max_length=35)
    ] = "1"
    formality: Annotated[str, Field(max_length=35)] = "default"
    glossary_id: Annotated[str, Field(description="There are none.", max_length=100)] = ""
    auth_key: Annotated[str, Field(description="If there is no header for it.")] = ""

    @field_validator("text", mode="before")
    @classmethod
    def _listed(cls, text: Any) -> Any:
        return [text] if isinstance(text, str) else text


def check_options(options: dict[str, str]) -> None:
    """Refuse what this server does not do, as DeepL does for languages without it."""
    if options.get("formality", "default") in ("more", "less"):
        raise UserError("formality is not supported for this target_lang")
    for name in ("glossary_id", "glossary_ids", "output_format"):
        if options.get(name):
            raise UserError(f"{name}: not supported by this server")


def own_code(code: str) -> str:
    """DeepL's code of a language as ours: EN-US is en."""
    return code.partition("-")[0].lower()


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {one: {"model": DeepLError, "description": "What is wrong."} for one in statuses}


def _key(http: Request, otherwise: str = "") -> str:
    return http.headers.get("authorization", "").removeprefix("DeepL-Auth-Key ").strip() or otherwise


def add_deepl_texts(app: FastAPI, gateway: TextGateway) -> None:
    """Add DeepL's path for texts."""

    async def translate(http: Request, request: DeepLRequest) -> bytes:
        if request.tag_handling not in ("", "html"):
            raise UserError(f"tag_handling {request.tag_handling}: expected html")
        check_options({"formality": request.formality, "glossary_id": request.glossary_id})
        joined = request.split_sentences == "nonewlines" and not request.tag_handling
        own = OwnRequest(
            q=[text.replace("\n", " ") for text in request.text] if joined else request.text,
            source=own_code(request.source_lang) or AUTO,
            target=own_code(request.target_lang),
            format=request.tag_handling or "text",
            api_key=_key(http, request.auth_key),
        )
        response = json.loads(await gateway.translate(own, address(http)))
        detected = [guess["language"] for guess in response.get("detectedLanguage", ())] or [own.source] * len(own.q)
        translations = [
            {"detected_source_language": language.upper(), "text": text, "billed_characters": len(source)}
            for source, language, text in zip(request.text, detected, response["translatedText"], strict=True)
        ]
        return json.dumps({"translations": translations}, ensure_ascii=False).encode()

    @app.post(
        "/v2/translate",
        response_model=DeepLTranslations,
        openapi_extra=openapi_body(DeepLRequest),
        responses=_errors(400, 403, 408, 413, 429, 503),
    )
    async def deepl_translate(http: Request) -> Response:
        """Translate texts, in DeepL's format."""
        request = await read_body(http, DeepLRequest, gateway)
        return await while_connected(http, translate(http, request), gateway.admission.limits.timeout)


def add_deepl(app: FastAPI, gateway: Gateway) -> None:
    """Add DeepL's other paths."""

    @app.get("/v2/languages", response_model=list[dict[str, Any]], responses=_errors(400))
    async def deepl_languages(
        http: Request, type_: Annotated[str, Query(alias="type", max_length=35)] = ""
    ) -> list[dict[str, Any]]:
        """The source or target languages, in DeepL's format."""
        if not type_ and http.headers.get("content-type", "").startswith(FORMS[0]):  # its Python client has it there
            type_ = (await parse_body(http, LanguagesRequest)).type
        if type_ != "target":
            return [{"language": code.upper(), "name": language_name(code)} for code in gateway.models.sources]
        names: dict[str, str] = {}
        for code in gateway.models.targets:
            names |= _ENGLISH if code == "en" else {code.upper(): language_name(code)}
        return [{"language": code, "name": name, "supports_formality": False} for code, name in names.items()]

    @app.get("/v2/usage", response_model=dict[str, int], responses=_errors(403))
    async def usage(http: Request) -> dict[str, int]:
        """The limit of characters, which is none. Characters are not counted by client."""
        gateway.admission.check_key(_key(http))
        return {"character_count": 0, "character_limit": _UNLIMITED}

    _add_documents(app, gateway)


def _add_documents(app: FastAPI, gateway: Gateway) -> None:
    admission, documents = gateway.admission, gateway.documents

    async def document_key(http: Request) -> str:
        """From the query, or from a body as JSON or a form."""
        if http.method == "GET":
            return http.query_params.get("document_key", "")
        return (await parse_body(http, DocumentKey)).document_key

    @app.post(
        "/v2/document",
        response_model=DeepLDocument,
        openapi_extra=openapi_upload("target_lang", "source_lang", "filename"),
        responses=_errors(400, 403, 408, 413, 429, 503),
    )
    async def upload(http: Request) -> dict[str, str]:
        """Translate a document in the background."""
        with documents.slot(client_at(address(http))):
            async with upload_form(http) as (fields, file):
                client = admission.client(address(http), _key(http, fields.get("auth_key", "")))
                check_options(fields)
                source, target = (own_code(fields.get(name, "")) for name in ("source_lang", "target_lang"))
                name = fields.get("filename") or file.filename or ""
                document = await documents.add(file.file, name, source, target, client)
        documents.start(document)
        return {"document_id": document.id, "document_key": document.key}

    @app.get("/v2/document/{id_}", response_model=DeepLStatus, responses=_errors(400, 403, 404))
    @app.post("/v2/document/{id_}", response_model=DeepLStatus, responses=_errors(400, 403, 404))
    async def document_status(http: Request, id_: str) -> dict[str, Any]:
        """How far a document is, in texts."""
        admission.check_key(_key(http))
        return status(documents.find(id_, await document_key(http)))

    @app.get("/v2/document/{id_}/result", response_class=Response, responses=_errors(400, 403, 404))
    @app.post("/v2/document/{id_}/result", response_class=Response, responses=_errors(400, 403, 404))
    async def document_result(http: Request, id_: str) -> Response:
        """A document that was translated."""
        admission.check_key(_key(http))
        return file_response(documents.find(id_, await document_key(http)))


class LanguagesRequest(BaseRequest):
    """Which languages are asked for."""

    type: str = ""


class DocumentKey(BaseRequest):
    """What shows that a document is one's own."""

    document_key: str = ""
