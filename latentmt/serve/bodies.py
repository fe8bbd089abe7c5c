"""How the body of a request is parsed: as JSON or as a form."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import HTTPException, Request
from pydantic import BaseModel, ValidationError
from python_multipart.multipart import parse_options_header

from latentmt.serve.schemas import BaseRequest

R = TypeVar("R", bound=BaseRequest)

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


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
    charset = parse_options_header(request.headers["content-type"])[1].get(b"charset", b"utf-8")
    if charset.lower() not in (b"utf-8", b"utf8", b"us-ascii"):  # or any of Python's codecs would be used
        raise HTTPException(400, "expected a form in UTF-8")
    form = await request.form(max_files=0)
    fields: dict[str, Any] = {}
    for name in form:
        values = form.getlist(name)
        fields[name] = values[0] if len(values) == 1 else values
    return fields


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
