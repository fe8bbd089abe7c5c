"""The HTTP interface: paths, errors, OpenAPI and the page. Who answers is the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

import latentmt
from latentmt.errors import UserError
from latentmt.serve.batcher import BusyError
from latentmt.serve.guard import Guard
from latentmt.serve.keys import RefusedError
from latentmt.serve.limits import TooMuchError
from latentmt.serve.questions import (
    Detected,
    DetectQuestion,
    Language,
    Model,
    Problem,
    Traced,
    TraceQuestion,
    Translated,
    TranslateQuestion,
    body_of,
    question,
)
from latentmt.serve.service import Service

PAGE = Path(__file__).parent / "page"
_GONE = 499
"""The status of a request whose client has left; nobody sees it."""
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The request cannot be understood or followed."},
    403: {"model": Problem, "description": "The API key is missing or unknown."},
    408: {"model": Problem, "description": "The request took too long to arrive."},
    413: {"model": Problem, "description": "The request is too large."},
    429: {"model": Problem, "description": "Too many requests; Retry-After says when to ask again."},
    503: {"model": Problem, "description": "It took too long."},
}

T = TypeVar("T")


def make_app(service: Service, cors: Sequence[str] = (), verbose: bool = False) -> FastAPI:
    """The application. `cors`: the origins whose pages may ask. `verbose`: log stack traces."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.batcher.close()

    app = FastAPI(
        title="latentmt",
        version=latentmt.__version__,
        summary="Translation by refinement. /translate, /detect and /languages have LibreTranslate's formats.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(Guard, limits=service.limits, metrics=service.metrics, batcher=service.batcher, verbose=verbose)
    if cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["Retry-After"],
        )
    _add_errors(app)
    _add_questions(app, service)
    _add_states(app, service)

    app.mount("/page", StaticFiles(directory=PAGE))
    for path, file in (("/", "index.html"), ("/docs", "docs.html")):
        app.add_route(path, _sends((PAGE / file).read_text(encoding="utf-8")), include_in_schema=False)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _add_questions(app: FastAPI, service: Service) -> None:
    @app.post(
        "/translate", response_model_exclude_none=True, openapi_extra=body_of(TranslateQuestion), responses=_PROBLEMS
    )
    async def translate(
        request: Request, asked: Annotated[TranslateQuestion, Depends(question(TranslateQuestion))]
    ) -> Translated:
        """Translate a text, or several."""
        return await _while_there(request, service.translated(asked), service.limits.seconds)

    @app.post("/trace", openapi_extra=body_of(TraceQuestion), responses=_PROBLEMS)
    async def trace(request: Request, asked: Annotated[TraceQuestion, Depends(question(TraceQuestion))]) -> Traced:
        """Translate a text, and show every step of its refinement."""
        return await _while_there(request, service.traced(asked), service.limits.seconds)

    @app.post("/detect", openapi_extra=body_of(DetectQuestion), responses=_PROBLEMS)
    async def detect(asked: Annotated[DetectQuestion, Depends(question(DetectQuestion))]) -> list[Detected]:
        """Guess the language of a text, likeliest first."""
        return service.detected(asked.q, asked.api_key)

    @app.get("/languages")
    async def languages() -> list[Language]:
        """The languages, and what each can be translated into."""
        return service.languages()

    @app.get("/model")
    async def model() -> Model:
        """What the loaded model can do, and what this server allows."""
        return service.model()


def _add_states(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", response_model=dict[str, str])
    async def health() -> dict[str, str]:
        """Whether the server is alive."""
        return {"status": "ok"}

    @app.get("/readyz", response_model=dict[str, str], responses={503: {"model": Problem, "description": "Not now."}})
    async def ready() -> Any:
        """Whether another request would be accepted."""
        return _problem(503, "busy") if service.batcher.full else {"status": "ok"}

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counters, for Prometheus."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")


def _sends(page: str) -> Callable[[Request], Awaitable[Response]]:
    async def send(_: Request) -> Response:
        return HTMLResponse(page)

    return send


async def _while_there(request: Request, answer: Coroutine[Any, Any, T], seconds: float) -> T:
    """The answer, unless the client leaves or it takes too long; then it is given up, and its place is free."""
    asked = asyncio.ensure_future(answer)
    left = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({asked, left}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            return asked.result()
        raise ClientDisconnect if left.done() else TimeoutError
    finally:
        left.cancel()
        asked.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _add_errors(app: FastAPI) -> None:
    """Every error is {"error": what is wrong}."""

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        return _problem(error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(UserError)
    async def user(_: Request, error: UserError) -> Response:
        return _problem(400, str(error))

    @app.exception_handler(TooMuchError)
    async def too_much(_: Request, error: TooMuchError) -> Response:
        return _problem(413, str(error))

    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> Response:
        if error.seconds is None:
            return _problem(403, str(error))
        return _problem(429, str(error), {"Retry-After": str(error.seconds)})

    @app.exception_handler(BusyError)
    async def busy(_: Request, error: BusyError) -> Response:
        return _problem(429, str(error), {"Retry-After": str(error.seconds)})

    @app.exception_handler(TimeoutError)
    async def late(_: Request, error: TimeoutError) -> Response:
        return _problem(503, "this took too long", {"Retry-After": "1"})

    @app.exception_handler(ClientDisconnect)
    async def gone(_: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=_GONE)


def _problem(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    one_line = " ".join(message.split())  # what was asked may be quoted in it
    return JSONResponse({"error": one_line}, status, headers)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """OpenAPI, with the questions that are read from JSON and forms alike, which FastAPI cannot see."""
    if app.openapi_schema is None:
        tree = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        kinds = [(kind, "validation") for kind in (TranslateQuestion, TraceQuestion, DetectQuestion)]
        _, schemas = models_json_schema(kinds, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
        tree["components"]["schemas"] |= schemas["$defs"]
        app.openapi_schema = tree
    return app.openapi_schema
