"""How the body of a request is parsed: as JSON or as a form."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import HTTPException, Request
from pydantic import BaseModel, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile

from latentmt.serve.admission import client_at
from latentmt.serve.gateway import TextGateway
from latentmt.serve.schemas import BaseRequest
from latentmt.serve.waiting import address

R = TypeVar("R", bound=BaseRequest)

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


async def read_body(http: Request, schema: type[R], gateway: TextGateway) -> R:
    """The body, if there is room for a request. Dependencies of FastAPI would take as long as all the rest."""
    if not gateway.admission.requires_key:  # else who it is stands in the body
        gateway.broker.check_room(client_at(address(http)))
    return await parse_body(http, schema)


async def parse_body(request: Request, schema: type[R]) -> R:
    """The body of a request, JSON or a form, as this schema has it."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if content_type in FORMS:
            return schema.model_validate(await _form(request))
        if content_type == "application/json" or content_type.endswith("+json"):
            return schema.model_validate_json(await request.body())
    except ValidationError as error:
        raise HTTPException(400, _describe(error)) from None
    raise HTTPException(400, f"expected a body in application/json or {FORMS[0]}")


async def _form(request: Request) -> dict[str, Any]:
    """The fields of a form. Those that occur several times become lists."""
    _check_charset(request)
    form = await request.form(max_files=0)
    fields: dict[str, Any] = {}
    for name in form:
        values = form.getlist(name)
        fields[name] = values[0] if len(values) == 1 else values
    return fields


def _check_charset(request: Request) -> None:
    charset = parse_options_header(request.headers["content-type"])[1].get(b"charset", b"utf-8")
    if charset.lower() not in (b"utf-8", b"utf8", b"us-ascii"):  # or any of Python's codecs would be used
        raise HTTPException(400, "expected a form in UTF-8")


@asynccontextmanager
async def upload_form(request: Request) -> AsyncIterator[tuple[dict[str, str], UploadFile]]:
    """The fields of a form, and the file in it. Larger files are on disk."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORMS[1]:
        raise HTTPException(400, f"expected a form in {FORMS[1]}, with a file")
    _check_charset(request)
    async with request.form(max_files=1, max_fields=32) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile) or not file.filename:
            raise HTTPException(400, "file: field required")
        yield {name: value for name, value in form.items() if isinstance(value, str)}, file


def openapi_body(schema: type[BaseModel]) -> dict[str, Any]:
    """The body for OpenAPI."""
    content = {"schema": {"$ref": f"#/components/schemas/{schema.__name__}"}}
    return {"requestBody": {"required": True, "content": dict.fromkeys(("application/json", *FORMS), content)}}


def _describe(error: ValidationError) -> str:
    """The first error, in one line."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(key) for key in first["loc"])
    message = " ".join(first["msg"].split())
    return f"{where}: {message[0].lower()}{message[1:]}" if where else message
