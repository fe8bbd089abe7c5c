"""Documents as LibreTranslate's clients send and fetch them."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse

from latentmt.documents.formats import FORMATS
from latentmt.serve.admission import RefusedError, client_at
from latentmt.serve.bodies import upload_form
from latentmt.serve.documents import MAX_SECONDS, StoredDocument
from latentmt.serve.gateway import Gateway
from latentmt.serve.languages import language_name
from latentmt.serve.schemas import ErrorResponse, FileResponseBody
from latentmt.serve.waiting import address, while_connected

_FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "The file."}
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a path, for OpenAPI."""
    return {status: {"model": ErrorResponse, "description": "What is wrong."} for status in statuses}


def openapi_upload(*fields: str) -> dict[str, Any]:
    """A body with a file, for OpenAPI."""
    properties = {"file": {"type": "string", "format": "binary"}} | {name: {"type": "string"} for name in fields}
    schema = {"type": "object", "required": ["file"], "properties": properties}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


def file_response(document: StoredDocument) -> Response:
    """A translated document, which a browser saves and never shows."""
    if document.status != "done":
        raise RefusedError(404, "this document is not translated yet")
    headers = {"Content-Security-Policy": "sandbox", "Cache-Control": "no-store"}
    return FileResponse(document.result, media_type=document.media_type, filename=document.result_name, headers=headers)


def add_files(app: FastAPI, gateway: Gateway) -> None:
    """Add LibreTranslate's paths for documents, and its settings."""
    documents = gateway.documents

    @app.post(
        "/translate_file",
        response_model=FileResponseBody,
        openapi_extra=openapi_upload("source", "target", "api_key"),
        responses=errors(400, 403, 408, 413, 429, 503),
    )
    async def translate_file(http: Request) -> Response:
        """Translate a document. The response says where the result is, for some minutes."""
        with documents.slot(client_at(address(http))):
            async with upload_form(http) as (fields, file):
                client = gateway.admission.client(address(http), fields.get("api_key", ""))
                document = await documents.add(
                    file.file, file.filename or "", fields.get("source", ""), fields.get("target", ""), client
                )
            url = http.url_for("download_file", name=document.id + PurePath(document.name).suffix.lower())

            async def work() -> bytes:
                await documents.translate(document)
                return json.dumps({"translatedFileUrl": str(url)}).encode()

            return await while_connected(http, work(), MAX_SECONDS)

    @app.get("/download_file/{name}", response_class=Response, responses={**_FILE, **errors(404)})
    async def download_file(name: str) -> Response:
        """A document that was translated."""
        return file_response(documents.find(name.partition(".")[0]))

    @app.get("/frontend/settings", response_model=dict[str, Any])
    async def settings() -> dict[str, Any]:
        """What LibreTranslate's page asks for, and the bytes that a document may have."""
        source, target = gateway.models.default.pair
        return {
            "apiKeys": gateway.admission.requires_key,
            "charLimit": gateway.admission.limits.max_characters,
            "fileSizeLimit": gateway.admission.limits.max_file_bytes,
            "filesTranslation": True,
            "frontendTimeout": 500,
            "keyRequired": gateway.admission.requires_key,
            "language": {
                "source": {"code": source, "name": language_name(source)},
                "target": {"code": target, "name": language_name(target)},
            },
            "suggestions": False,
            "supportedFilesFormat": list(FORMATS),
        }
