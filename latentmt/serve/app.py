"""The HTTP interface: paths, errors, OpenAPI and the web page. Responses come from the gateway.

Paths to which texts are sent can be an application of their own, for front processes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

import latentmt
from latentmt.errors import UserError
from latentmt.serve.admission import RefusedError
from latentmt.serve.bodies import openapi_body, read_body
from latentmt.serve.deepl import DeepLRequest, add_deepl, add_deepl_texts
from latentmt.serve.files import add_files
from latentmt.serve.gateway import Gateway, TextGateway
from latentmt.serve.middleware import Middleware, error_response
from latentmt.serve.origins import Origins
from latentmt.serve.schemas import (
    DetectedLanguage,
    DetectRequest,
    ErrorResponse,
    Language,
    ModelResponse,
    TraceRequest,
    TraceResponse,
    TranslateRequest,
    TranslateResponse,
)
from latentmt.serve.waiting import address, while_connected

PAGE = Path(__file__).parent / "page"
_CLIENT_CLOSED_REQUEST = 499
"""The status of a request whose client has disconnected. Only the metrics see it."""
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": description}
    for status, description in {
        400: "The request is invalid.",
        403: "The API key is missing or unknown, or the request comes from a page of another site.",
        408: "The request took too long to arrive.",
        413: "The request is too large.",
        429: "Too many requests. Retry-After says when to try again.",
        503: "The request took too long, or a worker failed. Retry-After says when to try again.",
    }.items()
}


def make_app(gateway: Gateway, origins: Origins, verbose: bool = False) -> FastAPI:
    """The application. `origins`: who may use it from a browser. `verbose`: log stack traces."""
    app = make_text_app(gateway, origins, verbose)
    _add_model(app, gateway)
    add_files(app, gateway)
    add_deepl(app, gateway)
    _add_monitoring(app, gateway)

    app.mount("/page", StaticFiles(directory=PAGE))
    for path, file in (("/", "index.html"), ("/docs", "docs.html")):
        app.add_route(path, _static((PAGE / file).read_text(encoding="utf-8")), include_in_schema=False)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def make_text_app(gateway: TextGateway, origins: Origins, verbose: bool = False) -> FastAPI:
    """The part of the application to which texts are sent."""
    app = FastAPI(
        title="latentmt",
        version=latentmt.__version__,
        summary="Translation by refinement. /translate, /detect and /languages have LibreTranslate's formats.",
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(
        Middleware, admission=gateway.admission, metrics=gateway.metrics, origins=origins, verbose=verbose
    )
    if origins.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["Retry-After"],
        )
    _add_error_handlers(app)
    _add_texts(app, gateway)
    add_deepl_texts(app, gateway)
    return app


def _add_texts(app: FastAPI, gateway: TextGateway) -> None:
    timeout = gateway.admission.limits.timeout

    @app.post(
        "/translate",
        response_model=TranslateResponse,
        openapi_extra=openapi_body(TranslateRequest),
        responses=_ERRORS,
    )
    async def translate(http: Request) -> Response:
        """Translate a text, or several."""
        request = await read_body(http, TranslateRequest, gateway)
        return await while_connected(http, gateway.translate(request, address(http)), timeout)

    @app.post(
        "/trace",
        response_model=TraceResponse,
        openapi_extra=openapi_body(TraceRequest),
        responses=_ERRORS,
    )
    async def trace(http: Request) -> Response:
        """Translate a text, and return every step of its refinement."""
        request = await read_body(http, TraceRequest, gateway)
        return await while_connected(http, gateway.trace(request, address(http)), timeout)

    @app.post(
        "/detect",
        response_model=list[DetectedLanguage],
        openapi_extra=openapi_body(DetectRequest),
        responses=_ERRORS,
    )
    async def detect(http: Request) -> Response:
        """Detect the language of a text. The likeliest comes first."""
        request = await read_body(http, DetectRequest, gateway)
        return await while_connected(http, gateway.detect(request, address(http)), timeout)


def _add_model(app: FastAPI, gateway: Gateway) -> None:
    @app.get("/languages")
    async def languages() -> list[Language]:
        """The languages, and what each can be translated into."""
        return gateway.models.languages()

    @app.get("/model", responses={400: _ERRORS[400]})
    async def model(
        source: Annotated[str, Query(max_length=35)] = "", target: Annotated[str, Query(max_length=35)] = ""
    ) -> ModelResponse:
        """What a model can do, and what this server allows. Of several models, `source` and `target` choose one."""
        return gateway.model(source, target)


def _add_monitoring(app: FastAPI, gateway: Gateway) -> None:
    @app.get("/healthz", response_model=dict[str, str])
    async def health() -> dict[str, str]:
        """Whether the server is alive."""
        return {"status": "ok"}

    @app.get(
        "/readyz", response_model=dict[str, str], responses={503: {"model": ErrorResponse, "description": "Busy."}}
    )
    async def ready() -> Any:
        """Whether a word is translated, as a request would be."""
        return {"status": "ok"} if await gateway.ready() else error_response(503, "busy", {"Retry-After": "1"})

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}, 403: _ERRORS[403]})
    async def metrics(http: Request) -> Response:
        """Counters, for Prometheus. Where keys are required, with one for them: `Authorization: Bearer …`."""
        gateway.admission.check_metrics(http.headers.get("authorization", "").removeprefix("Bearer "))
        return Response(gateway.metrics.text(), media_type="text/plain; version=0.0.4")


def _static(html: str) -> Callable[[Request], Awaitable[Response]]:
    async def respond(_: Request) -> Response:
        return HTMLResponse(html)

    return respond


def _add_error_handlers(app: FastAPI) -> None:
    """Answer every error as {"error": message}."""

    @app.exception_handler(HTTPException)
    async def http_error(http: Request, error: HTTPException) -> Response:
        return error_response(error.status_code, str(error.detail), error.headers, http.url.path)

    @app.exception_handler(UserError)
    async def user_error(http: Request, error: UserError) -> Response:
        return error_response(400, str(error), path=http.url.path)

    @app.exception_handler(RefusedError)
    async def refused(http: Request, error: RefusedError) -> Response:
        return error_response(error.status, str(error), error.headers, http.url.path)

    @app.exception_handler(TimeoutError)
    async def timed_out(http: Request, error: TimeoutError) -> Response:
        return error_response(503, "this took too long", {"Retry-After": "1"}, http.url.path)

    @app.exception_handler(ClientDisconnect)
    async def disconnected(_: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=_CLIENT_CLOSED_REQUEST)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """OpenAPI, with the request schemas. FastAPI does not see them, since bodies may be JSON or forms."""
    if app.openapi_schema is None:
        openapi = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        requests = [(schema, "validation") for schema in (TranslateRequest, TraceRequest, DetectRequest, DeepLRequest)]
        _, schemas = models_json_schema(requests, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
        openapi["components"]["schemas"] |= schemas["$defs"]
        app.openapi_schema = openapi
    return app.openapi_schema
