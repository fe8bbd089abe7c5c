"""What may be asked and what is answered, as JSON; and how a question is read from JSON or from a form.

The formats of /translate, /detect and /languages are LibreTranslate's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from fastapi import HTTPException, Request
from pydantic import BaseModel, Field, ValidationError, model_validator
from python_multipart.multipart import parse_options_header

from latentmt.options import Method, Rerank

Text = Annotated[str, Field(examples=["Das ist ein Haus."])]
ApiKey = Annotated[str, Field(description="Where the server wants one.")]


class Question(BaseModel):
    """What is asked."""

    @model_validator(mode="before")
    @classmethod
    def _without_blanks(cls, fields: Any) -> Any:
        """LibreTranslate's clients send null or nothing for what they leave out."""
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if name == "q" or value not in (None, "")}


class Choices(Question):
    """How to translate; what is left out is the server's to choose."""

    method: Annotated[Method | None, Field(description="What refines; `/model` says what the model has.")] = None
    steps: Annotated[int | None, Field(ge=0, description="Refinement steps.")] = None
    lengths: Annotated[int | None, Field(ge=1, description="How many of the likeliest lengths are tried.")] = None
    samples: Annotated[int | None, Field(ge=1, description="Latents tried for each length.")] = None
    rerank: Annotated[Rerank | None, Field(description="What chooses between candidates.")] = None

    def given(self) -> dict[str, Any]:
        """The choices that were made."""
        names = Choices.model_fields
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class TranslateQuestion(Choices):
    """Texts to translate."""

    q: Annotated[str | list[str], Field(description="A text, or several.", examples=["Das ist ein Haus."])]
    source: Annotated[str, Field(max_length=35, description="A language's code, or `auto`. Default: the model's.")] = ""
    target: Annotated[str, Field(max_length=35, description="A language's code. Default: the model's.")] = ""
    format: Annotated[str, Field(description="`text` or `html`.", pattern="^(text|html)$")] = "text"
    alternatives: Annotated[int, Field(ge=0, le=10, description="Other translations that are wanted, too.")] = 0
    api_key: ApiKey = ""


class TraceQuestion(Choices):
    """A text whose refinement is to be shown."""

    q: Text
    sentence: Annotated[int | None, Field(ge=0, description="Whose field is wanted, too: a sentence …")] = None
    token: Annotated[int | None, Field(ge=0, description="… and a token of it.")] = None
    api_key: ApiKey = ""


class DetectQuestion(Question):
    """A text in an unknown language."""

    q: Text
    api_key: ApiKey = ""


class Detected(BaseModel):
    """A language a text may be in."""

    confidence: Annotated[float, Field(ge=0, le=100)]
    language: str


class Translated(BaseModel):
    """Translations, each where its text was: one for one text, a list for a list."""

    translatedText: str | list[str]  # noqa: N815 (LibreTranslate's name)
    detectedLanguage: Annotated[  # noqa: N815
        Detected | list[Detected] | None, Field(description="With the source `auto`.")
    ] = None
    alternatives: Annotated[list[str] | list[list[str]] | None, Field(description="Where they were asked for.")] = None


class Language(BaseModel):
    """A language, and those that it can be translated into."""

    code: str
    name: str
    targets: list[str]


class TraceToken(BaseModel):
    """A token after a step."""

    text: Annotated[str, Field(description="With the white space before it.")]
    probability: Annotated[float, Field(ge=0, le=1)]
    changed: Annotated[bool, Field(description="Whether the step changed it.")]
    place: Annotated[tuple[float, float], Field(description="Where its latent lies in the plane.")]


class TraceStep(BaseModel):
    """A sentence after a step; step 0 is before the first."""

    number: int
    text: str
    probability: Annotated[float, Field(ge=0, le=1, description="Of a token, the geometric mean.")]
    milliseconds: float
    tokens: list[TraceToken]


class TraceCandidate(BaseModel):
    """A candidate of a search."""

    text: str
    score: float
    kept: bool


class TraceField(BaseModel):
    """Where a token would be moved from the points of a grid, the other tokens being where they ended up."""

    token: int
    points: list[tuple[float, float]]
    moves: list[tuple[float, float]]


class TraceSentence(BaseModel):
    """A sentence's way from its first latent to its translation."""

    source: str
    translation: str
    dimensions: Annotated[int, Field(description="Of the latent of a token.")]
    seen: Annotated[float, Field(description="The share of all movement that lies in the plane that is drawn.")]
    steps: list[TraceStep]
    candidates: list[TraceCandidate]
    field: TraceField | None = None


class Traced(BaseModel):
    """Every step of every sentence of a text."""

    options: str
    sentences: list[TraceSentence]


class Model(BaseModel):
    """What the loaded model can do, and what the server allows."""

    source: str
    target: str
    methods: list[Method]
    reranks: list[Rerank]
    default: Annotated[str, Field(description="How it translates where nothing is chosen.")]
    method: Method
    dimensions: int | None
    characters: int
    candidates: int
    steps: int
    keys: Annotated[bool, Field(description="Whether an API key is wanted.")]


class Problem(BaseModel):
    """What is wrong."""

    error: str


Q = TypeVar("Q", bound=BaseModel)

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def question(kind: type[Q]) -> Callable[[Request], Awaitable[Q]]:
    """Reads a question of this kind from a request's body."""

    async def read(request: Request) -> Q:
        content = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            if content in FORMS:
                return kind.model_validate(await _form(request))
            if content == "application/json" or content.endswith("+json"):
                return kind.model_validate_json(await request.body())
        except ValidationError as error:
            raise HTTPException(400, _described(error)) from None
        raise HTTPException(400, f"expected a body in application/json or {FORMS[0]}")

    return read


async def _form(request: Request) -> dict[str, Any]:
    """A form's fields, those that are there several times as lists."""
    charset = parse_options_header(request.headers["content-type"])[1].get(b"charset", b"utf-8")
    if charset.lower() not in (b"utf-8", b"utf8", b"us-ascii"):  # or it would be any of Python's, slow and odd ones too
        raise HTTPException(400, "expected a form in UTF-8")
    form = await request.form(max_files=0)
    fields: dict[str, Any] = {}
    for name in form:
        values = form.getlist(name)
        fields[name] = values[0] if len(values) == 1 else values
    return fields


def body_of(kind: type[BaseModel]) -> dict[str, Any]:
    """The same for OpenAPI."""
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {
        "requestBody": {
            "required": True,
            "content": {name: {"schema": schema} for name in ("application/json", *FORMS)},
        }
    }


def _described(error: ValidationError) -> str:
    """The first problem, in one line."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    message = " ".join(problem["msg"].split())
    return f"{where}: {message[0].lower()}{message[1:]}" if where else message
